"""The verdict whether the network slows a job, for each result on a fabric small enough to see that it is true."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller import answerer
from controller.answerer import Answerer
from controller.api.convert import job_message
from controller.api.convert_plan import plan_bytes
from controller.config import Config, DiscoveryConfig, FabricConfig, PlanningConfig
from controller.core.messages import Reply
from controller.fabric.messages import DrainParts, UndrainParts
from controller.fabric.topology import Dpid, Fabric, LinkId, PortNo
from controller.jobs.messages import RegisterJob, ReportIterations
from controller.planning.analysis.dispatch import analyse
from controller.planning.analysis.job import analyse_job, prove_routes
from controller.planning.analysis.messages import (
    Analyse,
    AnalyseJob,
    AnalysisRequest,
    Explain,
    FabricNames,
    FailureAnalysis,
    JobAnalysis,
    JobFlows,
    JobShare,
    Network,
    ProveRoutes,
    Verdict,
    WhatIf,
)
from controller.planning.bounds import slowdown_bounds
from controller.planning.efficiency import job_slowdowns
from controller.planning.messages import Replan, SetMode
from controller.planning.problem import Flow, PlanLimits, Problem, whole
from controller.planning.verify import verify
from signalbox.errors import Conflict, Exhausted, InvalidInput, NotFound, NotKnownYet, SignalboxError
from signalbox.jobs.reports import IterationTime
from signalbox.jobs.spec import JobId, JobSpec
from signalbox.live.jobs import job_slowdown
from signalbox.v1 import signalbox_pb2 as pb
from signalbox.words import FailureKind, Mode, Objective
from tests.support.command_line import Signalbox, signalbox
from tests.support.fake_fabric import FABRIC_BPS, FakeFabric, ring_job
from tests.support.planning.fabrics import (
    RATE,
    across,
    demo_flows,
    every_routing,
    flow,
    in_equal_subflows,
    leaf_spine,
    link_between,
    on_paths,
    pinned,
    problem_of,
    ring,
    three_tiers,
    two_leaves,
)
from tests.support.planning.plans import link_loads, planned
from tests.support.planning.split_problems import split
from tests.support.scrape import Scrape, exposition
from tests.support.three_rings import started

__all__ = ("signalbox",)

LIMITS = PlanLimits(time_limit_s=10, deterministic=True)


def analysed(problem: Problem, fabric: Fabric, job: str = "a", *, intact: Fabric | None = None) -> JobAnalysis:
    network = Network(problem, fabric, intact or fabric, LIMITS, FabricNames(fabric))
    return analyse_job(AnalyseJob(network, JobId(job), efficiency_measured=None))


def running(problem: Problem) -> Problem:
    return pinned(problem, planned(problem).routes)


def of_plan(
    fabric: Fabric,
    flows: Sequence[Flow],
    job: str = "a",
    *,
    intact: Fabric | None = None,
    background: Mapping[LinkId, float] | None = None,
) -> JobAnalysis:
    return analysed(running(problem_of(fabric, flows, background=background)), fabric, job, intact=intact)


def test_a_job_that_fills_its_nics_and_no_more_is_not_slowed_by_the_network() -> None:
    found = of_plan(leaf_spine(4, 4), demo_flows(), "job1")
    assert (found.verdict, found.slowdown, found.best, found.split) == (Verdict.NOTHING, 1.0, None, None)
    assert found.fullest_links[0].load == pytest.approx(1)


def test_routing_can_gain_when_two_flows_share_a_spine_and_another_is_free() -> None:
    fabric = leaf_spine(2, 2)
    found = analysed(on_paths(two_leaves(2, "ab")), fabric)
    assert (found.verdict, found.slowdown) == (Verdict.ROUTING, 2.0)
    assert found.best
    assert (found.best.slowdown, found.best.moves, found.best.best_for_all) == (1.0, 1, True)
    full = (link_between(fabric, 1, 101), link_between(fabric, 101, 2))
    assert {busy.link for busy in found.fullest_links[:2]} == set(map(fabric.link_name, full))
    assert found.fullest_links[0].jobs == (JobShare(JobId("a"), 1, 1.0), JobShare(JobId("b"), 1, 1.0))
    assert found.equally_full_links == 2


@pytest.mark.parametrize(("spines", "load"), [((0, 0, 1, 1), 2.0), ((0, 1, 0, 1), None)])
def test_a_link_on_which_a_job_collides_with_itself_is_found(spines: Sequence[int], load: float | None) -> None:
    """Jobs a and b have two flows each. All links have a load of two in both cases."""
    problem = on_paths(two_leaves(2, "aabb"), spines)
    found = analysed(problem, leaf_spine(2, 2))
    assert (found.slowdown, found.own_link and found.own_link.load_of(JobId("a"))) == (2.0, load)


def test_a_pod_that_has_lost_a_core_is_named_by_its_leaves() -> None:
    """The first of two pods of two leaves sends four flows to the other pod, over three of four links to cores."""
    ends = [(leaf, host) for leaf in (1, 2) for host in (0, 1)]
    flows = [flow("a", end, (end[0] + 2, end[1]), RATE) for end in ends]
    found = of_plan(three_tiers(2, 2, [2, 1]), flows, intact=three_tiers(2, 2, [2, 2]))
    assert found.cut
    assert found.cut.leaf == "a group of 2 leaves with s1"
    assert (found.cut.direction, found.cut.links, found.cut.failed) == ("out", 3, 1)
    assert found.cut.fluid_slowdown == pytest.approx(4 / 3)


def test_equal_subflows_of_a_flow_count_as_one_flow() -> None:
    """Each of two flows between the leaves, and one inside a leaf, has three equal subflows; there is one cable."""
    flows = [*across("aa"), flow("a", (1, 3), (1, 4), RATE)]
    found = of_plan(leaf_spine(2, 1), in_equal_subflows(flows, 3))
    assert (found.flows, found.flows_inside_a_leaf) == (3, 1)
    assert found.fullest_links[0].load == pytest.approx(2)
    assert found.fullest_links[0].jobs[0].flows == 2
    assert found.cut
    assert (found.cut.jobs, found.cut.subflows) == ((JobFlows(JobId("a"), 2),), 6)
    assert found.best
    assert found.best.most_subflows == 3
    hashed = analysed(problem_of(leaf_spine(2, 1), in_equal_subflows(flows, 3)), leaf_spine(2, 1))
    assert hashed.flows_hashed == 2
    cut_off = analysed(problem_of(leaf_spine(2, 0), in_equal_subflows(flows, 3)), leaf_spine(2, 0))
    assert (cut_off.flows, cut_off.flows_without_a_path) == (3, 2)


def test_whole_flows_on_too_few_spines_gain_by_splitting_only() -> None:
    flows = [f for host in range(4) for f in ring("a", [(1, host), (2, host)])]
    found = of_plan(leaf_spine(2, 3), flows, intact=leaf_spine(2, 4))
    assert (found.verdict, found.slowdown, found.least_slowdown) == (Verdict.FABRIC, 2.0, 2.0)
    assert found.cut
    assert (found.cut.links, found.cut.failed, found.cut.whole_slowdown) == (3, 1, 2.0)
    assert found.cut.fluid_slowdown == pytest.approx(4 / 3)
    assert found.split
    assert found.split.slowdown == pytest.approx(4 / 3)


def test_a_leaf_with_too_little_capacity_bounds_split_flows_too() -> None:
    flows = split([flow("a", (1, 1), (2, 1), RATE), flow("b", (1, 2), (3, 1), RATE)], 2)
    found = of_plan(leaf_spine(3, 2, capacity=RATE / 2), flows)
    assert found.verdict is Verdict.FABRIC
    assert found.cut
    assert (found.cut.leaf, found.cut.direction, found.cut.fluid_slowdown) == ("s1", "out", 2.0)
    assert found.cut.jobs == (JobFlows(JobId("a"), 1), JobFlows(JobId("b"), 1))
    assert found.split is None, "its flows may be split already"


def test_leaves_that_have_few_spines_in_common_bound_what_flows_between_them() -> None:
    """Each of the two leaves has lost one cable of three, to different spines: one common spine is left."""
    found = of_plan(leaf_spine(3, 3, without=[(1, 1), (2, 2)]), across("aa"), intact=leaf_spine(3, 3))
    assert (found.verdict, found.slowdown) == (Verdict.FABRIC, 2.0)
    assert found.cut
    assert (found.cut.leaf, found.cut.other_leaf, found.cut.links) == ("s1", "s2", 1)


def test_no_gain_where_another_job_would_lose() -> None:
    """Two of three flows have to share one of two spines; now a and b share."""
    found = analysed(on_paths(two_leaves(2, "abc"), [0, 0, 1]), leaf_spine(2, 2))
    assert (found.verdict, found.slowdown, found.least_slowdown) == (Verdict.FABRIC, 2.0, 1.0)
    assert found.best
    assert found.best.best_for_all


def test_hashed_flows_have_a_slowdown_but_no_links() -> None:
    """A flow whose path is lost is hashed too."""
    found = analysed(two_leaves(2, "ab"), leaf_spine(2, 2))
    assert found.slowdown == pytest.approx(1.5, abs=0.15), "they meet in half of all draws"
    assert (found.flows_hashed, found.verdict) == (1, Verdict.ROUTING)
    assert all(busy.nic for busy in found.fullest_links)
    broken = leaf_spine(2, 2, without=[(1, 1)])
    lost = replace(on_paths(two_leaves(2, "a")), paths=problem_of(broken, ()).paths)
    found = analysed(lost, broken)
    assert (found.flows_hashed, found.verdict) == (1, Verdict.NOTHING)


def test_flows_without_a_path_and_flows_inside_a_leaf_are_counted() -> None:
    fabric = leaf_spine(3, 1, without=[(3, 1)])
    flows = [flow("a", (1, 1), (2, 1), RATE), flow("a", (1, 2), (3, 1), RATE), flow("a", (1, 3), (1, 4), RATE)]
    found = of_plan(fabric, flows)
    assert (found.flows, found.flows_inside_a_leaf, found.flows_without_a_path, found.flows_hashed) == (3, 1, 1, 0)
    assert found.verdict is Verdict.CUT_OFF
    inside = of_plan(fabric, ring("a", [(1, 1), (1, 2), (1, 3)]))
    assert (inside.verdict, inside.flows_inside_a_leaf, inside.cut) == (Verdict.NOTHING, 3, None)


def test_unannounced_traffic_slows_a_job_unless_a_reader_would_not_notice() -> None:
    fabric = leaf_spine(2, 1)
    up = link_between(fabric, 1, 101)
    nothing, bounded = Verdict.NOTHING, Verdict.FABRIC
    for share, verdict in ((0.01, nothing), (0.04, nothing), (0.06, bounded), (0.5, bounded)):
        found = of_plan(fabric, across("a"), background={up: share * RATE})
        assert found.verdict is verdict
        assert found.slowdown == pytest.approx(1 / (1 - share))
        assert found.fullest_links[0].background == pytest.approx(share)


def test_pinning_gains_nothing_where_hashing_is_as_good() -> None:
    """Two flows over two spines meet in half of all draws; a single flow never meets another."""
    fabric = leaf_spine(2, 2)
    alone = of_plan(fabric, across("a"))
    assert (alone.hashed_slowdown, alone.pinning_gains_nothing) == (1.0, True)
    two = of_plan(fabric, across("aa"))
    assert two.hashed_slowdown == pytest.approx(1.5, abs=0.15)
    assert (two.slowdown, two.pinning_gains_nothing) == (1.0, False)
    hashed = analysed(two_leaves(2, "aa"), fabric)
    assert hashed.hashed_slowdown == hashed.slowdown
    assert not hashed.pinning_gains_nothing, "the planner knows better routes"
    stays = analysed(on_paths(two_leaves(2, "abb"), [0, 1, 1]), fabric)
    assert stays.hashed_slowdown == pytest.approx(2.0, abs=0.15), "1 or 3: only flows of the job are hashed"
    assert stays.slowdown == 1.0
    no_choice = of_plan(leaf_spine(2, 1), across("a"))
    assert (no_choice.hashed_slowdown, no_choice.pinning_gains_nothing) == (None, False)


def test_a_nic_that_two_jobs_share_is_not_the_fabric() -> None:
    flows = [flow("a", (1, 1), (2, 1), RATE), flow("b", (1, 1), (3, 1), RATE)]
    shared, alone = of_plan(leaf_spine(3, 4), flows), of_plan(leaf_spine(3, 4), flows[:1])
    assert (shared.verdict, shared.slowdown, shared.nic_slowdown) == (Verdict.NIC, 2.0, 2.0)
    assert shared.fullest_links[0].nic
    assert shared.fullest_nic
    assert {share.job_id for share in shared.fullest_nic.jobs} == {"a", "b"}
    assert alone.fullest_nic
    assert [share.job_id for share in alone.fullest_nic.jobs] == ["a"]


def test_an_unknown_job_is_refused_with_those_that_there_are() -> None:
    fabric = leaf_spine(4, 4)
    with pytest.raises(NotFound, match=r"there is no job 'x'; jobs: job1, job2, job3"):
        analysed(problem_of(fabric, demo_flows()), fabric, "x")
    with pytest.raises(NotFound, match="no job has flows"):
        analysed(problem_of(fabric, ()), fabric, "x")


@settings(max_examples=40)
@given(
    st.sets(st.tuples(st.integers(1, 3), st.integers(1, 3)), max_size=4),
    st.lists(st.tuples(st.integers(1, 3), st.integers(1, 3), st.sampled_from([1, 2, 3])), min_size=1, max_size=6),
    st.booleans(),
)
def test_a_cut_counts_the_flows_and_links_of_its_place(
    without: set[tuple[int, int]], drawn: list[tuple[int, int, int]], may_split: bool
) -> None:
    fabric = leaf_spine(3, 3, capacity=RATE / 2, without=without)
    flows = [flow("a", (a, n), (b, 10 + n), RATE * size / 3) for n, (a, b, size) in enumerate(drawn)]
    problem = problem_of(fabric, [replace(f, max_subflows=1 + may_split) for f in flows])
    cut = analysed(problem, fabric, intact=leaf_spine(3, 3)).cut
    crossing = [f for f in problem.flows if f.src_leaf != f.dst_leaf and problem.reachable(f)]
    if cut is None:
        assert not crossing
        return
    ends = [(f.src_leaf, f.dst_leaf) if cut.direction == "out" else (f.dst_leaf, f.src_leaf) for f in crossing]
    names = [(fabric.name(leaf), fabric.name(other)) for leaf, other in ends]
    number = sum(leaf == cut.leaf and cut.other_leaf in (None, other) for leaf, other in names)
    assert cut.jobs == (JobFlows(JobId("a"), number),)
    uplinks = {leaf: {spine for spine in (1, 2, 3) if (leaf, spine) not in without} for leaf in (1, 2, 3)}
    own = uplinks[int(cut.leaf[1:])]
    assert cut.links == len(own & uplinks[int(cut.other_leaf[1:])] if cut.other_leaf else own)
    assert cut.failed == 3 - len(own)
    assert cut.slowdown <= slowdown_bounds(problem).worst * (1 + 1e-9)


ends = st.tuples(st.sampled_from("ab"), st.integers(1, 3), st.integers(1, 2), st.integers(1, 3), st.integers(3, 4))


@settings(max_examples=25)
@given(
    st.lists(ends, min_size=1, max_size=4, unique_by=lambda end: end[1:]),
    st.lists(st.integers(0, 1), min_size=4, max_size=4),
    st.sampled_from([RATE, RATE / 2]),
)
def test_every_claim_holds_for_all_routings(
    drawn: list[tuple[str, int, int, int, int]], spines: list[int], capacity: float
) -> None:
    fabric = leaf_spine(3, 2, capacity=capacity)
    flows = [flow(job, (a, i), (b, j), RATE) for job, a, i, b, j in drawn]
    problem = problem_of(fabric, flows)
    problem = on_paths(problem, [s % len(problem.candidates(f)) for s, f in zip(spines, flows, strict=False)])
    routes = {f.id: f.current for f in problem.flows if f.current}
    everywhere = [job_slowdowns(problem, other) for other in every_routing(problem)]
    best = planned(problem).job_slowdown
    for job in {f.job_id for f in flows}:
        found = analysed(problem, fabric, job)
        assert found.slowdown == pytest.approx(job_slowdowns(problem, routes)[job])
        loads = link_loads(problem, routes)
        load_of = {fabric.link_name(link): load for link, load in loads.items()}
        assert all(busy.load == pytest.approx(load_of[busy.link]) for busy in found.fullest_links)
        assert found.fullest_links[0].load == pytest.approx(max(busy.load for busy in found.fullest_links))
        assert found.least_slowdown <= min(slowdowns[job] for slowdowns in everywhere) * (1 + 1e-9)
        _holds(found, job, everywhere, best)


def _holds(found: JobAnalysis, job: JobId, everywhere: list[dict[JobId, float]], best: Mapping[JobId, float]) -> None:
    better = [slowdowns for slowdowns in everywhere if slowdowns[job] < found.slowdown * (1 - 1e-4)]
    if found.verdict is Verdict.NOTHING:
        assert found.slowdown == pytest.approx(1)
    elif found.verdict is Verdict.ROUTING:
        assert better
    elif found.verdict is Verdict.NIC:
        assert not better
    elif found.verdict is Verdict.FABRIC:
        assert all(any(slowdowns[other] > best[other] * (1 + 1e-4) for other in slowdowns) for slowdowns in better)


# ---- requests


CONFIG = Config(
    fabric=FabricConfig(link_bps=FABRIC_BPS, host_link_bps=FABRIC_BPS), discovery=DiscoveryConfig(edge_after_s=1.0)
)
RINGS = [[f"10.0.{leaf}.{host}" for leaf in (1, 2, 3, 4)] for host in (1, 2, 3)]
EVERYTHING = frozenset(FailureKind)


@pytest.fixture
def fabric() -> FakeFabric:
    """Return a fabric with three planned jobs on four leaves and four spines."""
    fabric = started(FakeFabric(), config=CONFIG)
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


def analysed_failures(fabric: FakeFabric, names: tuple[str, ...] = ()) -> FailureAnalysis:
    found = analyse(request_of(fabric, WhatIf(frozenset(), None, 30.0, names)))
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
    fabric = started(FakeFabric(), config=CONFIG)
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
    with pytest.raises(Conflict, match=r"job 'late' waits for hosts .*: 10\.0\.9\.8, 10\.0\.9\.9") as error:
        analysed_job(fabric, "late")
    assert error.value.about == {"jobId": "late", "missingHosts": "10.0.9.8,10.0.9.9"}
    with pytest.raises(NotFound, match="no job is announced"):
        analysed_job(started(FakeFabric(), config=CONFIG), "nix")


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
    with pytest.raises(Exhausted, match="analyses are waiting already") as error:
        replies[1].result(timeout=0)
    assert error.value.about["limit"] == "waiting_analyses"
    worker.stop()


# ---- proofs


FABRIC = leaf_spine(2, 2)
MEETING = two_leaves(2, "ab")


def proof(problem: Problem, fabric: Fabric = FABRIC) -> tuple[str, Any]:
    network = Network(problem, fabric, fabric, PlanLimits(deterministic=True), FabricNames(fabric))
    form = json.loads(prove_routes(ProveRoutes(network)).document)
    return verify(form)[0], form


def test_routes_that_are_best_are_proven_and_others_are_reported_as_they_are() -> None:
    said, form = proof(on_paths(MEETING, [0, 1]))
    assert said == "worst slowdown 1, at least 1 with any routes; 2 of 2 slowdowns proven"
    assert [one["from"] for one in form["flows"]] == [one.id.src_ip for one in MEETING.flows]
    said, _ = proof(on_paths(MEETING, [1, 1]))
    assert said == "worst slowdown 2, at least 1 with any routes; 0 of 2 slowdowns proven"


def test_flows_inside_a_leaf_are_in_a_proof_although_no_route_of_them_is_in_force() -> None:
    inside = ring("b", [(1, 8), (1, 9)])
    said, form = proof(problem_of(FABRIC, inside))
    assert (said, len(form["flows"])) == ("worst slowdown 1, at least 1 with any routes; 1 of 1 slowdowns proven", 2)
    said, form = proof(on_paths(problem_of(FABRIC, [*MEETING.flows, *inside]), [0, 1]))
    assert (said, len(form["flows"])) == ("worst slowdown 1, at least 1 with any routes; 2 of 2 slowdowns proven", 4)


def test_a_flow_without_any_path_is_left_out() -> None:
    apart = replace(FABRIC, links={})
    near = flow("c", (2, 1), (2, 2), RATE)
    problem = problem_of(apart, [flow("a", (1, 1), (2, 1), RATE), near])
    _, form = proof(pinned(problem, {near.id: whole(())}), apart)
    assert [one["to"] for one in form["flows"]] == [near.id.dst_ip]


def test_hashed_flows_are_not_left_out_silently() -> None:
    first = MEETING.flows[0]
    with pytest.raises(NotKnownYet, match=r"flows of job 'b' \(1\) have no route in force"):
        proof(pinned(MEETING, {first.id: whole(MEETING.candidates(first)[0])}))
    with pytest.raises(NotKnownYet, match="no route is in force"):
        proof(problem_of(FABRIC, []))


# ---- one slowdown in all answers


SENT = ((0, 9_000_000, 0), (1, 4_500_000, 0), (0, 750_000, 1), (1, 750_000, 1), (2, 1_000_000, 1))
"""Host of the sending leaf, bytes and phase of each transfer to the host with the same number on the other leaf.

The long phase needs two of the three flows apart; then two flows of the short phase collide."""


def two_phases(first_leaf: int) -> dict[str, Any]:
    transfers = [
        {"src": host, "dst": 3 + host, "bytes_per_iteration": size, "phase": phase} for host, size, phase in SENT
    ]
    endpoints = [f"10.0.{leaf}.{host}" for leaf in (first_leaf, first_leaf + 1) for host in (1, 2, 3)]
    return {"job_id": "job", "endpoints": endpoints, "transfers": transfers}


def slowdown_by_hand(fabric: FakeFabric, objective: Objective) -> float:
    """Return the slowdown by the paths that packets take; all links and NICs have the same rate."""
    time: Counter[int] = Counter()
    for _, size, phase in SENT:
        time[phase] = max(time[phase], size)
    load: defaultdict[tuple[int, str], float] = defaultdict(float)
    for host, size, phase in SENT:
        path = fabric.trace(f"10.0.1.{host + 1}", f"10.0.2.{host + 1}")
        assert path
        load[phase, path[1]] += size / time[phase]
    slowdown = {phase: max(of for (number, _), of in load.items() if number == phase) for phase in time}
    if objective is Objective.PHASE:
        return max(1.0, *slowdown.values())
    return sum(time[phase] * max(1.0, slowdown[phase]) for phase in time) / time.total()


@pytest.mark.parametrize(("objective", "slowdown"), [(Objective.ITERATION, 1.075), (Objective.PHASE, 1.5)])
def test_every_answer_has_the_slowdown_bound_and_gap_of_the_objective(
    objective: Objective, slowdown: float, signalbox: Signalbox, tmp_path: Path
) -> None:
    """The slowest phase has slowdown 1.75 under the routes with the shortest iteration, and 1.5 otherwise."""
    config = CONFIG.model_copy(update={"planning": PlanningConfig(objective=objective)})
    fabric = started(FakeFabric(leaves=2, spines=2, hosts_per_leaf=3), config=config)
    fabric.send(RegisterJob(JobSpec.parse(two_phases(1))))
    fabric.run(3)
    status, plan = fabric.status, fabric.status.plan
    assert plan
    job, expected = status.jobs[JobId("job")], pytest.approx(slowdown, rel=1e-6)
    assert slowdown_by_hand(fabric, objective) == expected
    message, planned = job_message(job, fabric.now), pb.GetPlanResponse()
    planned.ParseFromString(plan_bytes(planned, plan, status, installed=True))
    assert job_slowdown(message) == f"{slowdown:.3f}"
    assert message.efficiency_predicted == pytest.approx(1 / slowdown)
    of_plan = planned.plan
    assert of_plan.max_slowdown == of_plan.jobs[0].slowdown == of_plan.jobs[0].own_slowdown == expected
    scrape = Scrape(exposition(status, fabric.now))
    for name in ("signalbox_job_slowdown", "signalbox_plan_slowdown"):
        assert scrape.value(name) == expected
    assert scrape.value("signalbox_plan_bound") == of_plan.bound == plan.bound
    assert scrape.value("signalbox_plan_gap_ratio") == of_plan.gap == pytest.approx(slowdown / plan.bound - 1)
    explained, failures = analysed_job(fabric, "job"), analysed_failures(fabric, names=("spine1",))
    assert explained.slowdown == failures.present.slowdown == expected
    assert explained.efficiency_predicted == pytest.approx(1 / slowdown)
    assert failures.present.bound == pytest.approx(plan.bound)
    assert explained.best
    assert explained.best.worst_slowdown == expected
    assert explained.best.worst_bound == pytest.approx(plan.bound)
    (tmp_path / "jobs.json").write_text(json.dumps([two_phases(0)]))
    options = ("--leaves", 2, "--spines", 2, "--hosts-per-leaf", 3, "--jobs", tmp_path / "jobs.json", "--json")
    on_paper = signalbox("plan-file", *options, "--objective", objective).json
    assert on_paper["max_slowdown"] == on_paper["job_slowdown"]["job"] == expected
    assert on_paper["bound"] == pytest.approx(plan.bound)
    explained_on_paper = signalbox("explain", "job", *options, "--objective", objective).json
    assert explained_on_paper["slowdown"] == expected
    assert explained_on_paper["hashed_slowdown"] == pytest.approx(explained.hashed_slowdown, rel=0.1)
    now = signalbox("what-if", *options, "--objective", objective).json["now"]
    assert now["slowdown"] == expected
    assert now["bound"] == pytest.approx(on_paper["fluid_bound"])
    assert now["integer_bound"] == pytest.approx(plan.integer_bound)
