"""Unchanged subflows of a plan keep their classes of source ports."""

from __future__ import annotations

import pytest

from controller.fabric.topology import Dpid, LinkId, Path, PortNo
from controller.planning.planned import in_place
from controller.planning.problem import Route, Subflow, whole

A, B, C = ((LinkId(Dpid(leaf), PortNo(1)),) for leaf in (1, 2, 3))


def route(*paths: Path) -> Route:
    return tuple(Subflow(path, 1 / len(paths)) for path in paths)


@pytest.mark.parametrize(
    ("planned", "running", "placed"),
    [
        (route(B, A), route(A, B), route(A, B)),
        (route(B, C), route(A, B), route(C, B)),
        (route(C, B, A), route(A, B), route(A, B, C)),
        (route(C, A), route(B, A, C), route(C, A)),
        (whole(B), route(A, B), whole(B)),
        (route(A, B), whole(B), route(B, A)),
        (route(B, A), None, route(B, A)),
    ],
)
def test_as_many_subflows_as_possible_stay_in_their_class(planned: Route, running: Route | None, placed: Route) -> None:
    assert in_place(planned, running) == placed


def test_shares_are_those_of_the_plan_and_a_route_that_stays_is_the_one_that_runs() -> None:
    running = (Subflow(A, 0.5), Subflow(B, 0.5))
    assert in_place((Subflow(B, 0.25), Subflow(A, 0.75)), running) == (Subflow(A, 0.75), Subflow(B, 0.25))
    assert in_place(route(A, B), running) is running
