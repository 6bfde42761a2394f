"""The process that plans: real processes, which take a second to begin."""

from __future__ import annotations

import multiprocessing
import os
import queue
import signal
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from controller.planning.messages import Answer, Compared, Planned, PlanningRequest, SolvePlan
from controller.planning.plan import NoPlan, Plan
from controller.planning.planner import plan
from controller.planning.problem import PlanLimits, Routes
from controller.planning.process import OnCrash, Planner, PlanningProcess, Put
from controller.planning.verdict import NO_ROUTES
from controller.shared_map import SharedMap
from tests.support.planning.fabrics import demo_flows, leaf_spine, problem_of
from tests.support.planning.snapshots import snapshot_of

DEADLINE_S = 60
LIMITS = PlanLimits()


class Inbox:
    def __init__(self) -> None:
        self.messages: queue.SimpleQueue[Answer] = queue.SimpleQueue()
        self.crashes: queue.SimpleQueue[BaseException] = queue.SimpleQueue()

    def planned(self) -> Planned:
        while not isinstance(found := self.messages.get(timeout=DEADLINE_S), Planned):
            pass
        return found


@pytest.fixture
def inbox() -> Inbox:
    return Inbox()


Start = Callable[..., PlanningProcess]


@pytest.fixture
def start(inbox: Inbox) -> Iterator[Start]:
    started: list[PlanningProcess] = []

    def begin(**options: object) -> PlanningProcess:
        started.append(PlanningProcess(inbox.messages.put, inbox.crashes.put, **options))  # type: ignore[arg-type]
        return started[-1]

    yield begin
    for process in started:
        process.stop()


def request(generation: int, routes: Routes = NO_ROUTES) -> SolvePlan:
    return SolvePlan(snapshot_of(problem_of(leaf_spine(4, 4), demo_flows()), generation, routes), LIMITS)


def test_requests_are_answered_one_after_the_other(start: Start, inbox: Inbox) -> None:
    """The second starts from the routes of the first; what stays are the same objects in the controller."""
    planning = start()
    planning.submit(request(1))
    first = inbox.planned()
    expected = plan(request(1).snapshot.problem, LIMITS)
    assert isinstance(first.answer, Plan)
    assert isinstance(expected, Plan)
    assert first.answer.routes == expected.routes
    assert first.verdict
    running = SharedMap.of(first.answer.routes)
    gone = next(iter(running))
    planning.submit(request(2, running.updated({gone: None})))
    second = inbox.planned()
    assert isinstance(second.answer, Plan)
    assert (second.answer.generation, second.answer.moves) == (2, 0)
    assert second.verdict
    assert second.verdict.plan is second.answer
    assert all(second.answer.routes[flow] is route for flow, route in running.items() if flow != gone)
    assert second.answer.routes.keys() == running.keys()
    found = inbox.messages.get(timeout=DEADLINE_S)
    assert isinstance(found, Compared)
    assert found.generation == 2


class Fatal:
    """Ends its process with every request of an odd generation; answers the others."""

    def __init__(self, put: Put, _: OnCrash) -> None:
        self._put = put

    def submit(self, request: PlanningRequest) -> None:
        if request.snapshot.generation % 2:
            os.kill(os.getpid(), signal.SIGKILL)
        self._put(Planned(NoPlan(request.snapshot.generation, f"of {len(request.snapshot.problem.flows)} flows")))

    def stop(self) -> None: ...


def test_a_process_that_dies_is_started_again_and_told_everything(start: Start, inbox: Inbox) -> None:
    planning = start(make=Fatal)
    flows = len(demo_flows())
    for generation in (2, 3, 4, 5, 6):
        planning.submit(request(generation))
        answer = inbox.planned().answer
        assert isinstance(answer, NoPlan)
        assert answer.generation == generation
        died = f"the planning process ended with status {-signal.SIGKILL}"
        assert answer.reason == (died if generation % 2 else f"of {flows} flows")
    assert inbox.crashes.empty()


def broken(_: Put, __: OnCrash) -> Planner:
    raise ImportError("there is no solver")


def test_a_process_that_cannot_begin_is_an_error_of_the_controller(start: Start, inbox: Inbox) -> None:
    start(make=broken)
    error = inbox.crashes.get(timeout=DEADLINE_S)
    assert str(error) == "the planning process ended with status 1 before it could plan"


def test_how_the_process_is_configured_counts_for_the_next_one_too(start: Start, inbox: Inbox, tmp_path: Path) -> None:
    planning = start(begin=partial(Path.write_text, tmp_path / "set", "first"), make=Fatal)
    planning.submit(request(2))
    inbox.planned()
    assert (tmp_path / "set").read_text() == "first"
    planning.configure(partial(Path.write_text, tmp_path / "set", "second"))
    planning.submit(request(4))
    inbox.planned()
    assert (tmp_path / "set").read_text() == "second"
    (tmp_path / "set").unlink()
    for generation in (5, 6):
        planning.submit(request(generation))
        inbox.planned()
    assert (tmp_path / "set").read_text() == "second"


def test_stopping_ends_the_process_whatever_it_does(start: Start) -> None:
    planning = start()
    (process,) = multiprocessing.active_children()
    planning.submit(request(1))
    planning.stop()
    planning.stop()
    assert process.exitcode == -signal.SIGKILL
