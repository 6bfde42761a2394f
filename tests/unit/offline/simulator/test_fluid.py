"""Fluid model of links, and simulated schemes."""

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.fabric.topology import Fabric
from controller.planning.bounds import slowdown_bounds
from controller.planning.planner import plan
from controller.planning.problem import PlanLimits
from offline.scenarios.fabric_options import Placement
from offline.scenarios.fabrics import leaf_spine, spine_links, without
from offline.scenarios.generator import generate, jobs_of
from offline.scenarios.scenario import problem_of
from offline.schemes import SCHEMES
from offline.simulator import fluid
from offline.simulator.fluid import Fluid
from offline.simulator.options import Options, Replan
from offline.simulator.training import Outcome, Stage, simulate
from signalbox.jobs.spec import Striping

Case = tuple[list[float], list[dict[int, float]], list[float]]


@st.composite
def networks(draw: st.DrawFn) -> Case:
    """Draw capacities, links of each connection, and weights: few values, so that ties are common."""
    capacities = draw(st.lists(st.sampled_from([0.5, 1.0, 1.0, 3.0, 10.0]), min_size=1, max_size=8))
    part = st.sampled_from([1.0, 1.0, 1.0, 0.5, 0.03])
    used = st.dictionaries(st.integers(0, len(capacities) - 1), part, min_size=1, max_size=4)
    uses = draw(st.lists(used, min_size=1, max_size=40))
    weight = st.sampled_from([1.0, 1.0, 0.25, 2.0]) | st.floats(0.01, 5.0)
    weights = draw(st.lists(weight, min_size=len(uses), max_size=len(uses)))
    return capacities, uses, weights


def loads(case: Case, rates: list[float]) -> list[float]:
    capacities, uses, _ = case
    return [
        sum(rate * used.get(link, 0) for used, rate in zip(uses, rates, strict=True)) for link in range(len(capacities))
    ]


def assert_max_min(case: Case, rates: list[float]) -> None:
    """Assert the certificate of max-min fairness (Bertsekas and Gallager, section 6.5.2).

    No link carries too much, and every connection uses a full link on which no other connection has a higher rate per
    weight."""
    capacities, uses, weights = case
    load = loads(case, rates)
    assert all(carried <= capacity * (1 + 1e-9) for carried, capacity in zip(load, capacities, strict=True))
    normal = [rate / weight for rate, weight in zip(rates, weights, strict=True)]
    most = [
        max((rate for rate, used in zip(normal, uses, strict=True) if link in used), default=0)
        for link in range(len(capacities))
    ]
    for used, mine in zip(uses, normal, strict=True):
        assert any(load[link] >= capacities[link] * (1 - 1e-9) and mine >= most[link] * (1 - 1e-9) for link in used)


def rates_of(case: Case, few: int = 0) -> list[float]:
    """Return the rates when all connections send; up to ``few`` of them are computed without numpy."""
    capacities, uses, weights = case
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fluid, "FEW", few)
        network = Fluid(capacities)
        for used, weight in zip(uses, weights, strict=True):
            network.start(network.connect(used, weight), 1.0)
        return list(network.rates_bps().values())


@settings(max_examples=25)
@given(networks())
def test_rates_carry_the_max_min_certificate(case: Case) -> None:
    assert_max_min(case, rates_of(case))


@pytest.mark.parametrize("few", [0, 1000])
@pytest.mark.parametrize("reach", [0, 1000])
def test_a_common_queue_is_empty_when_its_connections_together_have_sent_it(
    few: int, reach: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two connections send 2 and 3 bit/s from the queue.

    From 1 s on a third connection has half of the narrow link, until it has sent 2 bits."""
    monkeypatch.setattr(fluid, "FEW", few)
    monkeypatch.setattr(fluid, "REACH", reach)
    network = Fluid([2.0, 3.0])
    narrow, wide, other = (network.connect({link: 1.0}) for link in (0, 1, 0))
    network.start(narrow, 18.0, [wide])
    assert network.rates_bps() == {narrow: 5.0}
    assert network.advance(1.0) == []
    network.start(other, 2.0)
    assert network.rates_bps() == {narrow: 4.0, other: 1.0}
    assert network.advance(math.inf) == [other]
    assert network.now_s == pytest.approx(3.0)
    assert network.advance(math.inf) == [narrow]
    assert network.now_s == pytest.approx(4.0)
    network.start(wide, 3.0)
    assert network.rates_bps() == {wide: 3.0}, "a helper is idle afterwards"
    network.start(narrow, 8.0)
    network.stop(wide)
    network.start(narrow := network.connect({0: 1.0}), 4.0, [wide])
    assert network.stop(narrow) == 4.0
    assert set(network.rates_bps()) == {0}


@settings(max_examples=25)
@given(networks(), st.data())
def test_only_what_an_event_reaches_is_computed_and_it_is_right(case: Case, data: st.DataObject) -> None:
    """After any starts, stops and ends, the rates of the sending connections carry the certificate."""
    capacities, uses, weights = case
    network = Fluid(capacities)
    numbers = [network.connect(used, weight) for used, weight in zip(uses, weights, strict=True)]
    sending: set[int] = set()
    for number in data.draw(st.lists(st.sampled_from(numbers), max_size=30)):
        if number in sending:
            network.stop(number)
            sending.remove(number)
        else:
            network.start(number, data.draw(st.sampled_from([1.0, 1.0, 2.5])))
            sending.add(number)
        if data.draw(st.booleans()):
            sending -= set(network.advance(network.now_s + 0.4))
        rates = network.rates_bps()
        assert set(rates) == sending
        order = sorted(rates)
        if order:
            on = (capacities, [uses[n] for n in order], [weights[n] for n in order])
            assert_max_min(on, [rates[n] for n in order])


@pytest.mark.parametrize(("few", "reach"), [(0, 0), (1000, 0), (1000, 1000)])
@given(case=networks())
@settings(max_examples=20)
def test_both_ways_to_compute_agree(few: int, reach: int, case: Case) -> None:
    expected = rates_of(case)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fluid, "REACH", reach)
        assert rates_of(case, few) == pytest.approx(expected, rel=1e-9)


def test_the_clock_stops_at_the_given_time() -> None:
    network = Fluid([1.0])
    connection = network.connect({0: 1.0})
    network.start(connection, 5.0)
    assert network.advance(2.0) == []
    assert network.now_s == 2.0
    assert network.stop(connection) == 3.0
    assert network.stop(connection) == 0.0
    with pytest.raises(ValueError, match="nothing is sending"):
        network.advance(math.inf)


def test_a_connection_is_rerouted_only_when_idle() -> None:
    network = Fluid([1.0, 4.0, 4.0])
    connection = network.connect({0: 1.0})
    network.start(connection, 8.0)
    with pytest.raises(ValueError, match="is sending"):
        network.route(connection, {1: 1.0})
    with pytest.raises(ValueError, match="at least one link"):
        network.connect({})
    network.stop(connection)
    network.route(connection, {1: 1.0, 2: 1.0}, 3.0)
    network.start(connection, 8.0)
    assert network.advance(math.inf) == [connection]
    assert network.now_s == 2.0


@settings(max_examples=25)
@given(networks(), st.lists(st.floats(0.1, 10.0), min_size=40, max_size=40))
def test_every_bit_arrives_once(case: Case, sizes: list[float]) -> None:
    """The sum over the intervals of rate x time is what each connection had to send."""
    capacities, uses, weights = case
    network = Fluid(capacities)
    left = {network.connect(used, weight): size for used, weight, size in zip(uses, weights, sizes, strict=False)}
    size_of = dict(left)
    for connection, size in left.items():
        network.start(connection, size)
    carried = dict.fromkeys(left, 0.0)
    while left:
        before, rates = network.now_s, network.rates_bps()
        for connection in network.advance(math.inf):
            del left[connection]
            carried[connection] += rates[connection] * (network.now_s - before)
            assert carried[connection] == pytest.approx(size_of[connection], rel=1e-6)
        for connection in left:
            carried[connection] += rates[connection] * (network.now_s - before)


SPINES = 4
LINK_BPS = 100e9


def intact() -> Fabric:
    return leaf_spine(8, SPINES, SPINES, LINK_BPS, LINK_BPS)


def run(
    name: str,
    failed: int,
    seed: int,
    options: Options,
    subflows: int = 1,
    jobs: int = 2,
    striping: Striping = Striping.PACED,
) -> tuple[Outcome, float]:
    """Return the outcome for jobs of the published models on whole leaves, and the bound of their worst slowdown."""
    fabric = intact()
    workload = generate(fabric, jobs, 4, Placement.WHOLE_LEAF, seed, max_rings=SPINES)
    left = without(fabric, spine_links(fabric, range(SPINES - failed, SPINES))) if failed else fabric
    trained = jobs_of(workload, fabric, subflows, striping)
    problem = problem_of(left, trained)
    limits = PlanLimits(ecmp_draws=0, seed=seed)
    outcome = simulate([Stage(0.0, problem)], trained, lambda asked: SCHEMES[name](asked, limits), options)
    return outcome, slowdown_bounds(problem).fluid


@pytest.mark.parametrize("replan", Replan)
def test_without_failures_no_job_waits(replan: Replan) -> None:
    outcome, _ = run("planned", 0, 1, Options(iterations=3, replan=replan))
    assert outcome.mean_slowdown == pytest.approx(1.0, rel=0.005)


@pytest.mark.parametrize("name", ["planned", "edge-coloring", "greedy", "ilp"])
def test_one_job_alone_on_full_leaves_takes_twice_as_long_with_whole_flows(name: str) -> None:
    outcome, _ = run(name, 1, 1, Options(iterations=2, replan=Replan.PUBLISHED), jobs=1)
    assert outcome.mean_slowdown == pytest.approx(2.0)


@pytest.mark.parametrize(("failed", "seed"), [(1, 1), (3, 2)])
def test_split_flows_reach_the_bound_with_hysteresis(failed: int, seed: int) -> None:
    outcome, bound = run("planned", failed, seed, Options(iterations=4), subflows=2)
    assert bound == pytest.approx(SPINES / (SPINES - failed))
    assert outcome.mean_slowdown is not None
    assert outcome.mean_slowdown <= 1.01 * bound


@pytest.mark.parametrize("striping", [Striping.EVEN, Striping.COMMON_QUEUE])
@pytest.mark.parametrize(("subflows", "slowdown"), [(2, 3 / 2), (3, 4 / 3)])
def test_equal_subflows_reach_the_slowdown_that_is_planned_for_them(
    striping: Striping, subflows: int, slowdown: float
) -> None:
    """Four flows of k subflows each put at least 4k / 3 subflows, rounded up, on one of three links."""
    outcome, _ = run("planned", 1, 1, Options(iterations=3), subflows, striping=striping)
    assert outcome.mean_slowdown is not None
    assert outcome.mean_slowdown <= slowdown + 1e-9
    if striping is Striping.EVEN:
        assert outcome.mean_slowdown == pytest.approx(slowdown)


def test_a_cap_on_moves_is_kept_cycle_by_cycle_until_the_bound_is_reached() -> None:
    """A spine fails after the first all-reduce; the next cycles are ten seconds apart."""
    fabric, options = intact(), Options(iterations=30)
    left = without(fabric, spine_links(fabric, [SPINES - 1]))
    trained = jobs_of(generate(fabric, 2, 4, Placement.WHOLE_LEAF, 1, max_rings=SPINES), fabric, 2, Striping.PACED)
    stages = [Stage(0.0, problem_of(fabric, trained)), Stage(20.0, problem_of(left, trained))]
    bound = SPINES / (SPINES - 1)
    limits = PlanLimits(ecmp_draws=0)

    def trained_with(cap: int) -> tuple[Outcome, list[float]]:
        live = replace(limits, max_moves=cap)
        outcome = simulate(stages, trained, lambda asked: plan(asked, limits), options, live)
        return outcome, [max(job.slowdowns[-3:]) for job in outcome.jobs]

    at_once, ends = trained_with(1000)
    assert max(ends) <= 1.01 * bound
    slowly, ends = trained_with(8)
    assert max(ends) <= 1.01 * bound
    assert slowly.adopted > at_once.adopted
    assert slowly.end_s > at_once.end_s
