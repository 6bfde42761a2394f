"""Snapshot of the fabric: switches, directed links and hosts.

This module defines the vocabulary of all later stages. Only ``topology_state`` makes snapshots, and nothing changes
them. The fabric is a multigraph: two cables between two switches are two links, and a path names ports, never only
switches.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
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
    fabric. It begins at no switch port, and is therefore identified by the edge port where it arrives."""

    dpid: Dpid
    port: PortNo
    direction: Literal["out", "in"] = "out"

    @property
    def at(self) -> PortRef:
        return PortRef(self.dpid, self.port)


def port_refs(ends: Iterable[tuple[int, int]]) -> frozenset[PortRef]:
    """Return pairs of dpid and port number as ``PortRef``."""
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
    """Usable topology at one moment; ``generation`` grows by one with every change, except of MAC addresses."""

    generation: int = 0
    switches: Mapping[Dpid, Switch] = field(default_factory=dict)
    links: Mapping[LinkId, Link] = field(default_factory=dict)
    hosts: Mapping[str, Host] = field(default_factory=dict)

    def name(self, dpid: Dpid) -> str:
        """Return the name of the switch, or its dpid in hexadecimal when it is not connected."""
        switch = self.switches.get(dpid)
        return switch.name if switch else f"{dpid:#x}"

    def link_name(self, link_id: LinkId) -> str:
        """Return ``leaf1:2>spine2`` for a fabric link, ``leaf1:5>10.0.1.2`` or the reverse for a host's link."""
        port = f"{self.name(link_id.dpid)}:{link_id.port}"
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
    """Return whether the port exists and is up."""
    switch = switches.get(at.dpid)
    port = switch.ports.get(at.port) if switch else None
    return port is not None and port.up


def moved_hosts(before: Mapping[str, Host], now: Mapping[str, Host]) -> frozenset[str]:
    """Return the addresses of hosts that appeared, vanished or moved to another switch."""
    changes = differing(before, now)
    return frozenset(ip for ip, was, host in changes if not (was and host and was.at.dpid == host.at.dpid))
