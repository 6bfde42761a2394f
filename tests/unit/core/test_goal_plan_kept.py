"""A plan with more moves than a cycle may make is reached in several cycles, none of which makes a slowdown worse."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest

from controller.core.messages import Command, Message
from controller.fabric.topology import Dpid
from controller.jobs.messages import RegisterJob
from controller.planning.efficiency import SLOWDOWN_TOLERANCE, first_difference, job_slowdowns
from controller.planning.messages import SetMode
from controller.planning.plan import Planned
from signalbox.words import Mode
from tests.support.fake_fabric import ring_job
from tests.support.late_answers import LateAnswers
from tests.support.three_rings import CONFIG, started

LEAVES = SPINES = HOSTS = 4
SPINE = Dpid(257)
CAP = 4
CAPPED = CONFIG.model_copy(update={"planning": CONFIG.planning.model_copy(update={"max_moves": CAP})})
CYCLE_S = CONFIG.planning.interval_s
Slowdowns = tuple[float, ...]


class Recorded(LateAnswers):
    """Fabric that records the planner's answers.

    ``answers``: answers of the planner, without repairs."""

    def __init__(self) -> None:
        super().__init__(LEAVES, SPINES, HOSTS)
        self.answers: list[Planned] = []

    def _carry_out(self, command: Command) -> list[Message]:
        found = super()._carry_out(command)
        self.answers += [answer for answer in found if isinstance(answer, Planned) and not answer.repair]
        return found

    def slowdowns(self) -> Slowdowns:
        """Return the slowdowns under the routes that the switches have confirmed."""
        routes = {
            flow: route for job in self.status.jobs.values() for flow, route in job.routes.items() if route is not None
        }
        return tuple(sorted(job_slowdowns(self.asked[-1].snapshot.problem, routes).values(), reverse=True))


@pytest.fixture
def fabric() -> Recorded:
    """Return a fabric whose links are all filled by two jobs, each with two split rings."""
    fabric = started(Recorded(), config=CAPPED)
    for job in (0, 1):
        ips = [f"10.0.{leaf}.{host}" for host in (2 * job + 1, 2 * job + 2) for leaf in range(1, LEAVES + 1)]
        rings = [{"name": f"r{n}", "ranks": list(range(LEAVES * n, LEAVES * (n + 1)))} for n in (0, 1)]
        collective = {"algorithm": "ring_all_reduce", "groups": ["r0", "r1"], "bytes_per_iteration": 1_000_000}
        spec = ring_job(f"job{job}", ips, 600.0, groups=rings, collectives=[collective], max_subflows=2)
        fabric.send(RegisterJob(spec))
    fabric.run(CYCLE_S)
    assert fabric.slowdowns() == pytest.approx((1.0, 1.0))
    fabric.answers.clear()
    return fabric


def cycles(fabric: Recorded) -> list[Slowdowns]:
    """Return the slowdowns after each cycle that moved a flow."""
    found: list[Slowdowns] = []
    for _ in range(6 * round(CYCLE_S)):
        moved = fabric.status.moved_flows_total
        fabric.run(1)
        assert fabric.status.moved_flows_total - moved <= CAP
        if fabric.status.moved_flows_total > moved:
            found.append(fabric.slowdowns())
    return found


def assert_never_worse(found: list[Slowdowns]) -> None:
    for before, after in pairwise(found):
        index = first_difference(before, after)
        assert index is None or after[index] < before[index]


def test_the_bound_is_reached_when_a_spine_dies_and_when_it_returns(fabric: Recorded) -> None:
    for change, bound in ((fabric.lose, LEAVES / (SPINES - 1)), (fabric.connect, 1.0)):
        fabric.answers.clear()
        change(SPINE)
        found = cycles(fabric)
        assert found[-1][0] <= bound * (1 + SLOWDOWN_TOLERANCE)
        assert_never_worse(found)
        goals = [fabric.planner.goals[answer.goal.generation] for answer in fabric.answers if answer.goal]
        assert goals or bound == 1.0, "it takes several cycles"
        assert len(found) <= math.ceil(goals[0].plan.moves / CAP if goals else 1) + 1
        assert fabric.loop.state.cycle.goal is None


def test_what_is_left_of_a_target_is_told(fabric: Recorded) -> None:
    fabric.lose(SPINE)
    fabric.run(1)
    goal = fabric.loop.state.cycle.goal
    assert goal
    assert (fabric.status.moves_left, fabric.status.blocked_flows) == (goal.moves, 0)
    assert f"when {goal.moves} flows more are moved" in fabric.status.plan_reason
    fabric.run(CYCLE_S)
    after = fabric.loop.state.cycle.goal
    goals = fabric.planner.goals
    same = after and goals[after.generation].plan is goals[goal.generation].plan
    assert after is None or (same and after.moves == goal.moves - CAP)


@pytest.mark.parametrize("mode", [Mode.ECMP, Mode.SHADOW])
def test_a_mode_that_installs_nothing_has_no_target(fabric: Recorded, mode: Mode) -> None:
    fabric.lose(SPINE)
    fabric.run(1)
    assert fabric.loop.state.cycle.goal
    fabric.send(SetMode(mode))
    fabric.run(1)
    assert fabric.loop.state.cycle.goal is None
