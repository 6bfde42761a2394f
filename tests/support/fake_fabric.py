"""A fabric of fake switches that hold rules and forward packets, driven by a real control loop.

Messages and commands pass synchronously, and time is a number, so a test takes milliseconds."""

import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from controller.alarms import AlarmKey
from controller.config import Config
from controller.control_loop import ControlLoop
from controller.core.messages import Command, Message, Reply, Tick
from controller.fabric.messages import (
    ArpSeen,
    LinkSeen,
    PortChanged,
    SendArpReply,
    SendArpRequest,
    SwitchConnected,
    SwitchLeft,
)
from controller.fabric.parts import Declared
from controller.fabric.topology import Dpid, PortNo, PortRef
from controller.jobs.messages import (
    DeregisterJob,
    RegisterJob,
    RenewLease,
    ReportConnections,
    ReportIterations,
    SavedState,
    SaveState,
    StateNotSaved,
    StateSaved,
    UpdateJob,
    UpdateJobs,
)
from controller.planning.messages import SolvePlan, WorkOutSlowdowns
from controller.planning.problem import FlowId
from controller.status import JobStatus, Status
from controller.tables.flow_tables import LEARNING_PRIORITY, pin_key
from controller.tables.messages import (
    Counters,
    InstallStage,
    PortCount,
    ReadRules,
    RuleCount,
    StageDone,
    SwitchResult,
    SwitchRules,
)
from controller.tables.rules import FlowKey, RuleMod, Stage, Table
from offline.scenarios.topologies import EMULATED, Topology, leaf_spine
from signalbox.jobs.spec import JobId, JobSpec
from tests.support.fake_planner import FakePlanner
from tests.support.fake_switch import FakeSwitch, Packet
from tests.support.job_specs import job_spec, sends

FABRIC_BPS = 5e6


UPLINKS_FIRST = EMULATED._replace(hosts_first=False)


class FakeFabric:
    """Fabric of ``leaves`` x ``spines`` with ``hosts_per_leaf``, or any other ``topology``.

    Switches are numbered as in the lab, but the uplinks of a leaf are on its first ports."""

    def __init__(
        self, leaves: int = 4, spines: int = 4, hosts_per_leaf: int = 3, topology: Topology | None = None
    ) -> None:
        self.now = 1000.0
        topology = topology or leaf_spine(leaves, spines, hosts_per_leaf, FABRIC_BPS, FABRIC_BPS, scheme=UPLINKS_FIRST)
        dpids = {switch.name: Dpid(switch.dpid) for switch in topology.switches}
        self.hosts = {host.ip: PortRef(dpids[host.leaf], PortNo(host.port)) for host in topology.hosts}
        peers: dict[Dpid, dict[PortNo, PortRef | None]] = {dpid: {} for dpid in dpids.values()}
        for at in self.hosts.values():
            peers[at.dpid][at.port] = None
        for cable in topology.cables:
            a, b = PortRef(dpids[cable.a], PortNo(cable.a_port)), PortRef(dpids[cable.b], PortNo(cable.b_port))
            peers[a.dpid][a.port], peers[b.dpid][b.port] = b, a
        self.switches = {
            dpid: FakeSwitch(dpid, name, dict(sorted(peers[dpid].items())), dict.fromkeys(sorted(peers[dpid]), True))
            for name, dpid in dpids.items()
        }
        self.saved = SavedState()
        self.planner = FakePlanner()
        self.commits = 0
        self.disk_error = ""
        self.declared = Declared()
        self.alarms_before: dict[AlarmKey, float] = {}
        self.replies: list[Reply] = []
        self.arp_replies: list[SendArpReply] = []
        self.stages: list[InstallStage] = []
        self.after_each_mod: Callable[[], object] = lambda: None
        self.order: random.Random | None = None
        self.silent_hosts: set[str] = set()

    # ---- life of the controller

    def start(self, config: Config | None = None, late: Iterable[Dpid] = ()) -> None:
        """Start a new controller, which reads everything from the switches and the saved state.

        Switches that are ``late`` do not connect yet."""
        self.loop = ControlLoop(config or Config(), self.saved, self.declared, self.now, self.alarms_before)
        self._connected: set[Dpid] = set()
        self.connect(*(dpid for dpid in self.switches if dpid not in set(late)))

    def connect(self, *dpids: Dpid) -> None:
        """Connect the switches, then let probes pass between all connected switches."""
        self._connected |= set(dpids)
        for dpid in dpids:
            self.send(SwitchConnected(dpid, self.switches[dpid].name, self.switches[dpid].ports()))
        for dpid in self._connected:
            self.probe(self.switches[dpid])

    def probe(self, switch: FakeSwitch) -> None:
        for port, peer in switch.peers.items():
            if peer and switch.up[port] and peer.dpid in self._connected and self.switches[peer.dpid].up[peer.port]:
                self.send(LinkSeen(PortRef(switch.dpid, port), peer))

    def run(self, seconds: float, step: float = 0.1) -> None:
        for _ in range(round(seconds / step)):
            self.now += step
            self.send(Tick())

    def send(self, message: Message | UpdateJob) -> None:
        """Pass a message to the controller, and carry out everything that follows from it.

        When a request names no owner, the owner of its job is filled in. A single update is sent as a set of one."""
        inbox = deque([self._from_owner(message)])
        while inbox:
            for command in self.loop.handle([inbox.popleft()], self.now):
                inbox.extend(self._carry_out(command))

    def request(self, message: Any) -> Any:
        """Send a request, and return the value of its reply, or None when there is no reply yet."""
        self.send(message)
        return self.reply_to(message.reply)

    def reply_to(self, future: Future[Any]) -> Any:
        return next((reply.value for reply in self.replies if reply.future is future), None)

    def new_replies(self) -> list[Any]:
        values = [reply.value for reply in self.replies]
        self.replies.clear()
        return values

    def _from_owner(self, message: Message | UpdateJob) -> Message:
        jobs = self.loop.state.jobs.jobs
        if isinstance(message, UpdateJob):
            message = UpdateJobs((message,))
        match message:
            case UpdateJobs(updates):
                owners = [job.uid if (job := jobs.get(update.job_id)) else None for update in updates]
                owned = zip(updates, owners, strict=True)
                return replace(
                    message, updates=tuple(replace(update, owner=update.owner or owner) for update, owner in owned)
                )
            case RegisterJob(owner=None, spec=spec):
                job = jobs.get(JobId(spec.job_id))
            case (
                DeregisterJob(owner=None, job_id=job_id)
                | RenewLease(owner=None, job_id=job_id)
                | ReportIterations(owner=None, job_id=job_id)
                | ReportConnections(owner=None, job_id=job_id)
            ):
                job = jobs.get(job_id)
            case _:
                return message
        return replace(message, owner=job.uid) if job else message

    def _carry_out(self, command: Command) -> list[Message]:
        match command:
            case ReadRules(dpid):
                return [SwitchRules(dpid, self.switches[dpid].rules(), 0)]
            case InstallStage():
                return [self._install(command)]
            case SolvePlan() | WorkOutSlowdowns():
                return self.planner.answers(command)
            case SendArpRequest(ip, ports):
                asked = self.hosts.get(ip) in ports and ip not in self.silent_hosts
                return [ArpSeen(self.hosts[ip], "reply", ip, self.mac(ip), "0.0.0.0")] if asked else []
            case SendArpReply():
                self.arp_replies.append(command)
                assert self.trace(command.asker_ip, command.ip), "told of a host that packets do not reach yet"
                assert self.trace(command.ip, command.asker_ip), "nor its answers come back"
            case SaveState(state):
                if self.disk_error:
                    return [StateNotSaved(self.disk_error)]
                self.saved = state
                self.commits += 1
                return [StateSaved(self.commits)]
            case Reply():
                self.replies.append(command)
        return []

    def _install(self, command: InstallStage) -> StageDone:
        self.stages.append(command)
        rejected: dict[Dpid, list[tuple[RuleMod, str]]] = {dpid: [] for dpid in command.stage.mods}
        for dpid, mod in ordered(command.stage, self.order):
            reason = self.switches[dpid].apply(mod)
            if reason:
                rejected[dpid].append((mod, reason))
            self.after_each_mod()
        return StageDone(command.change_id, {dpid: SwitchResult(tuple(mods)) for dpid, mods in rejected.items()})

    # ---- events in the network

    def mac(self, ip: str) -> str:
        return "02:00:" + ":".join(f"{int(part):02x}" for part in ip.split("."))

    def cut(self, a: Dpid, port: PortNo) -> None:
        self._set_carrier(a, port, up=False)

    def plug(self, a: Dpid, port: PortNo) -> None:
        self._set_carrier(a, port, up=True)
        peer = self.switches[a].peers[port]
        if peer:
            self.send(LinkSeen(PortRef(a, port), peer))
            self.send(LinkSeen(peer, PortRef(a, port)))

    def _set_carrier(self, a: Dpid, port: PortNo, up: bool) -> None:
        peer = self.switches[a].peers[port]
        ends = (PortRef(a, port), peer) if peer else (PortRef(a, port),)
        for end in ends:
            self.switches[end.dpid].set_up(end.port, up)
        for end in ends:
            switch = self.switches[end.dpid]
            self.send(PortChanged(end.dpid, next(p for p in switch.ports() if p.number == end.port)))

    def lose(self, dpid: Dpid) -> None:
        self.send(SwitchLeft(dpid))

    def count(self, ports: dict[PortRef, int], flows: dict[tuple[str, str], int]) -> None:
        """Send the counters of every switch.

        ``ports``: cumulative bytes sent by ports. ``flows``: bytes of pinned-table rules by (src, dst)."""
        self.count_rules(ports, {pin_key(FlowId(*pair)): total for pair, total in flows.items()})

    def count_rules(
        self,
        ports: Mapping[PortRef, int],
        rules: Mapping[FlowKey, int],
        received: Mapping[PortRef, int] = MappingProxyType({}),
        of: Iterable[Dpid] | None = None,
    ) -> None:
        """Send the counters of every switch, or of the switches in ``of``.

        ``ports``, ``received``: cumulative bytes sent and received by ports.
        ``rules``: cumulative bytes of pinned-table rules, counted in full packets."""
        for dpid in self.switches if of is None else of:
            switch = self.switches[dpid]
            at = {port: PortRef(dpid, port) for port in switch.peers}
            counts = {port: PortCount(ports.get(ref, 0), received.get(ref, 0)) for port, ref in at.items()}
            pinned = [key for key in switch.flows if key.table == Table.PINNED and key.match.ip_src]
            self.send(Counters(dpid, self.now, counts, {key: packets_of(rules.get(key, 0)) for key in pinned}))

    # ---- observations

    @property
    def status(self) -> Status:
        return self.loop.status(self.now)

    def job(self, job_id: str = "job") -> JobStatus:
        return self.status.jobs[JobId(job_id)]

    def learning_rules(self) -> int:
        return sum(key.priority == LEARNING_PRIORITY for switch in self.switches.values() for key in switch.flows)

    def trace(self, src: str, dst: str, entropy: int = 0, arp: bool = False) -> list[str] | None:
        """Return the switches that a packet (IP, or a broadcast ARP request) passes, or None when it is lost."""
        return self.follow(Packet(src, dst, entropy, arp))

    def follow(self, packet: Packet, to: str | None = None) -> list[str] | None:
        """Return the switches that a packet passes, or None when it does not arrive.

        The list is empty between two addresses at one port. ``to``: address of the receiving host, when it is not the
        packet's destination."""
        end = self.hosts[to or packet.dst]
        if self.hosts[packet.src] == end:
            return []
        at: PortRef | None = self.hosts[packet.src]
        names, seen = [], set()
        while at is not None:
            switch = self.switches[at.dpid]
            names.append(switch.name)
            assert at not in seen, f"loop: {names}"
            seen.add(at)
            port = switch.forward(at.port, packet)
            if port is None:
                return None
            if PortRef(switch.dpid, port) == end:
                return names
            at = switch.peers[port]
        return None

    @property
    def mods(self) -> list[RuleMod]:
        return [mod for switch in self.switches.values() for mod in switch.mods]

    @property
    def route_mods(self) -> list[RuleMod]:
        """Rule changes in ``mods`` without learning rules, which only count the traffic of a pair."""
        return [mod for switch in self.switches.values() for mod in switch.route_mods]

    def forget_mods(self) -> None:
        for switch in self.switches.values():
            switch.mods.clear()


def packets_of(total: int) -> RuleCount:
    """Return the count of ``total`` bytes in packets of 1,514 bytes."""
    return RuleCount(total, -(-total // 1514))


def ordered(stage: Stage, order: random.Random | None = None) -> Iterator[tuple[Dpid, RuleMod]]:
    """Yield the rule changes of a stage; the changes of each switch keep their order.

    Without ``order`` one switch follows another; otherwise the changes of different switches are mixed at random."""
    waiting = {dpid: deque(mods) for dpid, mods in stage.mods.items() if mods}
    while waiting:
        dpid = order.choice(sorted(waiting)) if order else next(iter(waiting))
        yield dpid, waiting[dpid].popleft()
        if not waiting[dpid]:
            del waiting[dpid]


def ring_job(job_id: str, ips: list[str], lease_s: float = 60.0, **more: Any) -> JobSpec:
    return job_spec(job_id, ips, sends("ring_all_reduce", 1_000_000), lease_s=lease_s, **more)
