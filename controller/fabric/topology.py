"""Snapshot of the fabric: switches, directed links and hosts, and the shortest paths in it.

All later stages use the types of this module. Only ``topology_state`` makes snapshots, and nothing changes them. The
fabric is a multigraph: each cable between two switches has links of its own, and a path consists of links. Hosts never
forward packets. An island is a set of switches that all reach each other.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from typing import Literal, NamedTuple, NewType

from controller.shared_map import differing

Dpid = NewType("Dpid", int)
PortNo = NewType("PortNo", int)


class PortRef(NamedTuple):
    """Port of a switch."""

    dpid: Dpid
    port: PortNo


class LinkId(NamedTuple):
    """Identity of a directed link: a switch port and a direction.

    ``out``: the link that leaves the switch through the port, to a switch or to a host. ``in``: a host's link into the
    fabric. An ``in`` link begins at no switch port, and is therefore identified by the edge port where it arrives."""

    dpid: Dpid
    port: PortNo
    direction: Literal["out", "in"] = "out"

    @property
    def at(self) -> PortRef:
        return PortRef(self.dpid, self.port)


def port_refs(ends: Iterable[tuple[int, int]]) -> frozenset[PortRef]:
    return frozenset(PortRef(Dpid(dpid), PortNo(port)) for dpid, port in ends)


def ports_by_switch(ports: Iterable[PortRef | LinkId]) -> Mapping[Dpid, frozenset[PortNo]]:
    found: defaultdict[Dpid, set[PortNo]] = defaultdict(set)
    for at in ports:
        found[at.dpid].add(at.port)
    return {dpid: frozenset(of) for dpid, of in found.items()}


Path = tuple[LinkId, ...]
"""Links between switches, from the source's switch to the destination's; empty when both hosts share a switch."""


@dataclass(frozen=True, slots=True)
class Port:
    """A port as its switch describes it; ``up`` means administratively and physically up."""

    number: PortNo
    name: str
    mac: str
    up: bool
    speed_bps: float


@dataclass(frozen=True, slots=True)
class Switch:
    dpid: Dpid
    name: str
    ports: Mapping[PortNo, Port]


@dataclass(frozen=True, slots=True)
class Link:
    """A usable directed link between two switches.

    The link is one direction of a cable that was seen in both directions and is not held down. If ``one_way`` is set,
    the link is a circuit of an optical switch."""

    src: PortRef
    dst: PortRef
    capacity_bps: float
    one_way: bool = False

    @property
    def id(self) -> LinkId:
        return LinkId(self.src.dpid, self.src.port)


@dataclass(frozen=True, slots=True)
class Host:
    """A host at an edge port."""

    ip: str
    mac: str | None
    """MAC address; None for an adopted host until its next ARP packet.

    After a restart, hosts are adopted from the rules of the switches."""
    at: PortRef
    nic_bps: float

    @property
    def uplink(self) -> LinkId:
        return LinkId(self.at.dpid, self.at.port, "in")

    @property
    def downlink(self) -> LinkId:
        return LinkId(self.at.dpid, self.at.port, "out")


@dataclass(frozen=True, slots=True)
class Fabric:
    """Usable topology at one moment. Each change adds one to ``generation``; a new MAC address of a host does not."""

    generation: int = 0
    switches: Mapping[Dpid, Switch] = field(default_factory=dict)
    links: Mapping[LinkId, Link] = field(default_factory=dict)
    hosts: Mapping[str, Host] = field(default_factory=dict)

    def name(self, dpid: Dpid) -> str:
        """Return the name of the switch, or its dpid in hexadecimal when it is not connected."""
        switch = self.switches.get(dpid)
        return switch.name if switch else f"{dpid:#x}"

    def port_name(self, at: PortRef) -> str:
        return f"{self.name(at.dpid)}:{at.port}"

    def link_name(self, link_id: LinkId) -> str:
        """Return ``leaf1:2>spine2`` for a fabric link, ``leaf1:5>10.0.1.2`` or the reverse for a host's link."""
        port = self.port_name(link_id.at)
        link = self.links.get(link_id)
        if link:
            return f"{port}>{self.name(link.dst.dpid)}"
        peer = next((h.ip for h in self.hosts.values() if h.at == link_id.at), "?")
        return f"{peer}>{port}" if link_id.direction == "in" else f"{port}>{peer}"

    def path_names(self, path: Path, src_leaf: Dpid) -> tuple[str, ...]:
        """Return the names of the switches on a path, in order."""
        return (self.name(src_leaf), *(self.name(self.links[link].dst.dpid) for link in path if link in self.links))


def leaves_of(addresses: Iterable[str], hosts: Mapping[str, Host]) -> frozenset[Dpid]:
    """Return the switches of the hosts with these addresses; unknown hosts are left out."""
    return frozenset(hosts[ip].at.dpid for ip in addresses if ip in hosts)


def is_up(switches: Mapping[Dpid, Switch], at: PortRef) -> bool:
    switch = switches.get(at.dpid)
    port = switch.ports.get(at.port) if switch else None
    return port is not None and port.up


def moved_hosts(before: Mapping[str, Host], now: Mapping[str, Host]) -> frozenset[str]:
    """Return the addresses of hosts that appeared, vanished or moved to another switch."""
    changes = differing(before, now)
    return frozenset(ip for ip, was, host in changes if not (was and host and was.at.dpid == host.at.dpid))


# ---- shortest paths

Hops = Mapping[Dpid, tuple[LinkId, ...]]
"""Next hops to one destination: for each switch that reaches it, its outgoing links on shortest paths, sorted.

The destination has no entry; parallel cables are separate next hops."""

LinksInto = Mapping[Dpid, Sequence[LinkId]]


class Towards(NamedTuple):
    """Next hops to one destination, and the distance of every switch that reaches it, in links."""

    hops: Hops
    distance: Mapping[Dpid, int]


def next_hops(fabric: Fabric, destinations: Iterable[Dpid]) -> dict[Dpid, Hops]:
    """Return the next hops to each destination, with one breadth-first search each."""
    searches = _Searches(links_into(fabric.links))
    return {dst: searches.towards(dst).hops for dst in destinations}


class ShortestPaths:
    """Next hops of successive fabric snapshots.

    A link that appears or vanishes changes, for most destinations, only the next hops of one switch. A destination is
    searched again only if distances to it change. An unchanged destination keeps its ``Towards`` object."""

    def __init__(self) -> None:
        self._links: Mapping[LinkId, Link] = {}
        self._known: dict[Dpid, Towards] = {}

    def towards(self, fabric: Fabric, destinations: Iterable[Dpid]) -> Mapping[Dpid, Towards]:
        """Return the next hops to each destination; unchanged next hops are the same object."""
        before, self._links = self._links, fabric.links
        changes = [*differing(before, self._links)]
        gone, new = [was for _, was, _ in changes if was], [link for _, _, link in changes if link]
        # To follow very many changes takes longer than a search.
        known = self._known if len(changes) <= len(fabric.switches) else {}
        searches: _Searches | None = None
        towards = {}
        for dst in destinations:
            kept = _without(known[dst], gone) if dst in known else None
            kept = _with(kept, new) if kept else None
            if kept is None:
                searches = searches or _Searches(links_into(self._links))
                kept = searches.towards(dst)
            towards[dst] = kept
        self._known = towards
        return towards


def _without(towards: Towards, gone: Iterable[Link]) -> Towards | None:
    """Return the next hops without lost links.

    Returns None when a switch loses its last next hop, because distances then change."""
    for link in gone:
        here = towards.hops.get(link.src.dpid, ())
        if link.id in here:
            left = tuple(hop for hop in here if hop != link.id)
            if not left:
                return None
            towards = Towards({**towards.hops, link.src.dpid: left}, towards.distance)
    return towards


def _with(towards: Towards, new: Iterable[Link]) -> Towards | None:
    """Return the next hops with new links; None when a link shortens the distance of a switch."""
    for link in new:
        there, here = towards.distance.get(link.dst.dpid), towards.distance.get(link.src.dpid)
        if there is None or (here is not None and here < there + 1):
            continue
        if here is None or here > there + 1:
            return None
        hops = tuple(sorted((*towards.hops[link.src.dpid], link.id)))
        towards = Towards({**towards.hops, link.src.dpid: hops}, towards.distance)
    return towards


def links_into(links: Mapping[LinkId, Link]) -> LinksInto:
    into: defaultdict[Dpid, list[LinkId]] = defaultdict(list)
    for link_id, link in links.items():
        into[link.dst.dpid].append(link_id)
    return into


class _Searches:
    """Breadth-first searches over the same links.

    Destinations with the same neighbours, such as most leaves, share the search beyond these neighbours."""

    def __init__(self, into: LinksInto) -> None:
        self._into = into
        self._beyond: dict[frozenset[Dpid], Towards] = {}

    def towards(self, dst: Dpid) -> Towards:
        """Return the next hops and distances to the destination.

        A link is a next hop if it leads to a switch that is one link closer to the destination."""
        near: defaultdict[Dpid, list[LinkId]] = defaultdict(list)
        for link in self._into.get(dst, ()):
            if link.dpid != dst:
                near[link.dpid].append(link)
        neighbours = frozenset(near)
        beyond = self._beyond.get(neighbours)
        if beyond is None:
            beyond = self._beyond[neighbours] = self._search(neighbours)
        # No shortest path to a neighbour leads through the destination: the switch before it would be a neighbour.
        hops = {**beyond.hops, **{dpid: tuple(sorted(links)) for dpid, links in near.items()}}
        distance = {dpid: far + 1 for dpid, far in beyond.distance.items()}
        hops.pop(dst, None)
        return Towards(dict(sorted(hops.items())), {**distance, dst: 0})

    def _search(self, ends: Collection[Dpid]) -> Towards:
        hops: dict[Dpid, tuple[LinkId, ...]] = {}
        distance, level = dict.fromkeys(ends, 0), list(ends)
        while level:
            found: defaultdict[Dpid, list[LinkId]] = defaultdict(list)
            for dpid in level:
                for link in self._into.get(dpid, ()):
                    if link.dpid not in distance:
                        found[link.dpid].append(link)
            hops |= {dpid: tuple(sorted(links)) for dpid, links in found.items()}
            distance |= dict.fromkeys(found, distance[level[0]] + 1)
            level = list(found)
        return Towards(hops, distance)


class CandidatePaths:
    """Equal-cost shortest paths of one fabric snapshot, computed on request and then cached.

    ``max_paths``: largest number of candidates for a pair of switches more than two links apart, which may have
    exponentially many paths."""

    stretch = 0
    """Number of links by which a path may be longer than the shortest path; always 0 in a running controller."""

    def __init__(self, fabric: Fabric, max_paths: int) -> None:
        self._fabric = fabric
        self.max_paths = max_paths
        self.far_end: dict[LinkId, Dpid] = {link_id: link.dst.dpid for link_id, link in fabric.links.items()}
        """Switch that each fabric link leads to."""
        self._out: defaultdict[Dpid, list[LinkId]] = defaultdict(list)
        self._into: defaultdict[Dpid, list[LinkId]] = defaultdict(list)
        for link_id in sorted(fabric.links):
            self._out[link_id.dpid].append(link_id)
            self._into[self.far_end[link_id]].append(link_id)
        self._next = {dpid: frozenset(self.far_end[link] for link in links) for dpid, links in self._out.items()}
        self._previous = {dpid: frozenset(link.dpid for link in links) for dpid, links in self._into.items()}
        self._second: dict[Dpid, frozenset[Dpid]] = {}
        self._last: dict[tuple[frozenset[Dpid], Dpid], Sequence[LinkId]] = {}
        """Last links of all shortest paths, by the second switches of the paths and the last switch."""
        self._distances: dict[tuple[Dpid, Dpid], int | None] = {}
        self._found: dict[tuple[Dpid, Dpid], tuple[Path, ...]] = {}
        self._cut: set[tuple[Dpid, Dpid]] = set()
        self._searches = _Searches(self._into)
        self._searched: dict[Dpid, Towards] = {}

    @property
    def links(self) -> Mapping[LinkId, Link]:
        return self._fabric.links

    @cached_property
    def _direct(self) -> Mapping[tuple[Dpid, Dpid], Sequence[LinkId]]:
        direct: defaultdict[tuple[Dpid, Dpid], list[LinkId]] = defaultdict(list)
        for links in self._out.values():
            for link in links:
                direct[link.dpid, self.far_end[link]].append(link)
        return direct

    def without(self, links: Collection[LinkId]) -> CandidatePaths:
        """Return the candidate paths of the same fabric without these links."""
        left = {link_id: link for link_id, link in self._fabric.links.items() if link_id not in links}
        return CandidatePaths(replace(self._fabric, links=left), self.max_paths)

    def between(self, src: Dpid, dst: Dpid) -> tuple[Path, ...]:
        """Return the shortest paths. From a switch to itself, there is one path, which is empty.

        The order is deterministic and alternates between the next hops at every switch. The first k paths use as many
        different first links as possible, so that ``max_paths`` does not favour one spine."""
        found = self._found.get((src, dst))
        if found is None:
            found = self._found[src, dst] = self._find(src, dst)
        return found

    def cut(self, src: Dpid, dst: Dpid) -> bool:
        """Return whether ``between`` leaves out some shortest paths because there are more than ``max_paths``."""
        self.between(src, dst)
        return (src, dst) in self._cut

    def ends(self, src: Dpid, dst: Dpid) -> tuple[Collection[LinkId], Collection[LinkId]]:
        """Return the first links and the last links of all shortest paths, without computing the paths."""
        hops = self._towards(dst).hops
        first = hops.get(src, ())
        here = frozenset([self.far_end[link] for link in first])
        if dst in here:
            return first, first
        if (here, dst) not in self._last:
            ahead, nearest = here, self._previous.get(dst, frozenset())
            while ahead and ahead.isdisjoint(nearest):
                ahead = frozenset([self.far_end[link] for dpid in ahead for link in hops[dpid]])
            self._last[here, dst] = [link for link in self._into.get(dst, ()) if link.dpid in ahead]
        return first, self._last[here, dst]

    def leads(self, path: Path, src: Dpid, dst: Dpid) -> bool:
        """Return whether the path exists and is a shortest path from ``src`` to ``dst``, or an allowed detour."""
        here = src
        for link in path:
            if link.dpid != here or link not in self.far_end:
                return False
            here = self.far_end[link]
        return here == dst and (self.is_shortest(len(path), src, dst) or self.is_detour(path, src, dst))

    def is_detour(self, path: Path, src: Dpid, dst: Dpid) -> bool:  # noqa: ARG002
        """Return whether the path is an allowed path that is longer than the shortest."""
        return False

    def is_shortest(self, length: int, src: Dpid, dst: Dpid) -> bool:
        """Return whether a path of this length in links from ``src`` to ``dst`` is a shortest path.

        The result is valid only if there is a path of this length."""
        if length == 2 and src != dst:
            return dst not in self._next.get(src, ())
        if length == 4 and src != dst:
            return self._near(src, dst) is None
        return length == self.distance(src, dst)

    def connected(self, src: Dpid, dst: Dpid) -> bool:
        return self.distance(src, dst) is not None

    def distance(self, src: Dpid, dst: Dpid) -> int | None:
        """Return the length of a shortest path in links; None if there is no path."""
        pair = (src, dst)
        if pair not in self._distances:
            self._distances[pair] = self._measure(src, dst)
        return self._distances[pair]

    def links_from(self, dpid: Dpid) -> Sequence[LinkId]:
        """Return the fabric links out of a switch, in port order."""
        return self._out.get(dpid, ())

    def links_into(self, dpid: Dpid) -> Sequence[LinkId]:
        """Return the fabric links into a switch, in the order of their sources."""
        return self._into.get(dpid, ())

    def _measure(self, src: Dpid, dst: Dpid) -> int | None:
        if src == dst:
            return 0
        return self._near(src, dst) or self._towards(dst).distance.get(src)

    def _near(self, src: Dpid, dst: Dpid) -> int | None:
        """Return the distance of two different switches without a search if it is at most 3, else None."""
        on, before = self._next.get(src, frozenset()), self._previous.get(dst, frozenset())
        if dst in on:
            return 1
        if not on.isdisjoint(before):
            return 2
        return None if self._after_two_links(src).isdisjoint(before) else 3

    def _after_two_links(self, src: Dpid) -> frozenset[Dpid]:
        """Return the switches at the end of walks of two links from ``src``."""
        found = self._second.get(src)
        if found is None:
            on = [self._next.get(switch, frozenset()) for switch in self._next.get(src, ())]
            found = self._second[src] = frozenset().union(*on)
        return found

    def _find(self, src: Dpid, dst: Dpid) -> tuple[Path, ...]:
        """Return the shortest paths; paths of up to two links, as in a leaf-spine fabric, need no search."""
        if src == dst:
            return ((),)
        if direct := self._direct.get((src, dst)):
            return tuple((link,) for link in direct)
        seconds = [(link, self._direct.get((self.far_end[link], dst), ())) for link in self._out.get(src, ())]
        rounds = max((len(rest) for _, rest in seconds), default=0)
        if rounds:
            return tuple((link, rest[r]) for r in range(rounds) for link, rest in seconds if r < len(rest))
        found = tuple(islice(self._paths(self._towards(dst).hops, src, dst), self.max_paths + 1))
        if len(found) > self.max_paths:
            self._cut.add((src, dst))
        return found[: self.max_paths]

    def _towards(self, dst: Dpid) -> Towards:
        if dst not in self._searched:
            self._searched[dst] = self._searches.towards(dst)
        return self._searched[dst]

    def _paths(self, hops: Hops, src: Dpid, dst: Dpid) -> Iterator[Path]:
        """Yield the shortest paths from ``src`` one by one, because there may be exponentially many."""
        if src == dst:
            yield ()
            return
        waiting = [(link, self._paths(hops, self.far_end[link], dst)) for link in hops.get(src, ())]
        yield from self._alternating(waiting)

    @staticmethod
    def _alternating(waiting: Sequence[tuple[LinkId, Iterator[Path]]]) -> Iterator[Path]:
        """Yield one path after the other, taking turns between several iterators until all of them have ended.

        ``waiting``: pairs of a link and an iterator of paths that continue from this link. The yielded paths begin with
        the link."""
        while waiting:
            still = []
            for link, rests in waiting:
                rest = next(rests, None)
                if rest is not None:
                    yield (link, *rest)
                    still.append((link, rests))
            waiting = still


# ---- islands

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
    """Return ``first`` and the switches that can be reached from it.

    ``beside``: neighbours of each switch. ``without``: switches that are skipped."""
    reached, ahead = {first}, [first]
    while ahead:
        new = [dpid for dpid in beside.get(ahead.pop(), ()) if dpid not in reached and dpid not in without]
        reached.update(new)
        ahead += new
    return reached
