"""Analyses for a live controller: requests from the state of the control loop, and results that match what happens."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest

from controller import answerer
from controller.answerer import Answerer
from controller.config import Config, DiscoveryConfig, FabricConfig
from controller.core.messages import Reply
from controller.fabric.messages import DrainParts, UndrainParts
from controller.fabric.topology import Dpid, PortNo
from controller.jobs.messages import RegisterJob, ReportIterations
from controller.planning.analysis.job import analyse
from controller.planning.analysis.messages import (
    Analyse,
    AnalysisRequest,
    Explain,
    FailureAnalysis,
    JobAnalysis,
    Verdict,
    WhatIf,
)
from controller.planning.messages import Replan, SetMode
from signalbox.errors import Conflict, Exhausted, InvalidInput, NotFound, NotKnownYet, SignalboxError
from signalbox.jobs.reports import IterationTime
from signalbox.jobs.spec import JobId, JobSpec
from signalbox.words import FailureKind, Mode
from tests.support.fake_fabric import FABRIC_BPS, FakeFabric, ring_job

CONFIG = Config(
    fabric=FabricConfig(link_bps=FABRIC_BPS, host_link_bps=FABRIC_BPS), discovery=DiscoveryConfig(edge_after_s=1.0)
)
RINGS = [[f"10.0.{leaf}.{host}" for leaf in (1, 2, 3, 4)] for host in (1, 2, 3)]
EVERYTHING = frozenset(FailureKind)


def started() -> FakeFabric:
    """Return a fabric without jobs."""
    fabric = FakeFabric()
    fabric.start(CONFIG)
    fabric.run(3)
    return fabric


@pytest.fixture
def fabric() -> FakeFabric:
    """Return a fabric with three planned jobs on four leaves and four spines."""
    fabric = started()
    for number, ips in enumerate(RINGS):
        fabric.send(RegisterJob(ring_job(f"job{number}", ips)))
    fabric.run(3)
    return fabric


def request_of(fabric: FakeFabric, message: Explain | WhatIf) -> AnalysisRequest:
    """Return the request of the control loop to the worker; raise the error that the loop replies with."""
    (command,) = fabric.loop.handle([message], fabric.now)
    if isinstance(command, Reply):
        assert isinstance(command.value, SignalboxError)
        raise command.value
    assert isinstance(command, Analyse)
    assert command.reply is message.reply
    return command.request


def analysed_job(fabric: FakeFabric, job: str = "job0") -> JobAnalysis:
    found = analyse(request_of(fabric, Explain(JobId(job))))
    assert isinstance(found, JobAnalysis)
    return found


def analysed_failures(
    fabric: FakeFabric, kinds: frozenset[FailureKind] = frozenset(), names: tuple[str, ...] = ()
) -> FailureAnalysis:
    found = analyse(request_of(fabric, WhatIf(kinds, None, 30.0, names)))
    assert isinstance(found, FailureAnalysis)
    return found


# ---- one job


def test_drained_uplinks_are_told_from_failed_ones(fabric: FakeFabric) -> None:
    fabric.send(DrainParts(("spine1", "leaf1:spine3")))
    fabric.cut(Dpid(1), PortNo(2))
    fabric.run(20)
    found = analysed_job(fabric)
    assert found.cut
    assert (found.cut.leaf, found.cut.links, found.cut.failed, found.cut.drained) == ("leaf1", 1, 1, 2)
    fabric.cut(Dpid(1), PortNo(3))
    fabric.run(20)
    found = analysed_job(fabric)
    assert found.cut
    assert (found.cut.failed, found.cut.drained) == (2, 1), "what is drained can fail too"


def test_measured_times_stand_beside_the_predicted_ones(fabric: FakeFabric) -> None:
    ideal_s = fabric.status.jobs[JobId("job0")].ideal_communication_s
    fabric.run(5)  # the iteration and its report take so long at most
    fabric.send(ReportIterations(JobId("job0"), (IterationTime(0, 2.0, ideal_s / 0.6),)))
    assert analysed_job(fabric).efficiency_measured == pytest.approx(0.6)
    assert analysed_job(fabric).efficiency_usual is None, "the first iterations are slower"
    for index in range(1, 6):
        fabric.run(2)
        fabric.send(
            ReportIterations(JobId("job0"), (IterationTime(index, 2.0, ideal_s / (0.3 if index == 3 else 0.9)),))
        )
    assert analysed_job(fabric).efficiency_usual == pytest.approx(0.9), "that of most"


def test_the_answer_has_what_switches_count_and_what_is_awaited(fabric: FakeFabric) -> None:
    found = analysed_job(fabric)
    assert found.demand is fabric.status.demands[JobId("job0")]
    assert not found.awaits_iterations, "it reports none"
    fabric.send(ReportIterations(JobId("job0"), (IterationTime(0, 100.0, 50.0),)))
    assert analysed_job(fabric).awaits_iterations, "it began before there were routes"
    fabric.run(5)
    fabric.send(ReportIterations(JobId("job0"), (IterationTime(1, 2.0, 1.0),)))
    assert not analysed_job(fabric).awaits_iterations


def test_a_job_of_which_nothing_was_counted_cannot_be_explained() -> None:
    fabric = started()
    fabric.send(RegisterJob(JobSpec.parse({"job_id": "seen", "endpoints": RINGS[0]})))
    fabric.run(1)  # its hosts answer
    with pytest.raises(
        NotKnownYet, match="'seen' is being learnt: counters show no traffic of it yet, and the switches hash its flows"
    ):
        analysed_job(fabric, "seen")


def test_under_ecmp_flows_are_hashed_and_routing_could_gain(fabric: FakeFabric) -> None:
    found = analysed_job(fabric)
    assert (found.verdict, found.slowdown, found.flows_hashed) == (Verdict.NOTHING, 1.0, 0)
    assert found.efficiency_measured is None
    assert analysed_failures(fabric).pinned
    fabric.send(SetMode(Mode.ECMP))
    fabric.run(1)
    found = analysed_job(fabric)
    assert (found.verdict, found.flows_hashed) == (Verdict.ROUTING, 4)
    assert found.slowdown > 1.3
    assert found.best
    assert found.best.slowdown == 1.0
    assert not analysed_failures(fabric).pinned


def test_jobs_that_cannot_be_analysed(fabric: FakeFabric) -> None:
    with pytest.raises(NotFound, match="there is no job 'nix'; jobs: job0, job1, job2"):
        analysed_job(fabric, "nix")
    fabric.send(RegisterJob(ring_job("late", ["10.0.1.1", "10.0.9.9", "10.0.9.8"])))
    with pytest.raises(Conflict, match=r"job 'late' waits for 10\.0\.9\.8, 10\.0\.9\.9:") as error:
        analysed_job(fabric, "late")
    assert error.value.about == {"jobId": "late", "missingHosts": "10.0.9.8,10.0.9.9"}
    with pytest.raises(NotFound, match="no job is announced"):
        analysed_job(started(), "nix")


# ---- single failures


def test_what_named_parts_cost_together_is_what_their_drain_costs(fabric: FakeFabric) -> None:
    """Three jobs have a flow each at every leaf, and there are four spines."""
    for names, slowdown in ((("spine1",), 1.0), (("spine1", "leaf2:spine2"), 2.0)):
        found = analysed_failures(fabric, names=names)
        (outcome,) = found.outcomes
        assert (outcome.case.kind, outcome.example.name) == (FailureKind.PARTS, ", ".join(names))
        assert (found.present.slowdown, outcome.slowdown) == (1.0, slowdown)
        fabric.send(DrainParts(names))
        fabric.run(5)
        assert fabric.status.plan
        assert fabric.status.plan.max_slowdown == slowdown
        fabric.send(UndrainParts(names))
        fabric.run(5)
    fabric.send(DrainParts(("spine1",)))
    fabric.run(5)
    found = analysed_failures(fabric, names=("spine1",))
    assert (found.outcomes, len(found.unfelt)) == ((), 1), "it is drained already"
    with pytest.raises(InvalidInput, match=r"names\[1\]: there is no switch 'spine9'"):
        analysed_failures(fabric, names=("spine1", "spine9"))


def test_what_nobody_waits_for_is_not_begun(fabric: FakeFabric) -> None:
    plans = fabric.loop.state.cycle.cycles_done
    for message in (Explain(JobId("job0")), WhatIf(EVERYTHING, None, 30.0), Replan()):
        message.reply.cancel()
        assert fabric.loop.handle([message], fabric.now) == []
    assert fabric.loop.state.cycle.cycles_done == plans


# ---- the process


def test_too_many_requests_are_refused(fabric: FakeFabric, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answerer, "MOST_WAITING", 1)
    monkeypatch.setattr(Answerer, "_run", lambda _self: None)
    worker = Answerer(analyse)
    request = request_of(fabric, Explain(JobId("job0")))
    replies: list[Future[Any]] = [Future(), Future()]
    for reply in replies:
        worker.submit(request, reply)
    assert not replies[0].done()
    with pytest.raises(Exhausted, match="requests wait already") as error:
        replies[1].result(timeout=0)
    assert error.value.about["limit"] == "waiting_analyses"
    worker.stop()
