"""Regular and halfway polls: each answered regular poll is evaluated once, whichever switch is late."""

from __future__ import annotations

import heapq
import struct
from collections.abc import Callable
from itertools import count
from random import Random

import pytest

from controller.demand.pair_counters import PairCounters
from controller.fabric.link_load import LinkLoad
from controller.fabric.topology import Dpid
from controller.southbound.given_rules import GivenRules
from controller.southbound.multipart import Reply
from controller.southbound.pollers import CounterPoller
from controller.tables.counters import CounterIntake
from controller.tables.messages import Counters
from offline.scenarios.fabrics import leaf_spine

FABRIC = leaf_spine(4, 4, 2, 1e9, 1e9)
LATE = min(FABRIC.switches)
TICK_S = 0.1
INTERVALS = 60

Delay = Callable[[Random, Dpid], float | None]
"""Function that returns the number of polling intervals until a switch answers; None if it never answers."""


class Rounds:
    """Polls and answers of several switches.

    ``judged``: times when regular polls were evaluated.
    ``halfway``: times when polls halfway between regular polls were evaluated."""

    def __init__(self, interval_s: float, delay: Delay) -> None:
        self.judged: list[float] = []
        self.halfway: list[float] = []
        self._interval_s, self._delay = interval_s, delay
        self._draw = Random(1)
        self._now = 0.0
        self._xids = count(1)
        self._answers: list[tuple[float, int, Dpid, int]] = []
        self._inbox: list[Counters] = []
        self._poller = CounterPoller(interval_s, self._send, self._inbox.append, GivenRules())
        self._intake = CounterIntake(LinkLoad(3 * interval_s, 0.1), PairCounters(), interval_s)
        for dpid in FABRIC.switches:
            self._poller.switch_connected(dpid, self._now)
            self._intake.switch_connected(dpid, self._now)
        self._intake.rounds.evaluated(self._now)

    def _send(self, dpid: Dpid, /, *messages: bytes) -> list[int]:
        xids = [next(self._xids) for _ in messages]
        delay = self._delay(self._draw, dpid)
        for xid, message in zip(xids, messages, strict=True):
            if delay is not None:
                kind = struct.unpack_from("!H", message, 8)[0]
                heapq.heappush(self._answers, (self._now + delay * self._interval_s, xid, dpid, kind))
        return xids

    def run(self, tick_s: float) -> None:
        next_tick = 0.03
        while self._now < INTERVALS * self._interval_s:
            if self._answers and self._answers[0][0] <= next_tick:
                self._now, xid, dpid, kind = heapq.heappop(self._answers)
                self._poller.part(dpid, Reply(xid, kind, False, b""), self._now)
            else:
                self._now, next_tick = next_tick, next_tick + tick_s
                self._poller.tick(self._now)
                self._evaluate()
            while self._inbox:
                self._intake.add(FABRIC, self._inbox.pop(0))
                self._evaluate()

    def _evaluate(self) -> None:
        """Evaluate as the intake of the controller does, when each regular poll shows a host that begins to send."""
        if not self._intake.rounds.is_over(self._now):
            return
        halfway = self._intake.rounds.is_halfway
        self._intake.rounds.evaluated(self._now)
        (self.halfway if halfway else self.judged).append(self._now)
        if not halfway:
            self._poller.poll_halfway()


def soon(draw: Random) -> float:
    return draw.uniform(0.001, 0.01)


DELAYS: dict[str, Delay] = {
    "nobody": lambda draw, _: soon(draw),
    "one never": lambda draw, dpid: None if dpid == LATE else soon(draw),
    "one by a third": lambda draw, dpid: draw.uniform(0.3, 0.34) if dpid == LATE else soon(draw),
    "one by two thirds": lambda draw, dpid: draw.uniform(0.6, 0.7) if dpid == LATE else soon(draw),
    "one by anything": lambda draw, dpid: draw.uniform(0, 2) if dpid == LATE else soon(draw),
    "lost now and then": lambda draw, _: None if draw.random() < 0.1 else soon(draw),
    "all by a little": lambda draw, _: draw.uniform(0.0, 0.3),
}


@pytest.mark.parametrize("interval_s", [0.5, 2.0, 30.0])
@pytest.mark.parametrize("late", list(DELAYS))
def test_each_regular_poll_and_each_halfway_is_evaluated_once(late: str, interval_s: float) -> None:
    rounds = Rounds(interval_s, DELAYS[late])
    rounds.run(TICK_S)
    assert INTERVALS - 2 <= len(rounds.judged) <= INTERVALS
    assert INTERVALS - 3 <= len(rounds.halfway) <= INTERVALS
    gaps = [after - before for before, after in zip(rounds.judged, rounds.judged[1:], strict=False)]
    assert 0.5 * interval_s < min(gaps)
    assert max(gaps) < 2 * interval_s
