"""A leaf-spine fabric of fake switches that hold rules and forward packets, driven by a real control loop.

Milliseconds instead of Open vSwitch: messages and commands pass synchronously, time is a number. The switches check
what OVS checks (and some of what it does not: a rule that names a missing group is refused).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from controller.config import Config
from controller.control_loop import ControlLoop
from controller.fabric.topology import Dpid, Port, PortNo, PortRef
from controller.fabric.topology_update import DeclaredHost
from controller.jobs.spec import JobSpec
from controller.messages import (
    ArpSeen,
    Command,
    Counters,
    InstallStage,
    LinkSeen,
    Message,
    Planned,
    PortChanged,
    PortCount,
    ReadRules,
    Reply,
    SavedState,
    SaveState,
    SendArpReply,
    SendArpRequest,
    SolvePlan,
    StageDone,
    SwitchConnected,
    SwitchLeft,
    SwitchResult,
    SwitchRules,
    Tick,
)
from controller.planning.first_aid import repair_first
from controller.planning.planner import plan
from controller.planning.problem import FlowId
from controller.tables.pinned_table import pin_key
from controller.tables.rules import (
    BROADCAST_MAC,
    ETH_ARP,
    ETH_IPV4,
    IP_TCP,
    Bucket,
    FlowKey,
    FlowRule,
    GroupRule,
    Match,
    MeterRule,
    Output,
    Prefix,
    Rule,
    RuleMod,
    RuleSet,
    Table,
    ToController,
    ToGroup,
)

FABRIC_BPS = 5e6


@dataclass(frozen=True)
class Packet:
    """An IP packet, or a broadcast ARP request for ``dst``. ``entropy``: what a select group hashes it to."""

    src: str
    dst: str
    entropy: int = 0
    arp: bool = False
    protocol: int = IP_TCP
    src_port: int = 0
    dst_port: int = 0


@dataclass
class FakeSwitch:
    """Rules, ports and the cables at them (``peer`` None: a host)."""

    dpid: Dpid
    name: str
    peers: dict[PortNo, PortRef | None]
    up: dict[PortNo, bool]
    flows: dict[FlowKey, FlowRule] = field(default_factory=dict)
    groups: dict[int, GroupRule] = field(default_factory=dict)
    meters: dict[int, MeterRule] = field(default_factory=dict)
    mods: list[RuleMod] = field(default_factory=list)
    refuses: set[FlowKey] = field(default_factory=set)

    def ports(self) -> tuple[Port, ...]:
        return tuple(Port(n, f"{self.name}-eth{n}", f"02:00:00:00:00:{n:02x}", self.up[n], 10e9) for n in self.peers)

    def apply(self, mod: RuleMod) -> str | None:
        """The reason of a refusal."""
        self.mods.append(mod)
        rule = mod.rule
        if isinstance(rule, FlowRule):
            if rule.key in self.refuses:
                return "table full"
            missing = [a.group_id for a in rule.actions if isinstance(a, ToGroup) and a.group_id not in self.groups]
            if missing and mod.op != "delete":
                return f"no group {missing[0]}"
            self._put(self.flows, rule.key, rule, mod.op)
        elif isinstance(rule, GroupRule):
            named = {b.action.group_id for b in rule.buckets if isinstance(b.action, ToGroup)}
            if mod.op != "delete" and not named <= self.groups.keys():
                return "no such group in a bucket"
            if mod.op == "delete" and rule.group_id in self._used_groups():
                return "group in use"
            self._put(self.groups, rule.group_id, rule, mod.op)
        else:
            self._put(self.meters, rule.meter_id, rule, mod.op)
        return None

    def _used_groups(self) -> set[int]:
        in_flows = {a.group_id for f in self.flows.values() for a in f.actions if isinstance(a, ToGroup)}
        in_groups = {
            b.action.group_id for g in self.groups.values() for b in g.buckets if isinstance(b.action, ToGroup)
        }
        return in_flows | in_groups

    @staticmethod
    def _put(held: dict[Any, Any], key: object, rule: Rule, op: str) -> None:
        if op == "delete":
            held.pop(key, None)
        elif op == "modify" and isinstance(rule, FlowRule):
            held[key] = replace(rule, cookie=held[key].cookie)
        elif (key in held) == (op == "modify") or isinstance(rule, FlowRule):
            held[key] = rule
        else:
            raise AssertionError(f"{op} of {key}, which is {'' if key in held else 'not '}there")

    def rules(self) -> RuleSet:
        return RuleSet(dict(self.flows), dict(self.groups), dict(self.meters))

    def forward(self, in_port: PortNo, packet: Packet) -> PortNo | None:
        """The port a packet leaves through; None when it is dropped."""
        table: Table | None = Table.CONTROL
        while table is not None:
            hits = [f for f in self.flows.values() if f.key.table == table and _matches(f.key.match, in_port, packet)]
            if not hits:
                return None
            top = max(f.key.priority for f in hits)
            rule, *others = (f for f in hits if f.key.priority == top)
            assert not others, f"two rules of one priority: {rule.key} and {others[0].key}"
            for action in rule.actions:
                if not isinstance(action, ToController):
                    return self._out(action, packet.entropy)
            table = rule.goto
        return None

    def _out(self, action: object, entropy: int) -> PortNo | None:
        if isinstance(action, Output):
            return action.port if self.up.get(action.port) else None
        assert isinstance(action, ToGroup)
        group = self.groups[action.group_id]
        live = [bucket for bucket in group.buckets if self._live(bucket)]
        if not live:
            return None
        return self._out(live[0 if group.kind == "fast_failover" else entropy % len(live)].action, entropy)

    def _live(self, bucket: Bucket) -> bool:
        if bucket.watch_port is not None:
            return self.up.get(bucket.watch_port, False)
        if bucket.watch_group is not None:
            return any(self._live(b) for b in self.groups[bucket.watch_group].buckets)
        return True


def _matches(match: Match, in_port: PortNo, packet: Packet) -> bool:
    if match.in_port not in (None, in_port) or match.eth_dst not in (None, BROADCAST_MAC if packet.arp else "a host's"):
        return False
    if match.eth_type not in (None, ETH_ARP if packet.arp else ETH_IPV4):
        return False
    if packet.arp:
        return _covers(match.arp_tpa, packet.dst)
    if match.ip_proto not in (None, packet.protocol):
        return False
    ports = ((match.src_port, packet.src_port), (match.dst_port, packet.dst_port))
    if not all(wanted is None or wanted.holds(port) for wanted, port in ports):
        return False
    return _covers(match.ipv4_src, packet.src) and _covers(match.ipv4_dst, packet.dst)


def _covers(prefix: Prefix | None, address: str) -> bool:
    if prefix is None:
        return True
    shift = 32 - prefix.length
    return _number(prefix.address) >> shift == _number(address) >> shift


def _number(address: str) -> int:
    return int.from_bytes(bytes(map(int, address.split("."))), "big")


class FakeFabric:
    """``leaves`` x ``spines`` with ``hosts_per_leaf``. Leaf i: dpid i, uplinks on ports 1.., hosts after them; spine j
    has dpid 256 + j and leaf i on port i. Host k of leaf i is 10.0.i.k."""

    def __init__(self, leaves: int = 4, spines: int = 4, hosts_per_leaf: int = 3) -> None:
        self.now = 1000.0
        self.switches: dict[Dpid, FakeSwitch] = {}
        self.hosts: dict[str, PortRef] = {}
        for i in range(1, leaves + 1):
            peers: dict[PortNo, PortRef | None] = {
                PortNo(j): PortRef(Dpid(256 + j), PortNo(i)) for j in range(1, spines + 1)
            }
            for k in range(1, hosts_per_leaf + 1):
                peers[PortNo(spines + k)] = None
                self.hosts[f"10.0.{i}.{k}"] = PortRef(Dpid(i), PortNo(spines + k))
            self._add(Dpid(i), f"leaf{i}", peers)
        for j in range(1, spines + 1):
            self._add(
                Dpid(256 + j), f"spine{j}", {PortNo(i): PortRef(Dpid(i), PortNo(j)) for i in range(1, leaves + 1)}
            )
        self.saved = SavedState()
        self.declared: tuple[DeclaredHost, ...] = ()
        self.replies: list[Reply] = []
        self.arp_replies: list[SendArpReply] = []
        self.stages: list[InstallStage] = []
        self.after_each_mod: Callable[[], object] = lambda: None
        self.silent_hosts: set[str] = set()

    def _add(self, dpid: Dpid, name: str, peers: dict[PortNo, PortRef | None]) -> None:
        self.switches[dpid] = FakeSwitch(dpid, name, peers, dict.fromkeys(peers, True))

    # ---- the controller's life

    def start(self, config: Config | None = None, late: Iterable[Dpid] = ()) -> None:
        """A new controller process: everything it knows it gets from the switches and the saved state. Switches that
        are ``late`` do not connect yet."""
        self.loop = ControlLoop(config or Config(), self.saved, self.declared, self.now)
        self._connected: set[Dpid] = set()
        self.connect(*(dpid for dpid in self.switches if dpid not in set(late)))

    def connect(self, *dpids: Dpid) -> None:
        """Switches connect; then probes pass between all that are connected."""
        self._connected |= set(dpids)
        for dpid in dpids:
            self.send(SwitchConnected(dpid, self.switches[dpid].name, self.switches[dpid].ports()))
        for dpid in self._connected:
            self.probe(self.switches[dpid])

    def probe(self, switch: FakeSwitch) -> None:
        """LLDP out of every port of a switch that is up."""
        for port, peer in switch.peers.items():
            if peer and switch.up[port] and peer.dpid in self._connected and self.switches[peer.dpid].up[peer.port]:
                self.send(LinkSeen(PortRef(switch.dpid, port), peer))

    def run(self, seconds: float, step: float = 0.1) -> None:
        for _ in range(round(seconds / step)):
            self.now += step
            self.send(Tick())

    def send(self, message: Message) -> None:
        """Hand over a message and everything that follows from it."""
        inbox = deque([message])
        while inbox:
            for command in self.loop.handle([inbox.popleft()], self.now):
                inbox.extend(self._carry_out(command))

    def _carry_out(self, command: Command) -> list[Message]:
        match command:
            case ReadRules(dpid):
                return [SwitchRules(dpid, self.switches[dpid].rules(), 0)]
            case InstallStage():
                return [self._install(command)]
            case SolvePlan():
                repaired, request = repair_first(command)
                return [*filter(None, [repaired]), Planned(plan(request.problem, request.limits))]
            case SendArpRequest(ip, ports):
                asked = self.hosts.get(ip) in ports and ip not in self.silent_hosts
                return [ArpSeen(self.hosts[ip], "reply", ip, self.mac(ip), "0.0.0.0")] if asked else []
            case SendArpReply():
                self.arp_replies.append(command)
                assert self.trace(command.asker_ip, command.ip), "told of a host that packets do not reach yet"
                assert self.trace(command.ip, command.asker_ip), "nor its answers come back"
            case SaveState(state):
                self.saved = state
            case Reply():
                self.replies.append(command)
        return []

    def _install(self, command: InstallStage) -> StageDone:
        self.stages.append(command)
        results = {}
        for dpid, mods in command.stage.mods.items():
            rejected = []
            for mod in mods:
                reason = self.switches[dpid].apply(mod)
                if reason:
                    rejected.append((mod, reason))
                self.after_each_mod()
            results[dpid] = SwitchResult(tuple(rejected))
        return StageDone(command.change_id, results)

    # ---- what happens to the network

    def mac(self, ip: str) -> str:
        return "02:00:" + ":".join(f"{int(part):02x}" for part in ip.split("."))

    def cut(self, a: Dpid, port: PortNo) -> None:
        """Both ends of a cable lose their carrier."""
        self._set_carrier(a, port, up=False)

    def plug(self, a: Dpid, port: PortNo) -> None:
        self._set_carrier(a, port, up=True)
        peer = self.switches[a].peers[port]
        assert peer
        self.send(LinkSeen(PortRef(a, port), peer))
        self.send(LinkSeen(peer, PortRef(a, port)))

    def _set_carrier(self, a: Dpid, port: PortNo, up: bool) -> None:
        peer = self.switches[a].peers[port]
        assert peer
        ends = (PortRef(a, port), peer)
        for end in ends:
            self.switches[end.dpid].up[end.port] = up
        for end in ends:
            switch = self.switches[end.dpid]
            self.send(PortChanged(end.dpid, next(p for p in switch.ports() if p.number == end.port)))

    def lose(self, dpid: Dpid) -> None:
        self.send(SwitchLeft(dpid))

    def count(self, ports: dict[PortRef, int], flows: dict[tuple[str, str], int]) -> None:
        """Counters of every switch: cumulative bytes sent out of ports, and of pinned-table rules by (src, dst)."""
        self.count_rules(ports, {pin_key(FlowId(*pair)): total for pair, total in flows.items()})

    def count_rules(self, ports: dict[PortRef, int], rules: dict[FlowKey, int]) -> None:
        """Counters of every switch: cumulative bytes sent out of ports, and of pinned-table rules."""
        for switch in self.switches.values():
            tx = {port: PortCount(ports.get(PortRef(switch.dpid, port), 0), 0) for port in switch.peers}
            pinned = [key for key in switch.flows if key.table == Table.PINNED and key.match.ipv4_src]
            self.send(Counters(switch.dpid, self.now, tx, {key: rules.get(key, 0) for key in pinned}))

    # ---- what can be seen

    def trace(self, src: str, dst: str, entropy: int = 0, arp: bool = False) -> list[str] | None:
        """The switches a packet (IP, or a broadcast ARP request) passes, or None when it is lost."""
        return self.follow(Packet(src, dst, entropy, arp))

    def follow(self, packet: Packet) -> list[str] | None:
        """The switches a packet passes, or None when it is lost."""
        at: PortRef | None = self.hosts[packet.src]
        names = []
        while at is not None:
            switch = self.switches[at.dpid]
            names.append(switch.name)
            assert len(names) < 8, f"loop: {names}"
            port = switch.forward(at.port, packet)
            if port is None:
                return None
            if PortRef(switch.dpid, port) == self.hosts[packet.dst]:
                return names
            at = switch.peers[port]
        return None

    @property
    def mods(self) -> list[RuleMod]:
        """Everything that was sent to any switch, since the last ``forget_mods``."""
        return [mod for switch in self.switches.values() for mod in switch.mods]

    def forget_mods(self) -> None:
        for switch in self.switches.values():
            switch.mods.clear()


def ring_job(job_id: str, ips: list[str], lease_s: float = 60.0, **more: Any) -> JobSpec:
    return JobSpec.parse(
        {
            "job_id": job_id,
            "endpoints": ips,
            "groups": [{"name": "dp", "ranks": list(range(len(ips)))}],
            "collectives": [{"algorithm": "ring_all_reduce", "groups": ["dp"], "bytes_per_iteration": 1_000_000}],
            "lease_s": lease_s,
            **more,
        }
    )
