"""Derive the traffic of one iteration from the calls of the communication library that each rank made.

``per_iteration`` takes each rank's calls in order, and returns bytes and phase of one iteration for each kind of call.
The calls of a rank are assumed to repeat in each iteration. One iteration is the period of the longest periodic part
near the end of the trace. This part must have at least two periods and at least half of the calls. Calls before this
part are ignored, and up to ``MAX_AFTER`` calls after this part.

Kinds of calls that follow each other have phases that follow each other. Two kinds overlap in time if an iteration has
a call of one kind between two calls of the other. Two kinds also overlap if the trace shows calls of both kinds under
way at once.

``with_amounts`` and ``with_traffic`` make the job spec: they add the traffic to ``given``, which has the user's fields.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

from signalbox.errors import FieldProblem, InvalidInput
from signalbox.files import called
from signalbox.jobs.collectives import check
from signalbox.jobs.spec import MAX_ENDPOINTS, Algorithm, JobSpec, Library

MAX_CALLS = 1_000_000
"""Largest number of calls in the traces of all ranks together."""

MAX_AFTER = 16
"""Largest number of calls after the last iteration, such as calls that end a training."""

MAX_PASSES = 100
"""Largest number of passes over all ranks in ``_phases``. Training jobs need only a few."""

SEND = "send"


class Kind(NamedTuple):
    """Kind of calls. The bytes of all calls of a kind are added up.

    - ``what``: an ``Algorithm``, ``SEND``, or another operation of the trace's format
    - ``ranks``: participating ranks of the job, in the order of their group, the root first
    - ``tag``: text that distinguishes kinds with the same operation and ranks, such as the number of a communicator"""

    what: str
    ranks: tuple[int, ...]
    tag: str = ""

    def __str__(self) -> str:
        few = ", ".join(map(str, self.ranks[:8])) + (", ..." if len(self.ranks) > 8 else "")
        return f"{self.what} of ranks {few}"


class Call(NamedTuple):
    """A call by one rank.

    ``bytes``: M, see ``spec.Collective``. ``overlaps``: whether an earlier call of the rank was still under way."""

    kind: Kind
    bytes: int
    overlaps: bool = False


class Amount(NamedTuple):
    """Bytes and phase of one kind of call in one iteration."""

    bytes: int
    phase: int


class TooManyCalls(InvalidInput):
    """Error: the traces have more than ``MAX_CALLS`` calls."""

    @classmethod
    def in_trace(cls) -> TooManyCalls:
        return cls.of("", f"the trace has more than {MAX_CALLS} calls; record fewer iterations")


def refuse_incomplete(calls: Mapping[int, Sequence[Call]], ranks: int) -> None:
    """Raise ``InvalidInput`` when the traffic of a rank is unknown, or when a trace belongs to no rank of the job.

    A rank may lack a trace if every call in the traces of the other ranks includes all ranks of the job. If some call
    does not include all ranks, the rank might belong to groups that no other trace has."""
    everyone = range(ranks)
    for rank in calls:
        if rank not in everyone:
            message = f"rank {rank} has a trace but no address; there are addresses of {ranks} ranks"
            raise InvalidInput.of("endpoints", message)
    missing = next((rank for rank in everyone if rank not in calls), None)
    if missing is not None and any(len(call.kind.ranks) < ranks for made in calls.values() for call in made):
        raise InvalidInput.of(
            "", f"the trace of rank {missing} is missing; the rank may have groups that no other rank has"
        )


def per_iteration(calls: Mapping[int, Sequence[Call]], iterations: int | None = None) -> dict[Kind, Amount]:
    """Return the traffic of one iteration by kind of call, in the order of the phases.

    ``iterations``: number of iterations in the trace; None if it is unknown. Raises ``InvalidInput`` with the ranks
    when their calls do not repeat, or when ranks contradict each other."""
    sent: defaultdict[Kind, dict[int, int]] = defaultdict(dict)
    orders: list[list[set[Kind]]] = []
    for rank, made in calls.items():
        window, count = (made, iterations) if iterations else (made[_iteration(rank, made)], 1)
        total: defaultdict[Kind, int] = defaultdict(int)
        for kind, size, _ in window:
            total[kind] += size
        for kind, size in total.items():
            sent[kind][rank] = -(-size // count)
        orders.append(_overlapping_sets(window[-(len(window) // count) :] if window else ()))
    InvalidInput.refuse(_contradictions(sent, calls))
    phases = _phases(orders)
    found = {kind: Amount(max(sizes.values()), phases.get(kind, 0)) for kind, sizes in sent.items()}
    return dict(sorted(found.items(), key=lambda item: (item[1].phase, min(item[0].ranks), item[0])))


def _iteration(rank: int, made: Sequence[Call]) -> slice:
    """Return the slice of ``made`` with one iteration: the first period of the periodic part.

    Raises ``InvalidInput`` when no part is periodic."""
    if not made:
        return slice(0, 0)
    for after in range(min(MAX_AFTER, len(made) // 4) + 1):
        backwards = made[len(made) - after - 1 :: -1] if after else made[::-1]
        borders = _borders(backwards)
        for length in range(len(backwards), (len(backwards) + 1) // 2 - 1, -1):
            period = length - borders[length]
            if 2 * period <= length:
                start = len(backwards) - length
                return slice(start, start + period)
    raise InvalidInput.of(
        f"rank {rank}",
        f"the {len(made)} calls of the rank do not repeat, so the length of an iteration is unknown; record more "
        "iterations, or give their number with --iterations",
    )


def _borders(text: Sequence[Call]) -> list[int]:
    """Return the length of the longest border of each prefix; item k belongs to the prefix of length k.

    A border of a prefix is a shorter sequence that is both its beginning and its end. The smallest period of a prefix
    is its length minus the length of its longest border. Knuth, Morris and Pratt, "Fast pattern matching in strings",
    SIAM Journal on Computing 6(2), 1977."""
    borders = [0] * (len(text) + 1)
    border = 0
    for at in range(1, len(text)):
        while border and text[at] != text[border]:
            border = borders[border]
        border += text[at] == text[border]
        borders[at + 1] = border
    return borders


def _contradictions(sent: Mapping[Kind, Mapping[int, int]], calls: Mapping[int, object]) -> Iterator[FieldProblem]:
    for kind, sizes in sent.items():
        first = next(iter(sizes))
        for rank in kind.ranks:
            if rank in calls and rank not in sizes:
                yield FieldProblem(f"rank {rank}", f"made no {kind}, but rank {first} did")
            elif sizes.get(rank, sizes[first]) != sizes[first] and kind.what != "all_to_all":
                message = f"sends {sizes[rank]} bytes per iteration in {kind}, but rank {first} sends {sizes[first]}"
                yield FieldProblem(f"rank {rank}", message)


def _overlapping_sets(window: Sequence[Call]) -> list[set[Kind]]:
    """Return sets of kinds, in the order in which the sets follow each other; kinds in one set overlap in time."""
    first: dict[Kind, int] = {}
    last: dict[Kind, int] = {}
    for at, (kind, _, overlaps) in enumerate(window):
        first.setdefault(kind, at)
        last[kind] = at
        if overlaps and at:  # the previous call is the call under way, or overlaps with that call
            last[window[at - 1].kind] = at
    found: list[set[Kind]] = []
    end = -1
    for kind, begin in first.items():
        if begin > end:
            found.append(set())
        found[-1].add(kind)
        end = max(end, last[kind])
    return found


def _phases(orders: Sequence[Sequence[set[Kind]]]) -> dict[Kind, int]:
    """Return the lowest phase of each kind that fits all ranks; 0 for all kinds when ranks contradict each other.

    ``orders``: result of ``_overlapping_sets`` for each rank. On every rank, the kinds of a set must have the same
    phase, and this phase must be later than the phase of the previous set. Kinds that overlap on one rank share a phase
    on all ranks. Such kinds may look separate on a further rank, where one kind ended just before the other began."""
    part = _representatives(orders)
    sequences = [dict.fromkeys(part[kind] for kinds in order for kind in kinds) for order in orders]
    phases = dict.fromkeys(part.values(), 0)
    for _ in range(MAX_PASSES):
        changed = False
        for sequence in sequences:
            phase = -1
            for kind in sequence:
                phase = max(phase + 1, phases[kind])
                changed |= phases[kind] != phase
                phases[kind] = phase
        if not changed:
            return {kind: phases[first] for kind, first in part.items()}
    return dict.fromkeys(part, 0)


def _representatives(orders: Sequence[Sequence[set[Kind]]]) -> dict[Kind, Kind]:
    """Return a representative for each kind of call; kinds with the same representative have the same phase.

    Kinds that overlap on some rank, directly or through other kinds, have the same representative."""
    part = {kind: kind for kind in chain.from_iterable(chain.from_iterable(orders))}

    def first(kind: Kind) -> Kind:
        while part[kind] != kind:
            part[kind] = kind = part[part[kind]]
        return kind

    changed = True
    while changed:
        changed = False
        for order in orders:
            last = {first(kind): at for at, kinds in enumerate(order) for kind in kinds}
            end, one = -1, None
            for at, kinds in enumerate(order):
                one = None if at > end else one
                for kind in map(first, kinds):
                    one = one or kind
                    end = max(end, last.get(kind, at))
                    if first(one) != kind:
                        part[kind], changed = first(one), True
    return {kind: first(kind) for kind in part}


REDUCE, GATHER, SCATTER = "reduce", "gather", "scatter"
"""Operations for which job specs have no algorithm. The first rank of their ``Kind`` is the root."""

Sent = dict[str, int]
"""Fields of a ``Transfer``, by name."""

_ORDER = itemgetter("phase", "src", "dst")


def with_amounts(
    given: JobSpec, amounts: Mapping[Kind, Amount], names: Mapping[tuple[int, ...], str], library: str
) -> JobSpec:
    """Return the spec ``given`` with the traffic in ``amounts`` added. Raises ``InvalidInput``.

    - ``names``: names of groups, by their ranks in ascending order
    - ``library``: library of the job if ``given`` names none

    Kinds with a single rank or without bytes are left out."""
    library = given.library if "library" in given.model_fields_set else library
    as_transfers = {SEND, GATHER, SCATTER} | ({REDUCE} if library == Library.GLOO else set())
    names = {**names, **{tuple(sorted(group.ranks)): group.name for group in given.groups}}
    groups: dict[tuple[int, ...], str] = {}
    collectives: dict[tuple[Algorithm, int, int], list[str]] = {}
    sending = {kind: amount for kind, amount in amounts.items() if amount.bytes and len(kind.ranks) > 1}
    for kind, amount in sending.items():
        if kind.what not in as_transfers:
            # A reduction to a root is a chain that ends there: each rank forwards its partial sum, M bytes.
            algorithm = Algorithm.PIPELINE_SEND if kind.what == REDUCE else Algorithm(kind.what)
            ranks = kind.ranks[::-1] if kind.what == REDUCE else kind.ranks
            if ranks not in groups:
                groups[ranks] = _unused(names.get(tuple(sorted(ranks)), "group"), set(groups.values()))
            collectives.setdefault((algorithm, amount.bytes, amount.phase), []).append(groups[ranks])
    return with_traffic(
        given,
        library,
        groups=tuple({"name": name, "ranks": ranks} for ranks, name in groups.items()),
        collectives=tuple(
            {"algorithm": algorithm, "groups": tuple(of), "bytes_per_iteration": size, "phase": phase}
            for (algorithm, size, phase), of in collectives.items()
        ),
        transfers=tuple(
            sorted(
                chain.from_iterable(_transfers(*one) for one in sending.items() if one[0].what in as_transfers),
                key=_ORDER,
            )
        ),
    )


def with_traffic(given: JobSpec, library: str, **traffic: object) -> JobSpec:
    """Return the spec ``given`` with the fields in ``traffic`` added. Raises ``InvalidInput``.

    ``library``: library of the job if ``given`` names none."""
    data: dict[str, Any] = given.model_dump(exclude_unset=True)
    spec = JobSpec.parse({"library": library, **data, **traffic})
    InvalidInput.refuse(check(spec))
    return spec


def transfer(src: int, dst: int, size: int, phase: int) -> Sent:
    return {"src": src, "dst": dst, "bytes_per_iteration": size, "phase": phase}


def _transfers(kind: Kind, amount: Amount) -> Iterator[Sent]:
    """Yield the transfers of a send, gather, scatter or reduction.

    A gather sends each rank's share of M to the first rank; a scatter does the opposite. Gloo's reduction is a
    reduce-scatter in a ring that runs backwards, followed by a gather (``gloo/reduce.cc``; seen with torch 2.13)."""
    root, *others = kind.ranks
    n = len(kind.ranks)
    if kind.what == REDUCE:
        for place, rank in enumerate(kind.ranks):
            yield transfer(rank, kind.ranks[place - 1], -(-(n - 1) * amount.bytes // n), amount.phase)
    if kind.what == SEND:
        yield transfer(root, others[0], amount.bytes, amount.phase)
    else:
        share = -(-amount.bytes // n)
        for other in others:
            src, dst = (root, other) if kind.what == SCATTER else (other, root)
            yield transfer(src, dst, share, amount.phase)


def _unused(name: str, used: set[str]) -> str:
    name = "".join(c if c.isprintable() else "?" for c in name)[:50] or "group"
    names = (f"{name}-{number}" if number else name for number in range(len(used) + 1))
    return next(free for free in names if free not in used)


def library_of(names: Iterable[str]) -> str:
    """Return the library that a trace names; generic if it names several, or an unknown one."""
    found = set(names)
    return found.pop() if len(found) == 1 and found <= set(Library) else Library.GENERIC


def file_of_rank(files: Sequence[Path]) -> dict[int, Path]:
    """Return the file of each rank.

    The rank is the last number in a file's name. If no name has a number, the rank is the file's position in ``files``.
    Raises ``InvalidInput``."""
    numbers = [re.findall(r"\d+", re.sub(r"\.(et|json|pkl|pickle)$", "", file.name)) for file in files]
    if not any(numbers):
        return dict(enumerate(files))
    found: dict[int, Path] = {}
    for file, number in zip(files, numbers, strict=True):
        if not number:
            raise InvalidInput.of(called(file), "the file name has no rank number, but names of other files have one")
        rank = int(number[-1][:9])
        if rank >= MAX_ENDPOINTS:
            raise InvalidInput.of(
                called(file), f"the file name gives rank {rank}; the largest possible rank is {MAX_ENDPOINTS - 1}"
            )
        if rank in found:
            raise InvalidInput.of(
                called(file), f"the file name gives rank {rank}, and so does the name of {called(found[rank])}"
            )
        found[rank] = file
    return dict(sorted(found.items()))
