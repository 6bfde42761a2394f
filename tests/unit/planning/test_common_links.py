"""Parts of a leaf-spine, and the common links that the leaves of a part share."""

from __future__ import annotations

from controller.fabric.topology import Dpid
from controller.planning.common_links import common_links_between, find_common_links, parts
from tests.support.planning.fabrics import RATE, fabric_of, flow, leaf_spine, problem_of


def test_common_links_are_there_only_where_all_leaves_are_alike() -> None:
    flows = [flow("a", (1, 1), (2, 1), RATE), flow("a", (3, 1), (2, 2), RATE)]
    common = find_common_links(problem_of(leaf_spine(3, 4), flows))
    assert common
    assert common.count == 4
    assert find_common_links(problem_of(leaf_spine(3, 4, without=[(2, 1)]), flows)) is None
    spine_gone = find_common_links(problem_of(leaf_spine(3, 4, without=[(leaf, 1) for leaf in (1, 2, 3)]), flows))
    assert spine_gone
    assert spine_gone.count == 3


def test_parallel_cables_are_lanes_of_their_own_and_unequal_ones_are_none() -> None:
    flows = [flow("a", (1, 1), (2, 1), RATE)]
    double = [(leaf, spine, RATE) for leaf in (1, 2) for spine in (101, 102) for _ in range(2)]
    common = find_common_links(problem_of(fabric_of(double), flows))
    assert common
    assert common.count == 4
    assert len({*common.up[Dpid(1)], *common.down[Dpid(2)]}) == 8
    assert find_common_links(problem_of(fabric_of([*double[:-1], (2, 102, RATE / 2)]), flows)) is None
    assert find_common_links(problem_of(fabric_of(double[:-1]), flows)) is None


def test_a_part_has_the_lanes_that_all_its_leaves_share() -> None:
    fabric = fabric_of([(leaf, spine, RATE / (spine - 100)) for leaf in (1, 2, 3) for spine in (101, 102, 103)])
    problem = problem_of(fabric, [flow("a", (1, 1), (2, 1), RATE)])
    one, two, three = Dpid(1), Dpid(2), Dpid(3)
    common = common_links_between(problem, [one], [two, three])
    assert common
    assert common.bps == (RATE, RATE / 2, RATE / 3)
    assert [problem.paths.far_end[link] for link in common.up[one]] == [101, 102, 103]
    assert [link.dpid for link in common.down[three]] == [101, 102, 103]
    assert common_links_between(problem, [one], [Dpid(101)]) is None


def test_flows_are_apart_unless_they_share_a_side_of_a_leaf() -> None:
    flows = [flow("a", (src, n), (dst, n), RATE) for n, (src, dst) in enumerate([(1, 2), (2, 1), (3, 2), (3, 4)])]
    numbers = problem_of(leaf_spine(4, 2), flows).numbers
    assert [part.tolist() for part in parts(numbers, numbers.crossing)] == [[0, 2, 3], [1]]
