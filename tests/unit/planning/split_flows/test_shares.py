"""Amounts on paths become few subflows that add up exactly, and as many flows as possible stay unchanged."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.fabric.topology import Dpid, LinkId, Path, PortNo
from controller.planning.problem import Route, Subflow, whole
from controller.planning.split_flows.shares import SMALLEST_SHARE, lay, lay_nearest


def path(number: int) -> Path:
    return (LinkId(Dpid(1), PortNo(number)), LinkId(Dpid(100 + number), PortNo(1)))


def on_paths(*amounts: float) -> dict[Path, float]:
    return {path(number): amount for number, amount in enumerate(amounts)}


def laid_out(routes: Sequence[Route]) -> Mapping[Path, float]:
    total: defaultdict[Path, float] = defaultdict(float)
    for route in routes:
        for at, share in route:
            total[at] += share
    return total


@st.composite
def amounts(draw: st.DrawFn) -> tuple[dict[Path, float], int]:
    """Draw amounts on up to twelve paths that add up to a number of flows."""
    flows = draw(st.integers(1, 8))
    weights = draw(st.lists(st.floats(1e-3, 1.0), min_size=1, max_size=12))
    return on_paths(*(flows * weight / sum(weights) for weight in weights)), flows


def assert_valid(routes: Sequence[Route], most: int) -> None:
    for route in routes:
        assert 1 <= len(route) <= most
        assert len({at for at, _ in route}) == len(route)
        assert sum(share for _, share in route) == pytest.approx(1.0, abs=1e-12)
        assert min(share for _, share in route) >= SMALLEST_SHARE / 2


@given(amounts(), st.integers(1, 12))
def test_what_is_laid_is_what_was_there_in_as_few_subflows_as_the_wrap_around_rule_needs(
    given_amounts: tuple[dict[Path, float], int], most: int
) -> None:
    on, flows = given_amounts
    routes = lay(on, [None] * flows, most)
    if len(on) <= most:
        assert routes is not None
    if routes is None:
        return
    assert len(routes) == flows
    assert_valid(routes, most)
    assert laid_out(routes) == pytest.approx(on, abs=len(on) * SMALLEST_SHARE)
    assert sum(map(len, routes)) <= flows + len(on) - 1


@given(amounts(), st.integers(1, 12))
def test_the_nearest_routes_are_always_allowed_ones(given_amounts: tuple[dict[Path, float], int], most: int) -> None:
    on, flows = given_amounts
    routes = lay(on, [None] * flows, most) or lay_nearest(on, flows, most)
    assert len(routes) == flows
    assert_valid(routes, most)
    assert laid_out(routes).keys() <= on.keys()


def test_whole_amounts_are_whole_flows() -> None:
    routes = lay(on_paths(2.0, 1.0, 1.0), [None] * 4, 8)
    assert routes is not None
    assert sorted(routes) == sorted([whole(path(0)), whole(path(0)), whole(path(1)), whole(path(2))])


def test_small_amounts_are_shared_out_when_a_flow_may_have_few_subflows() -> None:
    routes = lay(on_paths(*[1.125] * 8), [None] * 9, 2)
    assert routes is not None
    assert max(map(len, routes)) == 2


def test_what_is_left_of_an_amount_takes_its_place_among_the_others() -> None:
    routes = lay(on_paths(9 / 17, 6 / 17, 18 / 17, 18 / 17), [None] * 3, 2)
    assert routes is not None
    assert_valid(routes, 2)


def test_routes_that_fit_stay() -> None:
    before = [whole(path(0)), (Subflow(path(1), 0.5), Subflow(path(2), 0.5)), whole(path(1))]
    assert lay(laid_out(before), before, 2) == before


def test_only_the_flow_whose_path_has_gone_is_laid_anew() -> None:
    before: list[Route | None] = [whole(path(0)), whole(path(1)), None]
    routes = lay(on_paths(1.25, 1.25, 0.5), before, 3)
    assert routes is not None
    assert routes[:2] == before[:2]
    assert dict(routes[2]) == pytest.approx(on_paths(0.25, 0.25, 0.5))


def test_a_flow_that_stays_is_laid_anew_when_the_others_would_have_too_many_subflows() -> None:
    before: list[Route | None] = [whole(path(0)), whole(path(1)), None]
    routes = lay(on_paths(1.25, 1.25, 0.5), before, 2)
    assert routes is not None
    assert_valid(routes, 2)
    assert laid_out(routes) == pytest.approx(on_paths(1.25, 1.25, 0.5))


def test_crumbs_are_left_out() -> None:
    routes = lay(on_paths(1.0 - SMALLEST_SHARE / 2, SMALLEST_SHARE / 2), [None], 8)
    assert routes == [whole(path(0))]
