"""Folded edge colouring, which arXiv 2503.05324 compares itself with.

Flows are edges between their leaves. A proper colouring has as many colours as the largest leaf has flows, D (König);
with S spines alive colour c goes over spine c mod S, and so at most ceil(D / S) flows share a link. Several cables to a
spine are as good as several spines.

Published for leaves that are all joined to the same spines. Elsewhere a flow whose spine does not join its leaves takes
the path of its colour's number among its own, counted round.

In: a ``Problem`` and its ``PathChoices``. Out: the links that each flow takes.
"""

from __future__ import annotations

import numpy as np

from controller.planning.baselines.path_choices import PathChoices
from controller.planning.efficiency import Ints
from controller.planning.leaf_spine import Lanes, find_lanes
from controller.planning.problem import Problem
from controller.planning.whole.edge_coloring import proper_coloring


def fold_coloring(problem: Problem, choices: PathChoices) -> Ints:
    """Shape (hops, flows), link numbers."""
    colors = proper_coloring([(flow.src_leaf, flow.dst_leaf) for flow in choices.flows])
    lanes = find_lanes(problem)
    return _by_spine(choices, colors) if lanes is None else _by_lane(choices, colors, lanes)


def _by_lane(choices: PathChoices, colors: list[int], lanes: Lanes) -> Ints:
    numbers = {link: number for number, link in enumerate(choices.next_hops.links)}
    folded = [(flow, color % lanes.count) for flow, color in zip(choices.flows, colors, strict=True)]
    up = [numbers[lanes.up[flow.src_leaf][lane]] for flow, lane in folded]
    down = [numbers[lanes.down[flow.dst_leaf][lane]] for flow, lane in folded]
    return np.array([up, down])


def _by_spine(choices: PathChoices, colors: list[int]) -> Ints:
    next_hops = choices.next_hops
    taken = np.full((next_hops.longest, len(choices.flows)), next_hops.nothing)
    vias = [next_hops.far_end[links[0]] for links in choices.options]
    spines = np.unique(np.concatenate(vias)) if vias else np.zeros(0, np.int64)
    for flow, (color, via) in enumerate(zip(colors, vias, strict=True)):
        paths = np.flatnonzero(via == spines[color % len(spines)])
        path = paths[color // len(spines) % len(paths)] if len(paths) else color % len(via)
        taken[:, flow] = choices.options[flow][:, path]
    return taken
