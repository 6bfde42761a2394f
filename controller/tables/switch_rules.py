"""The rules of one switch, from what it has without pins and the pins that concern it.

Group ids are a function of what the group is for, never of when it was made, so the same fabric and pins give the same
rules in every process, and groups of a switch can be told from those of others.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import NamedTuple, TypeVar

from controller.fabric.topology import Dpid, Fabric, Host, LinkId, PortNo
from controller.shared_map import Edits, differing
from controller.tables import pinned_table
from controller.tables.pinned_table import Pin
from controller.tables.rules import FlowKey, FlowRule, GroupRule, MeterRule, Rule, RuleSet, ToGroup, stable_hash

Key = TypeVar("Key", bound=Hashable)
AnyRule = TypeVar("AnyRule", bound=Rule)

GROUP_ID_BITS = 31

PinsOf = Mapping[str, tuple[Pin, ...]]
"""By what they were made for."""

NO_PINS: PinsOf = {}


def ecmp_group_id(leaf: Dpid) -> int:
    """The group "any next hop towards this switch"; the same number on every switch."""
    return stable_hash(GROUP_ID_BITS, "ecmp", leaf)


def path_group_id(leaf: Dpid, port: PortNo) -> int:
    """The group "towards this switch, out of this port first"."""
    return stable_hash(GROUP_ID_BITS, "path", leaf, port)


class Ways(NamedTuple):
    """How a switch reaches the other ``leaves``: the next hops towards each, none where it is out of reach, and the
    distance. ``kept``: groups that the switch holds towards leaves out of reach."""

    dpid: Dpid
    leaves: tuple[Dpid, ...]
    hops: tuple[tuple[LinkId, ...], ...]
    distance: tuple[int, ...]
    kept: tuple[GroupRule, ...]

    @property
    def distances(self) -> dict[Dpid, int]:
        return dict(zip(self.leaves, self.distance, strict=True))


@dataclass(frozen=True, slots=True, eq=False)
class DefaultPart:
    """Some of a switch's rules. Another object whenever they are derived anew: equal rules may differ in their
    ``distance``."""

    flows: tuple[FlowRule, ...]
    groups: Mapping[int, GroupRule]


class _Base(NamedTuple):
    """What a switch has without pins, and how it reaches the leaves."""

    control: RuleSet
    default: DefaultPart
    ways: Ways


class _PathGroup(NamedTuple):
    """Where a path group leads: towards a leaf, out of a port first."""

    leaf: Dpid
    port: PortNo


class SwitchRules:
    """The rules of one switch. What stays is taken over: where only pins change, the rules of the other pins; where
    links change, all but the path groups towards leaves that are reached otherwise, and pins that begin elsewhere.
    No rule that stays becomes another object."""

    def __init__(self) -> None:
        self._base: _Base | None = None
        self._hops: Mapping[Dpid, tuple[LinkId, ...]] = {}
        self._distances: Mapping[Dpid, int] = {}
        self._pins: PinsOf = NO_PINS
        self._parts: dict[str, _PinnedPart] = {}
        self._uses: Counter[int] = Counter()
        self._leads: dict[int, _PathGroup] = {}
        self._names = defaultdict[Dpid, dict[str, bool]](dict)
        """Towards each leaf what has pins; whether some begin elsewhere."""
        self._rules = RuleSet()

    def of(
        self, control: RuleSet, default: DefaultPart, ways: Ways, hosts: Mapping[str, Host], pins: PinsOf
    ) -> RuleSet:
        known, base = self._base, _Base(control, default, ways)
        if known is None:
            self._begin(base)
            known = base
        changed = {name: of_name for name, _, of_name in differing(self._pins, pins)}
        same = known.control is control and known.default is default and (known.ways is ways or known.ways == ways)
        if same and not changed:
            return self._rules
        meters = Edits(self._rules.meters)
        flows, groups, self._pins = Edits(self._rules.flows), Edits(self._rules.groups), pins
        fits = True
        if not same:
            fits = self._follow(known, base, flows, groups, meters)
            again = self._other_ways(known, base, groups)
            changed = {**{name: pins[name] for name in again if name in pins}, **changed}
        for name in changed:
            self._take_away(name, flows, groups)
        for name, of_name in changed.items():
            if of_name is not None:
                fits = self._add(name, of_name, hosts, flows, groups) and fits
        self._rules = self._rules.updated(flows.changed, groups.changed, meters.changed)
        if not fits:
            self._base = None
            every = _pinned_part(base, self._hops, self._distances, hosts, chain.from_iterable(pins.values()))
            self._rules = _joined(control, default, every)
        return self._rules

    def _begin(self, base: _Base) -> None:
        self._pins, self._parts, self._uses, self._leads = NO_PINS, {}, Counter(), {}
        self._names.clear()
        self._rules = RuleSet.of(_flows(base), base.default.groups.values(), base.control.meters.values())
        self._take_base(base)

    def _take_base(self, base: _Base) -> None:
        self._base, self._distances = base, base.ways.distances
        self._hops = dict(zip(base.ways.leaves, base.ways.hops, strict=True))

    def _follow(
        self,
        before: _Base,
        base: _Base,
        flows: Edits[FlowKey, FlowRule],
        groups: Edits[int, GroupRule],
        meters: Edits[int, MeterRule],
    ) -> bool:
        """Everything but pins and path groups. False when one of these has the id of another group now."""
        _change(flows, {rule.key: rule for rule in _flows(before)}, {rule.key: rule for rule in _flows(base)})
        _change(groups, before.default.groups, base.default.groups)
        _change(meters, before.control.meters, base.control.meters)
        return self._uses.keys().isdisjoint(base.default.groups)

    def _other_ways(self, before: _Base, base: _Base, groups: Edits[int, GroupRule]) -> list[str]:
        """Path groups lead elsewhere where next hops are others. What has pins that have to be looked at: where there
        is a way now and was none, or the other way round, and pins that begin elsewhere."""
        hops, distances = self._hops, self._distances
        self._take_base(base)
        leaves = hops.keys() | self._hops.keys()
        other = {leaf for leaf in leaves if hops.get(leaf) != self._hops.get(leaf)}
        for group_id, (leaf, port) in self._leads.items():
            ecmp_id = ecmp_group_id(leaf)
            if leaf in other and ecmp_id in base.default.groups:
                usable = LinkId(base.ways.dpid, port) in self._hops.get(leaf, ())
                distance = self._distances.get(leaf, self._rules.groups[group_id].distance)
                groups.changed[group_id] = pinned_table.path_group(group_id, port, usable, ecmp_id, distance)
        anew: dict[str, None] = {}
        for leaf in leaves:
            ecmp_id = ecmp_group_id(leaf)
            there, was_there = ecmp_id in base.default.groups, ecmp_id in before.default.groups
            if there != was_there or distances.get(leaf) != self._distances.get(leaf):
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

    def _add(
        self,
        name: str,
        pins: tuple[Pin, ...],
        hosts: Mapping[str, Host],
        flows: Edits[FlowKey, FlowRule],
        groups: Edits[int, GroupRule],
    ) -> bool:
        """False when a group's id is taken by another group, or a rule's place by another rule: then all has to be
        looked at together."""
        assert self._base
        part = self._parts[name] = _pinned_part(self._base, self._hops, self._distances, hosts, pins)
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
    """Where rules are others, or equal ones at another distance."""
    changes.changed |= dict.fromkeys(before.keys() - now.keys())
    changes.changed |= {key: rule for key, rule in now.items() if not _same(before.get(key), rule)}


def _same(rule: Rule | None, other: Rule) -> bool:
    return rule is other or (rule == other and getattr(rule, "distance", 0) == getattr(other, "distance", 0))


def _flows(base: _Base) -> tuple[FlowRule, ...]:
    """Those that no pin has made."""
    return (*base.control.flows.values(), pinned_table.miss_rule(), *base.default.flows)


class _PinnedPart(NamedTuple):
    """Rules that some pins have on one switch. ``leads``: of each of these path groups. ``leaves``: towards which the
    pins lead; whether some of them begin at another switch."""

    flows: list[FlowRule]
    groups: dict[int, GroupRule]
    leads: dict[int, _PathGroup]
    leaves: dict[Dpid, bool]


def _pinned_part(
    base: _Base,
    hops_to: Mapping[Dpid, tuple[LinkId, ...]],
    distances: Mapping[Dpid, int],
    hosts: Mapping[str, Host],
    pins: Iterable[Pin],
) -> _PinnedPart:
    """Entries of the pinned table of one switch, and the path groups that they point at."""
    part, here = _PinnedPart([], {}, {}, {}), base.ways.dpid
    for pin in pins:
        if pin.learning:
            part.flows.append(pinned_table.counting_rule(pin, 0))
            continue
        leaf = hosts[pin.flow.dst_ip].at.dpid
        begins = hosts[pin.flow.src_ip].at.dpid == here
        part.leaves[leaf] = part.leaves.get(leaf, False) or not begins
        rule = pinned_table.pin_rule(pin, here, hops_to.get(leaf, ()), partial(path_group_id, leaf))
        if rule is not None and _add_path_group(rule, pin, base, leaf, hops_to, distances, part):
            part.flows.append(rule)
        elif begins:
            part.flows.append(pinned_table.counting_rule(pin, distances.get(leaf, 0)))
    return part


def _joined(control: RuleSet, default: DefaultPart, pinned: _PinnedPart) -> RuleSet:
    flows = (*control.flows.values(), pinned_table.miss_rule(), *pinned.flows, *default.flows)
    return RuleSet.of(flows, (*default.groups.values(), *pinned.groups.values()), control.meters.values())


def _add_path_group(
    rule: FlowRule,
    pin: Pin,
    base: _Base,
    leaf: Dpid,
    hops_to: Mapping[Dpid, tuple[LinkId, ...]],
    distances: Mapping[Dpid, int],
    part: _PinnedPart,
) -> bool:
    """False when the group cannot stand: nothing to fall back to, or (one in millions) its id is taken. Its distance is
    that of now: a pin whose turn has not come may be of another path, which the same port began."""
    ecmp_id, others = ecmp_group_id(leaf), base.default.groups
    if ecmp_id not in others:
        return False
    (action,) = rule.actions
    assert isinstance(action, ToGroup)
    hop = next(hop for hop in pin.path or () if hop.dpid == base.ways.dpid)
    usable, distance = hop in hops_to.get(leaf, ()), distances.get(leaf, rule.distance)
    group = pinned_table.path_group(action.group_id, hop.port, usable, ecmp_id, distance)
    if group.group_id in others:
        return False
    part.leads.setdefault(group.group_id, _PathGroup(leaf, hop.port))
    return part.groups.setdefault(group.group_id, group) == group


# ---- what is read back


def possible_groups(dpid: Dpid, fabric: Fabric, known: Iterable[Dpid] = ()) -> dict[int, Dpid]:
    """Return the ids that groups of a switch can have, with the switch that each group leads to. ``known``: switches
    that may not be in the fabric yet."""
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
    """Return the read-back of a switch in two parts, ours and foreign; ``read`` itself when all of it is ours.

    Flows say by their cookie whose they are, and those that are not ours are not read. Of groups and meters ours is
    what flows of ours use, what we put there (``believed``), and what has an id that this fabric gives: group ids are
    hashes of what the group is for, meters are numbered like ports. ``known``: switches that may not be in the fabric
    yet, and groups may lead to."""
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
