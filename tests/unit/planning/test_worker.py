from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import NoReturn

import pytest

from controller.planning import answers, planner
from controller.planning.messages import SolvePlan, WorkOutSlowdowns
from controller.planning.plan import NoPlan, Plan, Planned, Slowdowns, answered
from controller.planning.planner import plan
from controller.planning.problem import PlanLimits, Problem, Routes
from controller.planning.worker import PlanningWorker
from tests.support.planning.fabrics import demo_flows, leaf_spine, problem_of
from tests.support.planning.plans import snapshot_of

DEADLINE_S = 60
LIMITS = PlanLimits()


class Inbox:
    def __init__(self) -> None:
        self.messages: queue.SimpleQueue[Planned] = queue.SimpleQueue()
        self.compared: queue.SimpleQueue[Slowdowns] = queue.SimpleQueue()
        self.slowdowns: queue.SimpleQueue[Slowdowns] = queue.SimpleQueue()
        self.crashes: queue.SimpleQueue[BaseException] = queue.SimpleQueue()

    def put(self, message: Planned | Slowdowns) -> None:
        if isinstance(message, Planned):
            self.messages.put(message)
        else:
            (self.slowdowns if message.of_scheme is None else self.compared).put(message)

    def planned(self) -> Planned:
        return self.messages.get(timeout=DEADLINE_S)

    def answer(self) -> Plan | NoPlan:
        return self.planned().answer

    def repaired(self) -> int:
        planned = self.planned()
        assert planned.repair
        return planned.answer.generation


@pytest.fixture
def inbox() -> Inbox:
    return Inbox()


@pytest.fixture
def planning(inbox: Inbox) -> Iterator[PlanningWorker]:
    planning = PlanningWorker(inbox.put, inbox.crashes.put)
    yield planning
    planning.stop()


def request(generation: int) -> SolvePlan:
    return SolvePlan(snapshot_of(problem_of(leaf_spine(4, 4), demo_flows()), generation), LIMITS)


def test_a_plan_comes_with_its_verdict_and_the_slowdowns_of_the_routes_that_stay(
    planning: PlanningWorker, inbox: Inbox
) -> None:
    """The planning process computes verdict and slowdowns. The comparison with other schemes follows the plan."""
    planning.submit(request(7))
    compared = inbox.compared.get(timeout=DEADLINE_S)
    planned = inbox.messages.get_nowait()
    assert (compared.generation, planned.plan.generation, planned.plan.max_slowdown) == (7, 7, 1)
    assert compared.of_scheme is not None
    assert compared.of_scheme.keys() <= {"ecmp", "greedy", "edge-coloring", "first-fit"}
    assert all(slowdown >= 1 for slowdown in compared.of_scheme.values())
    assert planned.adopted
    assert planned.slowdowns
    assert planned.slowdowns.of_job
    planning.submit(replace(request(8), installs=False))
    running = inbox.slowdowns.get(timeout=DEADLINE_S)
    assert (running.generation, set(running.of_job)) == (8, {flow.job_id for flow in request(8).snapshot.problem.flows})
    assert inbox.messages.get_nowait().answer.generation == 8
    planning.submit(WorkOutSlowdowns(request(9).snapshot, draws=2))
    assert inbox.slowdowns.get(timeout=DEADLINE_S).generation == 9
    assert inbox.messages.empty()


def test_a_waiting_request_is_replaced_and_the_one_being_solved_is_finished(
    inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plan is not compared with other schemes, because a newer request waits. Repairs do not wait."""
    solving, go_on = threading.Event(), threading.Event()

    def slow(problem: Problem, limits: PlanLimits) -> Plan | NoPlan:
        solving.set()
        assert go_on.wait(DEADLINE_S)
        return plan(problem, limits)

    monkeypatch.setattr(answers, "plan", slow)
    planning = PlanningWorker(inbox.put, inbox.crashes.put)
    planning.submit(request(1))
    assert solving.wait(DEADLINE_S)
    planning.submit(request(2))
    planning.submit(broken(3))
    assert inbox.repaired() == 3, "the second request has been passed on or dropped"
    planning.submit(broken(4))
    assert inbox.repaired() == 4, "and the third"
    go_on.set()
    answered = [inbox.answer().generation]
    while answered[-1] != 4:
        answered.append(inbox.answer().generation)
    planning.stop()
    assert answered in ([1, 4], [1, 3, 4]), "the fourth may come a moment later"
    assert inbox.messages.empty()
    compared = [inbox.compared.get(timeout=DEADLINE_S).generation for _ in range(inbox.compared.qsize())]
    assert 1 not in compared


def defect(*_: object) -> NoReturn:
    raise ZeroDivisionError("a bug")


@cache
def running() -> Routes:
    return answered(plan(problem_of(leaf_spine(4, 4), demo_flows()), LIMITS)).routes


def broken(generation: int) -> SolvePlan:
    """Return a request with every flow pinned, some to a link that no longer exists."""
    fabric = leaf_spine(4, 4)
    lost = next(path[0] for ((path, _),) in running().values() if path)
    left = replace(fabric, links={link: each for link, each in fabric.links.items() if link != lost})
    return SolvePlan(snapshot_of(problem_of(left, demo_flows()), generation, running()), LIMITS)


def test_broken_routes_are_answered_by_a_repair_and_then_by_a_plan_that_starts_from_it(
    planning: PlanningWorker, inbox: Inbox
) -> None:
    request = broken(4)
    planning.submit(request)
    first, second = (inbox.planned() for _ in range(2))
    assert (first.repair, second.repair) == (True, False)
    assert isinstance(first.answer, Plan)
    assert isinstance(second.answer, Plan)
    assert first.answer.generation == second.answer.generation == 4
    moved = {flow.id for flow in request.snapshot.problem.flows if flow.current != first.answer.routes[flow.id]}
    assert moved == {
        flow.id for flow in request.snapshot.problem.flows if not request.snapshot.problem.is_in_force(flow)
    }
    again = {flow for flow, route in second.answer.routes.items() if route != first.answer.routes[flow]}
    assert second.answer.moves == len(again), "a repaired flow counts when it is moved once more"


def test_a_repair_that_fails_leaves_it_to_the_plan(
    inbox: Inbox, planning: PlanningWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planner, "repair", defect)
    planning.submit(broken(1))
    only = inbox.planned()
    assert (only.repair, type(only.answer)) == (False, Plan)
    monkeypatch.setattr(planner, "repair", lambda problem: NoPlan(problem.generation, "no routing"))
    planning.submit(broken(2))
    only = inbox.planned()
    assert (only.repair, type(only.answer)) == (False, Plan)
    assert inbox.crashes.empty()


def test_an_exception_becomes_a_reason_and_the_worker_goes_on(
    inbox: Inbox, planning: PlanningWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "baseline_slowdowns", defect)
    planning.submit(request(1))
    assert inbox.compared.get(timeout=DEADLINE_S).of_scheme == {}
    assert inbox.answer().generation == 1
    with monkeypatch.context() as patch:
        patch.setattr(answers, "plan", defect)
        planning.submit(request(2))
        assert inbox.answer() == NoPlan(2, "planning failed: ZeroDivisionError: a bug")
    planning.submit(request(3))
    assert isinstance(inbox.answer(), Plan)
    assert inbox.crashes.empty()


def test_a_crash_of_the_thread_is_reported(inbox: Inbox) -> None:
    def full(_: Planned | Slowdowns) -> None:
        raise RuntimeError("the inbox is closed")

    planning = PlanningWorker(full, inbox.crashes.put)
    planning.submit(request(1))
    assert str(inbox.crashes.get(timeout=DEADLINE_S)) == "the inbox is closed"
    planning.stop()


def test_stop_ends_an_idle_worker_and_may_be_called_twice(inbox: Inbox) -> None:
    planning = PlanningWorker(inbox.put, inbox.crashes.put)
    planning.stop()
    planning.stop()
    assert not any(thread.name in ("repairing", "planning") and thread.is_alive() for thread in threading.enumerate())
