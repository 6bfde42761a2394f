"""Routes of split flows on a leaf-spine whose leaves are all alike, in closed form, with few moves.

In: the common links (``common_links``), flows of equal demand, the largest number of subflows per flow, and the number
of flows that may move. Out: routes that differ little from the running routes.

The *home* of a flow is the common link that carries more than half of it. Only one of several flows that share a leaf
on the same side can have a given home. The flows of one home are therefore a matching, like the flows of one colour of
an edge colouring. The other flows get colours too. All flows together need D colours, where D is the largest number of
flows out of or into one leaf. With S common links, D - S *further* colours have no common link of their own.

Each further colour is spread over a group of n common links, which then carry 1 + 1/n flows each. A flow of a further
colour is cut into subflows for the first links of its group. The flows whose home is one of these first links pass the
excess on to other links of the group, and so on. The links form a tree, in which a flow of k subflows connects k links.
So about n / (k - 1) of the n + 1 colours are cut, and the flows of all other colours stay."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from controller.fabric.topology import Dpid
from controller.planning.closed_forms import nearly_equal
from controller.planning.common_links import CommonLinks, crossing, find_common_links
from controller.planning.problem import Flow, FlowId, Problem, Route, Subflow, whole

_MOST = 0.5
"""Share of a flow on one common link above which this link can be the flow's home."""

End = tuple[Dpid, bool]
"""Leaf with a side: True for flows that begin at the leaf, False for flows that end there."""
Shares = Sequence[tuple[int, float]]
"""Common links of a flow, each as (number, share)."""


def aligned_cutting(problem: Problem, most: int | None) -> dict[FlowId, Route] | None:
    """Return routes of flows that may all be split, with few moves; None where the closed form does not apply.

    ``most``: number of flows that may move, None for any number."""
    between, numbers = crossing(problem), problem.numbers
    max_subflows = min((flow.max_subflows for flow in between), default=1)
    common = (
        find_common_links(problem) if max_subflows > 1 and nearly_equal(numbers.peak_bps[numbers.crossing]) else None
    )
    routes = cut_aligned(problem, between, common, max_subflows, most) if common else None
    if routes is None:
        return None
    return routes | {flow.id: whole(()) for flow in problem.flows if flow.src_leaf == flow.dst_leaf}


def cut_aligned(
    problem: Problem, flows: Sequence[Flow], common: CommonLinks, max_subflows: int, most: int | None
) -> dict[FlowId, Route] | None:
    """Return routes of flows of equal demand between leaves; None when ``most`` moves are too few.

    ``max_subflows``: number of subflows per flow, at least 2. ``most``: number of flows that may move, None for any
    number."""
    degrees = Counter(end for flow in flows for end in _ends(flow))
    further = max(0, max(degrees.values(), default=0) - common.count)
    if further > common.count:
        return None
    coloring = _Coloring(_homes(problem, common, flows), flows, common.count + further)
    up, down = common.up, common.down

    def route(flow: Flow, shares: Shares) -> Route:
        paths = [(up[flow.src_leaf][common_link], down[flow.dst_leaf][common_link]) for common_link, _ in shares]
        return tuple(Subflow(path, share) for path, (_, share) in zip(paths, shares, strict=True))

    color = coloring.color
    routes = {flow.id: route(flow, [(color[flow.id], 1.0)]) for flow in flows if color[flow.id] < common.count}
    left = math.inf if most is None else most - problem.moves(routes)
    cut = _widest(Counter(color.values()), common.count, further, max_subflows, left)
    if cut is None:
        return None
    return {flow.id: route(flow, cut[color[flow.id]]) if color[flow.id] in cut else routes[flow.id] for flow in flows}


def _widest(
    sizes: Mapping[int, int], common: int, further: int, max_subflows: int, most: float
) -> Mapping[int, Shares] | None:
    """Return the shares of the flows of each colour that is cut; None when ``most`` moves are too few.

    The further colours are spread over as many common links as ``most`` moves allow. ``sizes``: number of flows per
    colour."""
    if not further:
        return {} if most >= 0 else None
    order = sorted(range(common), key=lambda common_link: (sizes[common_link], common_link))
    extra = sum(sizes[common + number] for number in range(further))
    for width in range(common // further, 0, -1):
        groups = [[order[number + further * n] for n in range(width)] for number in range(further)]
        cut = {
            color: shares
            for number, group in enumerate(groups)
            for color, shares in _tree(common + number, group, max_subflows).items()
        }
        if extra + sum(sizes[color] for color in cut if color < common) <= most:
            return cut
    return None


def _tree(root: int, common: Sequence[int], max_subflows: int) -> dict[int, Shares]:
    """Return the shares of the flows of each cut colour: ``root``, and the links in ``common`` that pass on a part.

    In the end each of the n links in ``common`` carries 1/n flow more than before."""
    width = len(common)

    def children(number: int) -> range:
        begin = max_subflows + number * (max_subflows - 1)
        return range(min(begin, width), min(begin + max_subflows - 1, width))

    below = [1] * width
    for number in reversed(range(width)):
        below[number] += sum(below[child] for child in children(number))
    cut: dict[int, Shares] = {
        root: [(common[child], below[child] / width) for child in range(min(max_subflows, width))]
    }
    for number in range(math.ceil(max(0, width - max_subflows) / (max_subflows - 1))):
        passed = [(common[child], below[child] / width) for child in children(number)]
        cut[common[number]] = [(common[number], 1 - (below[number] - 1) / width), *passed]
    return cut


# ---- colours


class _Coloring:
    """Edge colouring that keeps the flows' homes where possible.

    A flow keeps its ``home`` as its colour unless another flow needs this colour. Two colours are then exchanged along
    a path (König's theorem)."""

    def __init__(self, home: Mapping[FlowId, int], flows: Sequence[Flow], count: int) -> None:
        self.color = dict(home)
        """Colour of each flow, below ``count``; flows that leave, or enter, the same leaf have different colours.

        A colour below the number of common links stands for that link."""
        self._count = count
        self._at = {(end, home[flow.id]): flow for flow in flows if flow.id in home for end in _ends(flow)}
        for flow in flows:
            if flow.id not in self.color:
                self._put(flow)

    def _put(self, flow: Flow) -> None:
        here, there = ([n for n in range(self._count) if (end, n) not in self._at] for end in _ends(flow))
        both = next((color for color in here if color in set(there)), None)
        if both is None:
            both = here[-1]
            self._exchange(_ends(flow)[1], both, there[-1])
        self._give(flow, both)

    def _exchange(self, end: End, taken: int, free: int) -> None:
        """Exchange two colours along a path that begins at ``end``: there ``taken`` becomes unused, ``free`` used."""
        path = []
        color, other = taken, free
        while (flow := self._at.get((end, color))) is not None:
            path.append((flow, other))
            end = next(far for far in _ends(flow) if far != end)
            color, other = other, color
        for flow, _ in path:
            for of_flow in _ends(flow):
                del self._at[of_flow, self.color[flow.id]]
        for flow, given in path:
            self._give(flow, given)

    def _give(self, flow: Flow, color: int) -> None:
        self.color[flow.id] = color
        self._at.update(((end, color), flow) for end in _ends(flow))


def _homes(problem: Problem, common: CommonLinks, flows: Sequence[Flow]) -> dict[FlowId, int]:
    up = {link: common_link for links in common.up.values() for common_link, link in enumerate(links)}
    down = {link: common_link for links in common.down.values() for common_link, link in enumerate(links)}
    on_common_link: defaultdict[int, list[Flow]] = defaultdict(list)
    for flow in flows:
        for path, share in flow.current or ():
            if share > _MOST and problem.is_in_force(flow) and up[path[0]] == down[path[-1]]:
                on_common_link[up[path[0]]].append(flow)
    evicted: Counter[End] = Counter()
    return {
        flow.id: common_link
        for common_link, those in sorted(on_common_link.items())
        for flow in _matching(those, evicted)
    }


def _matching(flows: Iterable[Flow], evicted: Counter[End]) -> list[Flow]:
    """Return the flows that stay when conflicting flows are removed one by one, until no two share an end.

    The flow that shares its ends with the most flows is removed first; among several such flows, the flow whose ends
    have lost the fewest flows. ``evicted`` counts the removed flows per end."""
    at: defaultdict[End, int] = defaultdict(int)
    stay = list(flows)
    for flow in stay:
        for end in _ends(flow):
            at[end] += 1
    while True:
        crowded = [flow for flow in stay if any(at[end] > 1 for end in _ends(flow))]
        if not crowded:
            return stay
        gone = max(crowded, key=lambda flow: (sum(at[end] for end in _ends(flow)), -_lost(flow, evicted)))
        stay.remove(gone)
        for end in _ends(gone):
            at[end] -= 1
            evicted[end] += 1


def _lost(flow: Flow, evicted: Counter[End]) -> int:
    return sum(evicted[end] for end in _ends(flow))


def _ends(flow: Flow) -> tuple[End, End]:
    return (flow.src_leaf, True), (flow.dst_leaf, False)
