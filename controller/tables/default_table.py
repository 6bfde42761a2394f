"""Table 2: destination routing that needs no controller: a host's port, or ECMP over all equal-cost next hops.

Other switches' hosts are reached by prefix where a leaf owns one; a host that lives outside its prefix's leaf gets a
rule of its own. Every bucket watches its port, so that a dead uplink is left without the controller.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from functools import lru_cache
from ipaddress import IPv4Network

from controller.fabric.topology import Dpid, Fabric, Host, LinkId, PortNo
from controller.tables.rules import (
    ETH_ARP,
    ETH_IPV4,
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
)

BASE_PRIORITY = 100


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
        owners |= {Prefix(host.ip): host.at.dpid for host in hosts if host.at.dpid != owner}
    return owners


@lru_cache(maxsize=1 << 16)
def _prefix_of(ip: str, length: int) -> Prefix:
    return Prefix(str(IPv4Network((ip, length), strict=False).network_address), length)


@lru_cache(maxsize=1 << 18)
def destination_rules(prefix: Prefix, action: Output | ToGroup, distance: int) -> tuple[FlowRule, FlowRule]:
    """IP by destination and unicast ARP by target address, to the same place."""
    priority = BASE_PRIORITY + prefix.length
    matches = (Match(eth_type=ETH_IPV4, ipv4_dst=prefix), Match(eth_type=ETH_ARP, arp_tpa=prefix))
    ip, arp = (
        FlowRule(FlowKey(Table.DEFAULT, priority, match), cookie(Table.DEFAULT), (action,), distance=distance)
        for match in matches
    )
    return ip, arp


@lru_cache(maxsize=1 << 16)
def ecmp_group(group_id: int, next_hops: tuple[LinkId, ...], distance: int) -> GroupRule:
    """A select group with one bucket per next hop, in port order."""
    ports: list[PortNo] = sorted(link.port for link in next_hops)
    return GroupRule(group_id, "select", tuple(Bucket(Output(p), watch_port=p) for p in ports), distance)


def host_rules(hosts: list[Host]) -> list[FlowRule]:
    """The hosts of one switch, each to its port."""
    return [rule for host in hosts for rule in destination_rules(Prefix(host.ip), Output(host.at.port), 0)]


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
