"""The loads that local search changes flow by flow are those that ``efficiency`` defines, after any changes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.planning.efficiency import job_slowdowns
from controller.planning.problem import Problem, whole
from controller.planning.whole_flows.search import CappedLoads
from tests.support.planning.fabrics import two_leaves
from tests.support.planning.loads import link_loads
from tests.support.planning.random_problems import problems

quick = settings(max_examples=60)


def choices(problem: Problem) -> list[int]:
    """Return the indices of the flows that cross the fabric and have a path."""
    return [number for number, f in enumerate(problem.flows) if f.src_leaf != f.dst_leaf and problem.candidates(f)]


@quick
@given(problems(), st.data())
def test_loads_and_slowdowns_are_those_of_the_routes(problem: Problem, data: st.DataObject) -> None:
    loads = CappedLoads(problem)
    routes = {}
    for number in data.draw(st.lists(st.sampled_from(choices(problem)), max_size=12)) if choices(problem) else []:
        f = problem.flows[number]
        path = data.draw(st.sampled_from(range(len(problem.candidates(f)))))
        if loads.at[number] is not None:
            loads.take(number)
        loads.put(number, tuple(loads.paths(number)[path].tolist()))
        routes[f.id] = whole(problem.candidates(f)[path])
    expected = np.zeros(len(problem.capacity_bps))
    for link, load in link_loads(problem, routes).items():
        expected[problem.link_number[link]] = load
    fabric = [problem.link_number[link] for link in problem.paths.far_end]
    assert loads.load[fabric] == pytest.approx(expected[fabric])
    slowdowns = dict(zip(problem.numbers.job_ids, loads.slowdowns(), strict=True))
    for job, slowdown in job_slowdowns(problem, routes).items():
        assert slowdowns[job] <= slowdown * (1 + 1e-9)


@quick
@given(problems(), st.data())
def test_what_is_added_is_what_weighs_afterwards(problem: Problem, data: st.DataObject) -> None:
    loads = CappedLoads(problem)
    for number in choices(problem):
        paths = loads.paths(number)
        path = tuple(paths[data.draw(st.integers(0, len(paths) - 1))].tolist())
        before = loads.load.copy()
        loads.put(number, path)
        for link in path:
            assert loads.load[link] - before[link] == pytest.approx(loads.weight(number, link), abs=1e-9)


def test_a_link_has_the_lowest_ceiling_of_the_jobs_on_it() -> None:
    loads = CappedLoads(two_leaves(1, "aba"))
    loads.limit([2.0, 1.0])
    path = tuple(loads.paths(0)[0].tolist())
    loads.put(0, path)
    loads.put(2, path)
    assert loads.all_full() == []
    assert (loads.excess(1, loads.paths(1)) == 2).all()
    loads.put(1, path)
    assert set(loads.all_full()) == set(path)
    assert loads.relieves(1, path[0])
    assert not loads.relieves(0, path[0])
    loads.take(1)
    assert loads.ceiling[list(path)].tolist() == [2, 2]
    loads.take(0)
    loads.take(2)
    assert loads.ceiling[list(path)].tolist() == [math.inf, math.inf]
    loads.put(0, path)
    loads.limit([0.5, 1.0])
    assert set(loads.all_full()) == set(path)
    assert np.isinf(loads.excess(2, loads.paths(2))).all()
