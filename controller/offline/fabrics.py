"""Fabrics that exist on paper: leaf-spine, fat-tree, any list of cables; and the same fabrics with failures.

In: sizes and rates. Out: the frozen ``Fabric`` that the controller itself uses. Nodes are numbered as in the published
workload files: first the switches (leaves before spines), then the hosts (leaf by leaf). The switch with number n has
dpid n + 1, and ``Fabric.switches`` and ``Fabric.hosts`` are in the order of the numbers.

Host h (counted from 0) of switch n has the address 10.0.0.0 + n * B + h + 1, where B is 256, or the next power of two
that holds the hosts of the fullest switch and the two addresses that no host may have: every switch owns a prefix.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from ipaddress import IPv4Address
from itertools import product
from typing import NamedTuple

from controller.errors import FieldProblem, InvalidInput
from controller.fabric.topology import Dpid, Fabric, Host, Link, LinkId, Port, PortNo, PortRef, Switch

_NETWORK = int(IPv4Address("10.0.0.0"))
_ADDRESSES = 1 << 24
_SMALLEST_PREFIX = 256
_SHOWN = 8
"""Names that an error lists before it only says how many there are."""
_MOST_CABLES = 1_000_000
"""NICs too. One takes about 0.5 kB before any planning; 512 leaves, 128 spines, 256 hosts each: 200,000."""


class Cable(NamedTuple):
    """A cable between two switches, by number; ``bps`` each way."""

    a: int
    b: int
    bps: float


class Nic(NamedTuple):
    """A host on a switch; ``bps`` each way."""

    switch: int
    bps: float


def leaf_spine(
    leaves: int, spines: int, hosts_per_leaf: int, link_bps: float, uplink_bps: float, cables: int = 1
) -> Fabric:
    """``leaf0``... with ``hosts_per_leaf`` hosts of ``link_bps`` each, ``spine0``..., and ``cables`` cables of
    ``uplink_bps`` between every leaf and every spine. A leaf's first ports go to the spines, spine by spine. Raises
    ``InvalidInput`` for numbers below one, and for a fabric too large."""
    _at_least_one(leaves=leaves, spines=spines, hosts_per_leaf=hosts_per_leaf, cables=cables)
    _not_too_large(leaves * spines * cables + leaves * hosts_per_leaf)
    names = [f"leaf{n}" for n in range(leaves)] + [f"spine{n}" for n in range(spines)]
    links = (
        Cable(leaf, leaves + spine, uplink_bps)
        for leaf, spine, _ in product(range(leaves), range(spines), range(cables))
    )
    return connect(names, links, (Nic(leaf, link_bps) for leaf, _ in product(range(leaves), range(hosts_per_leaf))))


def fat_tree(k: int, link_bps: float, uplink_bps: float) -> Fabric:
    """k pods of k/2 edge and k/2 aggregation switches, (k/2)^2 cores, k/2 hosts per edge switch. Core c is connected
    to aggregation switch c // (k/2) of every pod. Names ``edge0``..., ``agg0``..., ``core0``..., pod by pod.

    Al-Fares, Loukissas and Vahdat, "A scalable, commodity data center network architecture", SIGCOMM 2008, section 3.
    Raises ``InvalidInput`` when k is not an even number from 2, or too large.
    """
    if k < 2 or k % 2:
        raise InvalidInput((FieldProblem("k", f"must be an even number, at least 2 (given: {k})"),))
    half = k // 2
    each = k * half
    _not_too_large(3 * each * half)
    names = [f"edge{n}" for n in range(each)] + [f"agg{n}" for n in range(each)]
    names += [f"core{n}" for n in range(half * half)]
    places = list(product(range(k), range(half), range(half)))
    to_edges = [Cable(pod * half + edge, each + pod * half + agg, uplink_bps) for pod, edge, agg in places]
    to_cores = [Cable(each + pod * half + agg, 2 * each + agg * half + core, uplink_bps) for pod, agg, core in places]
    return connect(names, to_edges + to_cores, (Nic(edge, link_bps) for edge, _ in product(range(each), range(half))))


def connect(names: Sequence[str], cables: Iterable[Cable], nics: Iterable[Nic]) -> Fabric:
    """The fabric of these switches, numbered in the order of ``names``. Ports count from 1 in the order of the cables
    and then of the NICs; hosts are in the order of the NICs. Raises ``InvalidInput`` when the addresses do not
    suffice."""
    nics = list(nics)
    prefix = _prefix(len(names), max(Counter(nic.switch for nic in nics).values(), default=0))
    ports: list[dict[PortNo, Port]] = [{} for _ in names]
    links: dict[LinkId, Link] = {}

    def plug(switch: int, bps: float) -> PortRef:
        number = PortNo(len(ports[switch]) + 1)
        ports[switch][number] = _port(number, bps)
        return PortRef(Dpid(switch + 1), number)

    for a, b, bps in cables:
        at_a, at_b = plug(a, bps), plug(b, bps)
        links[LinkId(*at_a)] = Link(at_a, at_b, bps)
        links[LinkId(*at_b)] = Link(at_b, at_a, bps)
    free = [_NETWORK + switch * prefix + 1 for switch in range(len(names))]
    hosts: dict[str, Host] = {}
    for switch, bps in nics:
        ip = str(IPv4Address(free[switch]))
        free[switch] += 1
        hosts[ip] = Host(ip, None, plug(switch, bps), bps)
    switches = {Dpid(n + 1): Switch(Dpid(n + 1), name, ports[n]) for n, name in enumerate(names)}
    return Fabric(1, switches, links, hosts)


# ---- failures: a failed switch stays in the fabric, so that numbers hold, but nothing leads to it


def without_spines(fabric: Fabric, spines: Iterable[int | str]) -> Fabric:
    """Spines (in a fat-tree: cores) by number, or switches by name, without any of their cables. See
    ``spine_links``."""
    return without(fabric, spine_links(fabric, spines))


def without_links(fabric: Fabric, cables: Iterable[str]) -> Fabric:
    """``leaf5:spine2`` takes every cable between the two, ``leaf5:spine2:1`` one of them, counted from 0. See
    ``cable_links``."""
    return without(fabric, cable_links(fabric, cables))


def without_random_links(fabric: Fabric, count: int, seed: int) -> Fabric:
    """``count`` cables drawn from those between switches. Raises ``InvalidInput`` when there are fewer."""
    cables = [link for link in fabric.links.values() if link.src < link.dst]
    if count > len(cables):
        message = f"{count} cables cannot fail: there are {len(cables)} left between switches"
        raise InvalidInput((FieldProblem("--fail-random-links", message),))
    return without(fabric, (link.id for link in random.Random(seed).sample(cables, count)))


def without(fabric: Fabric, links: Iterable[LinkId]) -> Fabric:
    """The same fabric with these cables cut, both ways, one generation later."""
    cut = {LinkId(*end) for link in links for end in (fabric.links[link].src, fabric.links[link].dst)}
    kept = {link_id: link for link_id, link in fabric.links.items() if link_id not in cut}
    return replace(fabric, generation=fabric.generation + 1, links=kept)


def spine_links(fabric: Fabric, spines: Iterable[int | str]) -> set[LinkId]:
    """Every link out of the named switches. Raises ``InvalidInput`` for a name that does not exist, and for a switch
    with hosts, which would not be a failure that routing can do anything about."""
    switches = {switch.name: dpid for dpid, switch in fabric.switches.items()}
    with_hosts = {host.at.dpid for host in fabric.hosts.values()}
    spare = [name for name, dpid in switches.items() if dpid not in with_hosts]
    failed: set[Dpid] = set()
    for spine in spines:
        name = next((name for name in (f"spine{spine}", f"core{spine}", str(spine)) if name in switches), None)
        if name is None or switches[name] in with_hosts:
            why = f"there is no spine '{spine}'" if name is None else f"'{name}' has hosts and cannot fail"
            raise InvalidInput((FieldProblem("--fail-spines", f"{why}; what can fail: {listing(spare)}"),))
        failed.add(switches[name])
    return {link for link in fabric.links if link.dpid in failed}


def cable_links(fabric: Fabric, cables: Iterable[str]) -> set[LinkId]:
    """One direction of every named cable. Raises ``InvalidInput`` saying what exists."""
    switches = {switch.name: dpid for dpid, switch in fabric.switches.items()}
    between = parallel_cables(fabric)
    return {link for text in cables for link in _named_cables(text, switches, between)}


def parallel_cables(fabric: Fabric) -> Mapping[tuple[Dpid, Dpid], tuple[LinkId, ...]]:
    """Per (source switch, destination switch) the links between them, by port: a link's place is its cable's number,
    the same in both directions."""
    between: defaultdict[tuple[Dpid, Dpid], list[LinkId]] = defaultdict(list)
    for link_id, link in fabric.links.items():
        between[link.src.dpid, link.dst.dpid].append(link_id)
    return {pair: tuple(links) for pair, links in between.items()}


def _named_cables(
    text: str, switches: Mapping[str, Dpid], between: Mapping[tuple[Dpid, Dpid], Sequence[LinkId]]
) -> Sequence[LinkId]:
    def refused(message: str) -> InvalidInput:
        return InvalidInput((FieldProblem("--fail-links", f"'{text}': {message}"),))

    parts = text.split(":")
    if len(parts) not in (2, 3) or not all(parts):
        raise refused("must be SWITCH:SWITCH or SWITCH:SWITCH:CABLE, such as leaf5:spine2 or leaf5:spine2:0")
    for name in parts[:2]:
        if name not in switches:
            raise refused(f"there is no switch '{name}'; there are {listing(switches)}")
    a, b = (switches[name] for name in parts[:2])
    links = between.get((a, b), ())
    if not links:
        peers = [name for name, dpid in switches.items() if (a, dpid) in between]
        raise refused(f"no cable between the two; {parts[0]} has cables to {listing(peers)}")
    if len(parts) == 2:
        return links
    if not parts[2].isdecimal() or int(parts[2]) >= len(links):
        raise refused(f"no cable {parts[2]} between the two; cables: {listing([str(n) for n in range(len(links))])}")
    return (links[int(parts[2])],)


def listing(names: Collection[str]) -> str:
    """The names in a sentence; the first, the last and how many, when there are many."""
    names = list(names)
    if len(names) > _SHOWN:
        return f"{names[0]}, {names[1]}, … {names[-1]} ({len(names)} in all)"
    return ", ".join(names) or "none"


@lru_cache(maxsize=4096)
def _port(number: PortNo, bps: float) -> Port:
    return Port(number, f"eth{number}", "", True, bps)


def _prefix(switches: int, hosts: int) -> int:
    prefix = max(_SMALLEST_PREFIX, 1 << (hosts + 1).bit_length())
    if switches * prefix > _ADDRESSES:
        message = f"{switches} switches with up to {hosts} hosts each do not fit into 10.0.0.0/8"
        raise InvalidInput((FieldProblem("fabric", message),))
    return prefix


def _at_least_one(**numbers: int) -> None:
    problems = tuple(
        FieldProblem(name, f"must be at least 1 (given: {value})") for name, value in numbers.items() if value < 1
    )
    if problems:
        raise InvalidInput(problems)


def _not_too_large(cables: int) -> None:
    if cables > _MOST_CABLES:
        message = f"has {cables:,} cables and NICs; at most {_MOST_CABLES:,} can be planned here"
        raise InvalidInput((FieldProblem("fabric", message),))
