"""Is it the network? Each answer on a fabric small enough to see that it is true."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.errors import NotFound
from controller.fabric.topology import Dpid, Fabric, LinkId
from controller.jobs.spec import JobId
from controller.planning.bounds import level_bounds
from controller.planning.efficiency import job_levels, link_loads
from controller.planning.plan import Plan
from controller.planning.planner import plan
from controller.planning.problem import PlanLimits, Problem, whole
from controller.planning.questions.explain import Explanation, Verdict, explain
from controller.planning.questions.explain_words import fields, sentences
from controller.planning.questions.leaf_cuts import tightest_cut
from tests.support.planning.fabrics import (
    RATE,
    demo_flows,
    every_routing,
    flow,
    leaf_spine,
    link_between,
    pinned,
    problem_of,
    ring,
)

EXACT = PlanLimits(time_limit_s=10, deterministic=True)


class Names:
    def __init__(self, fabric: Fabric) -> None:
        self._fabric = fabric

    def link(self, link_id: LinkId) -> str:
        return self._fabric.link_name(link_id)

    def switch(self, dpid: Dpid) -> str:
        return self._fabric.name(dpid)


def on_spines(problem: Problem, spines: Iterable[int]) -> Problem:
    """The same problem with each flow, in order, running over its n-th candidate."""
    routes = {f.id: whole(problem.candidates(f)[spine]) for f, spine in zip(problem.flows, spines, strict=True)}
    return pinned(problem, routes)


def planned(problem: Problem) -> Problem:
    answer = plan(problem, EXACT)
    assert isinstance(answer, Plan), answer
    return pinned(problem, answer.routes)


def explained(
    problem: Problem,
    fabric: Fabric,
    job: str = "a",
    *,
    intact: Fabric | None = None,
    measured: float | None = None,
) -> Explanation:
    return explain(problem, JobId(job), fabric, EXACT, intact=intact, measured=measured)


def said(found: Explanation, fabric: Fabric) -> str:
    return " ".join(sentences(found, Names(fabric)))


def test_a_job_that_fills_its_nics_and_no_more_is_not_slowed_by_the_network() -> None:
    fabric = leaf_spine(4, 4)
    problem = planned(problem_of(fabric, demo_flows()))
    found = explained(problem, fabric, "job1")
    assert (found.verdict, found.level, found.best, found.split) == (Verdict.NOTHING, 1.0, None, None)
    assert found.links[0].load == pytest.approx(1)
    assert said(found, fabric).startswith("The network is not what slows job1")
    assert "Routing can gain nothing." in said(found, fabric)


def test_two_flows_on_one_spine_and_another_one_free_is_what_routing_can_mend() -> None:
    fabric = leaf_spine(2, 2)
    flows = [flow("a", (1, 1), (2, 1), RATE), flow("b", (1, 2), (2, 2), RATE)]
    problem = on_spines(problem_of(fabric, flows), [0, 0])
    found = explained(problem, fabric)
    assert (found.verdict, found.level) == (Verdict.ROUTING, 2.0)
    assert found.best
    assert (found.best.level, found.best.moves, found.best.best_for_all) == (1.0, 1, True)
    assert {busy.link for busy in found.links[:2]} == {link_between(fabric, 1, 101), link_between(fabric, 101, 2)}
    assert [(share.job_id, share.flows, share.load) for share in found.links[0].shares] == [
        ("a", 1, 1.0),
        ("b", 1, 1.0),
    ]
    assert found.equally_full == 2
    words = said(found, fabric)
    assert "1 of its own flows and 1 of b" in words
    assert "Routing can gain 50%: the planner's routes take its level to 1.00, with 1 flow moved." in words


def test_a_nic_that_two_jobs_share_is_not_the_fabric() -> None:
    fabric = leaf_spine(3, 4)
    flows = [flow("a", (1, 1), (2, 1), RATE), flow("b", (1, 1), (3, 1), RATE)]
    problem = planned(problem_of(fabric, flows))
    found = explained(problem, fabric)
    assert (found.verdict, found.level, found.nic_level) == (Verdict.NIC, 2.0, 2.0)
    assert found.links[0].nic
    assert "A NIC that it shares slows a, not the fabric" in said(found, fabric)
    assert "a NIC carries the same whatever the routes" in said(found, fabric)


def test_whole_flows_on_too_few_spines_gain_nothing_by_routes_and_much_by_splitting() -> None:
    intact = leaf_spine(2, 4)
    fabric = leaf_spine(2, 3)
    problem = planned(problem_of(fabric, [f for host in range(4) for f in ring("a", [(1, host), (2, host)])]))
    found = explained(problem, fabric, intact=intact)
    assert (found.verdict, found.level, found.alone) == (Verdict.FABRIC, 2.0, 2.0)
    assert found.cut
    assert (found.cut.links, found.cut.failed, found.cut.whole) == (3, 1, 2.0)
    assert found.cut.fluid == pytest.approx(4 / 3)
    assert found.split
    assert found.split.level == pytest.approx(4 / 3)
    words = said(found, fabric)
    assert "sends 4 whole flows over 3 links (1 more has failed): one of these is asked for 2.00 times" in words
    assert "Splitting flows would gain 33%: level 1.33" in words


def test_a_leaf_with_too_little_capacity_for_two_jobs_is_full_whatever_is_done() -> None:
    fabric = leaf_spine(3, 2, capacity=RATE / 2)
    flows = [flow("a", (1, 1), (2, 1), RATE), flow("b", (1, 2), (3, 1), RATE)]
    problem = planned(problem_of(fabric, [replace(f, max_subflows=2) for f in flows]))
    found = explained(problem, fabric)
    assert found.verdict is Verdict.FABRIC
    assert found.cut
    assert (found.cut.leaf, found.cut.outward, found.cut.fluid) == (1, True, 2.0)
    assert found.split is None, "its flows may be cut already"
    assert "s1 sends 2 flows (those of b among them) over 2 links: 2.00 times what all of these carry." in said(
        found, fabric
    )


def test_leaves_that_have_few_spines_in_common_bound_what_flows_between_them() -> None:
    """Each of the two leaves has lost one cable of three, to another spine: one spine is left that leads across."""
    fabric = leaf_spine(3, 3, without=[(1, 1), (2, 2)])
    problem = planned(problem_of(fabric, [flow("a", (1, n), (2, n), RATE) for n in (1, 2)]))
    found = explained(problem, fabric, intact=leaf_spine(3, 3))
    assert (found.verdict, found.level) == (Verdict.FABRIC, 2.0)
    assert found.cut
    assert (found.cut.leaf, found.cut.other, found.cut.links) == (1, 2, 1)
    assert "s1 sends 2 flows to s2 over the 1 link that still leads there: 2.00 times" in said(found, fabric)


def test_mixed_sizes_fill_a_link_in_steps() -> None:
    """Demands of 2, 2 and 1 thirds of a link over two thinner ones: loads are multiples of a third."""
    fabric = leaf_spine(2, 2, capacity=RATE / 2)
    flows = [flow("a", (1, n), (2, n), RATE * size / 3) for n, size in enumerate((2, 2, 1))]
    found = explained(planned(problem_of(fabric, flows)), fabric)
    assert found.cut
    assert found.cut.fluid == pytest.approx(5 / 3)
    assert found.cut.whole == pytest.approx(2)
    assert found.level == pytest.approx(2)


def test_what_a_job_gains_another_one_would_lose() -> None:
    """Three flows over two spines: somebody has to share, and it is a and b now."""
    fabric = leaf_spine(2, 2)
    flows = [flow(job, (1, n), (2, n), RATE) for n, job in enumerate("abc")]
    problem = on_spines(problem_of(fabric, flows), [0, 0, 1])
    found = explained(problem, fabric)
    assert (found.verdict, found.level, found.alone) == (Verdict.FABRIC, 2.0, 1.0)
    assert "Routes that are better for it are worse for another job than the planner's." in said(found, fabric)


def test_hashed_flows_have_a_level_but_no_links() -> None:
    fabric = leaf_spine(2, 2)
    problem = problem_of(fabric, [flow("a", (1, 1), (2, 1), RATE), flow("b", (1, 2), (2, 2), RATE)])
    found = explained(problem, fabric)
    assert found.level == pytest.approx(1.5, abs=0.15), "they meet in half of all draws"
    assert (found.hashed, found.verdict) == (1, Verdict.ROUTING)
    assert all(busy.nic for busy in found.links)
    assert "on average over hash draws" in said(found, fabric)
    assert "1 of its flows is hashed" in said(found, fabric)


def test_a_path_that_has_gone_is_no_route() -> None:
    fabric = leaf_spine(2, 2)
    problem = on_spines(problem_of(fabric, [flow("a", (1, 1), (2, 1), RATE)]), [0])
    broken = leaf_spine(2, 2, without=[(1, 1)])
    found = explained(replace(problem, paths=problem_of(broken, ()).paths), broken)
    assert (found.hashed, found.verdict) == (1, Verdict.NOTHING)


def test_flows_without_a_path_are_told_apart() -> None:
    fabric = leaf_spine(3, 1, without=[(3, 1)])
    flows = [flow("a", (1, 1), (2, 1), RATE), flow("a", (1, 2), (3, 1), RATE), flow("a", (1, 3), (1, 4), RATE)]
    found = explained(planned(problem_of(fabric, flows)), fabric)
    assert (found.flows, found.inside, found.lost, found.hashed) == (3, 1, 1, 0)
    assert found.verdict is Verdict.CUT_OFF
    assert said(found, fabric) == (
        "The network stops a: 1 flow has no path at all. To the other 2 the network gives a level of 1.00. "
        "Routing can gain nothing before cables or switches are repaired."
    )


def test_a_job_inside_one_leaf_is_not_the_fabrics_business() -> None:
    fabric = leaf_spine(2, 2)
    found = explained(problem_of(fabric, ring("a", [(1, 1), (1, 2), (1, 3)])), fabric)
    assert (found.verdict, found.inside, found.cut) == (Verdict.NOTHING, 3, None)
    assert "All of its flows stay inside a leaf." in said(found, fabric)


def test_traffic_that_nobody_announced_is_named() -> None:
    fabric = leaf_spine(2, 1)
    up = link_between(fabric, 1, 101)
    problem = problem_of(fabric, [flow("a", (1, 1), (2, 1), RATE)], background={up: RATE / 2})
    found = explained(planned(problem), fabric)
    assert (found.verdict, found.level) == (Verdict.FABRIC, 2.0)
    assert found.links[0].background == pytest.approx(0.5)
    assert "traffic that nobody announced takes 50% of it" in said(found, fabric)


@pytest.mark.parametrize(
    ("measured", "expected"),
    [
        (0.97, "Measured is an efficiency of 97.0%, about as predicted."),
        (0.6, "Measured is an efficiency of 60.0%, predicted are 100.0%: the difference is not the routing."),
    ],
)
def test_what_was_measured_stands_beside_what_was_predicted(measured: float, expected: str) -> None:
    fabric = leaf_spine(4, 4)
    found = explained(planned(problem_of(fabric, demo_flows())), fabric, "job1", measured=measured)
    assert expected in said(found, fabric)
    assert fields(found, Names(fabric))["efficiency_measured"] == measured


def test_a_job_that_takes_turns_with_its_neighbours_measures_better_than_predicted() -> None:
    fabric = leaf_spine(2, 1)
    flows = [flow("a", (1, 1), (2, 1), RATE), flow("b", (1, 2), (2, 2), RATE)]
    found = explained(planned(problem_of(fabric, flows)), fabric, measured=0.8)
    assert found.predicted == pytest.approx(0.5)
    assert "better than the predicted 50.0%" in said(found, fabric)


def test_an_unknown_job_is_refused_with_those_that_there_are() -> None:
    fabric = leaf_spine(4, 4)
    with pytest.raises(NotFound, match=r"there is no job 'x'; jobs: job1, job2, job3"):
        explained(problem_of(fabric, demo_flows()), fabric, "x")
    with pytest.raises(NotFound, match="there are no jobs with flows"):
        explained(problem_of(fabric, ()), fabric, "x")


def test_fields_leave_out_what_there_is_none_of() -> None:
    fabric = leaf_spine(4, 4)
    given = fields(explained(planned(problem_of(fabric, demo_flows())), fabric, "job1"), Names(fabric))
    assert not {"best", "split", "efficiency_measured"} & given.keys()
    assert given["verdict"] == "nothing"
    assert given["fullest_links"][0]["jobs"][0].keys() == {"job_id", "flows", "load"}
    assert given["cut"]["direction"] in ("out", "in")


@settings(max_examples=60, deadline=None)
@given(
    st.sets(st.tuples(st.integers(1, 3), st.integers(1, 3)), max_size=4),
    st.lists(st.tuples(st.integers(1, 3), st.integers(1, 3), st.sampled_from([1, 2, 3])), min_size=1, max_size=6),
    st.booleans(),
)
def test_a_cut_never_claims_more_than_all_bounds_together(
    without: set[tuple[int, int]], drawn: list[tuple[int, int, int]], may_split: bool
) -> None:
    fabric = leaf_spine(3, 3, capacity=RATE / 2, without=without)
    flows = [flow("a", (a, n), (b, 10 + n), RATE * size / 3) for n, (a, b, size) in enumerate(drawn)]
    problem = problem_of(fabric, [replace(f, max_subflows=1 + may_split) for f in flows])
    cut = tightest_cut(problem, JobId("a"), fabric)
    if cut is not None:
        assert cut.level <= level_bounds(problem).worst * (1 + 1e-9)


ends = st.tuples(st.sampled_from("ab"), st.integers(1, 3), st.integers(1, 2), st.integers(1, 3), st.integers(3, 4))


@settings(max_examples=40, deadline=None)
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
    problem = on_spines(problem, [s % len(problem.candidates(f)) for s, f in zip(spines, flows, strict=False)])
    routes = {f.id: f.current for f in problem.flows if f.current}
    everywhere = [job_levels(problem, other) for other in every_routing(problem)]
    best = job_levels(problem, {f.id: f.current for f in planned(problem).flows if f.current})
    for job in {f.job_id for f in flows}:
        found = explained(problem, fabric, job)
        assert found.level == pytest.approx(job_levels(problem, routes)[job])
        loads = link_loads(problem, routes)
        assert all(busy.load == pytest.approx(loads[busy.link]) for busy in found.links)
        assert found.links[0].load == pytest.approx(max(busy.load for busy in found.links))
        assert found.alone <= min(levels[job] for levels in everywhere) * (1 + 1e-9)
        _holds(found, job, everywhere, best)


def _holds(found: Explanation, job: JobId, everywhere: list[dict[JobId, float]], best: Mapping[JobId, float]) -> None:
    better = [levels for levels in everywhere if levels[job] < found.level * (1 - 1e-4)]
    if found.verdict is Verdict.NOTHING:
        assert found.level == pytest.approx(1)
    elif found.verdict is Verdict.ROUTING:
        assert better
    elif found.verdict is Verdict.NIC:
        assert not better
    elif found.verdict is Verdict.FABRIC:
        assert all(any(levels[other] > best[other] * (1 + 1e-4) for other in levels) for levels in better)
