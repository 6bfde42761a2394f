"""The three tables of every switch, computed from the fabric and the pins.

In: one fabric snapshot, the pins, the rules that are installed now. Out: the rules each switch should have. Group ids
are a function of what the group is for, never of when it was made, so the same fabric and pins give the same rules in
every process.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import NamedTuple

from controller.fabric.shortest_paths import ShortestPaths, Towards
from controller.fabric.topology import Dpid, Fabric, Host, LinkId, PortNo, Switch, ports_by_switch
from controller.fabric.topology_state import hosts_by_leaf
from controller.memo import Memo, MemoPerKey
from controller.shared_map import Changes, differing, updated
from controller.tables import control_table, default_table, dropped, pinned_table
from controller.tables.default_table import Gateway, GatewayPorts
from controller.tables.pinned_table import Pin
from controller.tables.rules import FlowKey, FlowRule, GroupRule, Prefix, RuleSet, Table, ToGroup, stable_hash

GROUP_ID_BITS = 31

PinsOf = Mapping[str, tuple[Pin, ...]]
"""By what they were made for."""

NO_PINS: PinsOf = {}
NO_RULES = RuleSet()


@dataclass(frozen=True, slots=True)
class PipelineSettings:
    """``punt_rate_pps``: packets per second a port may hand to the controller. ``leaf_prefix_length``: of the prefixes
    that leaves own."""

    punt_rate_pps: int
    leaf_prefix_length: int
    gateways: tuple[Gateway, ...] = ()


def ecmp_group_id(leaf: Dpid) -> int:
    """The group "any next hop towards this switch"; the same number on every switch."""
    return stable_hash(GROUP_ID_BITS, "ecmp", leaf)


def path_group_id(leaf: Dpid, port: PortNo) -> int:
    """The group "towards this switch, out of this port first"."""
    return stable_hash(GROUP_ID_BITS, "path", leaf, port)


class _Ways(NamedTuple):
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
class _Part:
    """Some of a switch's rules. Another object whenever they are derived anew: equal rules may differ in their
    ``distance``."""

    flows: tuple[FlowRule, ...]
    groups: Mapping[int, GroupRule]


class Pipeline:
    """Derives what every connected switch should hold: each table from what it follows from, so that a job that comes
    changes the pinned tables only. A switch for which nothing has changed gets the same ``RuleSet`` object again."""

    def __init__(self, settings: PipelineSettings) -> None:
        self._settings = settings
        self._paths = ShortestPaths()
        self._hosts: Mapping[str, Host] = {}
        self._leaves: Mapping[Dpid, list[Host]] = {}
        self._prefixes: Mapping[Prefix, Dpid] = {}
        self._gateways: GatewayPorts = ()
        self._towards = Memo(self._paths.towards)
        self._ways = MemoPerKey[Dpid, Dpid, Mapping[Dpid, Towards], Mapping[int, GroupRule], _Ways](_ways)
        self._fabric_ports = Memo(ports_by_switch)
        self._control = MemoPerKey[Dpid, Switch, frozenset[PortNo], tuple[Host, ...], int, RuleSet](
            control_table.control_rules
        )
        self._default = MemoPerKey[Dpid, tuple[Host, ...], Mapping[Prefix, Dpid], GatewayPorts, _Ways, _Part](
            _default_part
        )
        self._at = _PinsAt()
        self._rules = defaultdict[Dpid, _SwitchRules](_SwitchRules)

    def desired(
        self, fabric: Fabric, pins: Iterable[Pin], installed: Mapping[Dpid, RuleSet], carrying: Fabric | None = None
    ) -> Mapping[Dpid, RuleSet]:
        """The rules of every switch. ``carrying``: with the links that packets may be sent over, when these are fewer.
        A destination that has lost its last next hop keeps the group it has on the switch: the controller's picture may
        be wrong, and an empty group is certain loss.
        """
        self._place(fabric, installed)
        towards = self._towards(carrying or fabric, self._leaves)
        pins_at, ports = self._at.follow(fabric.hosts, pins), self._fabric_ports(fabric.links)
        ways = self._ways({dpid: (dpid, towards, installed.get(dpid, NO_RULES).groups) for dpid in fabric.switches})
        hosts = {dpid: tuple(self._leaves.get(dpid, ())) for dpid in fabric.switches}
        rate_pps = self._settings.punt_rate_pps
        control = self._control(
            {
                dpid: (switch, ports.get(dpid, frozenset()), hosts[dpid], rate_pps)
                for dpid, switch in fabric.switches.items()
            }
        )
        default = self._default(
            {dpid: (hosts[dpid], self._prefixes, self._gateways, ways[dpid]) for dpid in fabric.switches}
        )
        base = {dpid: (control[dpid], default[dpid], ways[dpid], fabric.hosts) for dpid in fabric.switches}
        return {dpid: self._rules[dpid].of(*of_it, pins_at.get(dpid, NO_PINS)) for dpid, of_it in base.items()}

    def _place(self, fabric: Fabric, installed: Mapping[Dpid, RuleSet]) -> None:
        """Where prefixes and gateways are is decided when hosts change, and stays until they change again."""
        if fabric.hosts is self._hosts:
            return
        self._hosts, self._leaves = fabric.hosts, hosts_by_leaf(fabric)
        found = ((gateway.mac, fabric.hosts.get(gateway.ip)) for gateway in self._settings.gateways)
        self._gateways = tuple((mac, host.at) for mac, host in found if host)
        length = self._settings.leaf_prefix_length
        present = _present_owners(installed, self._leaves, length)
        self._prefixes = default_table.destination_prefixes(fabric, length, present)


def _ways(dpid: Dpid, towards: Mapping[Dpid, Towards], installed: Mapping[int, GroupRule]) -> _Ways:
    leaves = tuple(leaf for leaf in towards if leaf != dpid)
    hops = tuple(towards[leaf].hops.get(dpid, ()) for leaf in leaves)
    distance = tuple(towards[leaf].distance.get(dpid, 1) for leaf in leaves)
    lost = (ecmp_group_id(leaf) for leaf, out in zip(leaves, hops, strict=True) if not out)
    kept = tuple(installed[group_id] for group_id in lost if group_id in installed)
    return _Ways(dpid, leaves, hops, distance, kept)


def _present_owners(
    installed: Mapping[Dpid, RuleSet], leaves: Iterable[Dpid], prefix_length: int
) -> dict[Prefix, Dpid]:
    """Which switch the installed rules send each prefix to."""
    leaf_of = {ecmp_group_id(leaf): leaf for leaf in leaves}
    owners: dict[Prefix, Dpid] = {}
    for rules in installed.values():
        for key, rule in rules.flows.items():
            prefix = key.match.ipv4_dst
            if key.table != Table.DEFAULT or prefix is None or prefix.length != prefix_length:
                continue
            for action in rule.actions:
                if isinstance(action, ToGroup) and action.group_id in leaf_of:
                    owners[prefix] = leaf_of[action.group_id]
    return owners


class _PinsAt:
    """Which pins concern which switch, by what they were made for; looks again at what has other pins only."""

    def __init__(self) -> None:
        self._hosts: Mapping[str, Host] = {}
        self._of: Mapping[str, tuple[Pin, ...]] = {}
        self._switches: dict[str, tuple[Dpid, ...]] = {}
        self._at: dict[Dpid, PinsOf] = {}

    def follow(self, hosts: Mapping[str, Host], pins: Iterable[Pin]) -> Mapping[Dpid, PinsOf]:
        now: PinsOf = getattr(pins, "of", None) or {"": tuple(pins)}
        if hosts is not self._hosts:
            self._hosts, self._of = hosts, {}
            self._switches.clear()
            self._at.clear()
        before, self._of = self._of, now
        changes: defaultdict[Dpid, dict[str, tuple[Pin, ...] | None]] = defaultdict(dict)
        for name, _, of_name in differing(before, now):
            found = _by_switch(hosts, of_name or ())
            for dpid in self._switches.pop(name, ()):
                if dpid not in found:
                    changes[dpid][name] = None
            if found:
                self._switches[name] = tuple(found)
            for dpid, here in found.items():
                pins_here = tuple(here)
                if self._at.get(dpid, NO_PINS).get(name) != pins_here:
                    changes[dpid][name] = pins_here
        for dpid, changed in changes.items():
            self._at[dpid] = updated(self._at.get(dpid, NO_PINS), changed)
        return self._at


def _by_switch(hosts: Mapping[str, Host], pins: Iterable[Pin]) -> dict[Dpid, list[Pin]]:
    at: dict[Dpid, list[Pin]] = defaultdict(list)
    for pin in pins:
        source = hosts[pin.flow.src_ip].at.dpid
        for dpid in dict.fromkeys((source, *(hop.dpid for hop in pin.path or ()))):
            at[dpid].append(pin)
    return at


class _SwitchRules:
    """The rules of one switch. While only pins change, the rules of the other pins are taken over, and no rule that
    stays becomes another object."""

    def __init__(self) -> None:
        self._base: tuple[RuleSet, _Part, _Ways, Mapping[str, Host]] | None = None
        self._pins: PinsOf = NO_PINS
        self._parts: dict[str, _Part] = {}
        self._uses: Counter[int] = Counter()
        self._rules = RuleSet()

    def of(
        self,
        control: RuleSet,
        default: _Part,
        ways: _Ways,
        hosts: Mapping[str, Host],
        pins: PinsOf,
    ) -> RuleSet:
        base = control, default, ways, hosts
        known = self._base
        if known is None or not (
            known[0] is control and known[1] is default and known[2] == ways and known[3] is hosts
        ):
            self._pins, self._parts, self._uses = NO_PINS, {}, Counter()
            first = (*control.flows.values(), pinned_table.miss_rule(), *default.flows)
            self._rules = RuleSet.of(first, default.groups.values(), control.meters.values())
            self._base = base
        changed = {name: of_name for name, _, of_name in differing(self._pins, pins)}
        if not changed:
            return self._rules
        flows, groups, self._pins = Changes(self._rules.flows), Changes(self._rules.groups), pins
        for name in changed:
            self._take_away(name, flows, groups, default.groups)
        fits = True
        for name, of_name in changed.items():
            if of_name is not None:
                fits = self._add(name, of_name, base, flows, groups) and fits
        self._rules = self._rules.updated(flows.changed, groups.changed)
        if not fits:
            self._base = None
            self._rules = _joined(
                control, default, _pinned_part(hosts, ways, default.groups, chain.from_iterable(pins.values()))
            )
        return self._rules

    def _take_away(
        self,
        name: str,
        flows: Changes[FlowKey, FlowRule],
        groups: Changes[int, GroupRule],
        kept: Mapping[int, GroupRule],
    ) -> None:
        part = self._parts.pop(name, None)
        if part is None:
            return
        flows.changed.update(dict.fromkeys(rule.key for rule in part.flows))
        for group_id in part.groups:
            self._uses[group_id] -= 1
            if not self._uses[group_id] and group_id not in kept:
                groups.changed[group_id] = None

    def _add(
        self,
        name: str,
        pins: tuple[Pin, ...],
        base: tuple[RuleSet, _Part, _Ways, Mapping[str, Host]],
        flows: Changes[FlowKey, FlowRule],
        groups: Changes[int, GroupRule],
    ) -> bool:
        """False when a group's id is taken by another group, or a rule's place by another rule: then all has to be
        looked at together."""
        _, default, ways, hosts = base
        part = _pinned_part(hosts, ways, default.groups, pins)
        own = {group_id: group for group_id, group in part.groups.items() if group_id not in default.groups}
        own_flows = part.flows[1:]  # without the miss rule
        self._parts[name] = _Part(own_flows, own)
        self._uses.update(own.keys())
        fits = not any(flows.get(rule.key) for rule in own_flows)
        flows.changed.update({rule.key: rule for rule in own_flows})
        for group_id, group in own.items():
            there = groups.get(group_id)
            if there is None:
                groups.changed[group_id] = group
            fits = there in (None, group) and fits
        return fits


def _default_part(
    hosts: tuple[Host, ...], prefixes: Mapping[Prefix, Dpid], gateways: GatewayPorts, ways: _Ways
) -> _Part:
    """The default table of one switch and its ECMP groups."""
    groups = {group.group_id: group for group in ways.kept}
    for leaf, hops, distance in zip(ways.leaves, ways.hops, ways.distance, strict=True):
        if hops:
            group_id = ecmp_group_id(leaf)
            groups[group_id] = default_table.ecmp_group(group_id, hops, distance)
    group_of = {leaf: ecmp_group_id(leaf) for leaf in ways.leaves if ecmp_group_id(leaf) in groups}
    routed = default_table.routed_rules(ways.dpid, prefixes, group_of, ways.distances)
    onward = default_table.gateway_rules(ways.dpid, gateways, group_of, ways.distances)
    return _Part((*default_table.host_rules(hosts), *routed, *onward, *dropped.RULES), groups)


def _pinned_part(
    hosts: Mapping[str, Host], ways: _Ways, ecmp_groups: Mapping[int, GroupRule], pins: Iterable[Pin]
) -> _Part:
    """The pinned table of one switch, the entry for a miss first, and the path groups that its pins point at."""
    flows, groups = [pinned_table.miss_rule()], dict(ecmp_groups)
    hops_to, distances = dict(zip(ways.leaves, ways.hops, strict=True)), ways.distances
    for pin in pins:
        if pin.learning:
            flows.append(pinned_table.counting_rule(pin, 0))
            continue
        leaf = hosts[pin.flow.dst_ip].at.dpid
        hops = hops_to.get(leaf, ())
        rule = pinned_table.pin_rule(pin, ways.dpid, hops, partial(path_group_id, leaf))
        if rule is not None and _add_path_group(rule, pin, ways.dpid, leaf, hops, groups):
            flows.append(rule)
        elif hosts[pin.flow.src_ip].at.dpid == ways.dpid:
            flows.append(pinned_table.counting_rule(pin, distances.get(leaf, 0)))
    return _Part(tuple(flows), groups)


def _joined(control: RuleSet, default: _Part, pinned: _Part) -> RuleSet:
    """``pinned`` has the groups of both parts."""
    flows = (*control.flows.values(), *pinned.flows, *default.flows)
    return RuleSet.of(flows, pinned.groups.values(), control.meters.values())


def _add_path_group(
    rule: FlowRule, pin: Pin, here: Dpid, leaf: Dpid, hops: Iterable[LinkId], groups: dict[int, GroupRule]
) -> bool:
    """False when the group cannot stand: nothing to fall back to, or (one in millions) its id is taken."""
    ecmp_id = ecmp_group_id(leaf)
    if ecmp_id not in groups:
        return False
    (action,) = rule.actions
    assert isinstance(action, ToGroup)
    hop = next(hop for hop in pin.path or () if hop.dpid == here)
    group = pinned_table.path_group(action.group_id, hop.port, hop in hops, ecmp_id, rule.distance)
    return groups.setdefault(group.group_id, group) == group
