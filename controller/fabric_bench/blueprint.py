"""What the benchmark builds: names, ports, files, and what correct switches would hold.

In: a fabric on paper (``offline.fabrics``) and a tag that tells this run's bridges from others'. Out: the name of every
bridge and port, the controller's configuration and inventory, and the next hops that shortest paths allow, computed
here and not by the controller's own code, so that one can be judged by the other.
"""

from __future__ import annotations

import json
import random
from collections import defaultdict, deque
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from ipaddress import IPv4Address
from pathlib import Path
from typing import NamedTuple

from controller.fabric.topology import Dpid, Fabric, PortNo, PortRef

Hops = Mapping[tuple[Dpid, Dpid], frozenset[PortNo]]
"""Per (switch, destination switch) the ports that lead one closer."""

_CONFIG = """\
state_dir = {state}
[openflow]
port = {port}
[api]
listen = [{api}]
[metrics]
port = 0
[fabric]
link_bps = {link_bps}
host_link_bps = {link_bps}
inventory = {inventory}
"""


class Cable(NamedTuple):
    """Between two switches."""

    a: PortRef
    b: PortRef


@dataclass(frozen=True)
class Blueprint:
    """``tag``: put before every name. Interface names have 15 characters at most (IFNAMSIZ)."""

    fabric: Fabric
    tag: str

    def bridge(self, dpid: Dpid) -> str:
        return f"{self.tag}{self.fabric.switches[dpid].name}"

    def interface(self, at: PortRef) -> str:
        return f"{self.bridge(at.dpid)}-{at.port}"

    @cached_property
    def dpids(self) -> tuple[Dpid, ...]:
        return tuple(self.fabric.switches)

    @cached_property
    def cables(self) -> tuple[Cable, ...]:
        return tuple(Cable(link.src, link.dst) for link in self.fabric.links.values() if link.src < link.dst)

    @property
    def ends(self) -> list[PortRef]:
        """Where directed links leave."""
        return [link.src for link in self.fabric.links.values()]

    @cached_property
    def destinations(self) -> tuple[Dpid, ...]:
        """The switches that have hosts."""
        return tuple(dict.fromkeys(host.at.dpid for host in self.fabric.hosts.values()))

    @cached_property
    def switch_of_address(self) -> Mapping[int, Dpid]:
        """Where IPv4 addresses lead: every host's, and the first of every leaf's prefix."""
        hosts = {int(IPv4Address(host.ip)): host.at.dpid for host in self.fabric.hosts.values()}
        return hosts | {address & ~0xFF: dpid for address, dpid in hosts.items()}

    def inventory(self) -> str:
        """The hosts, declared: nobody is there to speak."""
        return "\n".join(
            f'[[host]]\nip = "{host.ip}"\nswitch = "{self.bridge(host.at.dpid)}"\nport = "{self.interface(host.at)}"\n'
            for host in self.fabric.hosts.values()
        )

    def config(self, folder: Path, port: int) -> str:
        """Default settings apart from addresses, capacities and the inventory; files in ``folder``."""
        return _CONFIG.format(
            state=json.dumps(str(folder / "state")),
            port=port,
            api=json.dumps(f"unix:{folder / 'api.sock'}"),
            link_bps=next(iter(self.fabric.links.values())).capacity_bps,
            inventory=json.dumps(str(folder / "inventory.toml")),
        )

    def next_hops(self, cut: Collection[Cable] = ()) -> Hops:
        """Shortest paths towards every switch with hosts, without the cables in ``cut``."""
        gone = {end for cable in cut for end in cable}
        links = [link for link in self.fabric.links.values() if link.src not in gone]
        back: dict[Dpid, list[Dpid]] = defaultdict(list)
        for link in links:
            back[link.dst.dpid].append(link.src.dpid)
        hops: dict[tuple[Dpid, Dpid], set[PortNo]] = defaultdict(set)
        for destination in self.destinations:
            distance = _distances(destination, back)
            for link in links:
                here, there = distance.get(link.src.dpid), distance.get(link.dst.dpid)
                if here is not None and there is not None and here == there + 1:
                    hops[link.src.dpid, destination].add(link.src.port)
        return {key: frozenset(ports) for key, ports in hops.items()}

    def draw_cuts(self, count: int, seed: int) -> list[Cable]:
        """``count`` cables, or fewer: no switch loses more than half of its own."""
        spare = {dpid: sum(dpid in (c.a.dpid, c.b.dpid) for c in self.cables) // 2 for dpid in self.dpids}
        drawn: list[Cable] = []
        for cable in random.Random(seed).sample(self.cables, len(self.cables)):
            ends = (cable.a.dpid, cable.b.dpid)
            if len(drawn) < count and all(spare[dpid] > 0 for dpid in ends):
                drawn.append(cable)
                for dpid in ends:
                    spare[dpid] -= 1
        return drawn


def lost_hops(before: Hops, after: Hops) -> Iterator[tuple[Dpid, Dpid, PortNo]]:
    """(switch, destination, port) that must no longer be used. A switch that has lost its last shortest way is left
    out: its neighbours do not send there any more, whatever it does with what is still under way."""
    for key, ports in before.items():
        left = after.get(key, frozenset())
        if left and left < ports:
            for port in ports - left:
                yield (*key, port)


def _distances(destination: Dpid, back: Mapping[Dpid, list[Dpid]]) -> dict[Dpid, int]:
    distance = {destination: 0}
    queue = deque([destination])
    while queue:
        here = queue.popleft()
        for dpid in back.get(here, ()):
            if dpid not in distance:
                distance[dpid] = distance[here] + 1
                queue.append(dpid)
    return distance
