"""What a job sends in one iteration, from the calls of its communication library that each rank made.

Owns the period of a trace and the phases of its calls. In: per rank its calls in their order. Out: per kind of call the
bytes of one iteration and the phase.

The calls of a rank are taken to repeat, iteration by iteration: the period is that of the longest part at the end of
the trace that repeats at least once and is at least half of it. What precedes it (start of the training) is left out,
and so are up to ``MAX_AFTER`` calls that follow it.

Two kinds of calls overlap in time if one is called between two calls of the other in an iteration, or, where the trace
says so, while one of the other is under way. Otherwise they follow each other: then their phases do.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from signalbox.errors import FieldProblem, InvalidInput

MAX_CALLS = 1_000_000
"""Of all ranks together."""

MAX_AFTER = 16
"""Calls after the last iteration, such as those that end a training."""

MAX_PASSES = 100
"""Over the orders of all ranks; ranks of training jobs need a few."""

SEND = "send"


class Kind(NamedTuple):
    """Calls that are added up. ``what``: an ``Algorithm``, ``SEND``, or another name of its format. ``ranks``: of the
    job, those that take part, in their order, the root first. ``tag``: what else tells kinds apart."""

    what: str
    ranks: tuple[int, ...]
    tag: str = ""

    def __str__(self) -> str:
        few = ", ".join(map(str, self.ranks[:8])) + (", ..." if len(self.ranks) > 8 else "")
        return f"{self.what} of ranks {few}"


class Call(NamedTuple):
    """``bytes``: M, see ``spec.Collective``. ``overlaps``: an earlier call of the rank was under way."""

    kind: Kind
    bytes: int
    overlaps: bool = False


class Amount(NamedTuple):
    """Of one kind, in one iteration."""

    bytes: int
    phase: int


class TooManyCalls(InvalidInput):
    """A trace has more than ``MAX_CALLS``."""

    @classmethod
    def in_trace(cls) -> TooManyCalls:
        return cls.of("", f"more than {MAX_CALLS} calls; cut the trace down to a few iterations")


def refuse_incomplete(calls: Mapping[int, Sequence[Call]], ranks: int) -> None:
    """What a rank without a trace sends is known if all calls of the others are of all ranks: then it has no groups of
    which no trace tells. Raises ``InvalidInput`` for a rank of which that is not known, or which the job does not
    have."""
    everyone = range(ranks)
    for rank in calls:
        if rank not in everyone:
            message = f"rank {rank} has a trace and no address; there are addresses of {ranks} ranks"
            raise InvalidInput.of("endpoints", message)
    missing = next((rank for rank in everyone if rank not in calls), None)
    if missing is not None and any(len(call.kind.ranks) < ranks for made in calls.values() for call in made):
        raise InvalidInput.of("", f"no trace of rank {missing}, which may have groups that no other rank has")


def per_iteration(calls: Mapping[int, Sequence[Call]], iterations: int | None = None) -> dict[Kind, Amount]:
    """``iterations``: how many the trace has; None where it is to be found out. Kinds are in the order of their phases.

    Raises ``InvalidInput`` with the ranks: no repetition is found, or ranks contradict each other.
    """
    sent: defaultdict[Kind, dict[int, int]] = defaultdict(dict)
    orders: list[list[set[Kind]]] = []
    for rank, made in calls.items():
        window, count = (made, iterations) if iterations else (made[_iteration(rank, made)], 1)
        total: defaultdict[Kind, int] = defaultdict(int)
        for kind, size, _ in window:
            total[kind] += size
        for kind, size in total.items():
            sent[kind][rank] = -(-size // count)
        orders.append(_follow_each_other(window[-(len(window) // count) :] if window else ()))
    InvalidInput.refuse(_contradictions(sent, calls))
    phases = _phases(orders)
    found = {kind: Amount(max(sizes.values()), phases.get(kind, 0)) for kind, sizes in sent.items()}
    return dict(sorted(found.items(), key=lambda item: (item[1].phase, min(item[0].ranks), item[0])))


def _iteration(rank: int, made: Sequence[Call]) -> slice:
    """Where the first iteration of those that repeat is."""
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
        f"its {len(made)} calls do not repeat, so that the length of an iteration is not known; record more "
        "iterations, or say with --iterations how many the trace has",
    )


def _borders(text: Sequence[Call]) -> list[int]:
    """Per length of a prefix its longest border (Knuth, Morris and Pratt, "Fast pattern matching in strings", SIAM
    Journal on Computing 6(2), 1977): its smallest period is the length minus the border."""
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
                yield FieldProblem(f"rank {rank}", f"has no {kind}, which rank {first} has")
            elif sizes.get(rank, sizes[first]) != sizes[first] and kind.what != "all_to_all":
                message = f"has {sizes[rank]} bytes per iteration in {kind}, rank {first} has {sizes[first]}"
                yield FieldProblem(f"rank {rank}", message)


def _follow_each_other(window: Sequence[Call]) -> list[set[Kind]]:
    """Sets of kinds that overlap, in order."""
    first: dict[Kind, int] = {}
    last: dict[Kind, int] = {}
    for at, (kind, _, overlaps) in enumerate(window):
        first.setdefault(kind, at)
        last[kind] = at
        if overlaps and at:  # then the call before it overlaps with the one that is under way, or is that one
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
    """The lowest numbers with which every rank's sets are each of one phase, and later than the set before. What
    overlaps on one rank does on all: on another one it may have ended just before. All 0 where ranks contradict each
    other in the order."""
    part = _parts(orders)
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


def _parts(orders: Sequence[Sequence[set[Kind]]]) -> dict[Kind, Kind]:
    """Of each kind the first one of those that it overlaps with on some rank, or that such ones overlap with."""
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
