"""Check of histories for linearizability: whether each call could have happened at one instant between call and answer.

The algorithm is that of Wing and Gong with Lowe's cache, as in the Go package porcupine. No maintained Python package
has it. The search puts calls in an order, one after the other, and goes back when no call can come next. It remembers
each set of calls that it has ordered, with the state after them, and visits none twice.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Generic, TypeVar

from signalbox.errors import SignalboxError

MOST_STATES = 2_000_000
"""Largest number of remembered pairs of a set and a state, about 1 GB."""

State = TypeVar("State", bound=Hashable)
Call = TypeVar("Call")
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Operation(Generic[Call, Answer]):
    """Call of a client.

    ``began`` and ``ended`` are monotonic seconds. Without an answer, ``ended`` is infinite: the call may have happened
    at any later time, or never."""

    client: int
    call: Call
    began: float
    ended: float = inf
    answer: Answer | None = None


Step = Callable[[State, Operation[Call, Answer]], State | None]
"""Function that returns the state after an operation; None if the operation cannot happen in the state before.

``None`` is never a state. The operation may lack its answer."""


def order_of(
    history: Sequence[Operation[Call, Answer]], initial: State, step: Step[State, Call, Answer]
) -> list[Operation[Call, Answer]] | None:
    """Return an order in which the operations can have happened, one at a time; None if there is none.

    Operations without an answer may be missing in the order. Raises ``SignalboxError`` when the search is too large."""
    moments = [(each.began, 0, number) for number, each in enumerate(history)]
    moments += [(each.ended, 1, number) for number, each in enumerate(history)]
    moments.sort()
    # Places 1, 2, ... are the moments, in a linked list from and to place 0. An operation in the order is not in it.
    after = [*range(1, len(moments) + 1), 0]
    before = [len(moments), *range(len(moments))]
    places = [[0, 0] for _ in history]
    for place, (_, which, number) in enumerate(moments, 1):
        places[number][which] = place
    ordered: list[tuple[int, State]] = []
    done, state = 0, initial
    seen = {(done, state)}
    place = after[0]
    while place and moments[place - 1][0] < inf:
        _, is_end, number = moments[place - 1]
        if not is_end:
            following = step(state, history[number])
            if following is not None and (found := (done | 1 << number, following)) not in seen:
                if len(seen) == MOST_STATES:
                    raise SignalboxError(f"the search for an order has passed {MOST_STATES} states; use fewer calls")
                seen.add(found)
                ordered.append((number, state))
                done, state = found
                for gone in places[number]:
                    after[before[gone]], before[after[gone]] = after[gone], before[gone]
                place = after[0]
            else:
                place = after[place]
        elif not ordered:
            return None
        else:
            number, state = ordered.pop()
            done &= ~(1 << number)
            for back in reversed(places[number]):
                after[before[back]] = before[after[back]] = back
            place = after[places[number][0]]
    return [history[number] for number, _ in ordered]


def smallest_refused(
    history: Sequence[Operation[Call, Answer]],
    initial: State,
    step: Step[State, Call, Answer],
    may_be_missing: Callable[[Operation[Call, Answer]], bool],
) -> list[Operation[Call, Answer]]:
    """Return a small part of a refused history that is refused as well.

    It ends at the first answer that makes the history impossible. ``may_be_missing``: whether an operation changes
    nothing, so that the history without it must be linearizable too."""
    ends = sorted(each.ended for each in history if each.ended < inf)
    low, high = 0, len(ends) - 1
    while low < high:
        middle = (low + high) // 2
        if order_of(_until(history, ends[middle]), initial, step) is None:
            high = middle
        else:
            low = middle + 1
    part = _until(history, ends[high])
    size = len(part)
    while size := size // 2:
        removable = [each for each in part if may_be_missing(each)]
        for begin in range(0, len(removable), size):
            chunk = set(removable[begin : begin + size])
            without = [each for each in part if each not in chunk]
            if order_of(without, initial, step) is None:
                part = without
    return part


def _until(history: Sequence[Operation[Call, Answer]], until: float) -> list[Operation[Call, Answer]]:
    """Return the history at a time: later answers are not known yet."""
    return [
        each if each.ended <= until else Operation(each.client, each.call, each.began)
        for each in history
        if each.began <= until
    ]
