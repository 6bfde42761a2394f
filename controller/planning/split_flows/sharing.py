"""Shares of flows on few paths: a linear programme that is solved again and again with other paths.

In: a problem, routes to start from, a lower bound. Out: routes with a smaller worst slowdown.

Each round offers the cheapest further path to flows that may have more subflows. The programme finds the shares with
the smallest worst slowdown, and leaves most flows whole, because its solution is a vertex. Paths without a share are
dropped, which makes room for other paths. No round makes the worst slowdown larger, because the shares of one round are
a solution of the next programme too.

This search ends near its start. So every third attempt begins with a fluid optimum on few paths per flow
(``FluidModel.concentrated``), in which only some flows have *surplus* paths: more paths than subflows. With each
programme, more of these flows are *closed*: they keep only their largest shares. Surplus paths have a cost, so few
flows use them.

Prices are the duals of the previous programme. Before the first programme, links with larger loads cost more. Links
that cannot reach the lower bound of the worst slowdown, whatever the shares are, have no constraint.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import numpy as np

from controller.planning.efficiency import SLOWDOWN_TOLERANCE
from controller.planning.greedy import PathChoices, PathTable
from controller.planning.next_hops import NextHops
from controller.planning.problem import Bools, Floats, FlowId, Ints, PlanLimits, Problem, Route, Routes
from controller.planning.programme import Programme
from controller.planning.split_flows.commodities import Commodities
from controller.planning.split_flows.dividing import SMALLEST_SHARE, divided, exactly_one
from controller.planning.split_flows.lp import FluidModel, Goal, ranks

_ROUNDS = 60
_LAST_PROGRAMMES = 3
"""Number of programmes for which there must be time. With less time, all flows are closed."""
_EXCESS_COST, _SURPLUS_COST = 1e4, 20.0
"""Cost of a slowdown of 1 beyond the lower bound, and cost of a whole flow on a surplus path."""
_NOISE = 0.3
"""Largest relative increase of a price by a random number. Random increases make attempts differ."""
_STEEP = 6
"""Exponent of prices before the first programme: a link costs (its load / the worst load) ** ``_STEEP``."""
_WITHOUT_GAIN = 3
"""Number of rounds in a row without a smaller slowdown, after which the search ends."""
_CONCENTRATE_S = 0.8e-3
"""Seconds per flow that an attempt needs which begins with a fluid optimum."""
_MOST_SUMS = 20_000_000


def shared(
    problem: Problem, start: Routes, least: float, limits: PlanLimits, attempts: int
) -> dict[FlowId, Route] | None:
    """Return routes with a smaller worst slowdown than ``start``; None when none are found.

    ``start``: a route for every flow that has a candidate. ``least``: lower bound of the worst slowdown. Moves do not
    count. ``attempts``: largest number of attempts."""
    numbers = problem.numbers
    routed = [flow for flow in numbers.crossing.tolist() if problem.flows[flow].id in start]
    phases = np.bincount(numbers.cell_job, minlength=len(numbers.job_ids))
    if not routed or len(problem.paths.far_end) * int(phases.max() * (1 + (phases > 1).sum())) > _MOST_SUMS:
        return None
    search = _Sharing(problem, start, PathChoices(problem, NextHops(problem, routed)), limits.seed)
    return search.routes() if search.listed and search.run(least, limits, attempts) else None


class _Sharing:
    """Columns (a flow on a path) with their shares. Links have the numbers of ``NextHops``."""

    def __init__(self, problem: Problem, start: Routes, choices: PathChoices, seed: int) -> None:
        self._problem, self._start, self._next_hops = problem, start, choices.next_hops
        self._random = np.random.default_rng(seed)
        self._table = table = PathTable(problem, choices)
        self._pair, self._paths, self._row, self._bps = table.pair, table.paths, table.row, table.bps
        self._most = problem.numbers.most[self._next_hops.flows]
        self._capacity = self._next_hops.capacity_bps
        self._shape = (1 + int(self._row.max()), len(self._capacity), self._bps.shape[1])
        self._flow, self._path, self._share = self._table.columns(start)
        self._fluid: FluidModel | None = None
        self.listed = bool((self._path >= 0).all())
        """Whether ``PathChoices.options`` has all paths of the start. If not, there is no search."""

    # ---- loads

    def _sums(self, columns: Ints, shares: Floats) -> Floats:
        """Return the bit/s of these columns by row, link and phase."""
        flow = self._flow[columns]
        links = self._paths[self._pair[flow], self._path[columns]]
        sums = np.zeros(self._shape)
        bps = shares[:, None] * self._bps[flow]
        np.add.at(sums, (self._row[flow][:, None], links), bps[:, None])
        return sums

    def _loads(self, sums: Floats) -> Floats:
        """Return the load of each link; in row 0 all phases add up, because they belong to different jobs."""
        loads: Floats = (sums[0].sum(axis=1) + sums[1:].max(axis=2).sum(axis=0)) / self._capacity
        return loads

    # ---- rounds

    def run(self, least: float, limits: PlanLimits, attempts: int) -> bool:
        """Lower the worst slowdown until it is ``least`` or the time is over; return whether it got smaller.

        Attempts begin with a fluid optimum on few paths per flow, or with the best shares."""
        begin = worst = self._worst
        best = self._flow, self._path, self._share
        for attempt in range(attempts):
            if worst <= least * (1 + SLOWDOWN_TOLERANCE) or limits.left_s <= 0:
                break
            concentrates = attempt % 3 == 0 and limits.left_s > _CONCENTRATE_S * len(self._most)
            if not concentrates or not self._concentrate(least, replace(limits, seed=limits.seed + attempt)):
                self._flow, self._path, self._share = best
            self._lower(least, limits)
            if self._worst < worst:
                worst, best = self._worst, (self._flow, self._path, self._share)
        self._flow, self._path, self._share = best
        return worst < begin * (1 - SLOWDOWN_TOLERANCE)

    def _concentrate(self, least: float, limits: PlanLimits) -> bool:
        """Replace the columns by those of a fluid optimum; return False when there is none.

        The module describes the closing of flows. A closed flow keeps the paths with its largest shares, and is offered
        no further paths."""
        self._fluid = self._fluid or FluidModel(Commodities(self._problem))
        of = self._fluid.of
        amounts = self._fluid.concentrated(Goal(least * of.capacity, of.capacity), limits)
        if amounts is None:
            return False
        columns = self._table.columns({**self._start, **divided(of, amounts, SMALLEST_SHARE)})
        if (columns[1] < 0).any():
            return False
        self._flow, self._path, self._share = columns
        closed, all_flows, prices = np.zeros(len(self._most), bool), np.arange(len(self._most)), None
        while True:
            if prices is not None:
                self._offer(prices, np.flatnonzero(~closed))
            begin_s, first = limits.left_s, prices is None
            prices = self._solve(all_flows, least, limits, np.where(self._surplus, _SURPLUS_COST, 0.0))
            self._keep(self._share > SMALLEST_SHARE)
            surplus = self._surplus
            done = not surplus.any() and not (first and self._worst > least * (1 + SLOWDOWN_TOLERANCE))
            if prices is None or done:
                self._keep(~surplus)
                return True
            share = np.bincount(self._flow, np.where(surplus, self._share, 0.0), len(self._most))
            least_first = np.argsort(share)[np.count_nonzero(share == 0) :]
            hurry = limits.left_s < _LAST_PROGRAMMES * (begin_s - limits.left_s)
            closed[least_first if hurry else least_first[: max(1, len(least_first) // 2)]] = True
            self._keep(~closed[self._flow] | ~surplus)

    @property
    def _surplus(self) -> Bools:
        """Whether each column is on a surplus path: not among the paths with its flow's largest shares."""
        surplus: Bools = ranks(self._flow, self._share) >= self._most[self._flow]
        return surplus

    @property
    def _all_loads(self) -> Floats:
        return self._loads(self._sums(np.arange(len(self._flow)), self._share))

    @property
    def _worst(self) -> float:
        return float(self._all_loads.max())

    def _lower(self, least: float, limits: PlanLimits) -> None:
        """Solve programmes until the worst slowdown does not get smaller."""
        loads = self._all_loads
        worst = float(loads.max())
        prices = self._priced(np.zeros(self._shape), (loads / worst) ** _STEEP)
        without = 0
        for _ in range(_ROUNDS):
            if worst <= least * (1 + SLOWDOWN_TOLERANCE) or without == _WITHOUT_GAIN:
                return
            links = self._paths[self._pair[self._flow], self._path]
            movable = np.unique(self._flow[(loads[links] > least).any(axis=1)])
            more = movable[(self._most > np.bincount(self._flow))[movable]]
            self._offer(prices * (1 + _NOISE * self._random.random(prices.shape)), more)
            solved = self._solve(movable, least, limits)
            self._keep(self._share > SMALLEST_SHARE)
            if solved is None:
                return
            prices, loads = solved, self._all_loads
            without = without + 1 if loads.max() > worst * (1 - SLOWDOWN_TOLERANCE) else 0
            worst = float(loads.max())

    def _keep(self, columns: Bools) -> None:
        """Keep these columns only; the shares of each flow then add up to 1 again."""
        self._flow, self._path, self._share = self._flow[columns], self._path[columns], self._share[columns]
        self._share /= np.bincount(self._flow, self._share)[self._flow]

    def _priced(self, keys: Floats, links: Floats) -> Floats:
        """Return the price of each path of each flow; shape (flows, paths).

        ``keys``: price of one bit/s by row, link and phase. ``links``: price of one bit/s of a job that has no price
        of its own on the link."""
        paths = self._paths[self._pair]
        own = keys[self._row[:, None, None], paths]
        alone = ~own.any(axis=3)
        price = (own * self._bps[:, None, None]).sum(axis=3)
        price += np.where(alone, links[paths] * self._bps.max(axis=1)[:, None, None], 0.0)
        total: Floats = price.sum(axis=2)
        total[self._table.missing[self._pair]] = np.inf
        return total

    def _offer(self, prices: Floats, flows: Ints) -> None:
        """Add the cheapest other path of each of these flows."""
        prices[self._flow, self._path] = np.inf
        best = prices[flows].argmin(axis=1)
        offered = np.isfinite(prices[flows, best])
        self._flow = np.append(self._flow, flows[offered])
        self._path = np.append(self._path, best[offered])
        self._share = np.append(self._share, np.zeros(np.count_nonzero(offered)))

    def _solve(self, movable: Ints, least: float, limits: PlanLimits, costs: Floats | None = None) -> Floats | None:
        """Set the shares that minimise the worst slowdown; return the prices of all paths, None when time runs out.

        ``least``: slowdown below which there is no gain. ``costs``: cost of a share of 1 of each column, if any."""
        changing = np.isin(self._flow, movable)
        columns, fixed = np.flatnonzero(changing), np.flatnonzero(~changing)
        base = self._sums(fixed, self._share[fixed])
        links = np.flatnonzero(self._loads(base + self._sums(columns, np.ones(len(columns)))) > least)
        full = np.zeros(len(self._capacity), bool)
        full[links] = True
        programme = Programme()
        excess = programme.variables(np.full(1, _EXCESS_COST), np.full(1, np.inf))
        cost = np.zeros(len(columns)) if costs is None else costs[columns]
        share = programme.variables(cost, np.full(len(columns), np.inf))
        flows, place = np.unique(self._flow[columns], return_inverse=True)
        whole = programme.constraints(np.ones(len(flows)), np.ones(len(flows)))
        programme.add(whole + place, share + np.arange(len(columns)), np.ones(len(columns)))
        # ---- terms: (column, link, phase)
        of = self._flow[columns]
        on = self._paths[self._pair[of], self._path[columns]]
        column, hop, phase = np.nonzero(full[on][:, :, None] & (self._bps[of] > 0)[:, None, :])
        link, row, bps = on[column, hop], self._row[of[column]], self._bps[of[column], phase]
        # ---- a constraint per link; each job with several phases loads it with a variable beyond its fixed peak
        count = len(self._capacity)
        at = np.full(count, -1)
        load = programme.constraints(np.full(len(links), -np.inf), least - self._loads(base)[links])
        at[links] = load + np.arange(len(links))
        programme.add(at[links], np.full(len(links), excess), np.full(len(links), -1.0))
        single, several = np.flatnonzero(row == 0), np.flatnonzero(row > 0)
        rate = bps / self._capacity[link]
        programme.add(at[link[single]], share + column[single], rate[single])
        key_ids, key_of = np.unique(
            (row * count + link)[several] * self._shape[2] + phase[several], return_inverse=True
        )
        pair_ids, pair_of = np.unique(key_ids // self._shape[2], return_inverse=True)
        peak = programme.variables(np.zeros(len(pair_ids)), np.full(len(pair_ids), np.inf))
        programme.add(at[pair_ids % count], peak + np.arange(len(pair_ids)), np.ones(len(pair_ids)))
        keys = np.unravel_index(key_ids, self._shape)
        spare = base.max(axis=2)[keys[:2]] - base[keys]
        key = programme.constraints(np.full(len(key_ids), -np.inf), spare / self._capacity[keys[1]])
        programme.add(key + key_of, share + column[several], rate[several])
        programme.add(key + np.arange(len(key_ids)), peak + pair_of, np.full(len(key_ids), -1.0))
        solved = programme.solve(limits.left_s)
        if solved is None:
            return None
        values, duals = solved
        self._share[columns] = values[share : share + len(columns)]
        prices, of_link = np.zeros(self._shape), np.zeros(count)
        of_link[links] = -duals[load : load + len(links)] / self._capacity[links]
        prices[keys] = -duals[key : key + len(key_ids)] / self._capacity[keys[1]]
        prices[0] = of_link[:, None]
        return self._priced(prices, of_link)

    def routes(self) -> dict[FlowId, Route]:
        """Return the route of every flow. Flows within one leaf keep the route of the start."""
        shares: defaultdict[int, dict[int, float]] = defaultdict(dict)
        for flow, path, share in zip(self._flow.tolist(), self._path.tolist(), self._share.tolist(), strict=True):
            shares[flow][path] = share
        routes = dict(self._start)
        for flow, of in shares.items():
            paths = {self._next_hops.path(self._paths[self._pair[flow], path]): share for path, share in of.items()}
            routes[self._problem.flows[self._next_hops.flows[flow]].id] = exactly_one(paths)
        return routes
