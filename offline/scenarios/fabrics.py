"""Fabrics without a network: leaf-spine, fat-tree or any topology, with or without failures.

In: sizes and rates, or a ``Topology``. Out: the frozen ``Fabric`` that the controller itself uses. Nodes are numbered
as in the published workload files: first the switches (leaves before spines), then the hosts leaf by leaf. Switch
number n has dpid n + 1. ``Fabric.switches`` and ``Fabric.hosts`` are in the order of the numbers.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

from controller.public.problems import Dpid, Fabric, Host, Link, LinkId, Port, PortNo, PortRef, Switch
from offline.scenarios import topologies
from offline.scenarios.topologies import OFFLINE, Topology
from signalbox.errors import InvalidInput

_SHOWN = 8
"""Largest number of names that an error lists in full."""


def leaf_spine(
    leaves: int, spines: int, hosts_per_leaf: int, link_bps: float, uplink_bps: float, cables: int = 1
) -> Fabric:
    """Return a leaf-spine fabric. Raises ``InvalidInput``.

    ``leaf0``... have ``hosts_per_leaf`` hosts of ``link_bps`` each. ``cables`` cables of ``uplink_bps`` connect every
    leaf with every spine, ``spine0``..."""
    return fabric_of(topologies.leaf_spine(leaves, spines, hosts_per_leaf, link_bps, uplink_bps, cables, OFFLINE))


def fat_tree(k: int, link_bps: float, uplink_bps: float) -> Fabric:
    """Return a fat-tree with switches ``edge0``..., ``agg0``..., ``core0``...; see ``topologies.fat_tree``.

    Raises ``InvalidInput``."""
    return fabric_of(topologies.fat_tree(k, link_bps, uplink_bps, OFFLINE))


def fabric_of(topology: Topology) -> Fabric:
    """Return the fabric of a topology with every link up."""
    dpids = {switch.name: Dpid(switch.dpid) for switch in topology.switches}
    ports: dict[Dpid, dict[PortNo, Port]] = {dpid: {} for dpid in dpids.values()}

    def plug(switch: str, port: int, bps: float) -> PortRef:
        at = PortRef(dpids[switch], PortNo(port))
        ports[at.dpid][at.port] = _port(at.port, bps)
        return at

    links: dict[LinkId, Link] = {}
    for cable in topology.cables:
        at_a, at_b = plug(cable.a, cable.a_port, cable.bps), plug(cable.b, cable.b_port, cable.bps)
        links[LinkId(*at_a)] = Link(at_a, at_b, cable.bps)
        links[LinkId(*at_b)] = Link(at_b, at_a, cable.bps)
    for circuit in topology.circuits:
        at_src, at_dst = (plug(end, circuit.port, circuit.bps) for end in (circuit.src, circuit.dst))
        links[LinkId(*at_src)] = Link(at_src, at_dst, circuit.bps)
    hosts = {host.ip: Host(host.ip, None, plug(host.leaf, host.port, host.bps), host.bps) for host in topology.hosts}
    switches = {dpid: Switch(dpid, name, ports[dpid]) for name, dpid in dpids.items()}
    return Fabric(1, switches, links, hosts)


# ---- failures: a failed switch stays in the fabric, so that numbers do not change, but loses its cables


def without_random_links(fabric: Fabric, count: int, seed: int) -> Fabric:
    """Return the fabric without ``count`` random cables between switches.

    Raises ``InvalidInput`` when there are fewer cables."""
    cables = [link for link in fabric.links.values() if link.src < link.dst or not _other_direction(fabric, link)]
    if count > len(cables):
        message = f"{count} cables cannot fail: there are {len(cables)} left between switches"
        raise InvalidInput.of("--fail-random-links", message)
    return without(fabric, (link.id for link in random.Random(seed).sample(cables, count)))


def without(fabric: Fabric, links: Iterable[LinkId]) -> Fabric:
    """Return the fabric without the cables of these links, and with a ``generation`` that is higher by 1.

    Both directions of a cable are removed; a circuit has only one direction."""
    cut = {each for link in links for each in (link, _other_direction(fabric, fabric.links[link]))}
    kept = {link_id: link for link_id, link in fabric.links.items() if link_id not in cut}
    return replace(fabric, generation=fabric.generation + 1, links=kept)


def _other_direction(fabric: Fabric, link: Link) -> LinkId | None:
    """Return the other direction of the same cable, or None for a circuit."""
    back = fabric.links.get(LinkId(*link.dst))
    return back.id if back and back.dst == link.src else None


def spine_links(fabric: Fabric, spines: Iterable[int | str]) -> set[LinkId]:
    """Return every link out of these spines or cores, each given by its number or by its name.

    Raises ``InvalidInput`` for an unknown name, and for a switch with hosts, because no routing can replace it."""
    switches = {switch.name: dpid for dpid, switch in fabric.switches.items()}
    with_hosts = {host.at.dpid for host in fabric.hosts.values()}
    without_hosts = [name for name, dpid in switches.items() if dpid not in with_hosts]
    failed: set[Dpid] = set()
    for spine in spines:
        name = next((name for name in (f"spine{spine}", f"core{spine}", str(spine)) if name in switches), None)
        if name is None or switches[name] in with_hosts:
            why = f"there is no spine '{spine}'" if name is None else f"'{name}' has hosts and cannot fail"
            raise InvalidInput.of("--fail-spines", f"{why}; switches that can fail: {listing(without_hosts)}")
        failed.add(switches[name])
    return {link for link in fabric.links if link.dpid in failed}


def cable_links(fabric: Fabric, cables: Iterable[str]) -> set[LinkId]:
    """Return one direction of every named cable. Raises ``InvalidInput``, which lists the existing names.

    ``leaf5:spine2`` names every cable between the two switches, ``leaf5:spine2:1`` one of them, counted from 0."""
    switches = {switch.name: dpid for dpid, switch in fabric.switches.items()}
    between = parallel_cables(fabric)
    return {link for text in cables for link in _named_cables(text, switches, between)}


def parallel_cables(fabric: Fabric) -> Mapping[tuple[Dpid, Dpid], tuple[LinkId, ...]]:
    """Return the links for each (source switch, destination switch), ordered by port.

    The index of a link is the number of its cable, the same in both directions."""
    between: defaultdict[tuple[Dpid, Dpid], list[LinkId]] = defaultdict(list)
    for link_id, link in fabric.links.items():
        between[link.src.dpid, link.dst.dpid].append(link_id)
    return {pair: tuple(links) for pair, links in between.items()}


def _named_cables(
    text: str, switches: Mapping[str, Dpid], between: Mapping[tuple[Dpid, Dpid], Sequence[LinkId]]
) -> Sequence[LinkId]:
    def refused(message: str) -> InvalidInput:
        return InvalidInput.of("--fail-links", f"'{text}': {message}")

    parts = text.split(":")
    if len(parts) not in (2, 3) or not all(parts):
        raise refused("must be SWITCH:SWITCH or SWITCH:SWITCH:CABLE, such as leaf5:spine2 or leaf5:spine2:0")
    for name in parts[:2]:
        if name not in switches:
            raise refused(f"there is no switch '{name}'; switches: {listing(switches)}")
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
    """Return the names separated by commas; of many names only the first two, the last, and the count."""
    names = list(names)
    if len(names) > _SHOWN:
        return f"{names[0]}, {names[1]}, … {names[-1]} ({len(names)} in all)"
    return ", ".join(names) or "none"


@lru_cache(maxsize=4096)
def _port(number: PortNo, bps: float) -> Port:
    return Port(number, f"eth{number}", "", True, bps)
