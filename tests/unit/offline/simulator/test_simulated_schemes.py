"""The baselines in the simulator, on cases with a known result."""

from dataclasses import replace

import pytest

from controller.fabric.topology import Fabric
from controller.planning.bounds import slowdown_bounds
from controller.planning.planner import plan
from controller.planning.problem import PlanLimits
from offline.scenarios.fabric_options import Placement
from offline.scenarios.fabrics import leaf_spine, spine_links, without
from offline.scenarios.generator import generate, jobs_of
from offline.scenarios.scenario import problem_of
from offline.schemes import SCHEMES
from offline.simulator.options import Options, Replan
from offline.simulator.training import Outcome, Stage, simulate
from signalbox.jobs.spec import Striping

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
