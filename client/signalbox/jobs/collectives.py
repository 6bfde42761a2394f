"""Virtual links of a job: the bytes that it sends from address to address in one iteration.

``virtual_links`` turns a ``JobSpec`` into one ``VirtualLink`` per (source, destination, phase). The links contain the
spec's transfers, and the transfers that its collectives make (``formulas``). Ranks on one host send each other nothing
over the network. A transfer is divided evenly over its ranks' NICs, rounded up.

Phases follow each other, and so do the steps within a phase, so the planner treats each step as a phase. In a
``VirtualLink``, ``phase`` is the position of the pair (phase, step) among all such pairs with traffic, in order.
docs/reference/job-spec.md#phases-and-steps says which steps of a phase count as simultaneous. If simultaneity is
unknown, the whole phase counts as one step. The ideal time of such a step is the time of the busiest NIC for all bytes
of the phase, which no schedule can beat. The model ignores that a single step may load a link more than the phase as a
whole.

For a job with parallelizations, ``virtual_links`` uses the first one (``JobSpec.plain``), and ``check`` covers all of
them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from operator import attrgetter
from typing import Self

from signalbox.errors import FieldProblem, InvalidInput, cut
from signalbox.jobs.formulas import Formula, Sent, formula
from signalbox.jobs.spec import MAX_VIRTUAL_LINKS, Collective, JobSpec, Library
from signalbox.jobs.subflows import Pair

MAX_JOB_BYTES = (1 << 63) - 1
"""Largest number of bytes that a job may send per iteration, so that sums fit into the API's fields."""

Steps = list[list[Sent]]
"""Sequence of steps; each step lists its transfers as (sending rank, receiving rank, bytes)."""


@dataclass(frozen=True, slots=True)
class VirtualLink:
    """A large flow: all ``bytes`` that a job sends from ``src_ip`` to ``dst_ip`` in one phase of an iteration."""

    src_ip: str
    dst_ip: str
    phase: int
    bytes: int


class VirtualLinks(tuple[VirtualLink, ...]):
    """Virtual links of one job, sorted; one per (source, destination, phase).

    Values derived from the links are computed at most once, because a job of 256 ranks can have 65,280 links."""

    def worked_out(self) -> Self:
        """Compute all derived values that the control loop reads for a new job, so that it need not wait later.

        Returns the object itself."""
        _ = self.pairs, self.addresses, self.bytes_of, self.most_to_one, self.most_from_one, self.exchanges
        return self

    @cached_property
    def in_phases(self) -> Mapping[Pair, Sequence[tuple[int, int]]]:
        """(phase, bytes) of each virtual link of a pair of (source, destination) addresses; the pairs are sorted."""
        of_pair = defaultdict[Pair, list[tuple[int, int]]](list)
        for link in self:
            of_pair[link.src_ip, link.dst_ip].append((link.phase, link.bytes))
        return dict(of_pair)

    @cached_property
    def bytes_of(self) -> Mapping[Pair, int]:
        """Bytes that each pair of addresses sends in one iteration, over all phases."""
        return {pair: sum(size for _, size in sizes) for pair, sizes in self.in_phases.items()}

    @cached_property
    def pairs(self) -> frozenset[Pair]:
        """Pairs of (source, destination) addresses."""
        return frozenset(self.in_phases)

    @cached_property
    def addresses(self) -> frozenset[str]:
        """Addresses of hosts that send or receive."""
        return frozenset(chain.from_iterable(self.in_phases))

    @cached_property
    def most_to_one(self) -> int:
        """Largest number of hosts that send to the same host in the same phase."""
        return max(Counter((link.phase, link.dst_ip) for link in self).values(), default=0)

    @cached_property
    def most_from_one(self) -> int:
        """Largest number of hosts to which the same host sends in the same phase."""
        return max(Counter((link.phase, link.src_ip) for link in self).values(), default=0)

    @cached_property
    def exchanges(self) -> bool:
        """True if some two hosts send to each other in the same phase."""
        return any(
            phase in {other for other, _ in self.in_phases.get((dst, src), ())}
            for (src, dst), sizes in self.in_phases.items()
            for phase, _ in sizes
        )


def virtual_links(spec: JobSpec) -> VirtualLinks:
    """Return the job's virtual links, sorted; transfers with the same source, destination and phase are merged.

    An observed job, which announces no traffic, has no virtual links. Raises ``InvalidInput`` with the problems that
    ``check`` finds, and for more than ``MAX_JOB_BYTES``."""
    InvalidInput.refuse(check(spec))
    total = _by_place(spec.plain)
    # Steps without traffic between hosts get no number.
    in_order = enumerate(total[place] for place in sorted(total) if total[place])
    links = (VirtualLink(src, dst, phase, size) for phase, sent in in_order for (src, dst), size in sent.items())
    in_all = sum(chain.from_iterable(of_place.values() for of_place in total.values()))
    if in_all > MAX_JOB_BYTES:
        where = "collectives" if spec.plain.collectives else "transfers"
        raise InvalidInput.of(where, f"the job sends {in_all} bytes per iteration; at most {MAX_JOB_BYTES} are allowed")
    return VirtualLinks(sorted(links, key=attrgetter("src_ip", "dst_ip", "phase")))


def announced_phases(spec: JobSpec) -> tuple[int, ...]:
    """Return the announced phase of each phase of ``virtual_links(spec)``, in order."""
    total = _by_place(spec.plain)
    return tuple(phase for phase, step in sorted(total) if total[phase, step])


def _by_place(spec: JobSpec) -> Mapping[tuple[int, int], Mapping[tuple[str, str], int]]:
    """Return the bytes between addresses by phase and step, then by (source, destination)."""
    endpoints = spec.endpoints
    nics = (endpoints, *(rail.endpoints for rail in spec.rails))
    total: defaultdict[tuple[int, int], dict[tuple[str, str], int]] = defaultdict(dict)
    for phase, sequences in _sequences(spec).items():
        alike = len({len(steps) for steps in sequences}) == 1
        for number, sent in chain.from_iterable(map(enumerate, sequences)):
            in_place = total[phase, number if alike else 0]
            for src, dst, size in sent:
                if endpoints[src] != endpoints[dst]:
                    for nic in nics:
                        pair = nic[src], nic[dst]
                        in_place[pair] = in_place.get(pair, 0) - (-size // len(nics))
    return total


def formulas_of(spec: JobSpec) -> set[Formula]:
    """Return the formulas that the job's collectives use."""
    spec = spec.plain
    sizes = {group.name: len(group.ranks) for group in spec.groups}
    found = (
        _formula(spec.library, collective, n)
        for collective in spec.collectives
        for n in {sizes[name] for name in collective.groups}
    )
    return {known for known in found if known}


def check(spec: JobSpec) -> list[FieldProblem]:
    """Return the problems for which a spec has no virtual links; empty if it has virtual links.

    Problems of single fields are not included, because ``JobSpec`` checks them. The check does not make the links; it
    takes no longer than reading the spec."""
    if not spec.parallelizations:
        return _problems_of_plain(spec)
    problems: list[FieldProblem] = []
    for number, way in enumerate(spec.parallelizations):
        plain = spec.of_parallelization(way.name)
        found = _problems_of_plain(plain) or _too_many_bytes(plain)
        problems += [replace(each, path=f"parallelizations[{number}].{each.path}") for each in found]
    return problems


def _problems_of_plain(spec: JobSpec) -> list[FieldProblem]:
    problems: list[FieldProblem] = []
    sizes = {group.name: len(group.ranks) for group in spec.groups}
    for c, collective in enumerate(spec.collectives):
        where = f"collectives[{c}]"
        if len(set(collective.groups)) < len(collective.groups):
            ((name, times),) = Counter(collective.groups).most_common(1)
            message = f"group '{cut(name)}' appears {times} times; name each group once per collective"
            problems.append(FieldProblem(f"{where}.groups", message))
        problems += [
            FieldProblem(f"{where}.algorithm", _not_known(spec.library, collective, n))
            for n in dict.fromkeys(sizes[name] for name in collective.groups)
            if _formula(spec.library, collective, n) is None
        ]
    if (links := link_count(spec)) > MAX_VIRTUAL_LINKS:
        parts = [part for part in ("collectives", "transfers", "rails") if getattr(spec, part)]
        message = f"the {' and '.join(parts)} make {links} virtual links; at most {MAX_VIRTUAL_LINKS} are allowed"
        problems.append(FieldProblem(parts[0], message))
    return problems


def _too_many_bytes(spec: JobSpec) -> list[FieldProblem]:
    """Return a problem if a parallelization may send more than ``MAX_JOB_BYTES``, without making its virtual links.

    The estimate is never too low, so each parallelization that ``virtual_links`` would refuse is refused: each transfer
    of a collective counts twice the collective's size, rounded up on every NIC."""
    nics = 1 + len(spec.rails)
    sizes = {group.name: len(group.ranks) for group in spec.groups}
    most = sum(transfer.bytes_per_iteration + nics for transfer in spec.transfers)
    for collective in spec.collectives:
        links = (
            known.links(n)
            for n in (sizes[name] for name in collective.groups)
            if (known := _formula(spec.library, collective, n))
        )
        most += sum(links) * (2 * collective.bytes_per_iteration + nics)
    if most <= MAX_JOB_BYTES:
        return []
    where = "collectives" if spec.collectives else "transfers"
    return [FieldProblem(where, f"the job may send {most} bytes per iteration; at most {MAX_JOB_BYTES} are allowed")]


def link_count(spec: JobSpec) -> int:
    """Return the number of virtual links without making them. Links that are merged later count separately."""
    spec = spec.plain
    sizes = {group.name: len(group.ranks) for group in spec.groups}
    links = len(spec.transfers)
    for collective in spec.collectives:
        for n, groups in Counter(sizes[name] for name in collective.groups).items():
            if known := _formula(spec.library, collective, n):
                links += groups * known.links(n)
    return links * (1 + len(spec.rails))


def _sequences(spec: JobSpec) -> dict[int, list[Steps]]:
    """Return the sequences of steps of each phase; the sequences of a phase begin together."""
    ranks = {group.name: group.ranks for group in spec.groups}
    found: defaultdict[int, list[Steps]] = defaultdict(list)
    for collective in spec.collectives:
        for of_group in (ranks[name] for name in collective.groups):
            if known := _formula(spec.library, collective, len(of_group)):
                steps = known.steps(len(of_group), collective.bytes_per_iteration)
                found[collective.phase].append([[(of_group[i], of_group[j], m) for i, j, m in step] for step in steps])
    transfers: defaultdict[int, defaultdict[int, list[Sent]]] = defaultdict(lambda: defaultdict(list))
    for t in spec.transfers:
        transfers[t.phase][t.step].append((t.src, t.dst, t.bytes_per_iteration))
    for phase, steps_of in transfers.items():
        found[phase].append([steps_of[step] for step in sorted(steps_of)])
    return found


def _formula(library: Library, collective: Collective, n: int) -> Formula | None:
    return formula(library, collective.algorithm, n, collective.bytes_per_iteration)


def _not_known(library: Library, collective: Collective, n: int) -> str:
    what = f"{collective.algorithm} of {collective.bytes_per_iteration} bytes over {n} ranks"
    return f"the transfers of {library} for {what} are not known; announce another algorithm, or transfers"
