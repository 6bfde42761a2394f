"""First reaction to lost links: the next hops to remove, without any other computation.

A group that would lose its last next hop is not changed: the link may still work, but an empty group certainly loses
packets. Instead, other switches no longer use the group's switch as a next hop to the same destination. The computation
only removes next hops, so it is safe at any time. It takes time in proportion to the number of groups that change.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cached_property

from controller.fabric.topology import Dpid, Link, LinkId, LinksInto, PortNo, links_into
from controller.tables.rules import GroupRule, RuleSet
from controller.tables.switch_rules import ecmp_group_id, path_group_id


def narrowed(
    desired: Mapping[Dpid, RuleSet], links: Mapping[LinkId, Link], lost: Iterable[LinkId], leaves: Iterable[Dpid]
) -> dict[Dpid, RuleSet]:
    """Return the new rule sets of the switches whose rules change.

    ``desired``: rules before the loss. ``links``: links of the fabric before the loss. ``lost``: links that were lost.
    ``leaves``: switches with hosts, to which groups lead."""
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
                self._take(link.dpid, group, link.port)
        waiting = list(self._cut_off)
        while waiting:
            dpid, leaf = waiting.pop()
            known = len(self._cut_off)
            for link in self._links_into.get(dpid, ()):
                for group_id in (ecmp_group_id(leaf), path_group_id(leaf, link.port)):
                    if upstream := self._groups_at(link.dpid).get(group_id):
                        self._take(link.dpid, upstream, link.port)
            waiting += list(self._cut_off)[known:]
        return {dpid: replace(self._desired[dpid], groups=groups) for dpid, groups in self._groups.items()}

    def _take(self, dpid: Dpid, group: GroupRule, port: PortNo) -> None:
        for bucket in group.buckets:  # most groups have no bucket with this port
            if bucket.watch_port == port:
                break
        else:
            return
        left = tuple(bucket for bucket in group.buckets if bucket.watch_port != port)
        if left:
            groups = self._groups.setdefault(dpid, dict(self._desired[dpid].groups.items()))
            groups[group.group_id] = replace(group, buckets=left)
        elif group.group_id in self._leaf_of:
            self._cut_off[dpid, self._leaf_of[group.group_id]] = None

    def _groups_at(self, dpid: Dpid) -> Mapping[int, GroupRule]:
        rules = self._desired.get(dpid)
        return self._groups.get(dpid, rules.groups) if rules else {}

    @cached_property
    def _links_into(self) -> LinksInto:
        return links_into(self._links)
