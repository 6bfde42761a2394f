"""Replies that wait until the switches have confirmed what they are about.

In: requests to set a strategy, ARP requests for hosts that had to be found. Out: the replies, once they are due.
"""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from controller.config import Strategy
from controller.core.messages import Command, Reply
from controller.errors import Conflict
from controller.fabric.messages import SendArpReply
from controller.planning.messages import StrategySet

ARP_ANSWER_AFTER_S = 0.5
"""An ARP request is answered when rules lead to its target, and after this time at the latest: a switch that does not
confirm its rules delays no answer."""


@dataclass(frozen=True, slots=True)
class _StrategyWaiter:
    """Waits for a planning cycle beyond ``cycles_done``, and for the switches to confirm what follows from it."""

    future: Future[Any]
    strategy: Strategy
    since: float
    cycles_done: int


class Waiting:
    """``now`` is monotonic seconds."""

    def __init__(self) -> None:
        self._for_strategy: _StrategyWaiter | None = None
        self._arp_answers: list[tuple[float, SendArpReply]] = []

    def add_arp_answers(self, answers: list[SendArpReply], now: float) -> None:
        self._arp_answers += [(now, answer) for answer in answers]

    def wait_for_strategy(self, reply: Future[Any], strategy: Strategy, cycles_done: int, now: float) -> list[Reply]:
        """Returns the reply to an earlier request that has not been answered yet."""
        before, self._for_strategy = self._for_strategy, _StrategyWaiter(reply, strategy, now, cycles_done)
        return [Reply(before.future, Conflict(f"superseded: {strategy} was set"))] if before else []

    def due(self, all_confirmed: bool, cycles_done: int, pins: int, now: float) -> list[Command]:
        """``all_confirmed``: the switches hold what they should. ``pins``: how many are confirmed."""
        due: list[Command] = [
            answer for since, answer in self._arp_answers if all_confirmed or now >= since + ARP_ANSWER_AFTER_S
        ]
        if due:
            self._arp_answers = [(since, answer) for since, answer in self._arp_answers if answer not in due]
        waiter = self._for_strategy
        if waiter and all_confirmed and cycles_done > waiter.cycles_done:
            self._for_strategy = None
            due.append(Reply(waiter.future, StrategySet(waiter.strategy, now - waiter.since, pins)))
        return due
