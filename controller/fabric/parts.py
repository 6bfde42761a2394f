"""Which hosts cannot reach most others: the fabric has parted, a host's port is down, or its switch is gone.

In: a ``Fabric`` snapshot's mappings. Out: by address the part that such a host is in. Pure.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping

from controller.fabric.topology import Dpid, Host, Link, LinkId, PortRef, Switch

Parts = Mapping[str, Dpid | None]
"""By the address of each host outside the part with most hosts: the least dpid of its part; None when it can reach no
host, because its port is down or its switch is not connected."""


def parts_beside_the_largest(
    switches: Mapping[Dpid, Switch], links: Mapping[LinkId, Link], hosts: Mapping[str, Host]
) -> Parts:
    """Empty while all hosts can reach each other."""
    part = _parts(switches, links)
    of_host = {ip: part[host.at.dpid] if _is_up(switches, host.at) else None for ip, host in hosts.items()}
    sizes = Counter(found for found in of_host.values() if found is not None)
    largest = max(sizes, key=lambda found: (sizes[found], -found), default=None)
    return {ip: found for ip, found in of_host.items() if found is None or found != largest}


def connected(parts: Parts, src_ip: str, dst_ip: str) -> bool:
    """Whether there is a path between two known hosts."""
    if src_ip not in parts and dst_ip not in parts:
        return True
    return src_ip in parts and dst_ip in parts and parts[src_ip] is not None and parts[src_ip] == parts[dst_ip]


def _is_up(switches: Mapping[Dpid, Switch], at: PortRef) -> bool:
    switch = switches.get(at.dpid)
    port = switch.ports.get(at.port) if switch else None
    return port is not None and port.up


def _parts(switches: Mapping[Dpid, Switch], links: Mapping[LinkId, Link]) -> dict[Dpid, Dpid]:
    """Of each switch the least dpid among those that it is connected with. A cable is used both ways or not at all."""
    beside: defaultdict[Dpid, set[Dpid]] = defaultdict(set)
    for link in links.values():
        beside[link.src.dpid].add(link.dst.dpid)
    part: dict[Dpid, Dpid] = {}
    for first in sorted(switches):
        ahead = [first] if first not in part else []
        part.setdefault(first, first)
        while ahead:
            new = [dpid for dpid in beside[ahead.pop()] if dpid not in part]
            part |= dict.fromkeys(new, first)
            ahead += new
    return part
