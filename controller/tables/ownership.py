"""Which groups and meters of a switch are ours; they carry no cookie that says so.

In: a read-back, what the switch was believed to hold, the fabric, and switches that were known before. Out: the
read-back in two parts. Ours is what flows of ours use, what we put there ourselves, and what has an id that this fabric
gives: group ids are hashes of what the group is for (``pipeline``), meters are numbered like ports. Everything else is
foreign and left alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from controller.fabric.topology import Dpid, Fabric, PortNo
from controller.tables.rules import RuleSet, ToGroup
from controller.tables.switch_rules import ecmp_group_id, path_group_id


def divided(
    dpid: Dpid, read: RuleSet, believed: RuleSet, fabric: Fabric, known: Iterable[Dpid] = ()
) -> tuple[RuleSet, RuleSet]:
    """(ours, foreign); ``read`` itself when all of it is ours. The second part has no flows: those that are
    read back carry our cookie. ``known``: switches that may not be in the fabric yet, and groups may lead to."""
    groups = (believed.groups.keys() & read.groups.keys()) | _used_groups(read)
    if groups < read.groups.keys():
        groups |= read.groups.keys() & _possible_groups(dpid, fabric, known)
    switch = fabric.switches.get(dpid)
    meters = read.meters.keys() & (
        {*believed.meters, *(switch.ports if switch else ()), *(flow.meter for flow in read.flows.values())}
    )
    if len(groups) == len(read.groups) and len(meters) == len(read.meters):
        return read, RuleSet()
    return read.divided(groups, meters)


def _used_groups(rules: RuleSet) -> set[int]:
    """Groups that flows send to, and those that these send to."""
    used: set[int] = set()
    waiting = {
        action.group_id for flow in rules.flows.values() for action in flow.actions if isinstance(action, ToGroup)
    }
    while waiting:
        group_id = waiting.pop()
        if group_id in rules.groups and group_id not in used:
            used.add(group_id)
            buckets = rules.groups[group_id].buckets
            waiting |= {bucket.action.group_id for bucket in buckets if isinstance(bucket.action, ToGroup)}
    return used


def _possible_groups(dpid: Dpid, fabric: Fabric, known: Iterable[Dpid]) -> set[int]:
    """Ids that groups of this switch can have. Read-backs are rare, groups that no flow uses rarer."""
    switch = fabric.switches.get(dpid)
    ports = tuple(switch.ports) if switch else ()
    return {group_id for leaf in {*fabric.switches, *known} for group_id in _towards(leaf, ports)}


@lru_cache(maxsize=1 << 12)
def _towards(leaf: Dpid, ports: tuple[PortNo, ...]) -> frozenset[int]:
    return frozenset((ecmp_group_id(leaf), *(path_group_id(leaf, port) for port in ports)))
