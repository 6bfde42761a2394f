"""Random problems on fabrics small enough to try every routing."""

import random
from collections.abc import Sequence
from dataclasses import replace

from hypothesis import strategies as st

from controller.fabric.topology import PortNo
from controller.planning.problem import Flow, Problem, Route, whole
from tests.support.planning.fabrics import fabric_of, flow, leaf_spine, problem_of

MAX_ROUTINGS = 800


def tight(seed: int, demands: Sequence[float | Sequence[tuple[int, float]]]) -> Problem:
    """Return a problem of six flows of these demands on three leaves and spines, one cable of which is cut."""
    rng = random.Random(seed)
    ends = [((leaf, host), (leaf % 3 + 1, host)) for leaf in (1, 2, 3) for host in (1, 2)]
    flows = [flow(rng.choice("ab"), src, dst, rng.choice(demands)) for src, dst in ends]
    return problem_of(leaf_spine(3, 3, 3.0, without=[(rng.randint(1, 3), 1)]), flows, nic_bps=3.0)


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    """Draw a problem on two or three leaves and two or three spines.

    Cables are cut, doubled and of unequal capacity. There are up to three jobs of one or two phases. Some flows are
    pinned, some of them to a path that does not exist."""
    leaves = draw(st.integers(2, 3))
    spines = draw(st.integers(2, 3))
    capacities = st.lists(st.sampled_from([0.1, 2.0, 3.0, 4.0]), max_size=2)
    cables = [
        (leaf, spine, capacity)
        for leaf in range(1, leaves + 1)
        for spine in range(101, 101 + spines)
        for capacity in draw(capacities)
    ]
    fabric = fabric_of([*cables, *((leaf, 101, 4.0) for leaf in range(1, leaves + 1))])
    ends = st.tuples(st.integers(1, leaves), st.integers(1, 3))
    phases = st.sampled_from([((0, 1.0),), ((0, 2.0),), ((1, 3.0),), ((0, 1.0), (1, 2.0))])
    pairs = draw(st.lists(st.tuples(ends, ends), min_size=3, max_size=7, unique=True))
    flows = [flow(draw(st.sampled_from("abc")), src, dst, draw(phases)) for src, dst in pairs if src != dst]
    nic_bps = draw(st.sampled_from([4.0, 40.0]))
    problem = problem_of(fabric, _few_enough(problem_of(fabric, flows), flows), nic_bps)
    return replace(problem, flows=tuple(replace(f, current=draw(_currents(problem, f))) for f in problem.flows))


def _few_enough(problem: Problem, flows: list[Flow]) -> list[Flow]:
    routings = 1
    kept = []
    for candidate in flows:
        routings *= len(problem.candidates(candidate))
        if routings <= MAX_ROUTINGS:
            kept.append(candidate)
    return kept


def _currents(problem: Problem, flow: Flow) -> st.SearchStrategy[Route | None]:
    gone = tuple(link._replace(port=PortNo(link.port + 500)) for link in problem.candidates(flow)[0])
    return st.sampled_from([None, whole(gone) if gone else None, *map(whole, problem.candidates(flow))])


@st.composite
def packings(draw: st.DrawFn) -> Problem:
    """Draw flows of few sizes from one leaf to another over two or three spines: a bin-packing problem.

    The flows belong to up to three jobs."""
    spines = draw(st.integers(2, 3))
    with_a_unit = [[1.0], [1.0, 3.0], [1.0, 3.0, 7.0], [2.0, 3.0, 5.0], [3.0, 4.0]]
    without = [[1.0, 2**0.5], [1.0, 2**0.5, 3**0.5], [1.0, 3.1415]]
    sizes = draw(st.sampled_from([*with_a_unit, *without]))
    count = draw(st.integers(2, 9 if spines == 2 else 6))
    flows = [
        flow(draw(st.sampled_from("abc")), (1, h), (2, h), draw(st.sampled_from(sizes))) for h in range(1, count + 1)
    ]
    capacity = draw(st.sampled_from([max(sizes), min(sizes), 4.0]))
    return problem_of(leaf_spine(2, spines, capacity), flows, nic_bps=40.0)
