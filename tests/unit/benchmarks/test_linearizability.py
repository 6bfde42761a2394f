"""The check of ``benchmarks linearizability``: possible and impossible histories, of a register and of a job."""

import itertools
import random
from math import inf
from typing import Literal

import pytest

from benchmarks.linearizability.checker import (
    NO_JOB,
    JobAnswer,
    JobCall,
    JobOperation,
    JobState,
    Kind,
    Operation,
    changes_nothing,
    line_of,
    order_of,
    smallest_refused,
    step,
)

Register = Operation[str, int]


def write(value: int, began: float, ended: float = inf) -> Register:
    return Operation(0, f"write {value}", began, ended, None if ended == inf else 0)


def read(value: int, began: float, ended: float) -> Register:
    return Operation(1, "read", began, ended, value)


def of_register(state: int, operation: Register) -> int | None:
    if operation.call == "read":
        return state if operation.answer == state else None
    return int(operation.call.split()[1])


POSSIBLE: dict[str, list[Register]] = {
    "nothing": [],
    "one after the other": [write(1, 0, 1), read(1, 2, 3), write(2, 4, 5), read(2, 6, 7)],
    "a read during a write sees either value": [write(1, 0, 9), read(0, 1, 2), read(1, 3, 4)],
    "two writes at once, in either order": [write(1, 0, 5), write(2, 0, 5), read(1, 6, 7)],
    "a write without an answer happens": [write(1, 0), read(0, 1, 2), read(1, 3, 4)],
    "a write without an answer never happens": [write(1, 0), read(0, 1, 2), read(0, 3, 4)],
    "a write without an answer happens after a later one": [write(1, 0), write(2, 1, 2), read(2, 3, 4), read(1, 5, 6)],
    "a call begins when another one ends": [write(1, 0, 1), read(0, 1, 2)],
}

IMPOSSIBLE: dict[str, list[Register]] = {
    "a value that nobody wrote": [write(1, 0, 1), read(2, 2, 3)],
    "an acknowledged write is not seen": [write(1, 0, 1), read(0, 2, 3)],
    "a new value, then the old one": [write(1, 0, 9), read(1, 1, 2), read(0, 3, 4)],
    "two readers see two orders": [write(1, 0, 5), write(2, 0, 5), read(1, 6, 7), read(2, 8, 9)],
    "a write without an answer is undone": [write(1, 0), read(1, 1, 2), read(0, 3, 4)],
    "a write is seen before it begins": [read(1, 0, 1), write(1, 2, 3)],
}


@pytest.mark.parametrize("history", POSSIBLE.values(), ids=POSSIBLE)
def test_possible_histories_have_an_order(history: list[Register]) -> None:
    order = order_of(history, 0, of_register)
    assert order is not None
    assert {each for each in history if each.ended < inf} <= set(order) <= set(history)


@pytest.mark.parametrize("history", IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_impossible_histories_are_refused(history: list[Register]) -> None:
    assert order_of(history, 0, of_register) is None


def by_brute_force(history: list[Register]) -> bool:
    """Whether a register allows some order of all answered operations and any of the unanswered ones."""
    answered = [each for each in history if each.ended < inf]
    others = [each for each in history if each.ended == inf]
    for count in range(len(others) + 1):
        for some in itertools.combinations(others, count):
            for order in itertools.permutations([*answered, *some]):
                state: int | None = 0
                for place, each in enumerate(order):
                    if any(later.ended < each.began for later in order[place + 1 :]):
                        break
                    state = of_register(state, each) if state is not None else None
                    if state is None:
                        break
                else:
                    return True
    return False


def test_random_small_histories_agree_with_brute_force() -> None:
    dice = random.Random(5)
    verdicts = set()
    for _ in range(400):
        history = []
        for _ in range(dice.randint(1, 5)):
            began = dice.randint(0, 8)
            ended = began + dice.randint(1, 6)
            if dice.random() < 0.5:
                history.append(read(dice.randint(0, 2), began, ended))
            else:
                history.append(write(dice.randint(1, 2), began, ended if dice.random() < 0.8 else inf))
        is_possible = by_brute_force(history)
        verdicts.add(is_possible)
        assert (order_of(history, 0, of_register) is not None) == is_possible, history
    assert verdicts == {True, False}


def test_a_long_history_with_many_clients_is_checked_and_one_wrong_read_in_it_is_found() -> None:
    history: list[Register] = []
    for at in range(100):
        history += [write(3 * at + 1, at, at + 0.8), write(3 * at + 2, at, at + 0.8)]
        history += [read(3 * at + 1 + at % 2, at + 0.85, at + 0.95)]
        history += [write(3 * at + 3, at)] if at % 25 == 0 else []
    assert order_of(history, 0, of_register)
    late = [*history, read(1, 99.96, 99.97)]
    assert order_of(late, 0, of_register) is None
    part = smallest_refused(late, 0, of_register, lambda each: each.call == "read")
    assert order_of(part, 0, of_register) is None
    assert [each for each in part if each.call == "read"] == [late[-1]]


# ---- jobs

A, B = JobState(2, 2, 1), JobState(4, 4, 1, frozenset({2}))


def job(
    kind: Kind, result: Literal["done", "missing", "exists"] | None = None, registration: int = 0, value: int = 0
) -> JobOperation:
    answer = JobAnswer(result) if result else None
    return Operation(0, JobCall(kind, 0, registration, value), 0.0, 1.0 if result else inf, answer)


def found(registration: int, value: int, revision: int) -> JobOperation:
    """Return a read that found this job; registration 0: the job is unknown."""
    return Operation(0, JobCall("read", 0), 0.0, 1.0, JobAnswer("done", registration, value, revision))


@pytest.mark.parametrize(
    ("before", "operation", "after"),
    [
        (NO_JOB, job("register", "done", 2, 2), A),
        (NO_JOB, job("register", None, 2, 2), A),
        (A, job("register", "done", 2, 2), A),
        (A, job("register", "exists", 2, 2), None),
        (A, job("register", "exists", 4, 4), A),
        (A, job("register", "done", 4, 4), None),
        (A, job("register", None, 4, 4), None),
        (NO_JOB, job("register", "exists", 2, 2), None),
        (B, job("register", "missing", 2, 2), B),
        (NO_JOB, job("register", "missing", 2, 2), None),
        (JobState(ended=frozenset({2})), job("register", "done", 2, 2), None),
        (A, job("update", "done", 2, 7), JobState(2, 7, 2)),
        (A, job("update", "missing", 2, 7), None),
        (B, job("update", "missing", 2, 7), B),
        (B, job("update", "done", 2, 7), None),
        (NO_JOB, job("update", None, 2, 7), None),
        (A, job("end", "done", 2), JobState(ended=frozenset({2}))),
        (A, job("end", "missing", 2), None),
        (B, job("end", "done", 2), B),
        (B, job("end", "missing", 2), B),
        (NO_JOB, job("end", "done", 2), None),
        (A, job("force", "done"), JobState(ended=frozenset({2}))),
        (NO_JOB, job("force", "done"), None),
        (JobState(ended=frozenset({2})), job("force", "done"), JobState(ended=frozenset({2}))),
        (NO_JOB, job("force", "missing"), NO_JOB),
        (A, job("force", "missing"), None),
        (A, found(0, 2, 1), A),
        (A, found(2, 2, 1), A),
        (A, found(4, 2, 1), None),
        (A, found(2, 2, 2), None),
        (A, found(2, 3, 1), None),
        (A, job("read", "missing"), None),
        (NO_JOB, job("read", "missing"), NO_JOB),
        (A, job("read"), None),
    ],
)
def test_calls_about_a_job(before: JobState, operation: JobOperation, after: JobState | None) -> None:
    assert step(before, operation) == after
    assert after in (None, before) or not changes_nothing(operation)


def test_an_operation_is_described_in_one_line() -> None:
    operation = Operation(3, JobCall("update", 0, 2, 7), 10.5, 11.0, JobAnswer("done"))
    line = " ".join(line_of(operation, 10.0).split())
    assert line == "0.5000 1.0000 client 3: update registration 2 value 7: done"
    assert line_of(job("force"), 0.0).endswith("client 0: force: no answer")
