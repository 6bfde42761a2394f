"""Check whether a history of calls is linearizable: each call may have happened at one instant between call and answer.

The algorithm is that of Wing and Gong with Lowe's cache, as in the Go package porcupine; no maintained Python package
has it. The search orders calls one after the other, and takes the last call back when no call can come next. It
remembers each pair of (ordered calls, state after them), and visits no pair twice.

``step`` and ``JobState`` describe a job as its callers may see it. Each registration and each update in a history
announces a different amount of traffic, so a read shows which registration or update was the last.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Generic, Literal, NamedTuple, TypeVar

from signalbox.errors import SignalboxError

MOST_STATES = 2_000_000
"""Largest number of pairs (ordered calls, state) to remember; they take about 1 GB."""

State = TypeVar("State", bound=Hashable)
Call = TypeVar("Call")
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Operation(Generic[Call, Answer]):
    """Call of a client, and its answer if there was one.

    ``began`` and ``ended`` are monotonic seconds. A call without an answer ends at infinity: it may have happened at
    any later time, or never."""

    client: int
    call: Call
    began: float
    ended: float = inf
    answer: Answer | None = None


Step = Callable[[State, Operation[Call, Answer]], State | None]
"""Function that returns the state after an operation; None if the operation is impossible in the state before.

The operation may have no answer. A state must not be None itself.
"""


def order_of(
    history: Sequence[Operation[Call, Answer]], initial: State, step: Step[State, Call, Answer]
) -> list[Operation[Call, Answer]] | None:
    """Return an order in which the operations may have happened one at a time; None if there is none.

    Operations without an answer may be left out of the order. Raises ``SignalboxError`` when the search takes too
    much memory."""
    moments = [(each.began, 0, number) for number, each in enumerate(history)]
    moments += [(each.ended, 1, number) for number, each in enumerate(history)]
    moments.sort()
    # The moments are places 1, 2, ... of a linked list that begins and ends at place 0. Operations that are already
    # ordered are taken out of the list.
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
    """Return a small part of a history that has no possible order.

    The history itself must have no possible order. It is cut off after the first answer that makes an order impossible,
    and then operations are left out as long as there is no order. ``may_be_missing``: whether an operation may be left
    out, because it changes nothing."""
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
    """Return the history as it was known at the time ``until``."""
    return [
        each if each.ended <= until else Operation(each.client, each.call, each.began)
        for each in history
        if each.began <= until
    ]


Kind = Literal["register", "update", "end", "force", "read"]


class JobCall(NamedTuple):
    """Call about a job.

    - ``kind``: "end" is a deregistration with a lease token, "force" is a deregistration without a token. Both may be
      repeated without an error.
    - ``registration``: number of the registration that the call belongs to by its request id or lease token; 0 for
      none.
    - ``value``: announced amount of traffic, which identifies the registration or update."""

    kind: Kind
    job: int
    registration: int = 0
    value: int = 0


class JobAnswer(NamedTuple):
    """Answer to a call.

    - "done": the call succeeded. If it was a read, the other fields describe the job; 0 stands for unknown.
    - "missing": there is no job with this id, or it belongs to another registration.
    - "exists": the job belongs to another registration, or to this registration with another spec."""

    result: Literal["done", "missing", "exists"]
    registration: int = 0
    value: int = 0
    revision: int = 0


JobOperation = Operation[JobCall, JobAnswer]


class JobState(NamedTuple):
    """State of a job. ``registration``: 0 while there is no job. ``ended``: numbers of ended registrations."""

    registration: int = 0
    value: int = 0
    revision: int = 0
    ended: frozenset[int] = frozenset()

    @property
    def after_end(self) -> JobState:
        return JobState(ended=self.ended | {self.registration})


NO_JOB = JobState()


def step(state: JobState, operation: JobOperation) -> JobState | None:
    """Return the state after the operation; None if it is impossible.

    None is also returned for an operation without an answer that would change nothing."""
    call, answer = operation.call, operation.answer
    result = answer.result if answer else None
    is_own = state.registration == call.registration != 0
    match call.kind:
        case "register":
            if result == "missing":
                return state if call.registration in state.ended else None
            if result == "exists":
                return state if state.registration and not (is_own and state.value == call.value) else None
            if is_own:
                return state if result else None
            if state.registration or call.registration in state.ended:
                return None
            return JobState(call.registration, call.value, 1, state.ended)
        case "update":
            if result == "missing":
                return None if is_own else state
            changed = state._replace(value=call.value, revision=state.revision + 1)
            return changed if is_own else None
        case "end":
            if result == "missing":
                return None if is_own else state
            if is_own:
                return state.after_end
            return state if result and call.registration in state.ended else None
        case "force":
            if result == "missing":
                return None if state.registration else state
            if state.registration:
                return state.after_end
            return state if result and state.ended else None
        case "read":
            if answer is None:
                return None
            return state if _shows(state, answer) else None


def _shows(state: JobState, read: JobAnswer) -> bool:
    if read.result == "missing":
        return not state.registration
    found = (state.value, state.revision) == (read.value, read.revision)
    return found and state.registration == (read.registration or state.registration)


def changes_nothing(operation: JobOperation) -> bool:
    """Whether the operation leaves every state as it is."""
    return operation.call.kind == "read" or (operation.answer is not None and operation.answer.result != "done")


def line_of(operation: JobOperation, began: float) -> str:
    """Return a line that describes the operation. ``began``: monotonic seconds at which the history began."""
    call, answer = operation.call, operation.answer
    words: list[str] = [call.kind]
    if call.registration:
        words.append(f"registration {call.registration}")
    if call.value:
        words.append(f"value {call.value}")
    if answer is None:
        found = "no answer"
    elif call.kind == "read" and answer.result == "done":
        found = f"registration {answer.registration or 'unknown'}, value {answer.value}, revision {answer.revision}"
    else:
        found = answer.result
    ended = f"{operation.ended - began:10.4f}" if answer else " " * 10
    return f"{operation.began - began:10.4f} {ended}  client {operation.client}: {' '.join(words)}: {found}"
