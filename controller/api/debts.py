"""What clients owe for calls that have cost the controller more than a call does.

In: what a call costs besides, with ``now`` in monotonic seconds. Out: ``Exhausted`` for a client that owes: a proxy
before the API counts requests, and cannot know what is in them.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar

from signalbox.errors import Exhausted

COST: ContextVar[Callable[[float], None]] = ContextVar("cost", default=lambda _calls: None)
"""Counts the call that runs as so many calls more."""


class Debts:
    """Calls that each client owes. A client may make ``per_s`` calls per second, and owes nothing for those of one
    second."""

    def __init__(self, per_s: float) -> None:
        self._per_s = per_s
        self._paid_at: dict[str, float] = {}

    def charge(self, client: str, calls: float, now: float) -> None:
        """Count so many calls more of the client."""
        self._paid_at = {known: at for known, at in self._paid_at.items() if at > now}
        self._paid_at[client] = max(now, self._paid_at.get(client, now)) + calls / self._per_s

    def refuse_debtor(self, client: str, now: float) -> None:
        """Raises ``Exhausted`` for a client that owes more than the calls of one second."""
        wait_s = self._paid_at.get(client, now) - now - 1.0
        if wait_s > 0:
            text = f"{client}: former calls counted as more than {self._per_s:g} calls per second, which is the limit"
            about = {"limit": "api.max_client_calls_per_s", "limitValue": f"{self._per_s:g}"}
            raise Exhausted(text, client, wait_s, about)
