"""A switch that invents switches, names or hosts harms no other switch."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

from controller.core.messages import Command, Message
from controller.core.phases import MOST_PATIENCES
from controller.fabric.messages import SwitchConnected
from controller.fabric.parts import Declared
from controller.fabric.topology import Dpid, Port, PortNo
from controller.fabric.topology_state import MAX_HOSTS_PER_PORT, DeclaredHost
from controller.jobs.messages import RegisterJob
from controller.tables.messages import InstallStage, ReadRules, SwitchRules
from controller.tables.rules import (
    ETH_IPV4,
    FlowKey,
    FlowRule,
    Match,
    Output,
    RuleSet,
    Table,
    cookie,
    host_prefix,
)
from signalbox.jobs.spec import JobId
from tests.support.fake_fabric import FakeFabric, ring_job

STRANGER = Dpid(0xBAD)
PATIENCE_S = 15.0


class WithStrangers(FakeFabric):
    """Fabric to which foreign switches connect with false claims.

    ``held``: rules that these switches claim to hold; None when they do not answer."""

    held: RuleSet | None = None

    def stranger(self, number: int, name: str, ports: tuple[Port, ...]) -> None:
        self.send(SwitchConnected(Dpid(STRANGER + number), name, ports))

    def _carry_out(self, command: Command) -> list[Message]:
        if isinstance(command, ReadRules) and command.dpid not in self.switches:
            return [] if self.held is None else [SwitchRules(command.dpid, self.held, 0)]
        if isinstance(command, InstallStage):
            stage = command.stage.only(lambda dpid, _: dpid in self.switches)
            return super()._carry_out(replace(command, stage=stage))
        return super()._carry_out(command)


def ports(number: int) -> tuple[Port, ...]:
    return tuple(Port(PortNo(n), f"eth{n}", "02:00:00:00:00:01", True, 1e9) for n in range(1, number + 1))


def test_ever_new_switches_keep_a_started_controller_from_planning_only_so_long() -> None:
    fabric = WithStrangers()
    fabric.start()
    fabric.send(RegisterJob(ring_job("job", list(fabric.hosts)[:4], 600)))
    for number in range(2 * MOST_PATIENCES):
        fabric.stranger(number, "stranger", ports(2))
        fabric.run(PATIENCE_S - 1, step=1)
    assert fabric.status.jobs[JobId("job")].state == "pinned"


def test_a_switch_that_takes_the_name_of_another_takes_none_of_its_declared_hosts() -> None:
    fabric = WithStrangers()
    ip, at = next(iter(fabric.hosts.items()))
    leaf = fabric.switches[at.dpid]
    port = next(port for port in leaf.ports() if port.number == at.port)
    fabric.declared = Declared((DeclaredHost(ip, None, leaf.name, port.name),))
    fabric.start()
    fabric.stranger(0, leaf.name, tuple(leaf.ports()))
    assert fabric.loop.fabric.hosts[ip].at == at


def test_a_switch_that_claims_hosts_by_its_rules_gets_as_many_as_by_packets() -> None:
    fabric = WithStrangers()
    fabric.start()
    addresses = (f"10.66.{n // 256}.{n % 256}" for n in range(1000))
    fabric.held = RuleSet.of(
        FlowRule(
            FlowKey(Table.DEFAULT, 132, Match(eth_type=ETH_IPV4, ip_dst=host_prefix(ip))),
            cookie(Table.DEFAULT),
            (Output(PortNo(1)),),
        )
        for ip in islice(addresses, 3 * MAX_HOSTS_PER_PORT)
    )
    fabric.stranger(0, "stranger", ports(2))
    invented = [ip for ip in fabric.loop.fabric.hosts if ip.startswith("10.66.")]
    assert len(invented) == MAX_HOSTS_PER_PORT
