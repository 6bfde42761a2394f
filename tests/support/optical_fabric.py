"""Servers connected to optical switches, all of them fake switches, driven by a real control loop.

Probes find the circuits: a packet that leaves through a server's interface follows the rule of the optical switch."""

import pickle
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from itertools import permutations
from typing import Any

from controller.circuits.extension import CircuitExtension
from controller.circuits.job_wiring import JobWiring, wiring_of
from controller.circuits.optical_switches import OpticalStatus
from controller.circuits.questions import FindWiring, FoundWiring, MendedWiring, MendWiring, answer
from controller.config import CircuitsConfig, Config, DiscoveryConfig, FabricConfig, OpticalSwitch
from controller.core.messages import Command, Message, WorkedOut, WorkOut
from controller.fabric.messages import LinkSeen, ProbeAnew, SwitchConnected
from controller.fabric.topology import Dpid, PortNo, PortRef
from controller.jobs.job import Job
from controller.jobs.messages import RegisterJob
from controller.status import JobStatus
from offline.scenarios.topologies import optical
from signalbox.errors import SignalboxError
from signalbox.jobs.spec import JobId, JobSpec
from tests.support.fake_fabric import FABRIC_BPS, FakeFabric
from tests.support.fake_switch import FakeSwitch, Packet
from tests.support.job_specs import job_spec, sends

FIRST_OPTICAL = 0x101


def config(servers: int, interfaces: int, **more: Any) -> Config:
    switches = tuple(
        OpticalSwitch(dpid=FIRST_OPTICAL + k, fibres=tuple(f"{server:#x}:{2 + k}" for server in range(1, servers + 1)))
        for k in range(interfaces)
    )
    return Config(
        fabric=FabricConfig(link_bps=FABRIC_BPS, host_link_bps=interfaces * FABRIC_BPS),
        discovery=DiscoveryConfig(edge_after_s=1.0),
        circuits=CircuitsConfig(switch=switches),
        **more,
    )


class OpticalFabric(FakeFabric):
    """Fabric of servers and optical switches, numbered as in the lab.

    ``wirings_wait``: whether wiring requests wait in ``asked`` until the test answers them.
    ``lost_probes``: interfaces whose probes do not arrive."""

    def __init__(self, servers: int, interfaces: int) -> None:
        super().__init__(topology=optical(servers, interfaces, FABRIC_BPS))
        self.sizes = servers, interfaces
        self.asked: list[FindWiring | MendWiring] = []
        self.wirings_wait = False
        self.lost_probes: set[PortRef] = set()

    def start(self, settings: Config | None = None, late: Any = ()) -> None:
        super().start(settings or config(*self.sizes), late)

    def register(self, job_id: str, servers: list[int], all_to_all: int = 0, run_s: float = 2.0, **more: Any) -> None:
        """Register an all-reduce over these servers, and let time pass until it usually has its circuits."""
        self.send(RegisterJob(all_reduce(job_id, servers, all_to_all, **more)))
        self.run(run_s)

    def job(self, job_id: str = "one") -> JobStatus:
        return self.status.jobs[JobId(job_id)]

    def probe_all(self) -> None:
        for switch in self.switches.values():
            self.probe(switch)

    def probe(self, switch: FakeSwitch) -> None:
        for port in switch.peers if switch.dpid < FIRST_OPTICAL else ():
            for seen in self._seen_from(PortRef(switch.dpid, port)):
                self.send(seen)

    def _seen_from(self, at: PortRef) -> list[Message]:
        dst = self.arrives(at)
        arrives = dst is not None and at not in self.lost_probes and {at.dpid, dst.dpid} <= self._connected
        return [LinkSeen(at, dst)] if dst and arrives else []

    def arrives(self, at: PortRef) -> PortRef | None:
        """Return the port at which packets from the interface ``at`` arrive, or None."""
        fibre = self.switches[at.dpid].peers[at.port]
        if fibre is None or not self.switches[at.dpid].up[at.port] or not self.switches[fibre.dpid].up[fibre.port]:
            return None
        out = self.switches[fibre.dpid].forward(fibre.port, Packet("0.0.0.0", "0.0.0.0"))
        dst = self.switches[fibre.dpid].peers[out] if out is not None else None
        return dst if dst and self.switches[dst.dpid].up[dst.port] else None

    @property
    def circuits(self) -> dict[tuple[int, int], tuple[int, int]]:
        """Circuits that exist: sending server and port, receiving server and port."""
        found = {}
        for switch in self.switches.values():
            for port in switch.peers if switch.dpid < FIRST_OPTICAL else ():
                if dst := self.arrives(PortRef(switch.dpid, port)):
                    found[int(switch.dpid), int(port)] = (int(dst.dpid), int(dst.port))
        return found

    @property
    def extension(self) -> CircuitExtension:
        assert isinstance(self.loop.extension, CircuitExtension)
        return self.loop.extension

    @property
    def published_optical(self) -> Mapping[Dpid, OpticalStatus]:
        found = {dpid: each for dpid, each in self.status.extension.switches.items() if isinstance(each, OpticalStatus)}
        assert found.keys() == self.status.extension.switches.keys()
        return found

    def set_carrier(self, server: int, port: int, up: bool) -> None:
        """Bring a pair of fibres, given by its end at the server, up or down."""
        self._set_carrier(Dpid(server), PortNo(port), up)

    def _carry_out(self, command: Command) -> list[Message]:
        match command:
            case ProbeAnew(ports):
                return [seen for at in sorted(ports) for seen in self._seen_from(at)]
            case WorkOut(question):
                self.asked.append(question)
                return [] if self.wirings_wait else [answered(question)]
        return super()._carry_out(command)

    def reconnect(self, dpid: int) -> None:
        switch = self.switches[Dpid(dpid)]
        self.send(SwitchConnected(switch.dpid, switch.name, switch.ports()))


def started(servers: int, interfaces: int, settings: Config | None = None) -> OpticalFabric:
    fabric = OpticalFabric(servers, interfaces)
    fabric.start(settings)
    fabric.run(3)
    return fabric


def with_job(servers: int, interfaces: int, all_to_all: int = 0, **more: Any) -> OpticalFabric:
    fabric = started(servers, interfaces)
    fabric.register("one", [*range(1, servers + 1)], all_to_all, **more)
    return fabric


def reach(fabric: OpticalFabric, servers: list[int]) -> bool:
    pairs = permutations([f"10.0.{n}.1" for n in servers], 2)
    return all(fabric.trace(src, dst, entropy) for src, dst in pairs for entropy in range(3))


def wired(job: Job | JobStatus) -> JobWiring:
    wiring = wiring_of(job.registration)
    assert wiring
    return wiring


def ref(dpid: int, port: int) -> PortRef:
    return PortRef(Dpid(dpid), PortNo(port))


def answered(asked: FindWiring | MendWiring) -> WorkedOut:
    try:
        return WorkedOut(asked, _answer(pickle.dumps(replace(asked, uid=""))))
    except SignalboxError as error:
        return WorkedOut(asked, str(error))


@cache
def _answer(pickled: bytes) -> FoundWiring | MendedWiring:
    """Return the answer to a pickled question. Answers are cached, because many tests ask the same questions."""
    return answer(pickle.loads(pickled))


def all_reduce(job_id: str, servers: list[int], all_to_all: int = 0, **more: Any) -> JobSpec:
    """Return an all-reduce over these servers, with an all-to-all of ``all_to_all`` bytes if that is above 0."""
    collectives = [sends("all_reduce", 1_000_000, phase=1)]
    if all_to_all:
        collectives.append(sends("all_to_all", all_to_all))
    return job_spec(job_id, [f"10.0.{n}.1" for n in servers], *collectives, **more)
