"""Small problems with flows that may be split, and their optimum by the textbook linear programme.

The programme has a variable per flow and path, and none of the short cuts of the planner."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st
from ortools.linear_solver import pywraplp

from controller.fabric.topology import Fabric, LinkId
from controller.planning.problem import Flow, Problem
from signalbox.jobs.spec import JobId
from tests.support.planning.fabrics import fabric_of, flow, problem_of, ring

PHASES = [((0, 0.5),), ((0, 1.0),), ((1, 0.5),), ((0, 0.3), (1, 0.5)), ((0, 1.0), (2, 0.25))]


def split(flows: Iterable[Flow], subflows: int = 8) -> list[Flow]:
    return [replace(f, max_subflows=subflows) for f in flows]


def rings(leaves: int, hosts: int) -> list[Flow]:
    """Return the flows of two jobs: a ring over all leaves per host number, in both directions in turn."""
    order = list(range(1, leaves + 1))
    return [
        f
        for host in range(1, hosts + 1)
        for f in ring(f"job{host % 2}", [(leaf, host) for leaf in (order if host % 4 < 2 else order[::-1])])
    ]


def optimum(problem: Problem) -> float:
    """Return the smallest worst slowdown when flows that may be split can have any number of subflows."""
    rigid = any(f.max_subflows == 1 for f in problem.flows)
    solver = pywraplp.Solver.CreateSolver("SCIP" if rigid else "GLOP")
    worst = solver.NumVar(1.0, solver.infinity(), "worst")
    loads: defaultdict[LinkId, defaultdict[JobId, defaultdict[int, list[Any]]]] = defaultdict(
        lambda: defaultdict(lambda: defaultdict(list))
    )
    for f in problem.flows:
        paths = problem.candidates(f)
        if not paths:
            continue
        shares = [solver.BoolVar("") if f.max_subflows == 1 else solver.NumVar(0.0, 1.0, "") for _ in paths]
        solver.Add(sum(shares) == 1)
        used = [(link, 1.0) for link in f.nic_links]
        used += [(link, share) for path, share in zip(paths, shares, strict=True) for link in path]
        for link, share in used:
            for phase, bps in f.demand_bps:
                loads[link][f.job_id][phase].append(bps * share)
    for link, jobs in loads.items():
        peaks = [solver.NumVar(0.0, solver.infinity(), "") for _ in jobs]
        for peak, phases in zip(peaks, jobs.values(), strict=True):
            for terms in phases.values():
                solver.Add(peak >= sum(terms))
        solver.Add(sum(peaks) <= worst * problem.capacity_bps[link])
    solver.Minimize(worst)
    assert solver.Solve() == pywraplp.Solver.OPTIMAL
    return float(worst.solution_value())


@st.composite
def leaf_spines(draw: st.DrawFn) -> Fabric:
    """Draw a fabric of two to four leaves, with cables missing, doubled and of unequal capacity.

    Every leaf has a cable to the first spine."""
    leaves, spines = draw(st.integers(2, 4)), draw(st.integers(1, 4))
    capacities = draw(st.sampled_from([(1.0,), (1.0, 2.0), (0.5, 1.0, 3.0)]))
    cables = [
        (leaf, spine, draw(st.sampled_from(capacities)))
        for leaf in range(1, leaves + 1)
        for spine in range(101, 101 + spines)
        for _ in range(draw(st.sampled_from([0, 1, 1, 1, 2])))
    ]
    return fabric_of([*cables, *((leaf, 101, 1.0) for leaf in range(1, leaves + 1))])


@st.composite
def three_tiers(draw: st.DrawFn) -> Fabric:
    """Draw two pods of two leaves (1 to 4), with two switches above each pod and four cores; cables may be missing."""
    cables = [(1, 11, 1.0), (2, 11, 1.0), (3, 13, 1.0), (4, 13, 1.0), (11, 21, 1.0), (13, 21, 1.0)]
    for pod in (0, 1):
        above = (11 + 2 * pod, 12 + 2 * pod)
        cables += [(leaf, up, 1.0) for leaf in (1 + 2 * pod, 2 + 2 * pod) for up in above if draw(st.booleans())]
        cables += [
            (up, core, draw(st.sampled_from([0.5, 1.0])))
            for number, up in enumerate(above)
            for core in (21 + 2 * number, 22 + 2 * number)
            if draw(st.booleans())
        ]
    return fabric_of(cables)


@st.composite
def problems(draw: st.DrawFn, fabrics: st.SearchStrategy[Fabric], subflows: Iterable[int]) -> Problem:
    """Draw up to ten flows of up to three jobs, of one phase or of several.

    ``subflows``: numbers of subflows that a flow may have."""
    fabric = draw(fabrics)
    leaves = sorted(dpid for dpid in fabric.switches if dpid < 10)
    ends = st.tuples(st.sampled_from(leaves), st.integers(1, 4))
    pairs = draw(st.lists(st.tuples(ends, ends), min_size=1, max_size=10, unique=True))
    demands = draw(st.sampled_from([PHASES[:2], PHASES]))
    most = st.sampled_from(sorted(subflows))

    def drawn(src: tuple[int, int], dst: tuple[int, int]) -> Flow:
        made = flow(draw(st.sampled_from("abc")), src, dst, draw(st.sampled_from(demands)))
        return replace(made, max_subflows=draw(most))

    flows = [drawn(src, dst) for src, dst in pairs if src != dst]
    return problem_of(fabric, flows, nic_bps=draw(st.sampled_from([1.0, 10.0])))


def any_fabric() -> st.SearchStrategy[Fabric]:
    return st.one_of(leaf_spines(), three_tiers())
