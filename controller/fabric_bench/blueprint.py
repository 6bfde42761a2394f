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


class Cut(NamedTuple):
    """A cable to cut, and the next hops with and without it."""

    cable: Cable
    before: Hops
    after: Hops


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
        back: dict[Dpid, dict[Dpid, list[PortNo]]] = defaultdict(lambda: defaultdict(list))
        for link in self.fabric.links.values():
            if link.src not in gone:
                back[link.dst.dpid][link.src.dpid].append(link.src.port)
        hops: dict[tuple[Dpid, Dpid], set[PortNo]] = defaultdict(set)
        for destination in self.destinations:
            distance = _distances(destination, back)
            for there, into in back.items():
                one_more = distance.get(there, -2) + 1
                for here, ports in into.items():
                    if distance.get(here) == one_more:
                        hops[here, destination].update(ports)
        return {key: frozenset(ports) for key, ports in hops.items()}

    def draw_cuts(self, seed: int) -> Iterator[Cut]:
        """Cables in a random order, each cut in addition to those before. A cable is passed over when nobody sends over
        it any more, and when some switch with hosts would have longer ways than before, or none: that is another
        failure than the ones to be measured."""
        cables = random.Random(seed).sample(self.cables, len(self.cables))
        cut: list[Cable] = []
        before = self.next_hops()
        for cable in cables:
            after = self.next_hops([*cut, cable])
            as_short = all(self._as_short(before[pair], after.get(pair)) for pair in self._pairs)
            if as_short and any(True for _ in lost_hops(before, after)):
                yield Cut(cable, before, after)
                cut.append(cable)
                before = after

    @cached_property
    def _pairs(self) -> tuple[tuple[Dpid, Dpid], ...]:
        return tuple((a, b) for a in self.destinations for b in self.destinations if a != b)

    @staticmethod
    def _as_short(before: frozenset[PortNo], after: frozenset[PortNo] | None) -> bool:
        return after is not None and after <= before


def lost_hops(before: Hops, after: Hops) -> Iterator[tuple[Dpid, Dpid, PortNo]]:
    """(switch, destination, port) that must no longer be used. A switch that has lost its last shortest way is left
    out: its neighbours do not send there any more, whatever it does with what is still under way."""
    for key, ports in before.items():
        left = after.get(key, frozenset())
        if left and left < ports:
            for port in ports - left:
                yield (*key, port)


def _distances(destination: Dpid, back: Mapping[Dpid, Collection[Dpid]]) -> dict[Dpid, int]:
    distance = {destination: 0}
    queue = deque([destination])
    while queue:
        here = queue.popleft()
        for dpid in back.get(here, ()):
            if dpid not in distance:
                distance[dpid] = distance[here] + 1
                queue.append(dpid)
    return distance
