"""Division of amounts per path into the subflows of single flows.

The flows of a class are bins of size 1. The amounts of its paths are laid into them and cut where a bin is full. This
is McNaughton's wrap-around rule ("Scheduling with deadlines and loss functions", 1959). In any order, n flows on m
paths need at most n + m - 1 subflows. The order decides how many subflows a single flow gets. Here every bin takes its
part of the small amounts, and is filled up from the largest amount.

In: amounts that add up to the number of flows, and the previous routes of the flows. Out: a route per flow."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence

from controller.fabric.topology import Path
from controller.planning.problem import Route, Subflow, whole

SMALLEST_SHARE = 1e-5
"""Smallest share of a flow that becomes a subflow; the bytes of a smaller share are added to another subflow."""
_ROUNDING = 1e-7


def lay(amounts: Mapping[Path, float], before: Sequence[Route | None], most: int) -> list[Route] | None:
    """Return routes of ``len(before)`` flows with at most ``most`` subflows each; None when the rule finds none.

    ``amounts``: amount to lay on each path. ``before``: previous route of each flow; as many routes as possible stay
    unchanged."""
    kept = _unchanged(amounts, before)
    while True:
        rest = dict(amounts)
        for index in kept:
            for path, share in before[index] or ():
                rest[path] -= share
        packed = _pack(rest, len(before) - len(kept), most)
        if packed is not None:
            routes = iter(packed)
            return [(before[i] or ()) if i in kept else next(routes) for i in range(len(before))]
        if not kept:
            return None
        kept.remove(_one_to_change(kept, before, rest))


def lay_nearest(amounts: Mapping[Path, float], flows: int, most: int) -> list[Route]:
    """Return routes with at most ``most`` subflows each for amounts for which ``lay`` finds no routes.

    The routes use the paths with the largest amounts."""
    if most == 1:
        return [whole(path) for path in _nearest_whole(amounts, flows)]
    largest = sorted(amounts.items(), key=lambda item: -item[1])
    paths = min(len(largest) - 1, flows * (most - 1) + 1)
    while True:
        some = dict(largest[:paths])
        scale = flows / sum(some.values())
        routes = lay({path: amount * scale for path, amount in some.items()}, [None] * flows, most)
        if routes is not None:
            return routes
        paths -= 1


def _nearest_whole(amounts: Mapping[Path, float], flows: int) -> list[Path]:
    """Return a path per flow: the amounts are rounded to whole flows, the largest remainders upwards."""
    counts = {path: int(amount + _ROUNDING) for path, amount in amounts.items()}
    up = sorted(amounts, key=lambda path: counts[path] - amounts[path])
    for path in up[: flows - sum(counts.values())]:
        counts[path] += 1
    return [path for path, count in counts.items() for _ in range(count)]


def _unchanged(amounts: Mapping[Path, float], before: Sequence[Route | None]) -> set[int]:
    """Return flows (indices) that can keep their routes in ``before``: together these fit into the amounts."""
    kept = {index for index, route in enumerate(before) if route}
    over: defaultdict[Path, float] = defaultdict(float)
    users: defaultdict[Path, list[tuple[float, int]]] = defaultdict(list)
    for index in sorted(kept):
        for path, share in before[index] or ():
            over[path] += share
            users[path].append((share, index))
    for path in over:
        over[path] -= amounts.get(path, 0.0)
    for path, those in users.items():
        for _, index in sorted(those, reverse=True):
            if over[path] <= _ROUNDING:
                break
            if index in kept:
                kept.remove(index)
                for other, share in before[index] or ():
                    over[other] -= share
    return kept


def _one_to_change(kept: set[int], before: Sequence[Route | None], rest: Mapping[Path, float]) -> int:
    """Return the flow to lay again: the flow with the fewest paths that have no amount left.

    Laying it again adds the fewest paths to those with an amount left."""

    def new_paths(index: int) -> int:
        return sum(rest.get(path, 0.0) <= _ROUNDING for path, _ in before[index] or ())

    return min(sorted(kept), key=new_paths)


def _pack(amounts: Mapping[Path, float], bins: int, most: int) -> list[Route] | None:
    items = sorted((amount, path) for path, amount in amounts.items() if amount > SMALLEST_SHARE)
    routes = []
    for left in range(bins, 0, -1):
        route = _fill(items, left, most)
        if route is None:
            return None
        routes.append(route)
        items.sort()
    return routes


def _fill(items: list[tuple[float, Path]], bins: int, most: int) -> Route | None:
    """Remove one flow's subflows from ``items``, which are ascending, and return its route; None when it does not fit.

    ``bins``: number of flows that are left, including this one."""
    shares: defaultdict[Path, float] = defaultdict(float)
    room = 1.0
    whole = next((i for i, (amount, _) in enumerate(items) if _is_whole(amount)), None)
    if whole is not None:
        amount, path = items.pop(whole)
        if amount > 1.5:
            items.append((amount - 1, path))
        return (Subflow(path, 1.0),)
    small = len(items) if bins == 1 else math.ceil((len(items) - 1) / bins)
    for _ in range(min(small, most - 1)):
        if not items or items[0][0] > room:
            break
        amount, path = items.pop(0)
        shares[path] += amount
        room -= amount
    while room > SMALLEST_SHARE and items and len(shares) < most:
        amount, path = items.pop()
        taken = min(room, amount)
        shares[path] += taken
        room -= taken
        if amount - taken > SMALLEST_SHARE:
            items.append((amount - taken, path))
    if room > SMALLEST_SHARE or (bins == 1 and items):
        return None
    return exactly_one(shares)


def _is_whole(amount: float) -> bool:
    return amount > 0.5 and abs(amount - round(amount)) <= _ROUNDING


def exactly_one(shares: Mapping[Path, float]) -> Route:
    """Return a route with these shares, the largest first, corrected for rounding so that they add up to 1."""
    total = sum(shares.values())
    subflows = sorted(((share / total, path) for path, share in shares.items()), key=lambda subflow: -subflow[0])
    first = 1.0 - sum(share for share, _ in subflows[1:])
    return (Subflow(subflows[0][1], first), *(Subflow(path, share) for share, path in subflows[1:]))
