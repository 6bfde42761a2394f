"""Rules of one switch, derived from its rules without pins and from the pins that lead over the switch.

A group id depends only on the purpose of the group, never on the time of its creation. The same fabric and pins thus
give the same rules in every process, and the controller can tell its own groups on a switch from foreign groups.
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
from controller.tables.rules import FlowKey, FlowRule, GroupRule, MeterRule, Rule, RuleSet, stable_hash

Key = TypeVar("Key", bound=Hashable)
AnyRule = TypeVar("AnyRule", bound=Rule)

GROUP_ID_BITS = 31

PinsOf = Mapping[str, tuple[Pin, ...]]
"""Pins by owner."""

NO_PINS: PinsOf = {}


def ecmp_group_id(leaf: Dpid) -> int:
    """Return the id of the group "any next hop to this switch", which is the same on every switch."""
    return stable_hash(GROUP_ID_BITS, "ecmp", leaf)


def path_group_id(leaf: Dpid, port: PortNo) -> int:
    """Return the id of the group "to this switch, first out of this port"."""
    return stable_hash(GROUP_ID_BITS, "path", leaf, port)


class Ways(NamedTuple):
    """Next hops of a switch to the other leaves."""

    dpid: Dpid
    """Dpid of the switch itself."""
    leaves: tuple[Dpid, ...]
    hops: tuple[tuple[LinkId, ...], ...]
    """Next hops to each leaf, in the order of ``leaves``; empty for an unreachable leaf."""
    distance: tuple[int, ...]
    """Distance to each leaf in links, in the order of ``leaves``; 1 for an unreachable leaf."""
    kept: tuple[GroupRule, ...]
    """Installed groups to unreachable leaves, which are kept."""

    @property
    def distances(self) -> dict[Dpid, int]:
        return dict(zip(self.leaves, self.distance, strict=True))


@dataclass(frozen=True, slots=True, eq=False)
class DefaultPart:
    """Default table of a switch and its groups.

    Each derivation makes another object, because equal rules may differ in their ``distance``."""

    flows: tuple[FlowRule, ...]
    groups: Mapping[int, GroupRule]


class _Base(NamedTuple):
    """Rules of a switch without pins, and its next hops to the leaves."""

    control: RuleSet
    default: DefaultPart
    ways: Ways


class _PathGroup(NamedTuple):
    """Leaf to which a path group leads, and the port of its planned next hop."""

    leaf: Dpid
    port: PortNo


class SwitchRules:
    """Derivation of the rules of one switch.

    Only rules that may change are derived again. When a pin changes, the rules of all pins of its owner are derived
    again. When the next hops to a leaf change, the path groups to the leaf are derived again, and the rules of pins to
    the leaf that begin at another switch. An unchanged rule remains the same object."""

    def __init__(self) -> None:
        self._base: _Base | None = None
        self._hops: Mapping[Dpid, tuple[LinkId, ...]] = {}
        self._distances: Mapping[Dpid, int] = {}
        self._pins: PinsOf = NO_PINS
        self._parts: dict[str, _PinnedPart] = {}
        self._uses: Counter[int] = Counter()
        self._leads: dict[int, _PathGroup] = {}
        self._names = defaultdict[Dpid, dict[str, bool]](dict)
        """Owners of pins to each leaf; True if a pin of the owner to the leaf does not begin at this switch."""
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
        """Update all rules except pins and path groups; return False if a path group has the id of another group."""
        _change(flows, {rule.key: rule for rule in _flows(before)}, {rule.key: rule for rule in _flows(base)})
        _change(groups, before.default.groups, base.default.groups)
        _change(meters, before.control.meters, base.control.meters)
        return self._uses.keys().isdisjoint(base.default.groups)

    def _other_ways(self, before: _Base, base: _Base, groups: Edits[int, GroupRule]) -> list[str]:
        """Update path groups whose next hops changed, and return the owners of pins that must be derived again.

        A pin must be derived again if its leaf became reachable or unreachable, or if the distance of the leaf changed.
        If only the next hops to the leaf changed, this holds only for pins that begin at another switch."""
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
        """Add the rules of an owner's pins; return False if all rules must be derived together.

        Rules must be derived together when two different groups have the same id, or two rules have the same key."""
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
    """Record the rules that differ between ``before`` and ``now``, even if they differ only in ``distance``."""
    changes.changed |= dict.fromkeys(before.keys() - now.keys())
    changes.changed |= {key: rule for key, rule in now.items() if not _same(before.get(key), rule)}


def _same(rule: Rule | None, other: Rule) -> bool:
    return rule is other or (rule == other and getattr(rule, "distance", 0) == getattr(other, "distance", 0))


def _flows(base: _Base) -> tuple[FlowRule, ...]:
    """Return the flow rules of the switch that do not come from pins."""
    return (*base.control.flows.values(), pinned_table.miss_rule(), *base.default.flows)


class _PinnedPart(NamedTuple):
    """Rules of some pins on one switch."""

    flows: list[FlowRule]
    groups: dict[int, GroupRule]
    leads: dict[int, _PathGroup]
    """Leaf and first port of each path group, by group id."""
    leaves: dict[Dpid, bool]
    """Leaves to which the pins lead; the value is True if some pin to the leaf begins at another switch."""


def _pinned_part(
    base: _Base,
    hops_to: Mapping[Dpid, tuple[LinkId, ...]],
    distances: Mapping[Dpid, int],
    hosts: Mapping[str, Host],
    pins: Iterable[Pin],
) -> _PinnedPart:
    """Return entries of the pinned table of one switch, and their path groups."""
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
    """Add the path group of a rule; return False if the group cannot exist.

    A path group cannot exist without an ECMP group to fall back to or, once in millions, if another group has its id.
    The distance of the group is the present distance to the leaf, not the distance on the path of the pin. A pin that
    waits to be derived again may still have an earlier path that begins at the same port."""
    ecmp_id, others = ecmp_group_id(leaf), base.default.groups
    if ecmp_id not in others:
        return False
    hop = next(hop for hop in pin.path or () if hop.dpid == base.ways.dpid)
    usable, distance = hop in hops_to.get(leaf, ()), distances.get(leaf, rule.distance)
    group = pinned_table.path_group(path_group_id(leaf, hop.port), hop.port, usable, ecmp_id, distance)
    if group.group_id in others:
        return False
    part.leads.setdefault(group.group_id, _PathGroup(leaf, hop.port))
    return part.groups.setdefault(group.group_id, group) == group


# ---- rules read back from a switch


def possible_groups(dpid: Dpid, fabric: Fabric, known: Iterable[Dpid] = ()) -> dict[int, Dpid]:
    """Return the ids that groups of a switch can have, with the switch to which each group leads.

    ``known``: switches to which groups may lead although they are not in the fabric yet."""
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
    """Return the rules read from a switch in two sets, ours and foreign; ``read`` itself when all are ours.

    All flows in ``read`` are ours: foreign flows, which have other cookies, are not read. A group or meter is ours if a
    flow of ours uses it, or if the controller installed it (``believed``). It is also ours if its id is one that this
    fabric can have: group ids are hashes of the group's purpose, and meters have the numbers of ports. ``known``:
    switches that are not in the fabric yet, but to which groups may lead."""
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
