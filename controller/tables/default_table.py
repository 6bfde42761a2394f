"""Table 2: routing by destination without a controller, to the port of a host or by ECMP over all shortest next hops.

Hosts of other switches are reached by the prefix of their leaf; a host outside the prefix of its leaf has a rule of its
own. Every bucket watches its port, so that a switch avoids a dead uplink without the controller. Packets to the MAC
address of a gateway go to one port whatever their IP destination, so they cannot loop.

Packets that are not forwarded are dropped by a rule for their kind, with the lowest priorities. The first switch that
has no route for a packet drops it, so it is counted once.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from enum import StrEnum
from functools import lru_cache
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
    prefix_of,
    stable_hash,
)
from signalbox.jobs.subflows import exactly

BASE_PRIORITY = 100
GATEWAY_PRIORITY = 140

SPREAD_ROWS = 8
"""Largest number of rows of a group; each row has a bucket for every next hop (``_spread``)."""
MAX_SPREAD_BUCKETS = 64
"""Largest number of buckets of a group with several rows.

Without a selection method, Open vSwitch uses six bits of a packet's hash."""

_ORDER_BITS = 24
_ROW_MASKS = tuple(int(f"{row:03b}"[::-1] * (_ORDER_BITS // 3), 2) for row in range(SPREAD_ROWS))
"""Mask of each row: mask i repeats the three bits of i in reverse order.

Row i sorts the next hops by port number XOR mask i. Half of the rows exchange the order of any two ports, whichever bit
is the highest in which the two port numbers differ. Neighbours are exchanged as rarely as the rows allow."""


GatewayPorts = tuple[tuple[str, PortRef], ...]
"""MAC address and port of each gateway that was found."""


class Gateway(NamedTuple):
    """A router: the host with address ``ip``. Hosts send packets for the router to MAC address ``mac``."""

    ip: str
    mac: str


def gateway_rules(
    here: Dpid, gateways: GatewayPorts, group_of: Mapping[Dpid, int], distance_to: Mapping[Dpid, int]
) -> list[FlowRule]:
    """Return rules for all IP packets to a gateway's MAC address: to its port, or to the ECMP group of its switch."""
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
    """Return the switch of each prefix, and of each host that is not at the switch of its prefix.

    A prefix stays at its ``present`` switch while a host of the prefix is there. Otherwise the prefix belongs to the
    switch with the largest number of its hosts."""
    members: dict[Prefix, list[Host]] = defaultdict(list)
    for host in fabric.hosts.values():
        members[prefix_of(host.ip, prefix_length)].append(host)
    owners: dict[Prefix, Dpid] = {}
    for prefix, hosts in members.items():
        counts = Counter(host.at.dpid for host in hosts)
        owner = min(counts, key=lambda dpid: (dpid != present.get(prefix), -counts[dpid], dpid))
        owners[prefix] = owner
        owners |= {host_prefix(host.ip): host.at.dpid for host in hosts if host.at.dpid != owner}
    return owners


@lru_cache(maxsize=1 << 18)
def destination_rules(prefix: Prefix, action: Output | ToGroup, distance: int) -> tuple[FlowRule, FlowRule]:
    """Return the rules for IP by destination and unicast ARP by target address, with the same action."""
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

    All switches compute the same hash of a packet. The packets that one bucket sends to the next switch thus have only
    the hash values of this bucket, and could use only some of the buckets there. At a distance of three links (the
    aggregation switches of three tiers) every hop is therefore repeated, each time in another order. Nearer to the
    destination there is no second choice. Losing a hop only removes its buckets and keeps the order of the other
    buckets."""
    hops = sorted(next_hops, key=lambda link: link.port)
    if distance > 2:
        hops = _spread(hops, stable_hash(_ORDER_BITS, "spread", next_hops[0].dpid, group_id), distance)
    return GroupRule(group_id, "select", tuple(bucket(hop.port) for hop in hops), distance)


@lru_cache(maxsize=1 << 12)
def bucket(port: PortNo) -> Bucket:
    """Return the bucket that sends out of a port while the port is up.

    Groups share bucket objects; 64 x 32 switches would otherwise need 130,000."""
    return Bucket(Output(port), watch_port=port)


def _spread(hops: list[LinkId], labels: int, distance: int) -> list[LinkId]:
    """Return one row or several rows, concatenated; each row has all hops, sorted by port number XOR a mask.

    Several rows are used at odd distances only. Two successive switches then use different bits of the hash: one
    chooses by the lowest bits, the other permutes the hops by the next bits. ``labels``: number that is XORed with the
    port numbers. It differs from switch to switch, so that not all switches prefer the same hops when shares are
    uneven."""
    rows = min(SPREAD_ROWS, MAX_SPREAD_BUCKETS // len(hops)) if distance % 2 else 1
    return [
        hop
        for row in range(max(rows, 1))
        for hop in sorted(hops, key=lambda hop: (hop.port - 1) ^ labels ^ _ROW_MASKS[row])
    ]


def host_rules(hosts: Iterable[Host]) -> list[FlowRule]:
    """Return the rules for the hosts of one switch, each to its port."""
    return [rule for host in hosts for rule in destination_rules(host_prefix(host.ip), Output(host.at.port), 0)]


def routed_rules(
    here: Dpid, prefixes: Mapping[Prefix, Dpid], group_of: Mapping[Dpid, int], distance_to: Mapping[Dpid, int]
) -> list[FlowRule]:
    """Return the rules for the prefixes of other switches, each to the ECMP group of its switch."""
    return [
        rule
        for prefix, leaf in prefixes.items()
        if leaf != here and leaf in group_of
        for rule in destination_rules(prefix, ToGroup(group_of[leaf]), distance_to.get(leaf, 1))
    ]


DHCP_SERVER_PORT = 67
MULTICAST = Prefix("224.0.0.0", 4)


class Dropped(StrEnum):
    """Kind of a packet that is not forwarded."""

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
"""Kind of the packets that each drop rule matches, by priority and match.

A rule with priority 0 would be a table-miss entry, which a table must have even when it gets full; drop rules are
optional."""

_KINDS = {FlowKey(Table.DEFAULT, *place): kind for place, kind in _MATCHES.items()}

DROP_RULES = tuple(FlowRule(key, dropped_cookie()) for key in _KINDS)


MOST_PACKETS = (1 << 64) - 1
"""Largest number of packets that is reported; a switch may report as many for each of several rules."""


def dropped_packets(flows: Mapping[FlowKey, RuleCount]) -> dict[Dropped, int]:
    """Return the number of dropped packets of each kind since the rules were installed.

    The result is empty when the switch has no drop rules yet, or does not count packets."""
    found: dict[Dropped, int] = {}
    for key, kind in _KINDS.items():
        count = flows.get(key)
        if count is not None and count.packets is not None:
            found[kind] = min(MOST_PACKETS, found.get(kind, 0) + count.packets)
    return found
