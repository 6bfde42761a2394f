"""The end of table 2: what is not carried, dropped by a rule for its kind, so that it is counted.

Every switch has the same rules, below all that forward. A packet meets them at the first switch that does not know
where to send it, so it is counted once. Out: the rules, and the packets of each kind from the counters of a switch.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from controller.tables.messages import RuleCount
from controller.tables.rules import (
    BROADCAST_MAC,
    ETH_ARP,
    ETH_IPV4,
    ETH_IPV6,
    IP_UDP,
    FlowKey,
    FlowRule,
    Match,
    Prefix,
    Table,
    dropped_cookie,
)
from signalbox.jobs.subflows import exactly

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
    (30, Match(eth_type=ETH_IPV4, ipv4_dst=MULTICAST)): Dropped.MULTICAST,
    (30, Match(eth_type=ETH_IPV6)): Dropped.IPV6,
    (30, Match(eth_type=ETH_ARP)): Dropped.UNKNOWN_HOST,
    (20, Match(eth_dst=BROADCAST_MAC)): Dropped.BROADCAST,
    (10, Match(eth_type=ETH_IPV4)): Dropped.UNKNOWN_HOST,
    (1, Match()): Dropped.OTHER,
}
"""By priority and match. 0 would be an entry for a miss, which a table that gets full must have; these it need not."""

_KINDS = {FlowKey(Table.DEFAULT, *place): kind for place, kind in _MATCHES.items()}

RULES = tuple(FlowRule(key, dropped_cookie()) for key in _KINDS)


def dropped_packets(flows: Mapping[FlowKey, RuleCount]) -> dict[Dropped, int]:
    """Since the rules were made; empty when the switch has none of them yet, or counts no packets."""
    found: dict[Dropped, int] = {}
    for key, kind in _KINDS.items():
        count = flows.get(key)
        if count is not None and count.packets is not None:
            found[kind] = found.get(kind, 0) + count.packets
    return found
