"""The planning thread."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest

from controller.messages import Planned, SolvePlan
from controller.planning import worker
from controller.planning.plan import NoPlan, Plan
from controller.planning.problem import PlanLimits, Problem
from controller.planning.worker import PlanningWorker
from tests.unit.planning.fabrics import demo_flows, leaf_spine, problem_of

DEADLINE_S = 30
LIMITS = PlanLimits()


class Inbox:
    """Where the control loop would read."""

    def __init__(self) -> None:
        self.messages: queue.SimpleQueue[Planned] = queue.SimpleQueue()
        self.crashes: queue.SimpleQueue[BaseException] = queue.SimpleQueue()

    def answer(self) -> Plan | NoPlan:
        return self.messages.get(timeout=DEADLINE_S).answer


@pytest.fixture
def inbox() -> Inbox:
    return Inbox()


@pytest.fixture
def planning(inbox: Inbox) -> Iterator[PlanningWorker]:
    planning = PlanningWorker(inbox.messages.put, inbox.crashes.put)
    yield planning
    planning.stop()


def request(generation: int) -> SolvePlan:
    problem = problem_of(leaf_spine(4, 4), demo_flows())
    return SolvePlan(replace(problem, generation=generation), LIMITS)


def test_a_request_is_answered_from_another_thread(planning: PlanningWorker, inbox: Inbox) -> None:
    planning.submit(request(7))
    answer = inbox.answer()
    assert isinstance(answer, Plan)
    assert (answer.generation, answer.max_level) == (7, 1)


def test_a_waiting_request_is_replaced_and_the_one_being_solved_is_finished(
    inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    solving, go_on = threading.Event(), threading.Event()

    def slow(problem: Problem, _: PlanLimits) -> NoPlan:
        solving.set()
        assert go_on.wait(DEADLINE_S)
        return NoPlan(problem.generation, "slow")

    monkeypatch.setattr(worker, "plan", slow)
    planning = PlanningWorker(inbox.messages.put, inbox.crashes.put)
    planning.submit(request(1))
    assert solving.wait(DEADLINE_S)
    planning.submit(request(2))
    planning.submit(request(3))
    go_on.set()
    assert [inbox.answer().generation, inbox.answer().generation] == [1, 3]
    planning.stop()
    assert inbox.messages.empty()


def test_an_exception_becomes_a_reason_and_the_worker_goes_on(
    inbox: Inbox, planning: PlanningWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> Plan:
        raise ZeroDivisionError("a bug")

    with monkeypatch.context() as patch:
        patch.setattr(worker, "plan", broken)
        planning.submit(request(1))
        assert inbox.answer() == NoPlan(1, "planning failed: ZeroDivisionError: a bug")
    planning.submit(request(2))
    assert isinstance(inbox.answer(), Plan)
    assert inbox.crashes.empty()


def test_a_crash_of_the_thread_is_reported(inbox: Inbox) -> None:
    def full(_: Planned) -> None:
        raise RuntimeError("the inbox is closed")

    planning = PlanningWorker(full, inbox.crashes.put)
    planning.submit(request(1))
    assert str(inbox.crashes.get(timeout=DEADLINE_S)) == "the inbox is closed"
    planning.stop()


def test_stop_ends_an_idle_worker_and_may_be_called_twice(inbox: Inbox) -> None:
    planning = PlanningWorker(inbox.messages.put, inbox.crashes.put)
    planning.stop()
    planning.stop()
    assert not any(thread.name == "planning" and thread.is_alive() for thread in threading.enumerate())
