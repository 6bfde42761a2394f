"""The state that the switches have confirmed, and when each caller learns of it."""

from __future__ import annotations

from controller.fabric.messages import ArpSeen
from controller.fabric.topology import Dpid, PortNo
from controller.jobs.messages import ReportIterations
from controller.planning.messages import SetMode
from controller.tables.messages import InstallStage, StageDone
from signalbox.errors import Superseded
from signalbox.jobs.reports import IterationTime
from signalbox.words import Mode
from tests.support.fake_fabric import FakeFabric
from tests.support.late_answers import LateAnswers, SlowSolver
from tests.support.three_rings import register, spines_used, started


def test_routes_that_change_have_another_generation_and_no_measured_times_and_others_keep_theirs() -> None:
    fabric = started(FakeFabric(), 0, 1, 2)
    for index, port in enumerate((2, 3)):
        fabric.run(4)  # an iteration and its report take 3 s at most
        for job_id in fabric.status.jobs:
            fabric.send(ReportIterations(job_id, (IterationTime(index, 1.0, 0.5),)))
        before, jobs = spines_used(fabric), fabric.status.jobs
        numbers = {job_id: job.routes_generation for job_id, job in jobs.items()}
        fabric.cut(Dpid(1), PortNo(port))
        fabric.run(3)
        after = spines_used(fabric)
        moved = {f"job{int(flow.src_ip[-1]) - 1}" for flow in before if before[flow] != after[flow]}
        assert 0 < len(moved) < 3
        for job_id, job in fabric.status.jobs.items():
            number = job.routes_generation
            assert number > max(numbers.values()) if job_id in moved else number == numbers[job_id]
            assert job.mean_communication_s == (0.0 if job_id in moved else 0.5)


def test_routes_are_confirmed_when_the_switch_of_their_source_is() -> None:
    fabric = started(LateAnswers())
    fabric.is_late = lambda answer: isinstance(answer, StageDone)
    register(fabric, 0)
    fabric.run(1)
    assert fabric.status.pins == 0
    while fabric.late:
        fabric.deliver()
    assert fabric.status.pins == 8, "four flows, both ways"


def test_a_mode_is_set_when_a_plan_for_it_is_in_force() -> None:
    fabric = started(SlowSolver())
    register(fabric, 0, 1, 2)
    fabric.run(1)
    fabric.solve()
    fabric.send(SetMode(Mode.ECMP))
    fabric.run(1)
    wanted = SetMode(Mode.PLANNED)
    fabric.send(wanted)
    fabric.run(1)
    assert fabric.reply_to(wanted.reply) is None, "it is being planned"
    fabric.is_late = lambda answer: isinstance(answer, StageDone)
    fabric.solve()
    assert fabric.reply_to(wanted.reply) is None, "switches have not confirmed the rules"
    while fabric.late:
        fabric.deliver()
    assert fabric.reply_to(wanted.reply).pins == 24
    assert fabric.reply_to(wanted.reply).mode is Mode.PLANNED


def test_a_request_to_set_a_mode_is_refused_when_another_comes_before_it_is_done() -> None:
    fabric = started(SlowSolver())
    register(fabric, 0)
    fabric.run(1)
    assert fabric.solving
    first, second = SetMode(Mode.SHADOW), SetMode(Mode.ECMP)
    fabric.send(first)
    fabric.send(second)
    fabric.run(0.2)
    assert isinstance(fabric.reply_to(first.reply), Superseded)
    assert fabric.reply_to(second.reply).mode is Mode.ECMP, "it waits for no plan"


class SilentSpine(FakeFabric):
    """Fabric with a spine that carries out rule changes and never confirms them."""

    def _install(self, command: InstallStage) -> StageDone:
        done = super()._install(command)
        return StageDone(done.change_id, {dpid: result for dpid, result in done.results.items() if dpid != 260})


def test_a_switch_that_confirms_nothing_delays_an_answer_about_a_host_by_half_a_second_at_most() -> None:
    fabric = started(SilentSpine())
    asker, target = "10.0.1.1", "10.0.3.2"
    fabric.send(ArpSeen(fabric.hosts[asker], "request", asker, fabric.mac(asker), target))
    fabric.run(0.4)
    assert not fabric.arp_replies
    fabric.run(0.2)
    assert [reply.ip for reply in fabric.arp_replies] == [target]
