"""Fluid optimum with few moves: a linear programme with generated columns.

In: commodities, amounts to start from, the room of each link. Out: the amounts, the excess, and the prices that prove
the excess.

A *spread* is the amount of each class of flows on each path (``commodities``). With these amounts as variables, the
programme would take seconds. Here the variables are changes of a given spread: ``more`` of a class on a path, or
``less`` on a path that the class uses. A nearly optimal spread, such as that of a colouring, needs few changes, and a
vertex solution leaves nearly all flows whole. Columns (variables) that lower the objective are added until there are no
more.

The *room* of a link is the load that it may have. The objective is the *excess*: the largest difference of load and
room over all links, plus the number of moved flows with a small weight.

Proof (Lagrange duality): take link prices y >= 0, each divided over a job's phases. Then every routing has a link whose
load is at least (sum over classes of flows * cheapest path) / (sum of y * capacity).

With thousands of columns PDLP is ten times as fast as GLOP. But the result of PDLP has an error, and spreads most flows
over all of their paths.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from controller.fabric.topology import LinkId
from controller.planning.bounds import Bounds
from controller.planning.problem import Bools, Floats, Ints, PlanLimits, Problem, Routes, run_ranks
from controller.planning.programme import Programme
from controller.planning.split_flows.commodities import COARSE, Commodities
from signalbox.jobs.spec import JobId

_ROUNDING = 1e-9
_FIRST_COLUMNS = 8_000
_MORE_COLUMNS = 4_000
"""Numbers of new columns at the start and per round.

The columns are divided among the classes that need columns, with at least four per class."""
_ROUNDS = 100
_EXCESS_COST = 1e5
"""Cost of an excess of 1, as a number of moved flows; it is larger than the number of all flows."""
_NEW = 0.1
"""Cost of changing the path of a flow that does not run yet, compared with 1 for a running flow.

Such a change is no move; its cost only keeps the number of subflows small."""
_RIGID = 10.0
"""Factor on the cost of a flow that must stay whole, because it cannot move in part."""
_NONE = 1e-7
"""Largest excess at which the search ends; the moves are then few enough, though not necessarily the fewest."""
_SMALL = 0.009
"""Largest excess at which the search ends after ``_STRICT_ROUNDS`` rounds."""
_STRICT_ROUNDS = 30
_AMPLE = 1.5
"""Ratio of the room on a class's paths to the load that the class must place there.

With at least this ratio, the other classes on these paths need not change."""
_LARGEST_PRICE = 10**9
SPARE_SHARE = 0.05
"""Share of a flow on a path at which a cost of using the path is half of its largest value."""
_FLOW_S, _PATH_S = 100e-6, 3e-6
"""Seconds until the first optimum is found: ``_FLOW_S`` per flow, plus ``_PATH_S`` per path between distant leaves.

Leaves are distant if they are more than two links apart. Measured on 64 leaves, and on a fat-tree with k = 16."""
_ERROR = 1e-6
"""Relative error of the objective, and of the constraints, with which a programme is nearly solved."""
_COARSE_ERROR, _CONCENTRATIONS = 1e-3, 3
"""Relative error of each programme of ``concentrated``, and number of these programmes."""
_CONCENTRATED, _LARGEST_COST, _RANDOM_COST = 100.0, 2.0, 0.02
"""Costs in ``concentrated``: of an excess of 1; largest cost of an amount of 1; largest random part of the latter."""
_MOST_COLUMNS = 100_000
"""Largest number of columns with which PDLP is fast."""
_LEAST_ROOM = 1e-6
"""Smallest room by which a load is divided; it takes the place of smaller rooms."""


@dataclass(frozen=True, slots=True)
class Goal:
    """Loads that links may have."""

    room: Floats
    """Load that each link may have, in the units of ``Commodities``."""
    stretch: Floats
    """Load by which the room of each link grows when the excess is 1."""
    moves_count: bool = True
    """Whether moves have a cost. If not, the objective is the excess alone, and the prices prove its minimum."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Amounts of classes on paths, and the duals of their programme."""

    amounts: Floats
    """Amount of each column, in flows."""
    excess: float
    key_prices: Floats
    """Dual price (>= 0) of a unit of load of each key."""
    link_prices: Floats
    """Dual price (>= 0) of a unit of load of each link."""
    near: bool = False
    """Whether the excess counts as zero: below ``_NONE``, or below ``_SMALL`` after ``_STRICT_ROUNDS`` rounds."""


class FluidModel:
    """Linear programme that improves spreads of the same commodities.

    ``shut``: per class whether it is restricted to the columns in ``offered``, the set of columns that such classes may
    use."""

    def __init__(self, commodities: Commodities, before: Routes = MappingProxyType({})) -> None:
        """Build the model. ``before``: routes from which spreads start."""
        self.of = commodities
        self._before: Floats = commodities.amounts(before)
        self.shut: Bools = np.zeros(len(commodities.members), bool)
        self.offered: set[int] = set()
        self._move_cost: Floats = np.where(commodities.running, 1.0, _NEW)
        self._move_cost[commodities.max_subflows == 1] *= _RIGID

    def improve(self, goal: Goal, limits: PlanLimits, start: Floats | None = None) -> Spread | None:
        """Return a better spread; None when the time ends before the first solution.

        ``start``: amount of each column; None for the routes ``before``. When the amounts of a class add up to less
        than its number of flows, the missing flows are placed too."""
        of = self.of
        start = of.padded(self._before if start is None else start)
        best: Spread | None = None
        more, less = self._first_columns(start, goal)
        for number in range(_ROUNDS):
            start = of.padded(start)
            solved = self._solve(start, goal, more, less, limits.left_s)
            if solved is None:
                break
            best, class_prices, in_model = solved
            if best.excess <= (_NONE if number < _STRICT_ROUNDS else _SMALL):
                best = replace(best, near=True)
                break
            paying_more, paying_less = self._columns_that_pay(start, goal, best, class_prices, in_model)
            fresh = np.setdiff1d(paying_more, more)
            if not len(fresh) and not len(np.setdiff1d(paying_less, less)):
                fresh = self._new_columns_that_pay(goal, best, class_prices, in_model)
                if not len(fresh):
                    break
            more, less = np.union1d(more, fresh), np.union1d(less, paying_less)
        return best and replace(best, amounts=of.padded(best.amounts))

    def optimum(self, goal: Goal, limits: PlanLimits, *, nearly: bool = True) -> Spread | None:
        """Return the best spread over all columns; None when time runs out.

        If there are very many columns, or paths that are no candidates, the search starts from the routes ``before``.
        ``nearly``: whether the optimum may have a relative error of ``_ERROR``. If False, the spread is a vertex, which
        uses few columns."""
        of = self.of
        if of.size() > _MOST_COLUMNS:
            return self.improve(goal, limits)
        of.open()
        if of.cut.any():
            return self.improve(goal, limits)
        all_columns, none = np.arange(of.columns), np.zeros(0, np.int64)
        error = _ERROR if nearly else 0.0
        solved = self._solve(np.zeros(of.columns), goal, all_columns, none, limits.left_s, error=error)
        if solved is None:
            return None
        return replace(solved[0], amounts=self._complete(solved[0].amounts))

    def concentrated(self, goal: Goal, limits: PlanLimits) -> Floats | None:
        """Return the amounts of columns that nearly keep to the goal, with few columns per class.

        Several programmes are solved. In each, the columns with small amounts in the previous one cost most (Candès,
        Wakin and Boyd, "Enhancing sparsity by reweighted l1 minimization", 2008). The largest columns of a class, as
        many as its flows can use, cost nothing. Return None without time, or where ``optimum`` starts from routes."""
        of, random = self.of, np.random.default_rng(limits.seed)
        if of.size() > _MOST_COLUMNS:
            return None
        of.open()
        if of.cut.any():
            return None
        most = (of.count * (of.max_subflows - 1) + 1)[of.column_class]
        costs, amounts = random.random(of.columns), None
        all_columns, none = np.arange(of.columns), np.zeros(0, np.int64)
        for number in range(_CONCENTRATIONS):
            solved = self._solve(
                np.zeros(of.columns),
                goal,
                all_columns,
                none,
                limits.left_s,
                error=_COARSE_ERROR,
                costs=(_CONCENTRATED, costs),
            )
            if solved is None:
                break
            amounts = self._complete(solved[0].amounts)
            share = amounts / of.count[of.column_class]
            costs = _LARGEST_COST / (1 + share / SPARE_SHARE)
            if number:
                costs[ranks(of.column_class, share) < most] = 0.0
            costs += _RANDOM_COST * random.random(of.columns)
        return amounts

    def _complete(self, amounts: Floats) -> Floats:
        """Return amounts that add up to the number of flows of each class."""
        of = self.of
        complete: Floats = (
            amounts * (of.count / np.bincount(of.column_class, amounts, len(of.members)))[of.column_class]
        )
        return complete

    def fullness(self, room: Floats) -> float:
        """Return the largest quotient (at least 1) of the load and the room of a link, under the routes ``before``."""
        loads = self.of.link_loads(self.of.loads(self.of.padded(self._before)))
        return float((loads / np.maximum(room, _LEAST_ROOM)).max(initial=1.0))

    def lower_bound(self, spread: Spread) -> tuple[float, list[int]]:
        """Return (bound, tight classes): a lower bound of the worst link load that the prices of the spread prove.

        The load is relative to the link's capacity. The bound holds for every routing, however flows are split. In
        every routing that reaches the bound, each tight class uses a link whose load equals the bound."""
        of = self.of
        total = float(spread.link_prices @ of.capacity)
        if total <= 0:
            return 0.0, []
        cheapest = np.full(len(of.members), np.inf)
        np.minimum.at(cheapest, of.column_class, of.prices(spread.key_prices))
        cheapest[~of.opened] = 0.0
        if of.cut.any():
            cut, prices, _ = of.cheapest_walks(spread.key_prices)
            cheapest[cut] = np.minimum(cheapest[cut], prices)
        bound = float(cheapest @ of.count) / total / (1 + COARSE)
        return bound, np.flatnonzero(cheapest > _ROUNDING * total).tolist()

    def vector(self, spread: Spread, bounds: Bounds) -> tuple[float, ...]:
        """Return lower bounds of the sorted slowdowns: ``bounds.vector``, or stronger ones that the prices prove."""
        bound, classes = self.lower_bound(spread)
        if bound <= bounds.worst:
            return bounds.vector
        of = self.of
        return bounds.with_worst(bound, {of.flows[index].job_id for tight in classes for index in of.members[tight]})

    def _costs(self, goal: Goal) -> tuple[float, Floats]:
        return (_EXCESS_COST, self._move_cost) if goal.moves_count else (1.0, np.zeros(len(self._move_cost)))

    # ---- columns

    def _first_columns(self, start: Floats, goal: Goal) -> tuple[Ints, Ints]:
        """Return the columns that may get a larger amount, and the columns that may get a smaller amount.

        The columns belong to classes that are not fully placed or use links without room. When their paths do not have
        enough room either, the other classes on these paths are added. With few columns, all columns are returned."""
        of = self.of
        spare = goal.room - of.link_loads(of.loads(start))
        over = spare < -_ROUNDING
        to_place = of.count - np.bincount(of.column_class, start, len(of.members))
        leaving = np.where(of.touching(over), start, 0.0)
        to_place += np.bincount(of.column_class, leaving, len(of.members))
        changing = to_place > _ROUNDING
        if not changing.any():
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        if of.size() <= _FIRST_COLUMNS:
            changing[:] = True
        more = self._columns_with_most_room(changing, spare)
        room = np.bincount(of.column_class[more], np.maximum(0.0, of.least(spare)[more]), len(of.members))
        short = room < _AMPLE * to_place * of.rate
        if short.any() and not changing.all():
            short_links = np.zeros(of.links, bool)
            _, keys, _ = of.terms(more[short[of.column_class[more]]])
            short_links[keys % of.links] = True
            over |= short_links
            changing[of.column_class[of.touching(short_links) & (of.padded(start) > 0)]] = True
            more = self._columns_with_most_room(changing, spare)
        start = of.padded(start)
        return more, np.flatnonzero((start > 0) & (of.touching(over) | changing.all()))

    def _columns_with_most_room(self, classes: Bools, spare: Floats) -> Ints:
        self.of.open(classes & ~self.shut)
        choice = np.flatnonzero(classes[self.of.column_class] & self._allowed())
        return _best_per_class(choice, self.of.column_class, -self.of.least(spare), _FIRST_COLUMNS)

    def _columns_that_pay(
        self, start: Floats, goal: Goal, spread: Spread, class_prices: Floats, in_model: Bools
    ) -> tuple[Ints, Ints]:
        """Return columns that would lower the objective; classes outside the model leave their dearest paths."""
        of = self.of
        excess_cost, move_cost = self._costs(goal)
        tolerance = _ROUNDING * excess_cost
        has = np.flatnonzero(start > 0)
        highest = np.zeros(len(of.members))
        np.maximum.at(highest, of.column_class[has], of.prices(spread.key_prices)[has])
        self.of.open((highest > move_cost + tolerance) & ~self.shut)
        prices = of.prices(spread.key_prices)
        paid = np.where(in_model, class_prices, highest)[of.column_class]
        gain = paid - prices - move_cost[of.column_class]
        more = np.flatnonzero((gain > tolerance) & self._allowed())
        leaves = in_model.copy()
        leaves[of.column_class[more]] = True
        less = has[(leaves[of.column_class] & (prices >= paid - tolerance))[has]]
        return _best_per_class(more, of.column_class, -gain, _MORE_COLUMNS), less

    def _new_columns_that_pay(self, goal: Goal, spread: Spread, class_prices: Floats, in_model: Bools) -> Ints:
        """Return new columns that would lower the objective, on shortest paths that are no candidates."""
        of, known = self.of, self.of.columns
        if (of.cut & in_model & ~self.shut).any():
            excess_cost, move_cost = self._costs(goal)
            for number, price, path in zip(*of.cheapest_walks(spread.key_prices), strict=True):
                gain = class_prices[number] - price - move_cost[number]
                if gain > _ROUNDING * excess_cost and in_model[number] and not self.shut[number]:
                    of.column(int(number), path)
            of.number_columns()
        return np.arange(known, of.columns)

    def _allowed(self) -> Bools:
        allowed: Bools = ~self.shut[self.of.column_class]
        allowed[list(self.offered)] = True
        return allowed

    # ---- the programme

    def _solve(
        self,
        start: Floats,
        goal: Goal,
        more: Ints,
        less: Ints,
        seconds: float,
        *,
        error: float = 0.0,
        costs: tuple[float, Floats] | None = None,
    ) -> tuple[Spread, Floats, Bools] | None:
        """Return the spread, the prices of classes, and whether each class was in the model; None when time runs out.

        The price of a class is the cost of one more flow of it. ``error``: see ``Programme.solve``. ``costs``: cost of
        an excess of 1, and of one flow on each column of ``more``; None for those of the goal."""
        of = self.of
        programme = Programme()
        excess_cost, move_cost = self._costs(goal)
        excess_cost, more_cost = costs or (excess_cost, move_cost[of.column_class[more]])
        excess = programme.variables(np.array([excess_cost]), np.array([np.inf]))
        moved = np.concatenate([more, less])
        sign = np.concatenate([np.ones(len(more)), -np.ones(len(less))])
        cost = np.concatenate([more_cost, np.zeros(len(less))])
        first = programme.variables(cost, np.concatenate([np.full(len(more), np.inf), start[less]]))

        classes, class_row = np.unique(of.column_class[moved], return_inverse=True)
        missing = (of.count - np.bincount(of.column_class, start, len(of.members)))[classes]
        of_classes = programme.constraints(missing, missing)
        programme.add(of_classes + class_row, first + np.arange(len(moved)), sign)

        terms = [of.terms(more), of.terms(less)]
        index, keys, rates = (np.concatenate(pair) for pair in zip(*terms, strict=True))
        index[len(terms[0][0]) :] += len(more)
        loads = of.loads(start)
        full = np.flatnonzero(of.link_loads(loads) > goal.room)
        rows = _LoadRows(of, programme, loads, keys, np.union1d(keys % of.links, full), goal.room)
        programme.add(rows.of_key[keys], first + index, rates * sign[index])
        programme.add(rows.of_key[rows.links], np.full(len(rows.links), excess), -goal.stretch[rows.links])

        solved = programme.solve(seconds, error=error)
        if solved is None:
            return None
        values, duals = solved
        amounts = start.copy()
        np.add.at(amounts, moved, sign * values[first : first + len(moved)])
        class_prices, in_model = np.zeros(len(of.members)), np.zeros(len(of.members), bool)
        class_prices[classes] = duals[of_classes : of_classes + len(classes)]
        in_model[classes] = True
        spread = Spread(np.maximum(amounts, 0.0), float(values[excess]), *rows.prices(duals))
        return spread, class_prices, in_model


class _LoadRows:
    """Constraints that keep loads within the rooms.

    Every link in ``links`` has one constraint. When the largest load of a job's phases on such a link depends on the
    routing, this load is a variable with a constraint per phase.

    ``of_key``: number of the constraint of each key, -1 for a key without a constraint."""

    def __init__(
        self, of: Commodities, programme: Programme, loads: Floats, keys: Ints, links: Ints, room: Floats
    ) -> None:
        self._of = of
        self.links = links
        self._by_row = loads.reshape(of.rows, of.links)
        peaks = np.maximum.reduceat(self._by_row, of.first_rows, axis=0)
        group = of.row_group[keys // of.links]
        pairs = np.unique(group[group > 0] * of.links + (keys % of.links)[group > 0])
        self._group, self._link = pairs // of.links, pairs % of.links
        fixed = peaks.sum(axis=0)
        np.subtract.at(fixed, self._link, peaks[self._group, self._link])
        self.of_key = np.full(of.rows * of.links, -1, np.int64)
        self.of_key[links] = programme.constraints(np.full(len(links), -np.inf), (room - fixed)[links]) + np.arange(
            len(links)
        )
        peak = programme.variables(np.zeros(len(pairs)), np.full(len(pairs), np.inf))
        programme.add(self.of_key[self._link], peak + np.arange(len(pairs)), np.ones(len(pairs)))
        for row in range(1, of.rows):
            here = np.flatnonzero(self._group == of.row_group[row])
            those = row * of.links + self._link[here]
            first = programme.constraints(np.full(len(here), -np.inf), -loads[those])
            self.of_key[those] = first + np.arange(len(here))
            programme.add(self.of_key[those], peak + here, np.full(len(here), -1.0))

    def prices(self, duals: Floats) -> tuple[Floats, Floats]:
        """Return the prices per key and per link; the phases of a job share the price of their link.

        Where phases have no constraints of their own, the phase with the largest load has the whole price."""
        of = self._of
        on_link = np.zeros(of.links)
        on_link[self.links] = np.maximum(0.0, -duals[self.of_key[self.links]])
        by_row = np.zeros((of.rows, of.links))
        by_row[0] = on_link
        for group, start in enumerate(of.first_rows.tolist()):
            if not group:
                continue
            rows = np.flatnonzero(of.row_group == group)
            by_row[start + self._by_row[rows].argmax(axis=0), np.arange(of.links)] = on_link
            here = self._link[self._group == group]
            shares = np.maximum(0.0, -duals[self.of_key[rows[:, None] * of.links + here]])
            excess = np.maximum(1.0, shares.sum(axis=0) / np.maximum(on_link[here], np.finfo(float).tiny))
            by_row[rows[:, None], here] = shares / excess
        return by_row.ravel(), on_link


def _best_per_class(columns: Ints, class_of: Ints, cost: Floats, most: int) -> Ints:
    """Return the cheapest columns of every class, about ``most`` in total, ascending."""
    order = columns[np.lexsort((cost[columns], class_of[columns]))]
    classes = class_of[order]
    rank = np.arange(len(order)) - np.searchsorted(classes, classes)
    best: Ints = np.sort(order[rank < max(4, most / max(1, len(np.unique(classes))))])
    return best


def ranks(owner: Ints, values: Floats) -> Ints:
    """Return the position of each value among those of its owner, the largest first."""
    order = np.lexsort((-values, owner))
    rank = np.empty(len(order), np.int64)
    rank[order] = run_ranks(owner[order])
    return rank


# ---- bounds and the prices of a proof


def fits(problem: Problem, limits: PlanLimits, stage: str, optima: int = 1) -> bool:
    """Return whether there is time to compute the candidate paths and then to find ``optima`` fluid optima.

    The call also computes candidate paths of distant leaves, sometimes of thousands of pairs, as far as time allows.
    The paths are kept, so the next call continues where this call ended."""
    paths = problem.paths
    pairs = dict.fromkeys((flow.src_leaf, flow.dst_leaf) for flow in problem.flows)
    far = [pair for pair in pairs if (paths.distance(*pair) or 0) > 2]
    listed = sum(min(paths.max_paths, len(paths.links_from(src)) ** 2) for src, _ in far)
    seconds = optima * (_FLOW_S * len(problem.flows) + _PATH_S * listed)
    for pair in far:
        if limits.left_s <= seconds:
            break
        paths.between(*pair)
    return limits.allows(stage, seconds)


def fluid_bound(problem: Problem, routes: Routes, bounds: Bounds, limits: PlanLimits) -> tuple[float, ...]:
    """Return lower bounds of the sorted slowdowns of any routing, at least as strong as ``bounds.vector``.

    ``routes``: routes from which the search for the fluid optimum starts."""
    of = Commodities(problem)
    fluid = FluidModel(of, routes)
    spread = fluid.optimum(Goal(bounds.worst * of.capacity, of.capacity, moves_count=False), limits)
    return bounds.vector if spread is None else fluid.vector(spread, bounds)


class Prices(NamedTuple):
    """Price of each link, and how jobs with several phases divide it."""

    prices: list[tuple[LinkId, int]]
    phases: list[tuple[JobId, int, LinkId, int]]
    """Parts of prices, each as (job, phase, link, part of the price)."""


def dual_prices(problem: Problem, routes: Routes, limits: PlanLimits) -> Prices | None:
    """Return integer prices that prove the smallest possible worst slowdown, however flows are split.

    Return None when time runs out, or when no link needs a price."""
    of = Commodities(problem)
    if not of.flows:
        return None
    spread = FluidModel(of, routes).improve(Goal(of.capacity, of.capacity, False), limits.begun())
    if spread is None or not spread.link_prices.any():
        return None
    links, scale = list(problem.link_number), _LARGEST_PRICE / float(spread.link_prices.max())
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
