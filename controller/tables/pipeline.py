"""The three tables of every switch, computed from the fabric and the pins.

In: one fabric snapshot, the pins, the rules that are installed now. Out: the rules each switch should have. Group ids
are a function of what the group is for, never of when it was made, so the same fabric and pins give the same rules in
every process.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from ipaddress import IPv4Address, IPv4Network
from typing import NamedTuple

from controller.fabric.shortest_paths import ShortestPaths, Towards
from controller.fabric.topology import Dpid, Fabric, Host, LinkId, PortNo
from controller.fabric.topology_update import hosts_by_leaf
from controller.memo import MemoPerKey
from controller.tables import control_table, default_table, pinned_table
from controller.tables.pinned_table import Pin
from controller.tables.rules import FlowKey, FlowRule, GroupRule, Prefix, RuleSet, Table, ToGroup, stable_hash

GROUP_ID_BITS = 31


@dataclass(frozen=True, slots=True)
class PipelineSettings:
    """``punt_rate_pps``: packets per second a port may hand to the controller. ``leaf_prefix_length``: of the prefixes
    that leaves own."""

    punt_rate_pps: int
    leaf_prefix_length: int


def ecmp_group_id(leaf: Dpid) -> int:
    """The group "any next hop towards this switch"; the same number on every switch."""
    return stable_hash(GROUP_ID_BITS, "ecmp", leaf)


def path_group_id(leaf: Dpid, port: PortNo) -> int:
    """The group "towards this switch, out of this port first"."""
    return stable_hash(GROUP_ID_BITS, "path", leaf, port)


class Pipeline:
    """Derives what every connected switch should hold. A switch for which nothing has changed gets the same ``RuleSet``
    object again."""

    def __init__(self, settings: PipelineSettings) -> None:
        self._settings = settings
        self._paths = ShortestPaths()
        self._hosts: Mapping[str, Host] = {}
        self._leaves: Mapping[Dpid, list[Host]] = {}
        self._prefixes: Mapping[Prefix, Dpid] = {}
        self._rules = MemoPerKey[
            Dpid, Mapping[str, Host], Mapping[Dpid, list[Host]], Mapping[Prefix, Dpid], _Here, RuleSet
        ](_rules)

    def desired(self, fabric: Fabric, pins: Iterable[Pin], installed: Mapping[Dpid, RuleSet]) -> Mapping[Dpid, RuleSet]:
        """The rules of every switch.

        A destination that has lost its last next hop keeps the group it has on the switch: the controller's picture may
        be wrong, and an empty group is certain loss.
        """
        self._place(fabric, installed)
        towards = self._paths.towards(fabric, self._leaves)
        pins_at = _pins_by_switch(fabric, pins)
        fabric_ports: dict[Dpid, set[PortNo]] = defaultdict(set)
        for link in fabric.links:
            fabric_ports[link.dpid].add(link.port)
        inputs = {}
        for dpid, switch in fabric.switches.items():
            hosts = self._leaves.get(dpid, ())
            control = control_table.control_rules(switch, fabric_ports[dpid], hosts, self._settings.punt_rate_pps)
            here = _look_from(dpid, control, towards, pins_at[dpid], installed.get(dpid, RuleSet()))
            inputs[dpid] = fabric.hosts, self._leaves, self._prefixes, here
        return self._rules(inputs)

    def _place(self, fabric: Fabric, installed: Mapping[Dpid, RuleSet]) -> None:
        """Where prefixes lead is decided when hosts change, and stays until they change again."""
        if fabric.hosts is self._hosts:
            return
        self._hosts, self._leaves = fabric.hosts, hosts_by_leaf(fabric)
        length = self._settings.leaf_prefix_length
        present = _present_owners(installed, self._leaves, length)
        self._prefixes = default_table.destination_prefixes(fabric, length, present)


def _rules(
    hosts: Mapping[str, Host], leaves: Mapping[Dpid, list[Host]], prefixes: Mapping[Prefix, Dpid], here: _Here
) -> RuleSet:
    groups = _ecmp_groups(here)
    pinned = _pinned_flows(hosts, here, groups)
    group_of = {leaf: ecmp_group_id(leaf) for leaf in here.leaves if ecmp_group_id(leaf) in groups}
    flows = [
        *here.control.flows.values(),
        pinned_table.miss_rule(),
        *pinned,
        *default_table.host_rules(leaves.get(here.dpid, [])),
        *default_table.routed_rules(here.dpid, prefixes, group_of, here.distances),
    ]
    return RuleSet.of(flows, groups.values(), here.control.meters.values())


def desired_rules(
    fabric: Fabric, pins: Iterable[Pin], installed: Mapping[Dpid, RuleSet], settings: PipelineSettings
) -> Mapping[Dpid, RuleSet]:
    """What every connected switch should hold, derived from nothing; see ``Pipeline.desired``."""
    return Pipeline(settings).desired(fabric, pins, installed)


class _Here(NamedTuple):
    """All that the rules of one switch follow from, beside the hosts. Of each of the other ``leaves`` the next hops,
    none where it is out of reach, and the distance. ``kept``: groups that the switch has towards leaves
    out of reach."""

    dpid: Dpid
    control: RuleSet
    leaves: tuple[Dpid, ...]
    hops: tuple[tuple[LinkId, ...], ...]
    distance: tuple[int, ...]
    kept: tuple[GroupRule, ...]
    pins: tuple[Pin, ...]

    @property
    def distances(self) -> dict[Dpid, int]:
        return dict(zip(self.leaves, self.distance, strict=True))


def _look_from(
    dpid: Dpid, control: RuleSet, towards: Mapping[Dpid, Towards], pins: Iterable[Pin], installed: RuleSet
) -> _Here:
    leaves = tuple(leaf for leaf in towards if leaf != dpid)
    hops = tuple(towards[leaf].hops.get(dpid, ()) for leaf in leaves)
    distance = tuple(towards[leaf].distance.get(dpid, 1) for leaf in leaves)
    lost = (ecmp_group_id(leaf) for leaf, out in zip(leaves, hops, strict=True) if not out)
    kept = tuple(installed.groups[group_id] for group_id in lost if group_id in installed.groups)
    return _Here(dpid, control, leaves, hops, distance, kept, tuple(pins))


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


def _pins_by_switch(fabric: Fabric, pins: Iterable[Pin]) -> dict[Dpid, list[Pin]]:
    at: dict[Dpid, list[Pin]] = defaultdict(list)
    for pin in pins:
        source = fabric.hosts[pin.flow.src_ip].at.dpid
        for dpid in dict.fromkeys((source, *(hop.dpid for hop in pin.path or ()))):
            at[dpid].append(pin)
    return at


def _ecmp_groups(here: _Here) -> dict[int, GroupRule]:
    groups = {group.group_id: group for group in here.kept}
    for leaf, hops, distance in zip(here.leaves, here.hops, here.distance, strict=True):
        if hops:
            group_id = ecmp_group_id(leaf)
            groups[group_id] = default_table.ecmp_group(group_id, hops, distance)
    return groups


def _pinned_flows(hosts: Mapping[str, Host], here: _Here, groups: dict[int, GroupRule]) -> list[FlowRule]:
    """The pinned table of one switch; adds the path groups that its pins point at to ``groups``."""
    flows = []
    hops_to, distances = dict(zip(here.leaves, here.hops, strict=True)), here.distances
    for pin in here.pins:
        leaf = hosts[pin.flow.dst_ip].at.dpid
        hops = hops_to.get(leaf, ())
        rule = pinned_table.pin_rule(pin, here.dpid, hops, partial(path_group_id, leaf))
        if rule is not None and _add_path_group(rule, pin, here.dpid, leaf, hops, groups):
            flows.append(rule)
        elif hosts[pin.flow.src_ip].at.dpid == here.dpid:
            flows.append(pinned_table.counting_rule(pin, distances.get(leaf, 0)))
    return flows


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


def keep_unknown(
    fabric: Fabric, desired: Mapping[Dpid, RuleSet], installed: Mapping[Dpid, RuleSet]
) -> dict[Dpid, RuleSet]:
    """The desired rules, and the installed ones that lead to (or pin) hosts which are not known yet, with their groups:
    the switch of these hosts may connect later."""
    known = {IPv4Address(ip) for ip in fabric.hosts}
    return {dpid: _with_unknown(known, rules, installed.get(dpid, RuleSet())) for dpid, rules in desired.items()}


def _with_unknown(known: set[IPv4Address], desired: RuleSet, installed: RuleSet) -> RuleSet:
    kept = {key: rule for key, rule in installed.flows.items() if key not in desired.flows and _is_unknown(known, key)}
    groups = dict(desired.groups)
    wanted = [a.group_id for rule in kept.values() for a in rule.actions if isinstance(a, ToGroup)]
    while wanted:
        group = installed.groups.get(wanted.pop())
        if group and group.group_id not in groups:
            groups[group.group_id] = group
            wanted += [b.action.group_id for b in group.buckets if isinstance(b.action, ToGroup)]
    return RuleSet({**desired.flows, **kept}, groups, desired.meters) if kept else desired


def _is_unknown(known: set[IPv4Address], key: FlowKey) -> bool:
    """Some end of the rule is no known host's address, and no prefix with one in it."""
    ends = (key.match.ipv4_src, key.match.ipv4_dst, key.match.arp_tpa)
    return any(end is not None and not _holds(known, end) for end in ends)


def _holds(known: set[IPv4Address], prefix: Prefix) -> bool:
    if prefix.length == 32:
        return IPv4Address(prefix.address) in known
    network = IPv4Network(prefix)
    return any(address in network for address in known)
