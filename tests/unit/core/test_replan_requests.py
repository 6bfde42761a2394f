"""Requests for plans that arrive faster than the planner solves them."""

from __future__ import annotations

from typing import Any, TypeVar

import pytest

from controller.config import Config, FabricConfig
from controller.jobs.messages import RegisterJob
from controller.planning.messages import ModeSet, Replan, ReplanOutcome, SetMode, SolvePlan
from signalbox.jobs.spec import JobId
from signalbox.words import Mode
from tests.support.fake_fabric import FABRIC_BPS, FakeFabric, ring_job

CONFIG = Config(fabric=FabricConfig(link_bps=FABRIC_BPS, host_link_bps=FABRIC_BPS))
HOSTS = [f"10.0.{leaf}.1" for leaf in range(1, 5)]
SOLVE_S = 0.5

T = TypeVar("T")


class SlowSolver(FakeFabric):
    """Fabric where every plan takes ``SOLVE_S`` seconds."""

    def __init__(self) -> None:
        super().__init__(4, 4, 1)
        self._asked: list[tuple[float, SolvePlan]] = []
        self.asked: list[SolvePlan] = []

    def _carry_out(self, command: Any) -> list[Any]:
        if isinstance(command, SolvePlan):
            self._asked.append((self.now, command))
            self.asked.append(command)
            return []
        return super()._carry_out(command)

    def run(self, seconds: float, step: float = 0.1) -> None:
        for _ in range(round(seconds / step)):
            super().run(step, step)
            while self._asked and self.now >= self._asked[0][0] + SOLVE_S - 1e-6:
                for answer in super()._carry_out(self._asked.pop(0)[1]):
                    self.send(answer)


def started() -> SlowSolver:
    fabric = SlowSolver()
    fabric.start(CONFIG)
    fabric.run(3)
    fabric.send(RegisterJob(ring_job("job", HOSTS, lease_s=600)))
    fabric.run(2)
    return fabric


def answers(fabric: FakeFabric, kind: type[T]) -> list[T]:
    return [reply.value for reply in fabric.replies if isinstance(reply.value, kind)]


def test_plans_are_taken_however_often_one_is_asked_for() -> None:
    fabric = started()
    before = fabric.status.plans_total
    for _ in range(25):
        fabric.send(Replan())
        fabric.run(0.4)
    assert fabric.status.plans_total - before >= 25 * 0.4 / (2 * SOLVE_S)
    fabric.run(2)
    assert len(answers(fabric, ReplanOutcome)) == 25, "each is answered"


@pytest.mark.parametrize("cancelled", [False, True])
def test_a_plan_is_searched_again_for_an_operator_who_waits(cancelled: bool) -> None:
    fabric = started()
    first, second = Replan(), Replan()
    fabric.send(first)
    fabric.run(0.2)
    fabric.send(second)  # while the first request is solved
    if cancelled:
        second.reply.cancel()
    fabric.run(SOLVE_S + 2)
    assert [plan.anew for plan in fabric.asked[-2:]] == [True, not cancelled]


def test_modes_that_alternate_faster_than_plans_let_plans_through() -> None:
    fabric = started()
    before = fabric.status.plans_total
    for number in range(24):
        fabric.send(SetMode((Mode.SHADOW, Mode.PLANNED)[number % 2]))
        fabric.run(0.4)
    assert fabric.status.plans_total - before >= 24 * 0.4 / (2 * SOLVE_S)
    fabric.run(3)
    assert answers(fabric, ModeSet)[-1].mode is Mode.PLANNED
    assert fabric.status.jobs[JobId("job")].state == "pinned"


def test_plans_are_numbered_without_gaps() -> None:
    fabric = started()
    for _ in range(3):
        fabric.send(Replan())
        fabric.run(2)
    numbers = [asked.snapshot.generation for asked in fabric.asked]
    assert numbers == [*range(numbers[0], numbers[0] + 4)]
