"""State of a job as its callers may see it: the calls, their answers, and the state between them.

Each registration has a number, and each registration and update announces another amount of traffic. A read thus shows
which of them came last.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from benchmarks.linearizability.checker import Operation

Kind = Literal["register", "update", "end", "force", "read"]


class JobCall(NamedTuple):
    """Call about the job ``job``.

    ``registration``: number of the registration whose request id or lease token the call has, 0 for none. ``value``:
    announced amount of traffic. ``end`` has the lease token, ``force`` ends whatever registration there is. To repeat
    one of the two is no error."""

    kind: Kind
    job: int
    registration: int = 0
    value: int = 0


class JobAnswer(NamedTuple):
    """Answer to a call.

    ``result``: ``done``; ``missing`` for a job that does not exist, or not in this registration; ``exists`` for a job
    that another registration has, or this one with another spec. The other fields are those of a read job, 0 for
    unknown."""

    result: Literal["done", "missing", "exists"]
    registration: int = 0
    value: int = 0
    revision: int = 0


JobOperation = Operation[JobCall, JobAnswer]


class JobState(NamedTuple):
    """State of the job; ``registration`` is 0 while the job does not exist. ``ended``: earlier registrations."""

    registration: int = 0
    value: int = 0
    revision: int = 0
    ended: frozenset[int] = frozenset()

    @property
    def after_end(self) -> JobState:
        return JobState(ended=self.ended | {self.registration})


NO_JOB = JobState()


def step(state: JobState, operation: JobOperation) -> JobState | None:
    """Return the state after the operation; None if it cannot happen, or changes nothing and has no answer."""
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
    """Return a line about the operation. ``began``: monotonic seconds at which the history began."""
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
