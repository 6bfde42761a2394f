"""Topologies, described once for the emulation, the planner, the simulator and the tests.

In: sizes and rates. Out: a ``Topology``: switches, cables and hosts with their names and numbers. Numbers are
``EMULATED`` for Mininet and Open vSwitch, or ``OFFLINE`` for workload files. ``scenarios.fabrics`` makes a ``Fabric``
of a topology, ``mininet_topos.fabric_topo`` a Mininet topology, and ``circuits_config`` the section ``circuits`` of a
controller's configuration.

This module imports only the standard library and ``signalbox.errors``, because ``mn`` loads it with the system's
Python.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import NamedTuple

from signalbox.errors import FieldProblem, InvalidInput

_ADDRESSES = 1 << 24
_SMALLEST_PREFIX = 256
_MOST_CABLES = 1_000_000
"""Largest number of cables and NICs together.

Each cable takes about 0.5 kB of memory. A fabric of 512 leaves, 128 spines and 256 hosts per leaf has 200,000
cables."""


class Switch(NamedTuple):
    name: str
    dpid: int


class Cable(NamedTuple):
    """Cable from ``a`` to ``b``, which is one tier higher."""

    a: str
    b: str
    number: int
    """Number of the cable among the parallel cables between the two switches."""
    a_port: int
    b_port: int
    bps: float
    """Rate each way in bit/s."""


class Host(NamedTuple):
    """Host, connected to port ``port`` of the switch ``leaf`` (in a fat-tree an edge switch)."""

    name: str
    ip: str
    leaf: str
    port: int
    bps: float
    """Rate each way in bit/s."""

    @property
    def mac(self) -> str:
        """MAC address: 02:00:00 and the last three bytes of the IP address."""
        return "02:00:00:" + ":".join(f"{int(byte):02x}" for byte in self.ip.split(".")[1:])

    @property
    def cable(self) -> Cable:
        """Cable to the leaf, from the host's only port, which is number 0."""
        return Cable(self.name, self.leaf, 1, 0, self.port, self.bps)


class Circuit(NamedTuple):
    """Circuit from ``src`` to ``dst``, in one direction.

    ``port``: number of the port to the optical switch, which is the same on both switches."""

    src: str
    dst: str
    port: int
    bps: float


@dataclass(frozen=True, slots=True)
class Topology:
    """Switches tier by tier, cables between switches, and hosts leaf by leaf."""

    switches: tuple[Switch, ...]
    cables: tuple[Cable, ...]
    hosts: tuple[Host, ...]
    circuits: tuple[Circuit, ...] = ()
    """Circuits between switches that are connected by optical switches."""


class Scheme(NamedTuple):
    """Numbering of the parts of a topology.

    Host k (from 1) of leaf n is ``h<n>_<k>`` with the address 10.0.0.0 + n B + k. Every leaf owns a prefix of B
    addresses. B is 256 or a larger power of two, enough for the hosts of the fullest leaf and two addresses that no
    host may have."""

    first: int
    """Number of the first switch of a tier, of the first leaf's prefix, and of the first parallel cable."""
    tier_dpids: int | None
    """Difference between the first dpids of two successive tiers; None if dpids are consecutive over all tiers.

    Dpids start at 1."""
    hosts_first: bool
    """True if a leaf's first ports lead to its hosts, False if they are its uplinks."""

    @property
    def most(self) -> int | None:
        """Largest number of switches per tier and of hosts per leaf; with more, dpids or addresses would be equal."""
        return None if self.tier_dpids is None else self.tier_dpids - 2


EMULATED = Scheme(first=1, tier_dpids=0x100, hosts_first=True)
"""Numbering for Mininet and Open vSwitch."""
OFFLINE = Scheme(first=0, tier_dpids=None, hosts_first=False)
"""Numbering of switches and ports in workload files."""


def leaf_spine(
    leaves: int,
    spines: int,
    hosts_per_leaf: int,
    host_bps: float,
    fabric_bps: float,
    cables: int = 1,
    scheme: Scheme = EMULATED,
) -> Topology:
    """Return a leaf-spine: ``leaf<n>`` and ``spine<n>``, with ``cables`` parallel cables from each leaf to each spine.

    A leaf's ports to spines are in the order of the spines, a spine's ports in the order of the leaves. Raises
    ``InvalidInput`` for sizes below one, and for sizes too large for the numbering ``scheme`` or the memory."""
    _check_sizes(scheme, leaves=leaves, spines=spines, hosts_per_leaf=hosts_per_leaf, cables=cables)
    _check_memory(leaves * spines * cables + leaves * hosts_per_leaf)
    uplinks = product(range(leaves), range(leaves, leaves + spines), range(cables))
    nics = product(range(leaves), range(hosts_per_leaf))
    return wire(
        _switches(scheme, leaf=leaves, spine=spines),
        ((leaf, spine, fabric_bps) for leaf, spine, _ in uplinks),
        ((leaf, host_bps) for leaf, _ in nics),
        scheme,
    )


def fat_tree(
    k: int, host_bps: float, fabric_bps: float, scheme: Scheme = EMULATED, cores: int | None = None
) -> Topology:
    """Return a k-ary fat-tree.

    The topology is that of Al-Fares, Loukissas and Vahdat, "A scalable, commodity data center network architecture",
    SIGCOMM 2008, section 3. It has k pods of k/2 ``edge<n>`` and k/2 ``agg<n>`` switches, and k/2 hosts per edge
    switch. There are k/2 groups of ``cores`` ``core<n>`` switches each (k/2 unless given). Switches are numbered pod by
    pod, or group by group. The cores of group i are connected to aggregation switch i of every pod. An aggregation
    switch has its ports to edge switches first.

    Raises ``InvalidInput`` when k is odd, below 2 or too large."""
    if k < 2 or k % 2:
        raise InvalidInput.of("k", f"must be an even number, at least 2 (given: {k})")
    half = k // 2
    of_group = half if cores is None else cores
    each = k * half
    _check_sizes(scheme, **{"edge switches": each, "core switches": half * of_group})
    _check_memory(each * (2 * half + of_group))
    places = product(range(k), range(half), range(half))
    to_edges = [(pod * half + edge, each + pod * half + agg, fabric_bps) for pod, edge, agg in places]
    to_cores = [
        (each + pod * half + agg, 2 * each + agg * of_group + core, fabric_bps)
        for pod, agg, core in product(range(k), range(half), range(of_group))
    ]
    nics = ((edge, host_bps) for edge, _ in product(range(each), range(half)))
    switches = _switches(scheme, edge=each, agg=each, core=half * of_group)
    return wire(switches, to_edges + to_cores, nics, scheme)


def direct_connect(peers: Sequence[Sequence[int | None]], interface_bps: float, scheme: Scheme = EMULATED) -> Topology:
    """Return a direct-connect fabric of ``server<n>``, the switches inside servers, which forward for other servers.

    Each server has one host, whose rate is the sum over the server's interfaces. ``peers[k][n]``: the server that
    receives from interface k of server n, or None. The scheme puts the interfaces' ports before or after the host's
    port. Raises ``InvalidInput`` for sizes that the scheme or the memory cannot hold."""
    servers = len(peers[0]) if peers else 0
    _check_sizes(scheme, servers=servers, interfaces=len(peers))
    _check_memory(servers * (len(peers) + 1))
    switches = _switches(scheme, server=servers)
    nics = [(server, len(peers) * interface_bps) for server in range(servers)]
    first = 2 if scheme.hosts_first else 1
    circuits = tuple(
        Circuit(switches[src].name, switches[dst].name, first + interface, interface_bps)
        for interface, of in enumerate(peers)
        for src, dst in enumerate(of)
        if dst is not None
    )
    return with_circuits(wire(switches, (), nics, scheme), circuits, 0 if scheme.hosts_first else len(peers))


def optical(servers: int, interfaces: int, interface_bps: float, host_bps: float | None = None) -> Topology:
    """Return a direct-connect fabric together with its optical switches.

    ``server<n>`` is the switch inside each server, with one host. Cables are fibre pairs, from interface k of server n
    to port n of ``optical<k>``. A host has the rate of all interfaces of its server unless ``host_bps`` is given.
    Raises ``InvalidInput`` for sizes below one, and for sizes that the scheme or the memory cannot hold."""
    _check_sizes(EMULATED, servers=servers, interfaces=interfaces)
    _check_memory(servers * (interfaces + 1))
    nic_bps = interfaces * interface_bps if host_bps is None else host_bps
    return wire(
        _switches(EMULATED, server=servers, optical=interfaces),
        ((server, servers + k, interface_bps) for server, k in product(range(servers), range(interfaces))),
        ((server, nic_bps) for server in range(servers)),
        EMULATED,
    )


def with_circuits(topology: Topology, circuits: Iterable[Circuit], before: int) -> Topology:
    """Return the topology with circuits. ``before``: number of circuit ports of a switch before its host ports."""
    hosts = tuple(host._replace(port=host.port + before) for host in topology.hosts)
    return replace(topology, hosts=hosts, circuits=tuple(circuits))


def wire(
    switches: Sequence[Switch],
    cables: Iterable[tuple[int, int, float]],
    nics: Iterable[tuple[int, float]],
    scheme: Scheme,
) -> Topology:
    """Return the topology with its ports and hosts numbered.

    - ``cables``: the two switches, as indices of ``switches``, and the rate in bit/s.
    - ``nics``: the switch and the rate in bit/s.

    Ports count from 1 in the order of the cables and of the NICs. Raises ``InvalidInput`` when there are too few
    addresses."""
    nics = list(nics)
    hosts_at = [0] * len(switches)
    for leaf, _ in nics:
        hosts_at[leaf] += 1
    prefix = _prefix(len(switches), max(hosts_at, default=0))
    ports = list(hosts_at) if scheme.hosts_first else [0] * len(switches)
    parallel: Counter[tuple[int, int]] = Counter()
    wired: list[Cable] = []
    for a, b, bps in cables:
        ports[a] += 1
        ports[b] += 1
        number = scheme.first + parallel[a, b]
        parallel[a, b] += 1
        wired.append(Cable(switches[a].name, switches[b].name, number, ports[a], ports[b], bps))
    used = [0] * len(switches) if scheme.hosts_first else ports
    placed = [0] * len(switches)
    hosts: list[Host] = []
    for leaf, bps in nics:
        placed[leaf] += 1
        number, k = scheme.first + leaf, placed[leaf]
        at = number * prefix + k
        ip = f"10.{at >> 16}.{at >> 8 & 0xFF}.{at & 0xFF}"
        hosts.append(Host(f"h{number}_{k}", ip, switches[leaf].name, used[leaf] + k, bps))
    return Topology(tuple(switches), tuple(wired), tuple(hosts))


def _switches(scheme: Scheme, **tiers: int) -> list[Switch]:
    """Return the switches of all tiers, tier by tier; a switch is named after its tier."""
    found: list[Switch] = []
    for tier, (kind, count) in enumerate(tiers.items()):
        base = 1 + (len(found) if scheme.tier_dpids is None else tier * scheme.tier_dpids)
        found += [Switch(f"{kind}{scheme.first + i}", base + i) for i in range(count)]
    return found


def _prefix(switches: int, hosts: int) -> int:
    prefix = max(_SMALLEST_PREFIX, 1 << (hosts + 1).bit_length())
    if switches * prefix > _ADDRESSES:
        raise InvalidInput.of("fabric", f"{switches} switches with up to {hosts} hosts each do not fit into 10.0.0.0/8")
    return prefix


def _check_sizes(scheme: Scheme, **sizes: int) -> None:
    allowed = "at least 1" if scheme.most is None else f"from 1 to {scheme.most}"
    InvalidInput.refuse(
        FieldProblem(name, f"must be {allowed} (given: {size})")
        for name, size in sizes.items()
        if size < 1 or (scheme.most is not None and size > scheme.most)
    )


def _check_memory(cables: int) -> None:
    if cables > _MOST_CABLES:
        raise InvalidInput.of("fabric", f"has {cables:,} cables and NICs; at most {_MOST_CABLES:,} can be planned here")


DARK_S, DRAIN_S = 0.01, 0.1
"""Defaults of ``dark_s`` and ``drain_s``, in seconds."""


def circuits_config(topology: Topology, dark_s: float = DARK_S, drain_s: float = DRAIN_S) -> str:
    """Return the section ``circuits`` of a configuration as TOML. Switches without hosts are optical switches.

    - ``dark_s``: seconds without light while circuits change.
    - ``drain_s``: seconds to drain the longest queue of an interface."""
    dpids = {switch.name: switch.dpid for switch in topology.switches}
    leaves = {host.leaf for host in topology.hosts}
    at: defaultdict[str, dict[int, Cable]] = defaultdict(dict)
    for cable in topology.cables:
        at[cable.b][cable.b_port] = cable
    lines = ["[circuits]", f"dark_s = {dark_s}", f"drain_s = {drain_s}"]
    for switch in topology.switches:
        if switch.name in leaves:
            continue
        lines += ["", "[[circuits.switch]]", f"dpid = {switch.dpid:#x}", "fibres = ["]
        for port in range(1, max(at[switch.name], default=0) + 1):
            end = at[switch.name].get(port)
            fibre = f"{dpids[end.a]:#x}:{end.a_port}" if end else ""
            lines.append(f'    "{fibre}",')
        lines.append("]")
    return "\n".join(lines) + "\n"
