"""Traffic of a job for the search for a wiring: rings whose order is free, and bytes between pairs of servers.

In: a ``JobSpec``. Out: ``Traffic``. docs/wiring.md#job-files says which collectives may run over any ring; all other
traffic is counted per pair of servers. Ranks with the same address are on one server. Servers are numbered from 0,
ordered by the lowest rank on each server. ``in_rings`` returns the spec of the job on chosen rings, for planner,
checker and simulator.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from controller.circuits.wiring.circuits import Floats
from signalbox.jobs.collectives import virtual_links
from signalbox.jobs.spec import Algorithm, Collective, JobSpec, ParallelGroup

RINGS: Mapping[Algorithm, Algorithm] = MappingProxyType(
    {
        Algorithm.ALL_REDUCE: Algorithm.RING_ALL_REDUCE,
        Algorithm.REDUCE_SCATTER: Algorithm.RING_REDUCE_SCATTER,
        Algorithm.ALL_GATHER: Algorithm.RING_ALL_GATHER,
        Algorithm.RING_ALL_REDUCE: Algorithm.RING_ALL_REDUCE,
        Algorithm.RING_REDUCE_SCATTER: Algorithm.RING_REDUCE_SCATTER,
        Algorithm.RING_ALL_GATHER: Algorithm.RING_ALL_GATHER,
    }
)
"""Collectives for which every order of the ranks is equally good, each with its ring algorithm."""

Order = tuple[int, ...]
"""Servers in the order of a ring."""


class CollectiveGroup(NamedTuple):
    """A group of a collective: index of the collective and index of the group in the spec."""

    collective: int
    group: int


@dataclass(frozen=True)
class Rings:
    """All-reduces of disjoint groups of servers.

    Rings of disjoint groups share no server, so the same interfaces can serve a ring of each group."""

    groups: tuple[Order, ...]
    """Servers of each group, at least two."""
    sent: tuple[Mapping[int, float], ...]
    """Bytes that each server of a group sends in each phase, per group."""
    parts: tuple[tuple[CollectiveGroup, ...], ...]
    """Pairs (collective, group of the spec) whose bytes the servers of a group send, per entry of ``groups``."""

    @property
    def bytes(self) -> float:
        """Largest number of bytes that a server sends, over all phases."""
        return max(sum(of_group.values()) for of_group in self.sent)


@dataclass(frozen=True)
class Traffic:
    """Traffic of a job."""

    servers: int
    rings: tuple[Rings, ...]
    """Rings in the order of their first collectives."""
    pairs: Mapping[int, Floats]
    """Bytes from the row's server to the column's, by phase; shape (servers, servers)."""
    max_subflows: int = 1
    """Largest number of subflows of each pair's flow; 1 for whole flows."""

    @cached_property
    def phases(self) -> tuple[int, ...]:
        """Phases with traffic between servers, ascending."""
        return tuple(sorted({*self.pairs, *(phase for rings in self.rings for of in rings.sent for phase in of)}))

    @cached_property
    def of_pairs(self) -> Floats:
        """Bytes of pairs over all phases; shape (servers, servers)."""
        return sum(self.pairs.values(), np.zeros((self.servers, self.servers)))

    @cached_property
    def by_offset(self) -> Floats:
        """Bytes by offset: entry k is the sum over all servers i of what i sends to (i + k) mod n."""
        numbers = np.arange(self.servers)
        offsets = (numbers[None, :] - numbers[:, None]) % self.servers
        sent: Floats = np.bincount(offsets.ravel(), self.of_pairs.ravel(), self.servers).astype(float)
        return sent

    @cached_property
    def even(self) -> bool:
        """Whether, in every phase and for every k, all servers i send the same number of bytes to (i + k) mod n."""
        numbers = np.arange(self.servers)
        higher = (numbers[:, None] + numbers[None, :]) % self.servers
        turned = [sent[numbers[:, None], higher] for sent in self.pairs.values()]
        return all(np.allclose(each, each[0], rtol=1e-9, atol=0) for each in turned)

    @property
    def in_rings(self) -> float:
        """Bytes that all servers together send in rings."""
        return sum(
            len(group) * sum(of_group.values())
            for rings in self.rings
            for group, of_group in zip(rings.groups, rings.sent, strict=True)
        )


def traffic_of(spec: JobSpec) -> Traffic:
    """Return the traffic of a job. Raises ``InvalidInput`` as ``virtual_links`` does."""
    servers = servers_of(spec)
    of_rank = [servers[address] for address in spec.endpoints]
    places = {group.name: number for number, group in enumerate(spec.groups)}
    parts = [
        (CollectiveGroup(number, places[name]), collective)
        for number, collective in enumerate(spec.collectives)
        if collective.algorithm in RINGS
        for name in collective.groups
    ]
    rings = _rings_of(
        (part, collective, [of_rank[rank] for rank in spec.groups[part.group].ranks]) for part, collective in parts
    )
    others = [collective for collective in spec.collectives if collective.algorithm not in RINGS]
    return Traffic(len(servers), rings, _pairs(spec, others, servers), spec.max_subflows)


def traffic_as_it_runs(spec: JobSpec) -> Traffic:
    """Return the traffic without free rings: all bytes are bytes of pairs.

    All-reduces run in rings that follow the order of the ranks. Raises ``InvalidInput`` as ``virtual_links`` does."""
    servers = servers_of(spec)
    return Traffic(len(servers), (), _pairs(spec, spec.collectives, servers), spec.max_subflows)


def servers_of(spec: JobSpec) -> dict[str, int]:
    """Return the server's number by address. Servers are numbered from 0, ordered by the lowest rank on each server."""
    return {address: number for number, address in enumerate(dict.fromkeys(spec.endpoints))}


def in_rings(spec: JobSpec, rings: Iterable[tuple[Rings, Sequence[Sequence[Order]]]]) -> JobSpec:
    """Return the spec with its all-reduces as ring algorithms that run over these rings.

    Each ``Rings`` may have several orders, each with one ring per group. Without orders, the ring follows ``groups``.
    All rings of a group carry the same part of the bytes, rounded up. Ranks of one server stay adjacent. Collectives of
    the same ranks have the same rings.

    Raises ``InvalidInput`` if the result is larger than a spec may be."""
    servers = servers_of(spec)
    of_server = defaultdict[int, list[int]](list)
    for rank, address in enumerate(spec.endpoints):
        of_server[servers[address]].append(rank)
    name_of: dict[tuple[int, ...], str] = {}
    added: list[Collective] = []
    gone: set[CollectiveGroup] = set()
    taken = {group.name for group in spec.groups}
    free = (name for n in count(len(spec.groups)) if (name := f"ring {n}") not in taken)
    for which, orders in rings:
        orders = orders or (which.groups,)
        for of_group, parts in enumerate(which.parts):
            for part in parts:
                gone.add(part)
                members = set(spec.groups[part.group].ranks)
                whole = spec.collectives[part.collective]
                for order in orders:
                    ranks = tuple(rank for server in order[of_group] for rank in of_server[server] if rank in members)
                    if ranks not in name_of:
                        name_of[ranks] = next(free)
                    size = -(-whole.bytes_per_iteration // len(orders))
                    added.append(
                        Collective(
                            algorithm=RINGS[whole.algorithm],
                            groups=(name_of[ranks],),
                            bytes_per_iteration=size,
                            phase=whole.phase,
                        )
                    )
    kept = [_without(spec, number, gone) for number in range(len(spec.collectives))]
    groups = (*spec.groups, *(ParallelGroup(name=name, ranks=ranks) for ranks, name in name_of.items()))
    collectives = (*(each for each in kept if each), *_merge(added))
    held = spec.model_copy(update={"groups": groups, "collectives": collectives})
    return JobSpec.parse(held.model_dump())


def _without(spec: JobSpec, number: int, gone: set[CollectiveGroup]) -> Collective | None:
    """Return a collective without the groups in ``gone``; None if no group is left."""
    whole = spec.collectives[number]
    left = {part.group for part in gone if part.collective == number}
    names = tuple(name for name in whole.groups if name not in {spec.groups[group].name for group in left})
    return whole.model_copy(update={"groups": names}) if names else None


def _merge(collectives: Iterable[Collective]) -> list[Collective]:
    """Merge collectives that differ only in their groups, because the number of collectives in a spec is limited.

    A group that occurs in two of the collectives stays in two collectives."""
    alike = defaultdict[tuple[Algorithm, int, int], list[list[str]]](list)
    for each in collectives:
        rows = alike[each.algorithm, each.bytes_per_iteration, each.phase]
        row = next((row for row in rows if each.groups[0] not in row), None)
        if row is None:
            rows.append(row := [])
        row += each.groups
    return [
        Collective(algorithm=algorithm, groups=tuple(names), bytes_per_iteration=size, phase=phase)
        for (algorithm, size, phase), rows in alike.items()
        for names in rows
    ]


def _rings_of(parts: Iterable[tuple[CollectiveGroup, Collective, Sequence[int]]]) -> tuple[Rings, ...]:
    """Return the ``Rings`` of these collectives.

    Collectives of the same servers belong to one group. Each group joins the first ``Rings`` whose groups have no
    server in common with the group. If no such ``Rings`` exists, the group begins new ``Rings``."""
    of_group = defaultdict[Order, list[tuple[CollectiveGroup, Collective, int]]](list)
    for part, collective, of_ranks in parts:
        if len(servers := tuple(sorted(set(of_ranks)))) > 1:
            of_group[servers].append((part, collective, len(of_ranks)))
    classes: list[list[Order]] = []
    for group in of_group:
        for known in classes:
            if all(set(group).isdisjoint(other) for other in known):
                known.append(group)
                break
        else:
            classes.append([group])
    found = []
    for known in classes:
        sent = []
        for group in known:
            mine = defaultdict[int, float](float)
            for _, collective, ranks in of_group[group]:
                mine[collective.phase] += _sent(collective, ranks)
            sent.append(dict(mine))
        of_spec = tuple(tuple(part for part, *_ in of_group[group]) for group in known)
        found.append(Rings(tuple(known), tuple(sent), of_spec))
    return tuple(found)


def _sent(collective: Collective, ranks: int) -> float:
    """Return the bytes that each rank sends in a ring (docs/reference/job-spec.md).

    An all-reduce sends 2(n-1)/n M; a reduce-scatter or all-gather sends half as much."""
    times = 2 if RINGS[collective.algorithm] is Algorithm.RING_ALL_REDUCE else 1
    return times * (ranks - 1) / ranks * collective.bytes_per_iteration


def _pairs(spec: JobSpec, collectives: Sequence[Collective], servers: Mapping[str, int]) -> dict[int, Floats]:
    phases = sorted({each.phase for each in collectives} | {each.phase for each in spec.transfers})
    found: dict[int, Floats] = {}
    for phase in phases:
        alone = spec.model_copy(
            update={
                "collectives": tuple(each for each in collectives if each.phase == phase),
                "transfers": tuple(each for each in spec.transfers if each.phase == phase),
                "rails": (),
            }
        )
        sent = np.zeros((len(servers), len(servers)))
        for link in virtual_links(alone):
            sent[servers[link.src_ip], servers[link.dst_ip]] += link.bytes
        if sent.any():
            found[phase] = sent
    return found
