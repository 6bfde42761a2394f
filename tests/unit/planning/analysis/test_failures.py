"""Effects of single failures: which failures are alike, what they do, and that the report has only computed results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from controller.fabric.topology import Fabric, Host, PortNo, PortRef
from controller.planning.analysis.failures import analyse_failures, cases, failed, single_failures
from controller.planning.analysis.messages import AnalyseFailures, Case, FabricNames, FailureAnalysis, FlowEnds, Network
from controller.planning.bounds import slowdown_bounds
from controller.planning.problem import PlanLimits, Problem
from signalbox.errors import SignalboxError
from signalbox.words import FailureKind
from tests.support.planning import fabrics as bare
from tests.support.planning.fabrics import (
    RATE,
    demo_flows,
    every_routing,
    flow,
    in_equal_subflows,
    on_paths,
    pinned,
    problem_of,
    ring,
)
from tests.support.planning.plans import planned, vector

LIMITS = PlanLimits(time_limit_s=10, deterministic=True)
EVERYTHING = frozenset(FailureKind)


def leaf_spine(leaves: int, spines: int, without: Iterable[tuple[int, int]] = ()) -> Fabric:
    return housed(bare.leaf_spine(leaves, spines, without=without))


def housed(fabric: Fabric) -> Fabric:
    """Return the fabric with a host on every leaf, so that only spines are switches without hosts."""
    leaves = [dpid for dpid in fabric.switches if dpid < 100]
    hosts = (Host(f"10.9.{leaf}.1", None, PortRef(leaf, PortNo(2000)), RATE) for leaf in leaves)
    return replace(fabric, hosts={host.ip: host for host in hosts})


def running(problem: Problem) -> Problem:
    return pinned(problem, planned(problem).routes)


def all_cases(problem: Problem, fabric: Fabric) -> tuple[tuple[Case, ...], tuple[Case, ...]]:
    return cases(problem, fabric, single_failures(fabric, EVERYTHING, fabric))


def request(problem: Problem, fabric: Fabric, top: int | None = None, within_s: float = 60.0) -> AnalyseFailures:
    network = Network(problem, fabric, fabric, LIMITS, FabricNames(fabric))
    return AnalyseFailures(network, EVERYTHING, top=top, within_s=within_s)


def analysed(problem: Problem, fabric: Fabric, top: int | None = None) -> FailureAnalysis:
    return analyse_failures(request(problem, fabric, top))


@pytest.fixture
def fabric() -> Fabric:
    return leaf_spine(4, 4)


@pytest.fixture
def full(fabric: Fabric) -> Problem:
    """Return the problem of three rings of four on four spines: three flows leave every leaf."""
    return running(problem_of(fabric, demo_flows()))


# ---- which failures there are, and which are alike


def test_every_spine_and_every_cable_can_fail(fabric: Fabric) -> None:
    failures = single_failures(fabric, EVERYTHING, fabric)
    spines = {"s101", "s102", "s103", "s104"}
    cables = {f"s{leaf}:{spine}" for leaf in (1, 2, 3, 4) for spine in spines}
    assert {(failure.kind, failure.name) for failure in failures} == {
        *((FailureKind.SPINE, name) for name in spines),
        *((FailureKind.CABLE, name) for name in cables),
    }, "no leaf, as it has hosts, and no bundle, as no cables are parallel"
    assert {failure.kind: len(failure.links) for failure in failures} == {FailureKind.SPINE: 8, FailureKind.CABLE: 2}, (
        "both ways"
    )
    assert single_failures(fabric, [FailureKind.SPINE], fabric) == tuple(
        f for f in failures if f.kind is FailureKind.SPINE
    )


def test_parallel_cables_fail_one_by_one_and_together_and_keep_their_numbers() -> None:
    cables = [(1, 101, RATE), (1, 101, RATE), (1, 101, RATE), (2, 101, RATE)]
    intact = housed(bare.fabric_of(cables))
    (bundle,) = single_failures(intact, [FailureKind.BUNDLE], intact)
    assert bundle.name == "s1:s101"
    first, *others = single_failures(intact, [FailureKind.CABLE], intact)
    assert [of.name for of in (first, *others)] == ["s1:s101:0", "s1:s101:1", "s1:s101:2", "s2:s101"]
    broken = replace(intact, links={key: link for key, link in intact.links.items() if key not in first.links})
    left = single_failures(broken, [FailureKind.CABLE], intact)
    assert [of.name for of in left] == [of.name for of in others]


def test_only_spines_that_differ_in_nothing_make_one_case_per_leaf(full: Problem, fabric: Fabric) -> None:
    felt, unfelt = all_cases(full, fabric)
    found = [(case.kind, len(case.failures)) for case in felt]
    assert (found, unfelt) == ([(FailureKind.SPINE, 4), *[(FailureKind.CABLE, 4)] * 4], ())
    odd = next(link for link in fabric.links if link.dpid == 104)
    felt, _ = all_cases(problem_of(fabric, demo_flows(), background={odd: RATE / 2}), fabric)
    assert sorted(len(case.failures) for case in felt if case.kind is FailureKind.SPINE) == [1, 3]


def test_what_no_flow_can_use_is_not_felt() -> None:
    fabric = leaf_spine(4, 2)
    problem = running(problem_of(fabric, ring("job", [(1, 1), (2, 1)])))
    found = analysed(problem, fabric)
    unfelt = {failure.name for case in found.unfelt for failure in case.failures if case.kind is FailureKind.CABLE}
    assert unfelt == {f"s{leaf}:s{spine}" for leaf, spine in product((3, 4), (101, 102))}
    assert not unfelt & {failure.name for outcome in found.outcomes for failure in outcome.case.failures}


fabrics = st.builds(
    leaf_spine,
    leaves=st.just(3),
    spines=st.integers(2, 3),
    without=st.sets(st.tuples(st.integers(1, 3), st.integers(1, 3)), max_size=2),
)
pairs = st.tuples(st.integers(1, 3), st.integers(1, 2), st.integers(1, 3), st.integers(3, 4))


@settings(max_examples=25)
@example(leaf_spine(3, 2, without=[(1, 1), (3, 1)]), [(2, 1, 1, 3), (2, 2, 3, 3)], RATE)
@given(fabrics, st.lists(pairs, min_size=1, max_size=4, unique=True), st.sampled_from([RATE, RATE / 2]))
def test_failures_of_one_case_have_the_same_routings_but_for_the_names(
    fabric: Fabric, ends: list[tuple[int, int, int, int]], demand: float
) -> None:
    """Hashing draws all routings with equal probability, and the plan is the best: so all numbers are the same."""
    flows = [flow(f"job{n % 2}", (a, i), (b, j), demand) for n, (a, i, b, j) in enumerate(ends)]
    problem = problem_of(fabric, flows)
    felt, unfelt = all_cases(problem, fabric)
    for case in (*felt, *unfelt):
        after = [failed(problem, failure) for failure in case.failures]
        vectors, bounds = [_every_vector(of) for of in after], [slowdown_bounds(of).worst for of in after]
        assert all(vector == vectors[0] for vector in vectors)
        assert all(bound == bounds[0] for bound in bounds)
        if case in unfelt:
            assert vectors[0] == _every_vector(problem)
            assert bounds[0] >= slowdown_bounds(problem).worst, "a cut counts links that no flow can use as well"


def _every_vector(problem: Problem) -> Counter[tuple[float, ...]]:
    """Count each vector of slowdowns among all routings."""
    return Counter(vector(problem, routes) for routes in every_routing(problem))


# ---- effects


def test_the_outcomes_are_what_planning_with_the_failure_gives(full: Problem, fabric: Fabric) -> None:
    """Flows that run over what fails are re-routed; the example is the failure of the most flows."""
    found = analysed(full, fabric)
    assert found.present.slowdown == found.present.bound == 1
    assert found.present.ecmp.mean > 1.5
    for outcome in found.outcomes:
        for failure in outcome.case.failures:
            answer = planned(failed(full, failure))
            assert outcome.slowdown == pytest.approx(answer.max_slowdown)
            assert outcome.bound == pytest.approx(answer.bound)
        assert outcome.proven
        assert outcome.ecmp
        assert outcome.repaired_slowdown
        assert outcome.slowdown
        assert outcome.slowdown <= outcome.repaired_slowdown
        hit = [_running_over(full, failure.links) for failure in outcome.case.failures]
        assert outcome.rerouted == (min(hit), max(hit))
        assert _running_over(full, outcome.example.links) == max(hit)


def test_the_bound_before_a_failure_is_as_strong_as_that_of_a_plan() -> None:
    """Flows a and c need spine 1, so b and d share spine 2 into leaf 3: no cut shows it, but a search does."""
    fabric = leaf_spine(5, 2, without=[(2, 2), (5, 2)])
    pairs = {"a": (1, 2), "b": (1, 3), "c": (4, 5), "d": (4, 3)}
    flows = [flow(job, (src, n), (dst, n), RATE) for n, (job, (src, dst)) in enumerate(pairs.items())]
    answer = planned(problem := problem_of(fabric, flows))
    assert slowdown_bounds(problem).worst < answer.bound == answer.max_slowdown
    present = analysed(pinned(problem, answer.routes), fabric).present
    assert (present.slowdown, present.bound) == (answer.max_slowdown, answer.bound)


def _running_over(problem: Problem, links: Iterable[object]) -> int:
    gone = set(links)
    return sum(any(link in gone for subflow in f.current or () for link in subflow.path) for f in problem.flows)


def test_the_worst_comes_first_and_flows_that_are_cut_off_are_worst_of_all() -> None:
    cut = [(3, spine) for spine in (2, 3, 4)]
    fabric = leaf_spine(4, 4, without=cut)
    flows = [*demo_flows((1, 2, 4)), flow("edge", (3, 9), (1, 9), RATE / 2)]
    found = analysed(running(problem_of(fabric, flows)), fabric)
    first, *rest = found.outcomes
    assert first.lost == (FlowEnds("10.0.3.9", "10.0.1.9", "s3", "s1"),)
    keys = [outcome.severity for outcome in found.outcomes]
    assert keys == sorted(keys, reverse=True)
    assert not rest[-1].lost


def test_the_worst_few_are_the_first_of_all(full: Problem) -> None:
    fabric = leaf_spine(4, 4, without=[(1, 4)])
    problem = running(replace(full, paths=problem_of(fabric, ()).paths))
    everything = analysed(problem, fabric).outcomes
    for top in (1, 2, 5):
        few = analysed(problem, fabric, top)
        assert [outcome.severity for outcome in few.outcomes] == [outcome.severity for outcome in everything[:top]]
        assert len(few.felt) == len(everything)


def test_the_planner_improves_on_the_repair() -> None:
    """The other flow at a full spine has to move.

    a and b leave leaf 1, a and c enter leaf 2, each over a spine of its own. Without the cable from leaf 1 to a's
    spine, b's spine is full at leaf 1 and c's is full at leaf 2: c must move."""
    fabric = leaf_spine(4, 3)
    flows = [flow("a", (1, 1), (2, 1), RATE), flow("b", (1, 2), (3, 1), RATE), flow("c", (4, 1), (2, 2), RATE)]
    problem = on_paths(problem_of(fabric, flows), range(3))
    outcomes = {f.name: outcome for outcome in analysed(problem, fabric).outcomes for f in outcome.case.failures}
    improved = outcomes["s1:s101"]
    assert (improved.basis, improved.repaired_slowdown, improved.slowdown, improved.bound) == ("plan", 2, 1, 1)
    assert (improved.rerouted, improved.moved) == ((0, 1), 1)


def test_split_flows_share_what_is_left() -> None:
    fabric = leaf_spine(2, 4)
    flows = [replace(f, max_subflows=2) for host in range(1, 5) for f in ring("job", [(1, host), (2, host)])]
    found = analysed(running(problem_of(fabric, flows)), fabric)
    spine = next(outcome for outcome in found.outcomes if outcome.case.kind is FailureKind.SPINE)
    assert spine.bound == pytest.approx(4 / 3)
    assert spine.slowdown == pytest.approx(4 / 3), "four flows over three spines, cut in two"
    assert spine.repaired_slowdown == 2, "the greedy keeps them whole"
    cable = next(outcome for outcome in found.outcomes if outcome.case.kind is FailureKind.CABLE)
    assert (cable.bound, cable.fluid_bound, cable.integer_bound) == pytest.approx((4 / 3, 4 / 3, 2))
    assert cable.slowdown
    assert cable.slowdown >= cable.bound * (1 - 1e-9), "what is proven of whole flows is not proven of split ones"


def test_equal_subflows_of_a_flow_are_lost_and_rerouted_as_one_flow() -> None:
    fabric = leaf_spine(3, 2, without=[(3, 2)])
    flows = [flow("a", (1, 1), (2, 1), RATE), flow("a", (1, 2), (3, 1), RATE)]
    outcomes = analysed(on_paths(problem_of(fabric, in_equal_subflows(flows, 3))), fabric).outcomes
    spine = next(outcome for outcome in outcomes if outcome.example.name == "s101")
    assert [(ends.src, ends.dst) for ends in spine.lost] == [("10.0.1.2", "10.0.3.1")]
    assert spine.rerouted == (1, 1)
    apart = leaf_spine(2, 0)
    cut_off = analysed(problem_of(apart, in_equal_subflows(flows[:1], 3)), apart)
    assert [(ends.src, ends.dst) for ends in cut_off.present.unrouted] == [("10.0.1.1", "10.0.2.1")]


def test_when_the_time_is_over_only_bounds_are_computed(full: Problem, fabric: Fabric) -> None:
    found = analyse_failures(request(full, fabric, within_s=0.0))
    assert {outcome.basis for outcome in found.outcomes} == {"bound"}
    assert all(outcome.slowdown is None and outcome.ecmp is None and not outcome.proven for outcome in found.outcomes)
    assert len(found.felt) == len(found.outcomes)


def test_no_failure_is_no_outcome_and_a_contradictory_problem_is_refused(full: Problem, fabric: Fabric) -> None:
    found = analyse_failures(replace(request(full, fabric), kinds=frozenset()))
    assert (found.outcomes, found.felt, found.unfelt) == ((), (), ())
    idle = analysed(problem_of(fabric, ()), fabric)
    assert (idle.pinned, idle.outcomes, idle.felt) == (True, (), ())
    assert {case.kind: len(case.failures) for case in idle.unfelt} == {FailureKind.SPINE: 4, FailureKind.CABLE: 16}
    with pytest.raises(SignalboxError, match="twice"):
        analysed(replace(full, flows=(*full.flows, full.flows[0])), fabric)


def test_without_pins_the_routes_of_a_plan_are_analysed(full: Problem, fabric: Fabric) -> None:
    """Progress is reported stage by stage."""
    heard: list[tuple[str, int, int]] = []
    found = analyse_failures(request(pinned(full, {}), fabric), lambda *said: heard.append(said))
    of_pins = analysed(full, fabric)
    assert (found.pinned, of_pins.pinned) == (False, True)
    assert found.present == of_pins.present
    assert [outcome.slowdown for outcome in found.outcomes] == [outcome.slowdown for outcome in of_pins.outcomes]
    assert [stage for stage, done, _ in heard if done == 0] == ["bounds", "hashing and repair", "planning"]
    assert all(done < of for _, done, of in heard)
