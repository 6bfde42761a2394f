"""Rules of every switch, derived from the fabric and the pins.

In: a snapshot of the fabric, the pins, and the installed rules. Out: the rules that each switch should have.
``Pipeline`` derives the rules of all switches, ``SwitchDerivation`` those of one switch. ``narrowed`` is the first
reaction to lost links: it removes next hops.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import chain
from typing import NamedTuple, TypeVar

from controller.fabric.topology import (
    Dpid,
    Fabric,
    Host,
    Link,
    LinkId,
    LinksInto,
    PortNo,
    PortRef,
    ShortestPaths,
    Switch,
    Towards,
    links_into,
    moved_hosts,
    ports_by_switch,
)
from controller.fabric.topology_state import hosts_by_leaf
from controller.shared_map import Edits, Memo, MemoPerKey, differing, updated
from controller.tables import flow_tables
from controller.tables.flow_tables import SPREAD_BEYOND, Gateway, GatewayPorts, Pin
from controller.tables.rules import (
    Bucket,
    FlowKey,
    FlowRule,
    GroupRule,
    MeterRule,
    Prefix,
    Rule,
    RuleSet,
    Table,
    ecmp_group_id,
    path_group_id,
    prefix_of,
)

Key = TypeVar("Key", bound=Hashable)
AnyRule = TypeVar("AnyRule", bound=Rule)

PinsOf = Mapping[str, tuple[Pin, ...]]
"""Pins by owner."""

NO_PINS: PinsOf = {}

NO_RULES = RuleSet()
NO_PORTS = frozenset[PortNo]()


@dataclass(frozen=True, slots=True)
class PipelineSettings:
    """Settings of the tables."""

    punt_rate_pps: int
    """Largest number of packets per second from one port to the controller."""
    leaf_prefix_length: int
    """Length of the prefixes that leaves own, in bits."""
    gateways: tuple[Gateway, ...] = ()
    one_way: Mapping[Dpid, frozenset[PortNo]] = field(default_factory=dict)
    """Ports with one-way links, by switch."""


class Pipeline:
    """Derivation of the rules that every connected switch should hold.

    Each table is derived from its own inputs, so that a new job changes pinned tables only. The ``RuleSet`` of a switch
    is the same object while nothing changes."""

    def __init__(self, settings: PipelineSettings) -> None:
        self._settings = settings
        self._paths = ShortestPaths()
        self._hosts: Mapping[str, Host] = {}
        self._leaves: Mapping[Dpid, list[Host]] = {}
        self._prefixes: Mapping[Prefix, Dpid] = {}
        self._gateways: GatewayPorts = ()
        self._towards = Memo(self._paths.towards)
        self._ways = MemoPerKey[Dpid, Dpid, Mapping[Dpid, Towards], Mapping[int, GroupRule], frozenset[PortNo], Ways](
            _ways
        )
        self._fabric_ports = Memo(ports_by_switch)
        self._control = MemoPerKey[Dpid, Switch, frozenset[PortNo], tuple[Host, ...], int, bool, RuleSet](
            flow_tables.control_rules
        )
        self._default = MemoPerKey[Dpid, tuple[Host, ...], Mapping[Prefix, Dpid], GatewayPorts, Ways, DefaultPart](
            _default_part
        )
        self._at = _PinsAt()
        self._rules = defaultdict[Dpid, SwitchDerivation](SwitchDerivation)

    def desired(
        self,
        fabric: Fabric,
        pins: Iterable[Pin],
        installed: Mapping[Dpid, RuleSet],
        forwarding: Fabric | None = None,
        closed: Iterable[PortRef] = (),
    ) -> Mapping[Dpid, RuleSet]:
        """Return the rules of every switch.

        ``forwarding``: the fabric with only the forwarding links; None if all links forward. A switch without a next
        hop to a destination keeps its installed group for the destination. The controller's view of links may be wrong,
        whereas an empty group certainly loses packets. A group with ``closed`` ports is not kept, because these ports
        may lead anywhere, even to a switch that sends packets back."""
        self._assign_prefixes(fabric, installed)
        towards = self._towards(forwarding or fabric, self._leaves)
        pins_at, ports = self._at.follow(fabric.hosts, pins), self._fabric_ports(fabric.links)
        # Installed rules matter only if some switch cannot reach some leaf.
        held = installed if any(len(to.distance) < len(fabric.switches) for to in towards.values()) else {}
        none, shut = NO_PORTS, ports_by_switch(closed)
        ways = self._ways(
            {dpid: (dpid, towards, held.get(dpid, NO_RULES).groups, shut.get(dpid, none)) for dpid in fabric.switches}
        )
        hosts = {dpid: tuple(self._leaves.get(dpid, ())) for dpid in fabric.switches}
        rate_pps, one_way = self._settings.punt_rate_pps, self._settings.one_way
        control = self._control(
            {
                dpid: (switch, ports.get(dpid, none) | one_way.get(dpid, none), hosts[dpid], rate_pps, dpid in one_way)
                for dpid, switch in fabric.switches.items()
            }
        )
        default = self._default(
            {dpid: (hosts[dpid], self._prefixes, self._gateways, ways[dpid]) for dpid in fabric.switches}
        )
        base = {dpid: (control[dpid], default[dpid], ways[dpid]) for dpid in fabric.switches}
        for dpid in self._rules.keys() - base.keys():
            del self._rules[dpid]
        return {
            dpid: self._rules[dpid].of(*of_it, fabric.hosts, pins_at.get(dpid, NO_PINS)) for dpid, of_it in base.items()
        }

    def _assign_prefixes(self, fabric: Fabric, installed: Mapping[Dpid, RuleSet]) -> None:
        if fabric.hosts is self._hosts:
            return
        self._hosts, self._leaves = fabric.hosts, hosts_by_leaf(fabric)
        found = ((gateway.mac, fabric.hosts.get(gateway.ip)) for gateway in self._settings.gateways)
        self._gateways = tuple((mac, host.at) for mac, host in found if host)
        present = _present_owners(installed, self._leaves)
        self._prefixes = flow_tables.destination_prefixes(fabric, self._settings.leaf_prefix_length, present)


def _ways(
    dpid: Dpid, towards: Mapping[Dpid, Towards], installed: Mapping[int, GroupRule], closed: frozenset[PortNo]
) -> Ways:
    to = tuple(
        (leaf, WayTo(of.hops.get(dpid, ()), of.distance.get(dpid, 1))) for leaf, of in towards.items() if leaf != dpid
    )
    lost = (ecmp_group_id(leaf) for leaf, way in to if not way.hops)
    groups = (installed[group_id] for group_id in lost if group_id in installed)
    kept = tuple(group for group in groups if closed.isdisjoint(bucket.watch_port for bucket in group.buckets))
    return Ways(dpid, to, kept)


def _present_owners(installed: Mapping[Dpid, RuleSet], leaves: Iterable[Dpid]) -> dict[Prefix, Dpid]:
    leaf_of = {ecmp_group_id(leaf): leaf for leaf in leaves}
    owners: dict[Prefix, Dpid] = {}
    for rules in installed.values():
        for key, rule in rules.flows.items():
            prefix = key.match.ip_dst
            if key.table == Table.DEFAULT and prefix is not None and rule.group_id in leaf_of:
                owners[prefix] = leaf_of[rule.group_id]
    return owners


class _PinsAt:
    """Pins of each switch: those whose path begins at the switch or leads over it, by owner.

    A call examines only owners with changed pins, or with pins of moved hosts. If a host has moved, the owners of its
    pins get new tuples even if the pins are equal. ``SwitchDerivation`` then derives their rules again."""

    def __init__(self) -> None:
        self._hosts: Mapping[str, Host] = {}
        self._of: Mapping[str, tuple[Pin, ...]] = {}
        self._switches: dict[str, tuple[Dpid, ...]] = {}
        self._at: dict[Dpid, PinsOf] = {}

    def follow(self, hosts: Mapping[str, Host], pins: Iterable[Pin]) -> Mapping[Dpid, PinsOf]:
        now: PinsOf = getattr(pins, "of", None) or {"": tuple(pins)}
        moved = self._pins_of_moved_hosts(hosts, now)
        before, self._of = self._of, now
        changes: defaultdict[Dpid, dict[str, tuple[Pin, ...] | None]] = defaultdict(dict)
        other = {name: of_name for name, _, of_name in differing(before, now)}
        for name, of_name in {**other, **moved}.items():
            found = _by_switch(hosts, of_name or ())
            for dpid in self._switches.pop(name, ()):
                if dpid not in found:
                    changes[dpid][name] = None
            if found:
                self._switches[name] = tuple(found)
            for dpid, here in found.items():
                pins_here = tuple(here)
                if name in moved or self._at.get(dpid, NO_PINS).get(name) != pins_here:
                    changes[dpid][name] = pins_here
        for dpid, changed in changes.items():
            self._at[dpid] = updated(self._at.get(dpid, NO_PINS), changed)
        return self._at

    def _pins_of_moved_hosts(self, hosts: Mapping[str, Host], pins: PinsOf) -> PinsOf:
        before, self._hosts = self._hosts, hosts
        ips = moved_hosts(before, hosts)
        looked_at = pins.items() if ips else ()
        return {name: found for name, found in looked_at if any(not ips.isdisjoint(pin.flow.pair) for pin in found)}


def _by_switch(hosts: Mapping[str, Host], pins: Iterable[Pin]) -> dict[Dpid, list[Pin]]:
    at: dict[Dpid, list[Pin]] = defaultdict(list)
    for pin in pins:
        source = hosts[pin.flow.src_ip].at.dpid
        for dpid in dict.fromkeys((source, *(hop.dpid for hop in pin.path or ()))):
            at[dpid].append(pin)
    return at


def _default_part(
    hosts: tuple[Host, ...], prefixes: Mapping[Prefix, Dpid], gateways: GatewayPorts, ways: Ways
) -> DefaultPart:
    groups = {group.group_id: group for group in ways.kept}
    to: dict[Dpid, tuple[int, int]] = {}
    alike: dict[int, tuple[Bucket, ...]] = {}
    """Buckets for each tuple of next hops, by the tuple's ``id()``: hashing the tuples would take most of the time."""
    for leaf, (hops, distance) in ways.to:
        group_id = ecmp_group_id(leaf)
        if hops and distance > SPREAD_BEYOND:
            groups[group_id] = flow_tables.ecmp_group(group_id, hops, distance)
        elif hops:
            if id(hops) not in alike:
                alike[id(hops)] = flow_tables.ecmp_group(group_id, hops, distance).buckets
            groups[group_id] = GroupRule(group_id, "select", alike[id(hops)], distance)
        if group_id in groups:
            to[leaf] = group_id, distance
    return DefaultPart(flow_tables.default_rules(ways.dpid, hosts, prefixes, gateways, to), groups)


# ---- rules of one switch


class WayTo(NamedTuple):
    """Next hops and distance from a switch to a leaf."""

    hops: tuple[LinkId, ...]
    """Next hops; empty for an unreachable leaf."""
    distance: int
    """Distance in links; 1 for an unreachable leaf."""


NO_WAY = WayTo((), 0)


class Ways(NamedTuple):
    """Next hops and distances from a switch to the other leaves."""

    dpid: Dpid
    """Dpid of the switch itself."""
    to: tuple[tuple[Dpid, WayTo], ...]
    kept: tuple[GroupRule, ...]
    """Installed groups to unreachable leaves, which the switch keeps."""


@dataclass(frozen=True, slots=True, eq=False)
class DefaultPart:
    """Default table of a switch and its groups.

    Objects are compared by identity, because equal rules may differ in their ``distance``."""

    flows: tuple[FlowRule, ...]
    groups: Mapping[int, GroupRule]


class _Base(NamedTuple):
    control: RuleSet
    default: DefaultPart
    ways: Ways


class _PathGroup(NamedTuple):
    """Leaf to which a path group leads, and the port of its planned next hop."""

    leaf: Dpid
    port: PortNo


class SwitchDerivation:
    """Derivation of the rules of one switch, which repeats only what may have changed.

    If a pin has changed, the rules of all pins of its owner are derived again. If the next hops to a leaf have changed,
    the path groups to the leaf are derived again. So are the rules of those pins to the leaf whose path begins at
    another switch. An unchanged rule remains the same object."""

    def __init__(self) -> None:
        self._base: _Base | None = None
        self._to: Mapping[Dpid, WayTo] = {}
        self._pins: PinsOf = NO_PINS
        self._parts: dict[str, _PinnedPart] = {}
        self._uses: Counter[int] = Counter()
        self._leads: dict[int, _PathGroup] = {}
        self._names = defaultdict[Dpid, dict[str, bool]](dict)
        """Owners that have pins to a leaf on this switch, by leaf. The value is True if such a pin begins at another
        switch."""
        self._rules = RuleSet()

    def of(
        self, control: RuleSet, default: DefaultPart, ways: Ways, hosts: Mapping[str, Host], pins: PinsOf
    ) -> RuleSet:
        """Return the rules of the switch; the same object while nothing changes.

        ``pins``: pins on the switch, by owner."""
        known, base = self._base, _Base(control, default, ways)
        if known is None:
            self._begin(base)
            known = base
        changed = {name: of_name for name, _, of_name in differing(self._pins, pins)}
        same = known.control is control and known.default is default and known.ways == ways
        if same and not changed:
            return self._rules
        meters = Edits(self._rules.meters)
        flows, groups, self._pins = Edits(self._rules.flows), Edits(self._rules.groups), pins
        fits = True
        if not same:
            fits = self._follow_base(known, base, flows, groups, meters)
            again = self._follow_next_hops(known, base, groups)
            changed = {**{name: pins[name] for name in again if name in pins}, **changed}
        for name in changed:
            self._take_away(name, flows, groups)
        for name, of_name in changed.items():
            if of_name is not None:
                fits = self._add_pins(name, of_name, hosts, flows, groups) and fits
        self._rules = self._rules.updated(flows.changed, groups.changed, meters.changed)
        if not fits:
            self._base = None
            every = _pinned_part(base, self._to, hosts, chain.from_iterable(pins.values()))
            groups_of_all = *default.groups.values(), *every.groups.values()
            self._rules = RuleSet.of((*_flows_without_pins(base), *every.flows), groups_of_all, control.meters.values())
        return self._rules

    def _begin(self, base: _Base) -> None:
        self._pins, self._parts, self._uses, self._leads = NO_PINS, {}, Counter(), {}
        self._names.clear()
        self._rules = RuleSet.of(_flows_without_pins(base), base.default.groups.values(), base.control.meters.values())
        self._base, self._to = base, dict(base.ways.to)

    def _follow_base(
        self,
        before: _Base,
        base: _Base,
        flows: Edits[FlowKey, FlowRule],
        groups: Edits[int, GroupRule],
        meters: Edits[int, MeterRule],
    ) -> bool:
        """Update all rules except pins and path groups.

        Return False if the id of a path group is also the id of another group after the update."""
        _change(
            flows,
            {rule.key: rule for rule in _flows_without_pins(before)},
            {rule.key: rule for rule in _flows_without_pins(base)},
        )
        _change(groups, before.default.groups, base.default.groups)
        _change(meters, before.control.meters, base.control.meters)
        return self._uses.keys().isdisjoint(base.default.groups)

    def _follow_next_hops(self, before: _Base, base: _Base, groups: Edits[int, GroupRule]) -> list[str]:
        """Update path groups whose next hops changed, and return the owners of pins that must be derived again.

        If a leaf has become reachable or unreachable, or its distance has changed, all pins to the leaf must be derived
        again. If only the next hops to the leaf have changed, only pins that begin at another switch must be derived
        again."""
        to, self._base, self._to = self._to, base, dict(base.ways.to)
        leaves = to.keys() | self._to.keys()
        other = {leaf for leaf in leaves if to.get(leaf, NO_WAY).hops != self._to.get(leaf, NO_WAY).hops}
        for group_id, (leaf, port) in self._leads.items():
            if leaf in other and ecmp_group_id(leaf) in base.default.groups:
                groups.changed[group_id] = _path_group(base.ways.dpid, leaf, port, self._to.get(leaf, NO_WAY))
        anew: dict[str, None] = {}
        for leaf in leaves:
            ecmp_id = ecmp_group_id(leaf)
            there, was_there = ecmp_id in base.default.groups, ecmp_id in before.default.groups
            if there != was_there or to.get(leaf, NO_WAY).distance != self._to.get(leaf, NO_WAY).distance:
                anew.update(dict.fromkeys(self._names.get(leaf, ())))
            elif leaf in other:
                anew.update(dict.fromkeys(name for name, through in self._names.get(leaf, {}).items() if through))
        return list(anew)

    def _take_away(self, name: str, flows: Edits[FlowKey, FlowRule], groups: Edits[int, GroupRule]) -> None:
        part = self._parts.pop(name, None)
        if part is None:
            return
        flows.changed.update(dict.fromkeys(rule.key for rule in part.flows))
        for leaf in part.leaves:
            del self._names[leaf][name]
        for group_id in part.groups:
            self._uses[group_id] -= 1
            if not self._uses[group_id]:
                del self._uses[group_id], self._leads[group_id]
                groups.changed[group_id] = None

    def _add_pins(
        self,
        name: str,
        pins: tuple[Pin, ...],
        hosts: Mapping[str, Host],
        flows: Edits[FlowKey, FlowRule],
        groups: Edits[int, GroupRule],
    ) -> bool:
        """Add the rules of an owner's pins.

        Returns False if two different groups have the same id, or two rules the same key. The caller must then
        derive all rules of the switch together."""
        assert self._base
        part = self._parts[name] = _pinned_part(self._base, self._to, hosts, pins)
        self._uses.update(part.groups.keys())
        self._leads |= part.leads
        for leaf, through in part.leaves.items():
            self._names[leaf][name] = through
        fits = not any(flows.get(rule.key) for rule in part.flows)
        flows.changed.update({rule.key: rule for rule in part.flows})
        for group_id, group in part.groups.items():
            there = groups.get(group_id)
            if there is None:
                groups.changed[group_id] = group
            fits = there in (None, group) and fits
        return fits


def _change(changes: Edits[Key, AnyRule], before: Mapping[Key, AnyRule], now: Mapping[Key, AnyRule]) -> None:
    """Add the differences between ``before`` and ``now`` to the changes, even if rules differ only in ``distance``."""
    changes.changed |= dict.fromkeys(before.keys() - now.keys())
    changes.changed |= {key: rule for key, rule in now.items() if not _same(before.get(key), rule)}


def _same(rule: Rule | None, other: Rule) -> bool:
    return rule is other or (rule == other and getattr(rule, "distance", 0) == getattr(other, "distance", 0))


def _flows_without_pins(base: _Base) -> tuple[FlowRule, ...]:
    return (*base.control.flows.values(), flow_tables.MISS_RULE, *base.default.flows)


class _PinnedPart(NamedTuple):
    flows: list[FlowRule]
    groups: dict[int, GroupRule]
    leads: dict[int, _PathGroup]
    leaves: dict[Dpid, bool]


def _pinned_part(base: _Base, to: Mapping[Dpid, WayTo], hosts: Mapping[str, Host], pins: Iterable[Pin]) -> _PinnedPart:
    part, here = _PinnedPart([], {}, {}, {}), base.ways.dpid
    for pin in pins:
        if pin.learning:
            part.flows.append(flow_tables.counting_rule(pin, 0))
            continue
        leaf = hosts[pin.flow.dst_ip].at.dpid
        begins, way = hosts[pin.flow.src_ip].at.dpid == here, to.get(leaf, NO_WAY)
        part.leaves[leaf] = part.leaves.get(leaf, False) or not begins
        rule = flow_tables.pin_rule(pin, here, way.hops, partial(path_group_id, leaf))
        if rule is not None and _add_path_group(pin, base, leaf, way, part):
            part.flows.append(rule)
        elif begins:
            part.flows.append(flow_tables.counting_rule(pin, way.distance))
    return part


def _add_path_group(pin: Pin, base: _Base, leaf: Dpid, way: WayTo, part: _PinnedPart) -> bool:
    """Add the path group of a pin's rule; return False if the group cannot exist.

    A path group fails over to the switch's ECMP group for the same leaf, so this ECMP group must exist. Group ids are
    hashes, and no other group may have the id of the path group. The ``distance`` of the path group is the present
    distance to the leaf: the path of an outdated pin may be longer or shorter."""
    port = next(hop.port for hop in pin.path or () if hop.dpid == base.ways.dpid)
    group = _path_group(base.ways.dpid, leaf, port, way)
    if ecmp_group_id(leaf) not in base.default.groups or group.group_id in base.default.groups:
        return False
    part.leads.setdefault(group.group_id, _PathGroup(leaf, port))
    return part.groups.setdefault(group.group_id, group) == group


def _path_group(dpid: Dpid, leaf: Dpid, port: PortNo, way: WayTo) -> GroupRule:
    usable = LinkId(dpid, port) in way.hops
    return flow_tables.path_group(path_group_id(leaf, port), port, usable, ecmp_group_id(leaf), way.distance)


# ---- rules to unknown hosts


class KeepUnknown:
    """Desired rules, plus installed rules that lead to hosts that this controller does not know yet.

    After a restart, the switch of such a host may connect later than other switches. The rules to the host are kept
    until then, with their groups. A rule to a ``closed`` port is not kept, because the port may soon lead anywhere.
    Only installed rules that have changed are examined."""

    def __init__(self, gateways: Iterable[Gateway] = ()) -> None:
        self._ip_of = {gateway.mac: gateway.ip for gateway in gateways}
        self._hosts: Mapping[str, Host] = {}
        self._prefixes: dict[int, frozenset[Prefix]] = {}
        self._installed: dict[Dpid, Mapping[FlowKey, FlowRule]] = {}
        self._unknown: defaultdict[Dpid, dict[FlowKey, FlowRule]] = defaultdict(dict)

    def __call__(
        self,
        hosts: Mapping[str, Host],
        desired: Mapping[Dpid, RuleSet],
        installed: Mapping[Dpid, RuleSet],
        closed: Iterable[PortRef] = (),
    ) -> dict[Dpid, RuleSet]:
        self._follow_hosts(hosts)
        for gone in self._installed.keys() - desired.keys():
            del self._installed[gone], self._unknown[gone]
        closed_ports = ports_by_switch(closed)
        return {
            dpid: self._with_unknown(dpid, rules, installed.get(dpid, NO_RULES), closed_ports.get(dpid, NO_PORTS))
            for dpid, rules in desired.items()
        }

    def _follow_hosts(self, hosts: Mapping[str, Host]) -> None:
        """Update the rules to unknown hosts; after hosts have vanished, examine all rules again."""
        before, self._hosts = self._hosts, hosts
        if hosts.keys() == before.keys():
            return
        self._prefixes.clear()
        if before.keys() - hosts.keys():
            self._installed.clear()
            self._unknown.clear()
        for unknown in self._unknown.values():
            for key in [key for key in unknown if not self._is_unknown(key)]:
                del unknown[key]

    def _with_unknown(self, dpid: Dpid, desired: RuleSet, installed: RuleSet, closed: frozenset[PortNo]) -> RuleSet:
        unknown = self._unknown[dpid]
        for key, _, rule in differing(self._installed.get(dpid, {}), installed.flows):
            unknown.pop(key, None)
            if rule is not None and self._is_unknown(key):
                unknown[key] = rule
        self._installed[dpid] = installed.flows
        kept = {key: rule for key, rule in unknown.items() if key not in desired.flows}
        if closed:
            groups_of = {key: RuleSet(groups=installed.groups_of([rule])) for key, rule in kept.items()}
            kept = {key: rule for key, rule in kept.items() if closed.isdisjoint(groups_of[key].group_ports)}
        groups = installed.groups_of(kept.values())
        return desired.updated(
            kept, {number: group for number, group in groups.items() if number not in desired.groups}
        )

    def _is_unknown(self, key: FlowKey) -> bool:
        gateway = self._ip_of.get(key.match.eth_dst or "")
        if gateway is not None and gateway not in self._hosts:
            return True
        return not all(map(self._is_known, key.match.ends))

    def _is_known(self, prefix: Prefix) -> bool:
        length = prefix.length
        if prefix.is_host:
            return prefix.address in self._hosts
        if length not in self._prefixes:
            self._prefixes[length] = frozenset(prefix_of(ip, length) for ip in self._hosts)
        return prefix in self._prefixes[length]


# ---- lost next hops


def narrowed(
    desired: Mapping[Dpid, RuleSet], links: Mapping[LinkId, Link], lost: Iterable[LinkId], leaves: Iterable[Dpid]
) -> dict[Dpid, RuleSet]:
    """Return the rules without next hops over lost links, for the switches whose rules change.

    ``desired``: rules before the loss. ``links``: links of the fabric before the loss. ``lost``: links that were lost.
    ``leaves``: switches with hosts, to which groups lead.

    A group that would lose its last next hop is not changed: the link may still work, whereas an empty group loses
    packets. Instead, other switches stop using the group's switch as a next hop to the same destination. Only next hops
    are removed, so the change is safe at any time. The time is proportional to the number of changed groups."""
    return _Narrowing(desired, links, leaves).without(lost)


class _Narrowing:
    def __init__(self, desired: Mapping[Dpid, RuleSet], links: Mapping[LinkId, Link], leaves: Iterable[Dpid]) -> None:
        self._desired = desired
        self._links = links
        self._leaf_of = {ecmp_group_id(leaf): leaf for leaf in leaves}
        self._groups: dict[Dpid, dict[int, GroupRule]] = {}
        self._cut_off: dict[tuple[Dpid, Dpid], None] = {}

    def without(self, lost: Iterable[LinkId]) -> dict[Dpid, RuleSet]:
        for link in lost:
            for group in list(self._groups_at(link.dpid).values()):
                self._remove_bucket(link.dpid, group, link.port)
        waiting = list(self._cut_off)
        while waiting:
            dpid, leaf = waiting.pop()
            known = len(self._cut_off)
            for link in self._links_into.get(dpid, ()):
                for group_id in (ecmp_group_id(leaf), path_group_id(leaf, link.port)):
                    if upstream := self._groups_at(link.dpid).get(group_id):
                        self._remove_bucket(link.dpid, upstream, link.port)
            waiting += list(self._cut_off)[known:]
        return {dpid: replace(self._desired[dpid], groups=groups) for dpid, groups in self._groups.items()}

    def _remove_bucket(self, dpid: Dpid, group: GroupRule, port: PortNo) -> None:
        for bucket in group.buckets:  # most groups have no bucket with this port
            if bucket.watch_port == port:
                break
        else:
            return
        left = tuple(bucket for bucket in group.buckets if bucket.watch_port != port)
        if left:
            groups = self._groups.setdefault(dpid, dict(self._desired[dpid].groups.items()))
            groups[group.group_id] = GroupRule(group.group_id, group.kind, left, group.distance)
        elif group.group_id in self._leaf_of:
            self._cut_off[dpid, self._leaf_of[group.group_id]] = None

    def _groups_at(self, dpid: Dpid) -> Mapping[int, GroupRule]:
        rules = self._desired.get(dpid)
        return self._groups.get(dpid, rules.groups) if rules else {}

    @cached_property
    def _links_into(self) -> LinksInto:
        return links_into(self._links)
