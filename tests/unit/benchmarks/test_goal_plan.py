"""The benchmark of goal plans works on a small fabric."""

from benchmarks.live.goal_plan import measured
from controller.config import Config, PlanningConfig
from offline.scenarios.fabric_options import Placement
from offline.scenarios.fabrics import leaf_spine
from offline.scenarios.generator import generate, jobs_of


def test_a_spine_that_dies_and_returns_is_measured_cycle_by_cycle() -> None:
    fabric = leaf_spine(8, 4, 4, 100e9, 100e9)
    jobs = jobs_of(generate(fabric, 2, 4, Placement.WHOLE_LEAF, 1, max_rings=4), fabric, max_subflows=2)
    config = Config(planning=PlanningConfig(max_moves=8))
    dies, returns = measured(fabric, "small", jobs, config)
    assert (dies.what, returns.what) == ("a spine dies", "it returns")
    assert dies.slowdowns[0][0] == 2
    assert dies.cycles > 1
    for change in (dies, returns):
        assert change.never_worse
        assert change.reached
        assert all(0 < moves <= 8 for moves in change.moves)
