"""Random problems of every kind that a baseline must handle."""

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st

from controller.fabric.topology import Fabric
from controller.planning.problem import Flow, Problem
from tests.support.planning.fabrics import fabric_of, flow, leaf_spine, problem_of

LEAVES = (1, 2, 3, 4)
quick = settings(max_examples=60)


@st.composite
def fabrics(draw: st.DrawFn) -> Fabric:
    """Draw a fabric of two or three tiers, with cables cut, doubled and of unequal capacity.

    Some leaves may be disconnected."""
    rates = st.lists(st.sampled_from([1.0, 2.0, 3.0]), max_size=2)
    if draw(st.booleans()):
        pairs = [(leaf, spine) for leaf in LEAVES for spine in (101, 102, 103)]
    else:
        pods = [
            (leaf, pod) for leaf, pods in ((1, (11, 12)), (2, (11, 12)), (3, (13, 14)), (4, (13, 14))) for pod in pods
        ]
        pairs = pods + [(pod, core) for pod in (11, 12, 13, 14) for core in (101, 102)]
    return fabric_of((a, b, rate) for a, b in pairs for rate in draw(rates))


@st.composite
def flows(draw: st.DrawFn, most: int = 9) -> list[Flow]:
    """Draw the flows of up to three jobs of one or two phases, flows inside a leaf among them."""
    ends = st.tuples(st.sampled_from(LEAVES), st.integers(1, 4))
    phases = st.sampled_from([((0, 1.0),), ((0, 2.0),), ((1, 3.0),), ((0, 1.0), (1, 2.0)), ()])
    pairs = draw(st.lists(st.tuples(ends, ends), max_size=most, unique=True))
    return [flow(draw(st.sampled_from("abc")), src, dst, draw(phases)) for src, dst in pairs if src != dst]


@st.composite
def any_problems(draw: st.DrawFn, most: int = 9) -> Problem:
    return problem_of(draw(fabrics()), draw(flows(most)), nic_bps=draw(st.sampled_from([2.0, 40.0])))


@st.composite
def regular_problems(draw: st.DrawFn, cables: int = 1) -> tuple[Problem, int, int]:
    """Draw a problem of equal flows on an unbroken leaf-spine fabric.

    Returns the problem, the largest number of flows out of or into a leaf, and the number of spines. Every flow has its
    own NICs, which it fills as it would fill a link."""
    spines = draw(st.integers(1, 4))
    fabric = leaf_spine(4, spines, 1.0)
    if cables > 1:
        fabric = fabric_of(
            (leaf, 100 + spine, 1.0) for leaf in LEAVES for spine in range(spines) for _ in range(cables)
        )
    pairs = draw(st.lists(st.tuples(st.sampled_from(LEAVES), st.sampled_from(LEAVES)), min_size=1, max_size=24))
    crossing = [(src, dst) for src, dst in pairs if src != dst]
    found = [
        flow(draw(st.sampled_from("ab")), (src, host), (dst, host), 1.0) for host, (src, dst) in enumerate(crossing, 1)
    ]
    degree = max((max(sum(pair[end] == leaf for pair in crossing) for leaf in LEAVES) for end in (0, 1)), default=0)
    return problem_of(fabric, found, nic_bps=1.0), degree, spines * cables


def with_subflows(problem: Problem, most: int) -> Problem:
    return replace(problem, flows=tuple(replace(of, max_subflows=most) for of in problem.flows))
