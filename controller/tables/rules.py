"""Types of rules on a switch, independent of any OpenFlow library, and safe stages from one rule set to another.

Every intermediate state of the stages is safe: no packet loops, and no packet is lost that was not lost before.
``southbound.openflow_encode`` and ``openflow_decode`` convert the types to messages and back.

A cookie has 16 bits that mark Signalbox's rules, 8 bits for the table, and 40 bits for the owner. The owner is the
job's hash in the pinned table, and 0 elsewhere. Cookies and group ids are the same after a restart, so that the
controller recognises its own rules.
"""

from __future__ import annotations

import hashlib
import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from functools import lru_cache
from ipaddress import ip_network
from itertools import chain
from typing import Literal, NamedTuple, TypeVar

from msgspec import Struct, structs

from controller.fabric.topology import Dpid, Fabric, PortNo
from controller.shared_map import like, unequal, updated
from signalbox.jobs.subflows import PortClass

COOKIE_MAGIC = 0x5B17
COOKIE_MASK = 0xFFFF_0000_0000_0000
COUNTED_BIT = 1 << 40
"""Bit of a cookie that is set in the rules whose counters are polled, and in no others."""

ETH_IPV4 = 0x0800
ETH_ARP = 0x0806
ETH_LLDP = 0x88CC
ETH_IPV6 = 0x86DD
IP_TCP = 6
IP_UDP = 17
BROADCAST_MAC = "ff:ff:ff:ff:ff:ff"
CONTROLLER_MAC = "02:53:42:00:00:01"
"""Sender of the controller's ARP probes, a locally administered address.

Hosts answer a probe with unicast ARP to this address, so table 0 must send these answers to the controller."""
NARROW = "narrow"
"""Name of the stage that only removes next hops. Such a stage is safe at any time."""
NEW = (1, -1)
"""Result of ``_order`` for meters and new groups: rank 1, and a distance below all others.

Meters and groups are thus sent before the flows of the same rank, which refer to them."""


class Table(IntEnum):
    CONTROL = 0
    PINNED = 1
    DEFAULT = 2


class OtherTable(StrEnum):
    """Group table, with a capacity for each kind of group, and meter table (OpenFlow 1.3.5 sections 5.6 and 5.7)."""

    SELECT_GROUPS = "select_groups"
    FAST_FAILOVER_GROUPS = "fast_failover_groups"
    METERS = "meters"


AnyTable = Table | OtherTable


@lru_cache(maxsize=1 << 14)  # 64 x 32 switches and 10,000 jobs have fewer; an entry takes 320 bytes
def stable_hash(bits: int, *parts: object) -> int:
    """Return a hash that is the same in every process: ``bits`` bits of BLAKE2b over the texts of the parts."""
    digest = hashlib.blake2b("\x1f".join(map(str, parts)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> (64 - bits)


def cookie(table: Table, owner: int = 0) -> int:
    """Return the cookie of a rule in this table. ``owner``: 40 bits."""
    return COOKIE_MAGIC << 48 | int(table) << 40 | owner


def learning_cookie(owner: int) -> int:
    """Return the cookie of a learning rule of ``owner`` (40 bits).

    A learning rule is in the pinned table. The rule counts a pair of hosts that no job has announced, to learn whether
    the owner uses the pair. The cookie has 255 in place of the table."""
    return COOKIE_MAGIC << 48 | 0xFF << 40 | owner


def dropped_cookie() -> int:
    """Return the cookie of a drop rule of the default table, which has 3 in place of the table."""
    return COOKIE_MAGIC << 48 | 3 << 40


def is_ours(value: int) -> bool:
    return value & COOKIE_MASK == COOKIE_MAGIC << 48


def cookie_owner(value: int) -> int:
    return value & ((1 << 40) - 1)


def job_owner(job_id: str) -> int:
    """Return the 40-bit owner of the pins of a job."""
    return stable_hash(40, "job", job_id)


GROUP_ID_BITS = 31
"""Number of bits of group ids.

A group id depends only on the purpose of the group. So the same fabric and pins give the same rules in every process.
The controller can also tell its own groups on a switch from foreign groups."""


@lru_cache(maxsize=1 << 14)  # apart from the hashes of path groups, of which there are a hundred times as many
def ecmp_group_id(leaf: Dpid) -> int:
    """Return the id of the group "any next hop to this leaf", which is the same on every switch."""
    return stable_hash(GROUP_ID_BITS, "ecmp", leaf)


def path_group_id(leaf: Dpid, port: PortNo) -> int:
    """Return the id of the group "to this leaf, preferably over this port"."""
    return stable_hash(GROUP_ID_BITS, "path", leaf, port)


class Prefix(NamedTuple):
    """Addresses that begin with the same ``length`` bits."""

    address: str
    length: int

    @property
    def is_host(self) -> bool:
        return self.length == (128 if ":" in self.address else 32)

    def __str__(self) -> str:
        return f"{self.address}/{self.length}"


def host_prefix(address: str) -> Prefix:
    return Prefix(address, 128 if ":" in address else 32)


@lru_cache(maxsize=1 << 16)
def prefix_of(address: str, length: int) -> Prefix:
    return Prefix(str(ip_network((address, length), strict=False).network_address), length)


class Match(NamedTuple):
    """Match of a rule; fields that are None are wildcards (OpenFlow 1.3.5 section 7.2.3.7).

    The caller must satisfy prerequisites: ports need an ``ip_proto`` (TCP or UDP), and ``ip_proto`` and addresses need
    an ``eth_type`` of IP."""

    in_port: PortNo | None = None
    eth_type: int | None = None
    eth_dst: str | None = None
    ip_src: Prefix | None = None
    ip_dst: Prefix | None = None
    arp_tpa: Prefix | None = None
    ip_proto: int | None = None
    src_port: PortClass | None = None
    dst_port: PortClass | None = None
    arp_spa: Prefix | None = None

    @property
    def ends(self) -> Iterator[Prefix]:
        """Prefixes of the source and the destination, as far as the match names them.

        ARP has no source here: table 0 matches the sender's address only as a check, and not for forwarding."""
        return (end for end in (self.ip_src, self.ip_dst, self.arp_tpa) if end is not None)


def between(src_ip: str, dst_ip: str) -> Match:
    """Return the match of all packets that one host sends to another."""
    return Match(eth_type=ETH_IPV4, ip_src=host_prefix(src_ip), ip_dst=host_prefix(dst_ip))


class PackedAsArray(Struct, frozen=True, array_like=True, gc=False):
    """Frozen object that the link packs as an array of its fields, with a tag in unions (``link.codec``)."""


class Output(PackedAsArray, tag="port", frozen=True):
    """Send out of a port. A switch drops packets to the port where they arrived."""

    port: PortNo


class ToGroup(PackedAsArray, tag="group", frozen=True):
    group_id: int


class ToController(PackedAsArray, tag="controller", frozen=True):
    """Send the whole packet to the controller."""


class AnyPort(PackedAsArray, tag="any_port", frozen=True):
    """Clear the input port of the packet, so that the packet may leave by the port where it arrived.

    OpenFlow has no such action. Nicira's reg_load (ovs-actions(7)) sets the port to 0, which Open vSwitch allows for
    this purpose."""


class SetDscp(PackedAsArray, tag="dscp", frozen=True):
    """Write the six DSCP bits of an IP packet, by which ports sort packets into queues; its ECN bits stay."""

    dscp: int


Action = Output | ToGroup | ToController | AnyPort | SetDscp


class FlowKey(NamedTuple):
    """Identity of a flow entry in OpenFlow (strict match)."""

    table: Table
    priority: int
    match: Match


class _WithDistance(PackedAsArray, frozen=True, eq=False):
    """Rule whose last field is ``distance``: the number of switches that packets still have to cross.

    Rules with smaller distances are installed first. No switch stores the distance, and comparisons of rules ignore
    it."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and structs.astuple(self)[:-1] == structs.astuple(other)[:-1]

    def __ne__(self, other: object) -> bool:  # that of ``Struct`` would not call ``__eq__``
        return not self == other

    def __hash__(self) -> int:
        return hash(structs.astuple(self)[:-1])


class FlowRule(_WithDistance, tag="flow", frozen=True):
    """A flow entry: apply the meter, then the actions, then continue in table ``goto``.

    Without actions and ``goto``, packets are dropped."""

    key: FlowKey
    cookie: int
    actions: tuple[Action, ...] = ()
    goto: Table | None = None
    meter: int | None = None
    distance: int = 0

    @property
    def group_id(self) -> int | None:
        """Id of the group to which the rule sends packets; None if there is no group."""
        return next((action.group_id for action in self.actions if isinstance(action, ToGroup)), None)

    @property
    def marking(self) -> tuple[SetDscp, ...]:
        return tuple(action for action in self.actions if isinstance(action, SetDscp))


class Bucket(PackedAsArray, frozen=True):
    """A bucket of a group. The bucket is live only while its ``watch_port`` or ``watch_group`` is live."""

    action: Output | ToGroup
    watch_port: PortNo | None = None
    watch_group: int | None = None


class GroupRule(_WithDistance, tag="group", frozen=True):
    """A group.

    A group that was read from a switch has no buckets here if its kind is ``other`` or if ``Bucket`` cannot express its
    buckets. A group without buckets equals no wanted group."""

    group_id: int
    kind: Literal["select", "fast_failover", "other"]
    buckets: tuple[Bucket, ...]
    distance: int = 0

    @property
    def key(self) -> tuple[str, int]:
        """Identity of the group among all rules of a switch."""
        return "group", self.group_id


class MeterRule(PackedAsArray, tag="meter", frozen=True):
    """Meter that drops packets above ``rate_pps`` per second, after a burst of ``burst_packets``.

    Both values are 0 for a meter of another form that was read from a switch. Such a meter equals no wanted meter."""

    meter_id: int
    rate_pps: int
    burst_packets: int

    @property
    def key(self) -> tuple[str, int]:
        """Identity of the meter among all rules of a switch."""
        return "meter", self.meter_id


@dataclass(frozen=True, slots=True)
class RuleSet:
    """All rules of Signalbox on one switch."""

    flows: Mapping[FlowKey, FlowRule] = field(default_factory=dict)
    groups: Mapping[int, GroupRule] = field(default_factory=dict)
    meters: Mapping[int, MeterRule] = field(default_factory=dict)

    @classmethod
    def of(
        cls, flows: Iterable[FlowRule] = (), groups: Iterable[GroupRule] = (), meters: Iterable[MeterRule] = ()
    ) -> RuleSet:
        return cls({f.key: f for f in flows}, {g.group_id: g for g in groups}, {m.meter_id: m for m in meters})

    def updated(
        self,
        flows: Mapping[FlowKey, FlowRule | None],
        groups: Mapping[int, GroupRule | None],
        meters: Mapping[int, MeterRule | None] | None = None,
    ) -> RuleSet:
        """Return the rules with these changes, where None removes a rule.

        Unchanged mappings are shared with this set."""
        return RuleSet(updated(self.flows, flows), updated(self.groups, groups), updated(self.meters, meters or {}))

    def like(self, other: RuleSet) -> RuleSet:
        """Return these rules, sharing the objects of ``other`` for equal rules; ``other`` itself if all are equal."""
        flows, groups = like(self.flows, other.flows), like(self.groups, other.groups)
        meters = like(self.meters, other.meters)
        if flows is other.flows and groups is other.groups and meters is other.meters:
            return other
        if flows is self.flows and groups is self.groups and meters is self.meters:
            return self
        return RuleSet(flows, groups, meters)

    def divided(self, groups: Collection[int], meters: Collection[int]) -> tuple[RuleSet, RuleSet]:
        """Divide the rules into two sets.

        The first set has all flows, and the groups and meters with the given ids. The second set has the other groups
        and meters."""
        found: dict[bool, tuple[dict[int, GroupRule], dict[int, MeterRule]]] = {True: ({}, {}), False: ({}, {})}
        for number, group in self.groups.items():
            found[number in groups][0][number] = group
        for number, meter in self.meters.items():
            found[number in meters][1][number] = meter
        return RuleSet(self.flows, *found[True]), RuleSet({}, *found[False])

    def groups_of(self, flows: Iterable[FlowRule]) -> dict[int, GroupRule]:
        """Return the groups that these flows send to, directly or through other groups, by id."""
        found: dict[int, GroupRule] = {}
        waiting = [action for flow in flows for action in flow.actions]
        while waiting:
            action = waiting.pop()
            if isinstance(action, ToGroup) and action.group_id in self.groups and action.group_id not in found:
                group = found[action.group_id] = self.groups[action.group_id]
                waiting += [bucket.action for bucket in group.buckets]
        return found

    @property
    def group_ports(self) -> set[PortNo]:
        """Ports that groups send to; each port is one end of a cable between switches."""
        buckets = chain.from_iterable(group.buckets for group in self.groups.values())
        return {bucket.action.port for bucket in buckets if isinstance(bucket.action, Output)}

    def __len__(self) -> int:
        return len(self.flows) + len(self.groups) + len(self.meters)


def possible_groups(dpid: Dpid, fabric: Fabric, known: Iterable[Dpid] = ()) -> dict[int, Dpid]:
    """Return all ids that Signalbox's groups can have, each with the leaf to which the group leads.

    ``known``: further switches, not in the fabric yet, to which groups may lead."""
    switch = fabric.switches.get(dpid)
    ports = tuple(switch.ports) if switch else ()
    found: dict[int, Dpid] = {}
    for leaf in {*fabric.switches, *known}:
        found[ecmp_group_id(leaf)] = leaf
        found |= {path_group_id(leaf, port): leaf for port in ports}
    return found


def divided(
    dpid: Dpid, read: RuleSet, believed: RuleSet, fabric: Fabric, known: Iterable[Dpid] = ()
) -> tuple[RuleSet, RuleSet]:
    """Divide rules that were read from a switch into Signalbox's and foreign ones.

    The first set is ``read`` itself if no rule is foreign.

    All flows in ``read`` are Signalbox's, because flows with other cookies are not read. A group or meter is
    Signalbox's if one of these flows uses it, if it is in ``believed``, or if its id is possible in this fabric. The id
    of a group is a hash of its purpose. The id of a meter is the number of a port. ``known``: see
    ``possible_groups``."""
    groups = (believed.groups.keys() & read.groups.keys()) | read.groups_of(read.flows.values()).keys()
    if groups < read.groups.keys():
        groups |= read.groups.keys() & possible_groups(dpid, fabric, known).keys()
    switch = fabric.switches.get(dpid)
    meters = read.meters.keys() & (
        {*believed.meters, *(switch.ports if switch else ()), *(flow.meter for flow in read.flows.values())}
    )
    if len(groups) == len(read.groups) and len(meters) == len(read.meters):
        return read, RuleSet()
    return read.divided(groups, meters)


Rule = FlowRule | GroupRule | MeterRule

Key = TypeVar("Key")
AnyRule = TypeVar("AnyRule")


class RuleMod(PackedAsArray, frozen=True):
    """Change of one rule on a switch. ``delete`` removes only the rule with the same key or id."""

    op: Literal["add", "modify", "delete"]
    rule: Rule


@dataclass(frozen=True, slots=True)
class Stage:
    """Changes of rules on several switches at the same time. A switch gets its own changes in the order of the tuple.

    A barrier on each switch ends the stage. The next stage starts when every barrier reply has arrived."""

    name: str
    mods: Mapping[Dpid, tuple[RuleMod, ...]]

    def only(self, wanted: Callable[[Dpid, RuleMod], bool]) -> Stage:
        """Return the stage with only the changes for which ``wanted`` returns True."""
        mods = {dpid: tuple(mod for mod in mods if wanted(dpid, mod)) for dpid, mods in self.mods.items()}
        return Stage(self.name, {dpid: left for dpid, left in mods.items() if left})


def mods_between(desired: RuleSet, installed: RuleSet) -> Iterator[RuleMod]:
    """Yield the changes from the installed rules of one switch to the desired ones."""
    for before, rule in chain[tuple[Rule | None, Rule | None]](
        other_rules(installed.meters, desired.meters),
        other_rules(installed.groups, desired.groups),
        other_rules(installed.flows, desired.flows),
    ):
        if rule is None:
            assert before
            yield RuleMod("delete", before)
        elif before is None:
            yield RuleMod("add", rule)
        elif before != rule:
            yield RuleMod("add" if _other_owner(rule, before) else "modify", rule)


def other_rules(
    before: Mapping[Key, AnyRule], now: Mapping[Key, AnyRule]
) -> Iterator[tuple[AnyRule | None, AnyRule | None]]:
    """Yield pairs (old rule, new rule) that are not the same object; None for a missing rule."""
    for old, new in unequal(before, now):
        if not old or not new:  # as when a switch connects or leaves
            yield from [(rule, None) for rule in old.values()]
            yield from [(None, rule) for rule in new.values()]
            continue
        # Most rules are the same objects on both sides; their keys need not be looked up.
        here, there = set(map(id, old.values())), set(map(id, new.values()))
        yield from [(old.get(key), rule) for key, rule in new.items() if id(rule) not in here]
        yield from [(rule, None) for key, rule in old.items() if id(rule) not in there and key not in new]


def _other_owner(rule: Rule, held: Rule) -> bool:
    """Return whether the rule is a flow whose cookie differs from that of the installed flow.

    Modifying a flow does not change its cookie (OpenFlow 1.3.5, 6.4). Adding the flow again changes the cookie and
    resets the counters."""
    return isinstance(rule, FlowRule) and isinstance(held, FlowRule) and rule.cookie != held.cookie


def applied(rules: RuleSet, mods: Iterable[RuleMod]) -> RuleSet:
    flows: dict[FlowKey, FlowRule | None] = {}
    groups: dict[int, GroupRule | None] = {}
    meters: dict[int, MeterRule | None] = {}
    for mod in mods:
        gone = mod.op == "delete"
        match mod.rule:
            case FlowRule() as flow:
                flows[flow.key] = None if gone else flow
            case GroupRule() as group:
                groups[group.group_id] = None if gone else group
            case MeterRule() as meter:
                meters[meter.meter_id] = None if gone else meter
    return rules.updated(flows, groups, meters)


def stages_between(desired: Mapping[Dpid, RuleSet], installed: Mapping[Dpid, RuleSet]) -> list[Stage]:
    """Return the stages that change the installed rules into the desired ones, in order; empty if all are equal.

    Switches that are in only one of the mappings are left out."""
    staged: dict[tuple[int, int], dict[Dpid, list[RuleMod]]] = defaultdict(lambda: defaultdict(list))
    for dpid, rules in desired.items():
        if dpid in installed:
            for mod in mods_between(rules, installed[dpid]):
                staged[_order(mod, installed[dpid])][dpid].append(mod)
                if mod.op == "delete" and (fallback := _without_planned_hop(mod.rule, rules)):
                    staged[0, 0][dpid].append(RuleMod("modify", fallback))
    new = staged.pop(NEW, {})
    first = min((order for order in staged if NEW < order < (2, 0)), default=(1, 0))
    for dpid, mods in new.items():
        staged[first][dpid] += mods
    names = (NARROW, "install", "delete flows", "delete groups")
    return [
        Stage(
            f"{names[rank]} {distance}".removesuffix(" 0"),
            {dpid: tuple(sorted(changes, key=_within_switch)) for dpid, changes in staged[rank, distance].items()},
        )
        for rank, distance in sorted(staged)
    ]


def _order(mod: RuleMod, installed: RuleSet) -> tuple[int, int]:
    """Return the (rank, distance) by which a change is sorted into a stage.

    Ranks: 0 for a change that only removes next hops, 1 for other changes and additions, 2 for deletions of flows, 3
    for deletions of groups. Changes of rank 1 are also ordered by distance to the destination."""
    rule = mod.rule
    if mod.op == "delete":
        return (2, 0) if isinstance(rule, FlowRule) else (3, 0)
    if isinstance(rule, MeterRule) or (isinstance(rule, GroupRule) and mod.op == "add"):
        return NEW
    if isinstance(rule, GroupRule) and mod.op == "modify":
        before = installed.groups[rule.group_id]
        if before.kind == rule.kind and set(rule.buckets) < set(before.buckets):
            return (0, 0)
    return (1, rule.distance)


def _without_planned_hop(rule: Rule, desired: RuleSet) -> GroupRule | None:
    """Return a path group without its planned next hop, if this hop leads away from the destination; else None.

    ``rule``: path group that is about to be deleted. The pins to this group are deleted only after all new rules are
    installed. Without this change, the pins could until then send packets to a switch whose new routes send the packets
    back."""
    if not isinstance(rule, GroupRule):
        return None
    fallback = tuple(bucket for bucket in rule.buckets if isinstance(bucket.action, ToGroup))
    ahead = {
        bucket.action
        for ecmp in fallback
        if isinstance(ecmp.action, ToGroup) and ecmp.action.group_id in desired.groups
        for bucket in desired.groups[ecmp.action.group_id].buckets
    }
    if ahead and not ahead.issuperset(bucket.action for bucket in rule.buckets if bucket not in fallback):
        return GroupRule(rule.group_id, rule.kind, fallback, rule.distance)
    return None


def _within_switch(mod: RuleMod) -> tuple[float, float]:
    """Return the sort key of a change on one switch: meters, groups to ports, groups to groups, then flows by priority.

    Flows with high priorities come first. The only exception is the table-miss entry (priority 0), which precedes all
    other flows. Packets without another rule depend on this entry, so it must be installed even if the table gets full.
    Deletions have the reverse order."""
    rule = mod.rule
    order: tuple[float, float]
    if isinstance(rule, FlowRule):
        order = (3, -rule.key.priority or -math.inf)
    elif isinstance(rule, GroupRule):
        order = (2 if any(isinstance(bucket.action, ToGroup) for bucket in rule.buckets) else 1, 0)
    else:
        order = (0, 0)
    return (-order[0], -order[1]) if mod.op == "delete" else order
