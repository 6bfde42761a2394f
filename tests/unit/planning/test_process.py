"""The planning process: the tests run real processes, as forks of one that has imported everything."""

from __future__ import annotations

import multiprocessing
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest

from controller.planning import process
from controller.planning.messages import Answer, SolvePlan, WorkOutSlowdowns
from controller.planning.plan import NO_ROUTES, NoPlan, Plan, Planned, Slowdowns, answered
from controller.planning.planner import plan
from controller.planning.problem import PlanLimits, Routes
from controller.planning.process import PlanningProcess
from controller.shared_map import SharedMap
from mininet_topos.lab.record import wait_for
from tests.support.planning.ending_planners import Fatal, Halting, ShortLived, Silent, TellsSlowdowns, broken
from tests.support.planning.fabrics import demo_flows, leaf_spine, problem_of
from tests.support.planning.plans import snapshot_of
from tests.support.preloaded import forked_children
from tests.support.waiting import until

__all__ = ("forked_children",)

pytestmark = pytest.mark.usefixtures("forked_children")
DEADLINE_S = 60
LIMITS = PlanLimits()
ALL_FLOWS = f"of {len(demo_flows())} flows"
"""Answer of a process that has received the whole problem."""


class Controller:
    """Controller's end of a planning process, and the inbox of the control loop."""

    def __init__(self, **options: Any) -> None:
        self.messages: queue.SimpleQueue[Answer] = queue.SimpleQueue()
        self.crashes: queue.SimpleQueue[BaseException] = queue.SimpleQueue()
        self.process = PlanningProcess(self.messages.put, self.crashes.put, **options)
        self.submit = self.process.submit

    def planned(self) -> Planned:
        while not isinstance(found := self.messages.get(timeout=DEADLINE_S), Planned):
            pass
        return found

    def ask(self, generation: int) -> Plan | NoPlan:
        self.submit(request(generation))
        answer = self.planned().answer
        assert answer.generation == generation
        return answer


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "RETRY_S", 0.05)


Start = Callable[..., Controller]


@pytest.fixture
def start() -> Iterator[Start]:
    started: list[Controller] = []

    def begin(**options: object) -> Controller:
        started.append(Controller(**options))
        return started[-1]

    yield begin
    for each in started:
        each.process.stop()


def child() -> BaseProcess:
    (found,) = multiprocessing.active_children()
    return found


def request(generation: int, routes: Routes = NO_ROUTES) -> SolvePlan:
    return SolvePlan(snapshot_of(problem_of(leaf_spine(4, 4), demo_flows()), generation, routes), LIMITS)


def test_requests_are_answered_one_after_the_other(start: Start) -> None:
    """The second request starts from the routes of the first; unchanged routes remain the same objects."""
    planning = start()
    planning.submit(request(1))
    first = planning.planned()
    assert first.plan.routes == answered(plan(request(1).snapshot.problem, LIMITS)).routes
    assert first.decision
    running = SharedMap.of(first.plan.routes)
    gone = next(iter(running))
    planning.submit(request(2, running.updated({gone: None})))
    second = planning.planned()
    assert (second.plan.generation, second.plan.moves) == (2, 0)
    assert second.decision
    assert all(second.plan.routes[flow] is route for flow, route in running.items() if flow != gone)
    assert second.plan.routes.keys() == running.keys()
    found = planning.messages.get(timeout=DEADLINE_S)
    assert isinstance(found, Slowdowns)
    assert (found.generation, found.of_scheme is None) == (2, False)
    planning.submit(request(3))
    ending = child()
    planning.process.stop()
    planning.process.stop()
    assert ending.exitcode == -signal.SIGKILL, "whatever it does"


def test_a_request_on_which_two_processes_die_has_no_plan_and_the_next_is_sent_everything(start: Start) -> None:
    planning = start(make=Fatal)
    for generation in (2, 3, 4):
        died = f"the planning process ended with status {-signal.SIGKILL}"
        assert planning.ask(generation) == NoPlan(generation, died if generation % 2 else ALL_FLOWS)
    assert planning.crashes.empty()
    assert planning.process.replaced == 2


def test_what_is_asked_while_a_process_dies_is_answered(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next process gets the newest request alone, once."""
    planning = start(make=Silent)
    planning.ask(2)
    planning.submit(request(3))
    end, dying, asked = process._Child.why_ended, threading.Event(), threading.Event()

    def slow_end(of: process._Child) -> str:
        dying.set()
        asked.wait(DEADLINE_S)
        wait_for(lambda: of.asked is not None and of.asked.snapshot.generation == 4, "the dying one to be asked")
        return end(of)

    monkeypatch.setattr(process._Child, "why_ended", slow_end)
    child().kill()
    assert dying.wait(DEADLINE_S)
    planning.submit(request(4))
    asked.set()
    assert planning.planned().answer == NoPlan(4, ALL_FLOWS)
    planning.ask(6)
    assert planning.messages.empty()


def test_slowdowns_that_have_come_are_not_asked_for_again(start: Start) -> None:
    planning = start(make=TellsSlowdowns)
    planning.submit(WorkOutSlowdowns(request(1).snapshot, draws=2))
    assert planning.messages.get(timeout=DEADLINE_S) == Slowdowns(1, {}, frozenset())
    child().kill()
    planning.submit(request(2))
    assert planning.messages.get(timeout=DEADLINE_S) == Planned(NoPlan(2, ALL_FLOWS))
    assert planning.messages.empty()


def test_processes_that_end_at_once_follow_each_other_slowly(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    waited = queue.SimpleQueue[float]()
    monkeypatch.setattr(process, "RETRY_S", 5.0)
    monkeypatch.setattr(PlanningProcess, "_wait", lambda _, seconds: waited.put(seconds))
    start(make=ShortLived)
    assert [waited.get(timeout=DEADLINE_S) for _ in range(2)] == [0.0, 5.0]


def test_a_process_that_does_not_answer_is_replaced(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process stops within an answer, so nothing but its end can be awaited."""
    planning = start(make=Halting)
    planning.ask(2)
    for name, value in (("STUCK_S", 0.5), ("STUCK_LIMITS", 0), ("LOOK_S", 0.05)):
        monkeypatch.setattr(process, name, value)
    assert planning.ask(3) == NoPlan(3, "the planning process did not answer in time")
    monkeypatch.setattr(process, "STUCK_S", 60.0)
    planning.ask(4)
    assert planning.crashes.empty()


def test_a_plan_that_is_not_awaited_any_more_is_never_late(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    planning = start(make=Silent)
    planning.ask(2)  # the process has started, however long that took
    monkeypatch.setattr(process, "LOOK_S", 0.05)
    plan, slowdowns = request(3), WorkOutSlowdowns(request(5).snapshot, draws=2)
    for asked in (plan, slowdowns):
        planning.submit(asked)
        until(lambda asked=asked: planning.process._child.asked is asked)  # type: ignore[misc]
    looks, end_if_late = [], process._Child.end_if_late

    def looked(child: Any) -> None:
        end_if_late(child)
        looks.append(child)

    monkeypatch.setattr(process._Child, "end_if_late", looked)
    monkeypatch.setattr(process, "STUCK_S", 0.0)
    monkeypatch.setattr(process, "STUCK_LIMITS", 0)
    until(lambda: len(looks) > 2)
    monkeypatch.setattr(process, "STUCK_S", 60.0)
    assert child().is_alive()
    planning.ask(6)


def test_where_no_other_process_can_be_started_or_it_dies_before_it_begins_it_is_tried_again(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    planning = start(make=Fatal)
    planning.ask(2)
    make, failures = process._Child, iter([OSError("too many open files")])

    def sometimes(*arguments: Any) -> Any:
        for failure in failures:
            raise failure
        return make(*arguments)

    monkeypatch.setattr(process, "_Child", sometimes)
    killed = set[int | None]()
    for _ in range(3):  # none of the processes has a request
        wait_for(lambda: any(one.pid not in killed for one in multiprocessing.active_children()), "the next one")
        alive = [one for one in multiprocessing.active_children() if one.pid not in killed]
        killed.add(alive[0].pid)
        alive[0].kill()
    planning.ask(4)
    assert next(failures, None) is None
    assert planning.crashes.empty()


def test_what_is_sent_to_all_processes_of_a_unit_is_for_the_controller(start: Start) -> None:
    """The signals are ignored from the start of the process."""
    planning = start(make=Fatal)
    first = child()
    assert first.pid
    for generation in (2, 4):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            os.kill(first.pid, number)
        planning.ask(generation)
    assert first.is_alive()


def test_a_process_that_cannot_begin_is_an_error_of_the_controller(start: Start) -> None:
    error = start(make=broken).crashes.get(timeout=DEADLINE_S)
    assert str(error) == "the planning process ended with status 1 before it could plan"


def test_how_the_process_is_configured_counts_for_the_next_one_too(start: Start, tmp_path: Path) -> None:
    file = tmp_path / "set"
    planning = start(begin=partial(Path.write_text, file, "first"), make=Fatal)
    planning.ask(2)
    assert file.read_text() == "first"
    planning.process.configure(partial(Path.write_text, file, "second"))
    planning.ask(4)
    assert file.read_text() == "second"
    file.unlink()
    child().kill()
    planning.ask(6)
    assert file.read_text() == "second"


CONTROLLER = """
import multiprocessing, os, queue, signal, time
from controller.planning.process import PlanningProcess
answers = queue.SimpleQueue()
planning = PlanningProcess(answers.put, answers.put)
while not planning._child.began:
    time.sleep(0.01)
(child,) = multiprocessing.active_children()
os.kill(child.pid, signal.SIGSTOP)
print(child.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_process_that_is_stopped_ends_with_a_controller_that_is_killed() -> None:
    ended = subprocess.run([sys.executable, "-c", CONTROLLER], capture_output=True, text=True, check=False)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    state = Path(f"/proc/{int(ended.stdout)}/stat")
    wait_for(lambda: not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z", "its end")
