"""Which planes whole flows take where the planes have unequal numbers of cores: a small search by CP-SAT.

Planes with equally many cores are one *group*; flows of a group can be coloured evenly with its planes afterwards. So a
level is reached by whole flows of one demand if, and only if, groups can be chosen within the room of every leaf and of
every pod: the search has a variable per flow and group, and none for paths.

In: the ends of the flows, the room in each group. Out: a group per flow, or None where there is no choice or none was
found in time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from controller.planning.problem import PlanLimits
from controller.planning.solver import cp_model, solver_within

_SECONDS = 0.3
"""Deterministic time: about as many seconds."""


class Room(NamedTuple):
    """How many flows may leave or enter a leaf in all planes of a group, and a pod for another one."""

    of_leaf: int
    of_pod: int


def choose(
    leaves: Sequence[Sequence[int]], pods: Sequence[Sequence[int]], rooms: Sequence[Room], current: Sequence[int]
) -> list[int] | None:
    """``leaves``, ``pods``: per side (sources, destinations) those of the flows. ``current``: the group of each flow
    that runs, else -1; as many as possible keep it."""
    model = cp_model.CpModel()
    takes = [[model.new_bool_var("") for _ in rooms] for _ in current]
    for of in takes:
        model.add_exactly_one(of)
    stays = [takes[flow][group] for flow, group in enumerate(current) if group >= 0]
    if stays:
        model.maximize(sum(stays))
    between = [flow for flow, (src, dst) in enumerate(zip(*pods, strict=True)) if src != dst]
    for side in (0, 1):
        for place, flows, of_leaf in ((leaves[side], range(len(current)), True), (pods[side], between, False)):
            sets: defaultdict[int, list[int]] = defaultdict(list)
            for flow in flows:
                sets[place[flow]].append(flow)
            for those in sets.values():
                for number, room in enumerate(rooms):
                    most = room.of_leaf if of_leaf else room.of_pod
                    if len(those) > most:
                        model.add(sum(takes[flow][number] for flow in those) <= most)
    solver = solver_within(PlanLimits(deterministic=True), _SECONDS)
    if solver.solve(model) not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None
    return [next(group for group, take in enumerate(of) if solver.boolean_value(take)) for of in takes]
