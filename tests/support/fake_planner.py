"""The planner without its process; messages are still packed, pickled and unpacked on the way."""

import pickle
from dataclasses import replace
from typing import TypeVar

from controller.core.messages import Message
from controller.planning.answers import Answers, slowdowns_of
from controller.planning.messages import PlanningRequest, WorkOutSlowdowns
from controller.planning.plan import GoalPlan, Planned
from controller.planning.snapshot import (
    NO_SNAPSHOT,
    Snapshot,
    changed,
    changes,
    in_parts,
    in_parts_without_routes,
    with_routes,
)

Kind = TypeVar("Kind")
LIMIT_S = 0.02
"""Time limit that searches count in steps: enough for the small fabrics of tests."""


class FakePlanner:
    """Planner that answers at once.

    ``goals``: all goal plans so far, by the generation of the planning cycle that produced them."""

    def __init__(self) -> None:
        self.goals: dict[int, GoalPlan] = {}
        self._answers = Answers()
        self._sent = self._received = NO_SNAPSHOT

    def answers(self, request: PlanningRequest) -> list[Message]:
        """Return the answers to a request of the control loop.

        They are a repair, if there is one, the plan, and the slowdowns of the running jobs."""
        there = self._over_there(request.snapshot)
        received = replace(request, snapshot=there)
        repaired, problem = self._answers.repair(received)
        if isinstance(received, WorkOutSlowdowns):
            found = slowdowns_of(problem, received.draws)
            return [passed(found)] if found else []
        received = replace(received, limits=replace(received.limits, time_limit_s=LIMIT_S, deterministic=True))
        planned = self._answers.plan(received, problem)
        self.goals |= self._answers.goals
        found = self._answers.running(received, problem, planned)
        answers = [self._back(answer, request.snapshot) for answer in (repaired, planned) if answer]
        return [*answers, *([passed(found)] if found else [])]

    def _over_there(self, snapshot: Snapshot) -> Snapshot:
        for part in in_parts(changes(self._sent, snapshot)):
            self._received = changed(self._received, passed(part))
        self._sent = snapshot
        return self._received

    def _back(self, answer: Planned, asked: Snapshot) -> Message:
        parts, rest = passed(in_parts_without_routes(answer, self._received.routes))
        found = {flow: route for part in parts for flow, route in part.items()}
        return with_routes(rest, found, asked.routes)


def passed(message: Kind) -> Kind:
    """Return the message as another process would receive it."""
    arrived: Kind = pickle.loads(pickle.dumps(message))
    return arrived
