"""The state that the switches have confirmed, and when each caller learns of it."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

from controller.core.messages import Command, Message
from controller.fabric.messages import ArpSeen
from controller.fabric.topology import Dpid, PortNo
from controller.planning.messages import ModeSet, SetMode
from controller.tables.messages import StageDone
from signalbox.errors import Conflict
from signalbox.words import Mode
from tests.support.fake_fabric import FakeFabric
from tests.support.late_answers import LateAnswers, SlowSolver
from tests.support.three_rings import CONFIG, register, spines_used


def started(fabric: FakeFabric) -> None:
    """Start the fabric with three planned, running jobs."""
    fabric.start(CONFIG)
    fabric.run(3)
    register(fabric, 0, 1, 2)
    fabric.run(3)


# ---- confirmed routes


def test_the_generation_of_a_jobs_routes_grows_when_they_change_and_only_then() -> None:
    fabric = FakeFabric()
    started(fabric)

    def generations() -> dict[str, int]:
        return {str(job.spec.job_id): job.routes_generation for job in fabric.status.jobs.values()}

    for port in (2, 3):
        before, numbers = spines_used(fabric), generations()
        fabric.cut(Dpid(1), PortNo(port))
        fabric.run(3)
        after = spines_used(fabric)
        moved = {f"job{int(flow.src_ip[-1]) - 1}" for flow in before if before[flow] != after[flow]}
        assert 0 < len(moved) < 3
        for job, number in generations().items():
            assert number > max(numbers.values()) if job in moved else number == numbers[job]


def test_a_controller_without_switches_reports_no_pins() -> None:
    fabric = FakeFabric()
    fabric.start(CONFIG, late=list(fabric.switches))
    fabric.run(1)
    assert fabric.status.pins == 0


def test_routes_are_confirmed_when_the_switch_of_their_source_is() -> None:
    fabric = LateAnswers()
    fabric.start(CONFIG)
    fabric.run(3)
    fabric.is_late = lambda answer: isinstance(answer, StageDone)
    register(fabric, 0)
    fabric.run(1)
    assert fabric.status.pins == 0
    while fabric.late:
        fabric.deliver()
    assert fabric.status.pins == 8, "four flows, both ways"


def reply_to(fabric: FakeFabric, future: Future[Any]) -> Any:
    """Return the value of the reply, or None while there is no reply."""
    return next((reply.value for reply in fabric.replies if reply.future is future), None)


def test_a_mode_is_set_when_a_plan_for_it_is_in_force() -> None:
    fabric = SlowSolver()
    fabric.start(CONFIG)
    fabric.run(3)
    register(fabric, 0, 1, 2)
    fabric.run(1)
    fabric.solve()
    fabric.send(SetMode(Mode.ECMP))
    fabric.run(1)
    done: Future[ModeSet] = Future()
    fabric.send(SetMode(Mode.PLANNED, done))
    fabric.run(1)
    assert reply_to(fabric, done) is None, "it is being planned"
    fabric.is_late = lambda answer: isinstance(answer, StageDone)
    fabric.solve()
    assert reply_to(fabric, done) is None, "switches have not confirmed the rules"
    while fabric.late:
        fabric.deliver()
    assert reply_to(fabric, done).pins == 24
    assert reply_to(fabric, done).mode is Mode.PLANNED


def test_another_mode_does_not_wait_for_a_plan_that_is_being_solved() -> None:
    fabric = SlowSolver()
    fabric.start(CONFIG)
    fabric.run(3)
    register(fabric, 0)
    fabric.run(1)
    assert fabric.solving
    done: Future[ModeSet] = Future()
    fabric.send(SetMode(Mode.ECMP, done))
    fabric.run(0.2)
    assert reply_to(fabric, done).mode is Mode.ECMP


def test_a_request_to_set_a_mode_is_refused_when_another_comes_before_it_is_done() -> None:
    fabric = SlowSolver()
    fabric.start(CONFIG)
    fabric.run(3)
    register(fabric, 0)
    fabric.run(1)
    first: Future[ModeSet] = Future()
    second: Future[ModeSet] = Future()
    fabric.send(SetMode(Mode.SHADOW, first))
    fabric.send(SetMode(Mode.ECMP, second))
    fabric.run(1)
    assert isinstance(reply_to(fabric, first), Conflict)
    assert reply_to(fabric, second).mode is Mode.ECMP


class SilentSpine(FakeFabric):
    """Fabric with a spine that carries out rule changes and never confirms them."""

    def _carry_out(self, command: Command) -> list[Message]:
        return [_without_spine(answer) for answer in super()._carry_out(command)]


def _without_spine(answer: Message) -> Message:
    if not isinstance(answer, StageDone):
        return answer
    return StageDone(answer.change_id, {dpid: result for dpid, result in answer.results.items() if dpid != 260})


def test_a_switch_that_confirms_nothing_delays_an_answer_about_a_host_by_half_a_second_at_most() -> None:
    fabric = SilentSpine()
    fabric.start(CONFIG)
    fabric.run(3)
    asker, target = "10.0.1.1", "10.0.3.2"
    fabric.send(ArpSeen(fabric.hosts[asker], "request", asker, fabric.mac(asker), target))
    fabric.run(0.4)
    assert not fabric.arp_replies
    fabric.run(0.2)
    assert [reply.ip for reply in fabric.arp_replies] == [target]
