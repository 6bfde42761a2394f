"""Fabric that the benchmark builds: its names, configuration files and jobs, and the next hops that are correct on it.

The input is a fabric on paper (``scenarios.fabrics``), a tag that distinguishes this run's bridges from others, and
workload files. The results are

- the name of every bridge and port;
- the controller's configuration and inventory;
- ``JobSpec``s whose ring all-reduces have the flows of the workload files;
- the next hops, that is, for each switch and destination switch, the output ports on shortest paths. They are computed
  without the controller's code.
"""

import random
import re
from collections import defaultdict, deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from ipaddress import IPv4Address
from pathlib import Path
from typing import NamedTuple

from controller.fabric.topology import Dpid, Fabric, PortNo, PortRef
from mininet_topos.controller_process import Settings
from offline.scenarios.fabric_options import Placement
from offline.scenarios.generator import generate, jobs_of
from offline.scenarios.workloads import WorkloadJob, read_workload
from signalbox.errors import FieldProblem, InvalidInput
from signalbox.jobs.collectives import VirtualLink
from signalbox.jobs.spec import MAX_LEASE_S, Algorithm, Collective, JobSpec, ParallelGroup

JOBS = 3
RING_SIZE = 8
FILLED = 7 / 8
"""Share of the hosts that generated jobs fill at most; it gives 1,696 flows on 64 leaves with 32 hosts each."""

Hops = Mapping[tuple[Dpid, Dpid], frozenset[PortNo]]
"""Output ports on shortest paths, by (switch, destination switch)."""


class Cable(NamedTuple):
    a: PortRef
    b: PortRef


class Cut(NamedTuple):
    """Cable to cut. ``before``, ``after``: next hops with and without the cable."""

    cable: Cable
    before: Hops
    after: Hops


@dataclass(frozen=True)
class Blueprint:
    """Fabric in Open vSwitch. ``tag``: prefix of all names, so short that they fit 15 characters (IFNAMSIZ)."""

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
        """Ports that send to a cable, one per directed link."""
        return [link.src for link in self.fabric.links.values()]

    @cached_property
    def destinations(self) -> tuple[Dpid, ...]:
        return tuple(dict.fromkeys(host.at.dpid for host in self.fabric.hosts.values()))

    @cached_property
    def switch_of_address(self) -> Mapping[int, Dpid]:
        """Leaf of the IPv4 address of every host, and of the first address in every leaf's prefix."""
        hosts = {int(IPv4Address(host.ip)): host.at.dpid for host in self.fabric.hosts.values()}
        return hosts | {address & ~0xFF: dpid for address, dpid in hosts.items()}

    def inventory(self) -> str:
        """Return an inventory of the hosts. They send no packets, so the controller cannot discover them."""
        return "\n".join(
            f'[[host]]\nip = "{host.ip}"\nswitch = "{self.bridge(host.at.dpid)}"\nport = "{self.interface(host.at)}"\n'
            for host in self.fabric.hosts.values()
        )

    def settings(self, inventory: Path) -> Settings:
        """Return the controller's settings: link rates, the inventory, and no counting of unannounced pairs.

        The controller keeps rules that count such pairs of hosts until counters confirm the announced traffic. The jobs
        here send nothing, so the controller would keep such rules for ever."""
        bps = next(iter(self.fabric.links.values())).capacity_bps
        fabric = {"link_bps": bps, "host_link_bps": bps, "inventory": str(inventory)}
        return {"fabric": fabric, "jobs": {"max_learning_rules": 0}}

    def next_hops(self, cut: Collection[Cable] = ()) -> Hops:
        """Return the next hops to every switch that has hosts, without the cables in ``cut``."""
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
        """Yield cables to cut one after the other, in random order.

        A cable is left out if no shortest path uses it once the cables before it are cut. It is also left out if its
        loss would lengthen or interrupt all paths between two leaves, which is another kind of failure."""
        cables = random.Random(seed).sample(self.cables, len(self.cables))
        cut: list[Cable] = []
        before = self.next_hops()
        for cable in cables:
            after = self.next_hops([*cut, cable])
            as_short = all(pair in after and after[pair] <= before[pair] for pair in self._pairs)
            if as_short and any(True for _ in lost_hops(before, after)):
                yield Cut(cable, before, after)
                cut.append(cable)
                before = after

    @cached_property
    def _pairs(self) -> tuple[tuple[Dpid, Dpid], ...]:
        return tuple((a, b) for a in self.destinations for b in self.destinations if a != b)


def lost_hops(before: Hops, after: Hops) -> Iterator[tuple[Dpid, Dpid, PortNo]]:
    """Yield (switch, destination, port) for each next hop that a cut has taken away.

    A switch that has no next hop left is skipped: its neighbours send it no more packets for this destination."""
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


# ---- jobs


def workload(fabric: Fabric, folder: Path | None, seed: int) -> tuple[WorkloadJob, ...]:
    """Return the jobs in ``folder``, or generated jobs that fill the fabric like the published ones.

    Raises ``InvalidInput`` when the folder does not fit the fabric."""
    if folder is not None:
        return read_workload(folder, fabric)
    hosts = len(fabric.hosts)
    jobs = max(1, min(JOBS, hosts // 4))
    rings = max(1, int(hosts * FILLED) // (jobs * RING_SIZE))
    return jobs_of(generate(fabric, jobs, RING_SIZE, Placement.WHOLE_LEAF, seed, max_rings=rings), fabric)


def job_spec(job: WorkloadJob) -> JobSpec:
    """Return the spec of a job. Raises ``InvalidInput`` when the flows of one of its rings form no ring."""
    rings = [_ring([job.virtual_links[index] for index in ring], job.id) for ring in job.rings]
    endpoints = tuple(dict.fromkeys(ip for ring in rings for ip in ring))
    rank = {ip: number for number, ip in enumerate(endpoints)}
    groups = tuple(ParallelGroup(name=f"ring{n}", ranks=tuple(rank[ip] for ip in ring)) for n, ring in enumerate(rings))
    collectives = tuple(
        Collective(
            algorithm=Algorithm.RING_ALL_REDUCE,
            groups=tuple(group.name for group, size in zip(groups, sizes, strict=True) if size == wanted),
            bytes_per_iteration=wanted,
        )
        for sizes in [[_buffer_bytes(job, ring) for ring in job.rings]]
        for wanted in dict.fromkeys(sizes)
    )
    name = re.sub(r"[^a-z0-9.-]", "-", job.id.lower()).strip("-.")
    return JobSpec(
        job_id=f"bench-{name}"[:63],
        endpoints=endpoints,
        groups=groups,
        collectives=collectives,
        max_subflows=job.max_subflows,
        lease_s=MAX_LEASE_S,
    )


def _buffer_bytes(job: WorkloadJob, ring: Sequence[int]) -> int:
    """Return the bytes M of an all-reduce in which each of the n ranks of the ring sends 2 M (n-1)/n bytes."""
    return -(-job.virtual_links[ring[0]].bytes * len(ring) // (2 * (len(ring) - 1)))


def _ring(links: Sequence[VirtualLink], job: str) -> list[str]:
    """Return the addresses of a ring, each followed by the address that it sends to."""
    leads_to = {link.src_ip: link.dst_ip for link in links}
    ring = [links[0].src_ip]
    while (after := leads_to.get(ring[-1])) is not None and after != ring[0] and len(ring) <= len(links):
        ring.append(after)
    if len(ring) != len(links) or after is None:
        raise InvalidInput((FieldProblem(job, "has flows of one stage_index that do not form a ring"),))
    return ring
