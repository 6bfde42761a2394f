"""Table 2: destination routing that needs no controller: a host's port, or ECMP over all equal-cost next hops.

Other switches' hosts are reached by prefix where a leaf owns one; a host that lives outside its prefix's leaf gets a
rule of its own. Every bucket watches its port, so that a dead uplink is left without the controller. What hosts send to
the MAC address of a gateway goes to one port, whatever its IP destination, so it cannot go round in circles.

What is not carried is dropped by a rule for its kind, below all that forwards. A packet meets it at the first switch
that does not know where to send it, so it is counted once.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from enum import StrEnum
from functools import lru_cache
from ipaddress import ip_network
from typing import NamedTuple

from controller.fabric.topology import Dpid, Fabric, Host, LinkId, PortNo, PortRef
from controller.tables.messages import RuleCount
from controller.tables.rules import (
    BROADCAST_MAC,
    ETH_ARP,
    ETH_IPV4,
    ETH_IPV6,
    IP_UDP,
    Bucket,
    FlowKey,
    FlowRule,
    GroupRule,
    Match,
    Output,
    Prefix,
    Table,
    ToGroup,
    cookie,
    dropped_cookie,
    host_prefix,
    stable_hash,
)
from signalbox.jobs.subflows import exactly

BASE_PRIORITY = 100
GATEWAY_PRIORITY = 140

SPREAD_ROWS = 8
MAX_SPREAD_BUCKETS = 64
"""Of a group that repeats its hops; Open vSwitch looks at six bits of a packet's hash when no method is asked for."""

_ORDER_BITS = 24
_ROW_MASKS = tuple(int(f"{row:03b}"[::-1] * (_ORDER_BITS // 3), 2) for row in range(SPREAD_ROWS))
"""The row's bits in reverse, over and over: whatever bit two port numbers differ in first, half of the rows exchange
them, and neighbours are exchanged as rarely as the rows allow."""


GatewayPorts = tuple[tuple[str, PortRef], ...]
"""Of the gateways that are found: MAC address, and where it is."""


class Gateway(NamedTuple):
    """A router: the host with this IP address. ``mac``: what hosts send to it has."""

    ip: str
    mac: str


def gateway_rules(
    here: Dpid, gateways: GatewayPorts, group_of: Mapping[Dpid, int], distance_to: Mapping[Dpid, int]
) -> list[FlowRule]:
    """All IP to a gateway's MAC address, to its port or to the ECMP group towards its switch."""
    rules = []
    for mac, at in gateways:
        key = FlowKey(Table.DEFAULT, GATEWAY_PRIORITY, Match(eth_type=ETH_IPV4, eth_dst=mac))
        ours = cookie(Table.DEFAULT)
        if at.dpid == here:
            rules.append(FlowRule(key, ours, (Output(at.port),)))
        elif at.dpid in group_of:
            rules.append(FlowRule(key, ours, (ToGroup(group_of[at.dpid]),), distance=distance_to.get(at.dpid, 1)))
    return rules


def destination_prefixes(fabric: Fabric, prefix_length: int, present: Mapping[Prefix, Dpid]) -> dict[Prefix, Dpid]:
    """Which switch each prefix leads to, and the hosts in it that are elsewhere by their address. ``present``: where
    prefixes lead now, which stays while a host of theirs is there; else it is the switch with most of them."""
    members: dict[Prefix, list[Host]] = defaultdict(list)
    for host in fabric.hosts.values():
        members[_prefix_of(host.ip, prefix_length)].append(host)
    owners: dict[Prefix, Dpid] = {}
    for prefix, hosts in members.items():
        counts = Counter(host.at.dpid for host in hosts)
        owner = min(counts, key=lambda dpid: (dpid != present.get(prefix), -counts[dpid], dpid))
        owners[prefix] = owner
        owners |= {host_prefix(host.ip): host.at.dpid for host in hosts if host.at.dpid != owner}
    return owners


@lru_cache(maxsize=1 << 16)
def _prefix_of(ip: str, length: int) -> Prefix:
    return Prefix(str(ip_network((ip, length), strict=False).network_address), length)


@lru_cache(maxsize=1 << 18)
def destination_rules(prefix: Prefix, action: Output | ToGroup, distance: int) -> tuple[FlowRule, FlowRule]:
    """IP by destination and unicast ARP by target address, to the same place."""
    priority = BASE_PRIORITY + prefix.length
    matches = (Match(eth_type=ETH_IPV4, ip_dst=prefix), Match(eth_type=ETH_ARP, arp_tpa=prefix))
    ip, arp = (
        FlowRule(FlowKey(Table.DEFAULT, priority, match), cookie(Table.DEFAULT), (action,), distance=distance)
        for match in matches
    )
    return ip, arp


@lru_cache(maxsize=1 << 16)
def ecmp_group(group_id: int, next_hops: tuple[LinkId, ...], distance: int) -> GroupRule:
    """Return a select group over the next hops of one switch. ``distance``: links to the destination's switch.

    Switches hash alike, so a packet that has met a choice shows the next switch only those hash values that led there.
    So at three links, where the aggregation switches of three tiers are, every hop is repeated, in another order each
    time; nearer there is no second choice. Without a hop the rest keeps its order: losing one only takes buckets
    away."""
    hops = sorted(next_hops, key=lambda link: link.port)
    if distance > 2:
        hops = _spread(hops, stable_hash(_ORDER_BITS, "spread", next_hops[0].dpid, group_id), distance)
    return GroupRule(group_id, "select", tuple(bucket(hop.port) for hop in hops), distance)


@lru_cache(maxsize=1 << 12)
def bucket(port: PortNo) -> Bucket:
    """Out of a port, while it is up. Groups share these: at 64 x 32 there would be 130,000."""
    return Bucket(Output(port), watch_port=port)


def _spread(hops: list[LinkId], labels: int, distance: int) -> list[LinkId]:
    """Return rows of all hops, each sorted by port number XOR a mask. At odd distances rows repeat: of two choices one
    goes round the hops by the lowest bits of the hash, the other exchanges them by the next ones. ``labels``: other
    names for the hops on every switch, so that what is uneven differs from switch to switch."""
    rows = min(SPREAD_ROWS, MAX_SPREAD_BUCKETS // len(hops)) if distance % 2 else 1
    return [
        hop
        for row in range(max(rows, 1))
        for hop in sorted(hops, key=lambda hop: (hop.port - 1) ^ labels ^ _ROW_MASKS[row])
    ]


def host_rules(hosts: Iterable[Host]) -> list[FlowRule]:
    """The hosts of one switch, each to its port."""
    return [rule for host in hosts for rule in destination_rules(host_prefix(host.ip), Output(host.at.port), 0)]


def routed_rules(
    here: Dpid, prefixes: Mapping[Prefix, Dpid], group_of: Mapping[Dpid, int], distance_to: Mapping[Dpid, int]
) -> list[FlowRule]:
    """Prefixes of other switches, each to the ECMP group towards its switch."""
    return [
        rule
        for prefix, leaf in prefixes.items()
        if leaf != here and leaf in group_of
        for rule in destination_rules(prefix, ToGroup(group_of[leaf]), distance_to.get(leaf, 1))
    ]


DHCP_SERVER_PORT = 67
MULTICAST = Prefix("224.0.0.0", 4)


class Dropped(StrEnum):
    """Why a packet is not carried."""

    IPV6 = "ipv6"
    MULTICAST = "multicast"
    BROADCAST = "broadcast"
    DHCP = "dhcp"
    UNKNOWN_HOST = "unknown_host"
    OTHER = "other"


_MATCHES: Mapping[tuple[int, Match], Dropped] = {
    (40, Match(eth_type=ETH_IPV4, ip_proto=IP_UDP, dst_port=exactly(DHCP_SERVER_PORT))): Dropped.DHCP,
    (30, Match(eth_type=ETH_IPV4, ip_dst=MULTICAST)): Dropped.MULTICAST,
    (30, Match(eth_type=ETH_IPV6)): Dropped.IPV6,
    (30, Match(eth_type=ETH_ARP)): Dropped.UNKNOWN_HOST,
    (20, Match(eth_dst=BROADCAST_MAC)): Dropped.BROADCAST,
    (10, Match(eth_type=ETH_IPV4)): Dropped.UNKNOWN_HOST,
    (1, Match()): Dropped.OTHER,
}
"""By priority and match. 0 would be an entry for a miss, which a table that gets full must have; these it need not."""

_KINDS = {FlowKey(Table.DEFAULT, *place): kind for place, kind in _MATCHES.items()}

DROP_RULES = tuple(FlowRule(key, dropped_cookie()) for key in _KINDS)


def dropped_packets(flows: Mapping[FlowKey, RuleCount]) -> dict[Dropped, int]:
    """Return the packets of each kind since the rules were made; empty when the switch has none of these rules yet, or
    counts no packets."""
    found: dict[Dropped, int] = {}
    for key, kind in _KINDS.items():
        count = flows.get(key)
        if count is not None and count.packets is not None:
            found[kind] = found.get(kind, 0) + count.packets
    return found
