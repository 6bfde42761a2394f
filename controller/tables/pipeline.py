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

from controller.fabric.shortest_paths import Hops, next_hops
from controller.fabric.topology import Dpid, Fabric, PortNo
from controller.fabric.topology_update import hosts_by_leaf
from controller.tables import control_table, default_table, pinned_table
from controller.tables.pinned_table import Pin
from controller.tables.rules import FlowRule, GroupRule, Prefix, RuleSet, Table, ToGroup, stable_hash

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


def desired_rules(
    fabric: Fabric, pins: Iterable[Pin], installed: Mapping[Dpid, RuleSet], settings: PipelineSettings
) -> dict[Dpid, RuleSet]:
    """What every connected switch should hold.

    A destination that has lost its last next hop keeps the group it has on the switch: the controller's picture may be
    wrong, and an empty group is certain loss.
    """
    by_leaf = hosts_by_leaf(fabric)
    present = _present_owners(installed, by_leaf, settings.leaf_prefix_length)
    prefixes = default_table.destination_prefixes(fabric, settings.leaf_prefix_length, present)
    towards = next_hops(fabric, by_leaf)
    distance = {leaf: _distances(fabric, leaf, hops) for leaf, hops in towards.items()}
    pins_at = _pins_by_switch(fabric, pins)
    fabric_ports: dict[Dpid, set[PortNo]] = defaultdict(set)
    for link in fabric.links:
        fabric_ports[link.dpid].add(link.port)
    desired = {}
    for dpid, switch in fabric.switches.items():
        control = control_table.control_rules(switch, fabric_ports[dpid], settings.punt_rate_pps)
        distance_here = {leaf: distance[leaf].get(dpid, 1) for leaf in towards}
        groups = _ecmp_groups(dpid, towards, distance_here, installed.get(dpid, RuleSet()))
        group_of = {leaf: ecmp_group_id(leaf) for leaf in towards if ecmp_group_id(leaf) in groups}
        routed = default_table.routed_rules(dpid, prefixes, group_of, distance_here)
        pinned = _pinned_flows(fabric, dpid, pins_at[dpid], towards, distance_here, groups)
        flows = [
            *control.flows.values(),
            pinned_table.miss_rule(),
            *pinned,
            *default_table.host_rules(by_leaf.get(dpid, [])),
            *routed,
        ]
        desired[dpid] = RuleSet.of(flows, groups.values(), control.meters.values())
    return desired


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


def _distances(fabric: Fabric, leaf: Dpid, hops: Hops) -> dict[Dpid, int]:
    """Links to cross from each switch; next hops always lead one closer."""
    distances = {leaf: 0}

    def of(dpid: Dpid) -> int:
        if dpid not in distances:
            distances[dpid] = 1 + of(fabric.links[hops[dpid][0]].dst.dpid)
        return distances[dpid]

    for dpid, out in hops.items():
        if out:
            of(dpid)
    return distances


def _pins_by_switch(fabric: Fabric, pins: Iterable[Pin]) -> dict[Dpid, list[Pin]]:
    at: dict[Dpid, list[Pin]] = defaultdict(list)
    for pin in pins:
        source = fabric.hosts[pin.flow.src_ip].at.dpid
        for dpid in dict.fromkeys((source, *(hop.dpid for hop in pin.path or ()))):
            at[dpid].append(pin)
    return at


def _ecmp_groups(
    here: Dpid, towards: Mapping[Dpid, Hops], distance: Mapping[Dpid, int], installed: RuleSet
) -> dict[int, GroupRule]:
    groups = {}
    for leaf, hops in towards.items():
        group_id = ecmp_group_id(leaf)
        if leaf == here:
            continue
        if here in hops:
            groups[group_id] = default_table.ecmp_group(group_id, hops[here], distance[leaf])
        elif group_id in installed.groups:
            groups[group_id] = installed.groups[group_id]
    return groups


def _pinned_flows(
    fabric: Fabric,
    here: Dpid,
    pins: list[Pin],
    towards: Mapping[Dpid, Hops],
    distance: Mapping[Dpid, int],
    groups: dict[int, GroupRule],
) -> list[FlowRule]:
    """The pinned table of one switch; adds the path groups that its pins point at to ``groups``."""
    flows = []
    for pin in pins:
        leaf = fabric.hosts[pin.flow.dst_ip].at.dpid
        rule = pinned_table.pin_rule(pin, here, towards[leaf], partial(path_group_id, leaf))
        if rule is not None and _add_path_group(rule, pin, here, leaf, towards[leaf], groups):
            flows.append(rule)
        elif fabric.hosts[pin.flow.src_ip].at.dpid == here:
            flows.append(pinned_table.counting_rule(pin, distance[leaf]))
    return flows


def _add_path_group(rule: FlowRule, pin: Pin, here: Dpid, leaf: Dpid, hops: Hops, groups: dict[int, GroupRule]) -> bool:
    """False when the group cannot stand: nothing to fall back to, or (one in millions) its id is taken."""
    ecmp_id = ecmp_group_id(leaf)
    if ecmp_id not in groups:
        return False
    (action,) = rule.actions
    assert isinstance(action, ToGroup)
    hop = next(hop for hop in pin.path or () if hop.dpid == here)
    group = pinned_table.path_group(action.group_id, hop.port, hop in hops.get(here, ()), ecmp_id, rule.distance)
    return groups.setdefault(group.group_id, group) == group
