"""The prices that prove the fluid optimum (``lp``), in integers.

In: a problem and its routes. Out: a price per link, and how jobs of several phases divide it.
"""

from __future__ import annotations

from typing import NamedTuple

from controller.fabric.topology import LinkId
from controller.planning.problem import PlanLimits, Problem, Routes
from controller.planning.split_flows.commodities import Commodities
from controller.planning.split_flows.lp import FluidModel, Goal
from signalbox.jobs.spec import JobId

_LARGEST = 10**9


class Prices(NamedTuple):
    """``phases``: (job, phase, link, part of the price)."""

    prices: list[tuple[LinkId, int]]
    phases: list[tuple[JobId, int, LinkId, int]]


def dual_prices(problem: Problem, routes: Routes, limits: PlanLimits) -> Prices | None:
    """Of the least worst level, however flows are split. None without time, or when no link needs a price."""
    of = Commodities(problem)
    if not of.flows:
        return None
    spread = FluidModel(of).improve(of.amounts(routes), Goal(of.capacity, of.capacity, False), limits.begun())
    if spread is None or not spread.link_prices.any():
        return None
    links, scale = list(problem.link_number), _LARGEST / float(spread.link_prices.max())
    prices = {at: int(price * scale) for at, price in enumerate(spread.link_prices.tolist()) if price * scale >= 1}
    by_row = spread.key_prices.reshape(of.rows, of.links)
    left = {(job, at): price for (job, _), row in of.row_of.items() if row for at, price in prices.items()}
    phases = []
    for (job, phase), row in of.row_of.items():
        for at in prices if row else ():
            part = min(int(by_row[row, at] * scale), left[job, at])
            left[job, at] -= part
            phases += [(job, phase, links[at], part)] if part else []
    return Prices([(links[at], price) for at, price in prices.items()], phases)
