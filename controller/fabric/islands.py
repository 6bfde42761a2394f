"""Hosts that cannot reach most other hosts: the fabric is partitioned, or their port or switch is not available.

In: mappings of a ``Fabric`` snapshot. Out: for each such host the island that it is on. An island is a set of switches
that all reach each other. Pure.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Mapping

from controller.fabric.topology import Dpid, Host, Link, LinkId, Switch, is_up

ALONE = Dpid(-1)
"""Island of a host that reaches no other host, because its port is down or its switch is not connected."""

Islands = Mapping[str, Dpid]
"""Islands of all hosts that are not on the largest island, by address of the host.

The name of an island is the smallest dpid of its switches, or ``ALONE``."""


def islands_beside_the_largest(
    switches: Mapping[Dpid, Switch], links: Mapping[LinkId, Link], hosts: Mapping[str, Host]
) -> Islands:
    """Return the islands of hosts that are not on the largest island; empty while all hosts can reach each other."""
    island = island_of(switches, links)
    of_host = {ip: island[host.at.dpid] if is_up(switches, host.at) else ALONE for ip, host in hosts.items()}
    sizes = Counter(found for found in of_host.values() if found != ALONE)
    largest = max(sizes, key=lambda found: (sizes[found], -found), default=None)
    return {ip: found for ip, found in of_host.items() if found != largest}


def connected(islands: Islands, src_ip: str, dst_ip: str) -> bool:
    """Return whether there is a path between two known hosts."""
    return islands.get(src_ip) == islands.get(dst_ip) != ALONE


def island_of(switches: Iterable[Dpid], links: Mapping[LinkId, Link]) -> dict[Dpid, Dpid]:
    """Return the island of each switch: the smallest dpid of the switches that it can reach in both directions."""
    onward: defaultdict[Dpid, set[Dpid]] = defaultdict(set)
    back: defaultdict[Dpid, set[Dpid]] = defaultdict(set)
    one_way = False
    for link in links.values():
        onward[link.src.dpid].add(link.dst.dpid)
        back[link.dst.dpid].add(link.src.dpid)
        one_way |= link.one_way
    island: dict[Dpid, Dpid] = {}
    for first in sorted(switches):
        if first not in island:
            found = _reached(first, onward, island)
            if one_way:
                found &= _reached(first, back, island)
            island |= dict.fromkeys(found, first)
    return island


def _reached(first: Dpid, beside: Mapping[Dpid, set[Dpid]], without: Container[Dpid]) -> set[Dpid]:
    """Return the switches that can be reached from ``first``, including ``first``.

    ``beside``: neighbours of each switch. ``without``: switches that are skipped."""
    reached, ahead = {first}, [first]
    while ahead:
        new = [dpid for dpid in beside.get(ahead.pop(), ()) if dpid not in reached and dpid not in without]
        reached.update(new)
        ahead += new
    return reached
