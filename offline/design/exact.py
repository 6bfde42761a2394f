"""Best steps of a circulant wiring, with proof, for few servers. Uses the solver CP-SAT.

In: the number of servers and interfaces, the smallest number of steps that must be rings, and the bytes by offset
(receiver - sender, modulo n). Out: the steps, and whether they are proven optimal. The result shows how far the
heuristic ``chosen_steps`` is from the best.

A circulant wiring of n servers has for each step a circuit from every server i to server (i + step) mod n. A step can
be a ring over all servers if the step and n have no common divisor. Only circulant graphs are searched;
``least_mean_hops`` bounds all other wirings too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from controller.public.plans import cp_model
from controller.public.wirings import Steps, chosen_steps, hops_by_offset, totient_steps
from offline.design.proof import Floats

MOST_SERVERS = 24
_SCALE = 10_000
"""Sum of the weights after rounding to whole numbers, which CP-SAT requires."""


def least_mean_hops(weights: Floats, interfaces: int) -> float:
    """Return a lower bound of the weighted mean of hops over all wirings (Moore bound).

    With d interfaces a server has at most d other servers at one hop, d² at two hops, and so on. The bound assumes that
    a server is nearest to those servers to which it sends most bytes. ``weights``: bytes by sender and receiver, shape
    (servers, servers)."""
    servers = len(weights)
    near = np.zeros(servers, np.int64)
    at, count, hops = 0, interfaces, 1
    while at < servers:
        near[at : at + count] = hops
        at, count, hops = at + count, count * interfaces if interfaces > 1 else 1, hops + 1
    total = float(weights.sum())
    ordered = -np.sort(-weights, axis=1)
    return float((ordered * near).sum() / total) if total else 0.0


def best_steps(
    servers: int, interfaces: int, rings: int, weights: Sequence[float] | None = None, time_limit_s: float = 30.0
) -> tuple[Steps, bool]:
    """Return the steps with the least mean of hops, then the least diameter, and whether they are proven optimal.

    - ``rings``: minimum number of steps that each make a ring over all servers.
    - ``weights``: bytes by offset, each rounded to 1/10,000 of their sum; None: all offsets count alike.

    Raises ``ValueError`` for fewer than 2 or more than ``MOST_SERVERS`` servers, or when no steps connect them."""
    if not 2 <= servers <= MOST_SERVERS or not interfaces >= 1:
        raise ValueError(f"the exact search supports 2 to {MOST_SERVERS} servers and needs at least one interface")
    if not 0 <= rings <= interfaces:
        raise ValueError(f"the number of ring steps must be from 0 to the number of interfaces, {interfaces}")
    steps = range(1, servers)
    count = min(interfaces, len(steps))
    of_rings = totient_steps(servers)
    model = cp_model.CpModel()
    taken = {step: model.new_bool_var(f"step {step}") for step in steps}
    model.add(sum(taken.values()) == count)
    model.add(sum(taken[step] for step in of_rings) >= min(rings, len(of_rings), count))
    _minimize_mean_and_most(model, servers, taken, _whole(servers, weights))
    start = chosen_steps(servers, rings, interfaces - rings, weights)
    if start:
        for step in steps:
            model.add_hint(taken[step], step in start.all)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = time_limit_s
    solver.parameters.num_workers = 1
    status = solver.solve(model)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        raise ValueError(f"no circulant wiring with {interfaces} steps was found that connects {servers} servers")
    found = [step for step in steps if solver.boolean_value(taken[step])]
    found += found[: interfaces - len(found)]
    return _divided(servers, found, rings, weights), status == cp_model.OPTIMAL


def _whole(servers: int, weights: Sequence[float] | None) -> list[int]:
    if weights is None:
        return [0] + [1] * (servers - 1)
    total = math.fsum(weights[1:]) or 1.0
    return [0, *(round(_SCALE * weight / total) for weight in weights[1:])]


def _minimize_mean_and_most(
    model: cp_model.CpModel, servers: int, taken: dict[int, cp_model.IntVar], weights: Sequence[int]
) -> None:
    """Add the objective: the weighted sum of hops first, then the largest number of hops.

    An offset is reached within h hops if the offset itself, or (offset - step) for a chosen step, is reached within
    h - 1 hops."""
    offsets, distances = range(1, servers), range(1, servers)
    within = {(offset, 0): int(offset == 0) for offset in range(servers)} | {(0, hops): 1 for hops in distances}
    reached: dict[tuple[int, int], cp_model.IntVar | int] = dict(within)
    for hops in distances:
        for offset in offsets:
            here = reached[offset, hops] = model.new_bool_var(f"{offset} within {hops}")
            ways: list[cp_model.IntVar | int] = [reached[offset, hops - 1]]
            for step, of_step in taken.items():
                before = reached[(offset - step) % servers, hops - 1]
                if isinstance(before, int) and not before:
                    continue
                way = model.new_bool_var("")
                model.add(way <= of_step)
                model.add(way <= before)
                ways.append(way)
            model.add(here <= sum(ways))
    most = model.new_int_var(1, servers, "most")
    late = []
    for offset in offsets:
        model.add(reached[offset, servers - 1] == 1)
        for hops in range(servers - 1):
            missed = 1 - reached[offset, hops]
            model.add(most >= (hops + 1) * missed)
            late.append(weights[offset] * missed)
    model.minimize(servers * sum(late) + most)


def _divided(servers: int, found: list[int], rings: int, weights: Sequence[float] | None) -> Steps:
    """Return the steps divided into at most ``rings`` steps that can be rings, and the other steps."""
    of_rings = [step for step in found if math.gcd(step, servers) == 1][:rings]
    others = list(found)
    for step in of_rings:
        others.remove(step)
    hops = hops_by_offset(servers, found)
    counted = [1.0] * servers if weights is None else list(weights)
    total = math.fsum(counted[1:]) or 1.0
    mean = math.fsum(h * w for h, w in zip(hops[1:], counted[1:], strict=True)) / total
    return Steps(tuple(of_rings), tuple(others), mean, max(hops))
