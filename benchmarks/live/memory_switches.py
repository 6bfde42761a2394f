"""Switches in memory that carry out every command at once and compute plans, and the messages of a fabric of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from controller.core.messages import Command, Message
from controller.fabric.messages import LinkSeen, SwitchConnected
from controller.fabric.parts import Declared
from controller.fabric.topology import Fabric, PortRef
from controller.fabric.topology_state import DeclaredHost
from controller.planning.answers import Answers
from controller.planning.messages import SolvePlan
from controller.tables.messages import InstallStage, ReadRules, StageDone, SwitchResult, SwitchRules
from controller.tables.rules import RuleSet

LINK_BPS = 100e9


class Switches:
    """Switches in memory that carry out every command at once; they also compute plans."""

    def __init__(self, fabric: Fabric) -> None:
        self.fabric = fabric
        self.planning = Answers()

    def answers(self, commands: Iterable[Command]) -> Iterator[Message]:
        for command in commands:
            match command:
                case ReadRules(dpid):
                    yield SwitchRules(dpid, RuleSet(), 0)
                case InstallStage(change_id, stage):
                    yield StageDone(change_id, dict.fromkeys(stage.mods, SwitchResult()))
                case SolvePlan():
                    repaired, problem = self.planning.repair(command)
                    if repaired:
                        yield repaired
                    limits = replace(command.limits, ecmp_draws=0)
                    yield self.planning.plan(replace(command, limits=limits), problem)


def declared_hosts(fabric: Fabric) -> Declared:
    """Return all hosts, as declared in an inventory."""
    hosts = (
        DeclaredHost(h.ip, f"02:00:00:00:{n >> 8:02x}:{n & 255:02x}", fabric.name(h.at.dpid), _port_name(fabric, h.at))
        for n, h in enumerate(fabric.hosts.values())
    )
    return Declared(tuple(hosts))


def connections(fabric: Fabric) -> list[Message]:
    """Return the messages with which all switches connect and probes pass over all links."""
    connected = [SwitchConnected(s.dpid, s.name, tuple(s.ports.values())) for s in fabric.switches.values()]
    return [*connected, *(LinkSeen(link.src, link.dst) for link in fabric.links.values())]


def _port_name(fabric: Fabric, at: PortRef) -> str:
    return fabric.switches[at.dpid].ports[at.port].name
