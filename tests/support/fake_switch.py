"""A switch that holds rules and forwards packets, without Open vSwitch.

Input: rule changes, and ports that go up and down. Output: the port that a packet leaves through, or all ports that it
may leave through. The switch makes the checks of OVS, and also refuses a rule that names a missing group."""

from dataclasses import dataclass, field
from functools import cache
from typing import Any

from msgspec.structs import replace

from controller.fabric.topology import Dpid, Port, PortNo, PortRef
from controller.tables.flow_tables import LEARNING_PRIORITY
from controller.tables.rules import (
    BROADCAST_MAC,
    ETH_ARP,
    ETH_IPV4,
    IP_TCP,
    Action,
    AnyPort,
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
    SetDscp,
    Table,
    ToController,
    ToGroup,
)


@dataclass(frozen=True)
class Packet:
    """IP packet, or broadcast ARP request for ``dst``.

    ``entropy``: hash of the packet for select groups; no rule matches it.
    ``dst_mac``: destination MAC address of an IP packet."""

    src: str
    dst: str
    entropy: int = field(default=0, compare=False)
    arp: bool = False
    protocol: int = IP_TCP
    src_port: int = 0
    dst_port: int = 0
    dst_mac: str = "a host's"


@dataclass
class FakeSwitch:
    """Rules, ports and cables of one switch.

    ``peers``: the port at the other end of each cable, None for a host.
    ``_actions``: cache of actions for the rules ``_looked_up_in``."""

    dpid: Dpid
    name: str
    peers: dict[PortNo, PortRef | None]
    up: dict[PortNo, bool]
    flows: dict[FlowKey, FlowRule] = field(default_factory=dict)
    groups: dict[int, GroupRule] = field(default_factory=dict)
    meters: dict[int, MeterRule] = field(default_factory=dict)
    mods: list[RuleMod] = field(default_factory=list)
    refuses: set[FlowKey] = field(default_factory=set)
    refuses_groups: set[int] = field(default_factory=set)
    _looked_up_in: tuple[FlowRule, ...] = ()
    _actions: dict[tuple[PortNo, Packet], tuple[PortNo, Action | None]] = field(default_factory=dict)
    _possible: dict[tuple[PortNo, Packet], frozenset[PortNo | None]] = field(default_factory=dict)

    @property
    def route_mods(self) -> list[RuleMod]:
        """Rule changes in ``mods`` without learning rules, which only count the traffic of a pair."""
        return [
            mod for mod in self.mods if not isinstance(mod.rule, FlowRule) or mod.rule.key.priority != LEARNING_PRIORITY
        ]

    def ports(self) -> tuple[Port, ...]:
        return tuple(Port(n, f"{self.name}-eth{n}", f"02:00:00:00:00:{n:02x}", self.up[n], 10e9) for n in self.peers)

    def apply(self, mod: RuleMod) -> str | None:
        """Carry out a rule change; return the reason when the switch refuses it."""
        self.mods.append(mod)
        self._possible.clear()
        rule = mod.rule
        if isinstance(rule, FlowRule):
            if rule.key in self.refuses:
                return "table full"
            missing = [a.group_id for a in rule.actions if isinstance(a, ToGroup) and a.group_id not in self.groups]
            if missing and mod.op != "delete":
                return f"no group {missing[0]}"
            self._put(self.flows, rule.key, rule, mod.op)
        elif isinstance(rule, GroupRule):
            if rule.group_id in self.refuses_groups:
                return "group table full"
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
        in_port, action = self._action(in_port, packet)
        port = None if action is None else self._out(action, packet.entropy)
        return None if port == in_port else port

    def possible(self, in_port: PortNo, packet: Packet) -> frozenset[PortNo | None]:
        """Return every port that the packet may leave through, whatever its hash; None stands for a possible drop."""
        key = in_port, packet
        found = self._possible.get(key)
        if found is None:
            came_by, action = self._action(in_port, packet)
            ports = {None} if action is None else self._all_out(action)
            found = self._possible[key] = frozenset(None if port == came_by else port for port in ports)
        return found

    def set_up(self, port: PortNo, up: bool) -> None:
        self.up[port] = up
        self._possible.clear()

    def forget_rules(self) -> None:
        """Remove all rules, as a loss of power does."""
        for held in (self.flows, self.groups, self.meters, self._possible):
            held.clear()

    def _action(self, in_port: PortNo, packet: Packet) -> tuple[PortNo, Action | None]:
        """Return the port through which the packet may not leave (0: none), and the action; None means a drop."""
        rules = tuple(self.flows.values())
        if rules != self._looked_up_in:
            self._looked_up_in = rules
            self._actions.clear()
        key = in_port, packet
        if key not in self._actions:
            self._actions[key] = self._look_up(in_port, packet)
        return self._actions[key]

    def _look_up(self, in_port: PortNo, packet: Packet) -> tuple[PortNo, Action | None]:
        came_by = in_port
        table: Table | None = Table.CONTROL
        while table is not None:
            hits = [f for f in self.flows.values() if f.key.table == table and matches(f.key.match, in_port, packet)]
            if not hits:
                return came_by, None
            top = max(f.key.priority for f in hits)
            rule, *others = (f for f in hits if f.key.priority == top)
            assert not others, f"two rules of one priority: {rule.key} and {others[0].key}"
            for action in rule.actions:
                if isinstance(action, AnyPort):
                    came_by = PortNo(0)
                elif not isinstance(action, ToController | SetDscp):
                    return came_by, action
            table = rule.goto
        return came_by, None

    def _out(self, action: Action, entropy: int) -> PortNo | None:
        if isinstance(action, Output):
            return action.port if self.up.get(action.port) else None
        group, live = self._live_buckets(action)
        if not live:
            return None
        return self._out(live[0 if group.kind == "fast_failover" else entropy % len(live)].action, entropy)

    def _all_out(self, action: Action) -> set[PortNo | None]:
        if isinstance(action, Output):
            return {action.port if self.up.get(action.port) else None}
        group, live = self._live_buckets(action)
        if group.kind == "fast_failover":
            live = live[:1]
        return {port for bucket in live for port in self._all_out(bucket.action)} or {None}

    def _live_buckets(self, action: Action) -> tuple[GroupRule, list[Bucket]]:
        assert isinstance(action, ToGroup)
        group = self.groups[action.group_id]
        return group, [bucket for bucket in group.buckets if self._live(bucket)]

    def _live(self, bucket: Bucket) -> bool:
        if bucket.watch_port is not None:
            return self.up.get(bucket.watch_port, False)
        if bucket.watch_group is not None:
            return any(self._live(b) for b in self.groups[bucket.watch_group].buckets)
        return True


def matches(match: Match, in_port: PortNo, packet: Packet) -> bool:
    if match.in_port not in (None, in_port):
        return False
    if match.eth_dst not in (None, BROADCAST_MAC if packet.arp else packet.dst_mac):
        return False
    if match.eth_type not in (None, ETH_ARP if packet.arp else ETH_IPV4):
        return False
    if packet.arp:
        return _covers(match.arp_tpa, packet.dst) and _covers(match.arp_spa, packet.src)
    if match.ip_proto not in (None, packet.protocol):
        return False
    if not (match.src_port is None or match.src_port.holds(packet.src_port)):
        return False
    if not (match.dst_port is None or match.dst_port.holds(packet.dst_port)):
        return False
    return _covers(match.ip_src, packet.src) and _covers(match.ip_dst, packet.dst)


def _covers(prefix: Prefix | None, address: str) -> bool:
    if prefix is None:
        return True
    shift = 32 - prefix.length
    return _number(prefix.address) >> shift == _number(address) >> shift


@cache
def _number(address: str) -> int:
    return int.from_bytes(bytes(map(int, address.split("."))), "big")
