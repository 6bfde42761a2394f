"""What calls a client may make, and all clients together: the decision, without gRPC.

In: calls that begin and end, with ``now`` in monotonic seconds. Out: ``Exhausted`` when a limit is reached.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import NamedTuple

from signalbox.errors import Exhausted

ALL = "all clients"
MAX_RECEIVING = 128
"""Calls whose request has not come, of all clients; one more ends the oldest."""
SMALL = 0.1
"""A client that uses less than this share of its own limit is not refused for what others use."""
RETRY_S = 1.0
"""After which a client that was too fast may call again."""
GIVES_WAY_S = 0.2
"""A call whose request has not come for this time gives its place to a newer one, when there are too many."""


COST: ContextVar[Callable[[float], None]] = ContextVar("cost", default=lambda _calls: None)
"""Counts the call that runs as so many calls more."""


class Bucket:
    """So many a second on average, and ``at_once`` many: without it those of a second."""

    __slots__ = ("_at", "_left", "_most", "_per_s")

    def __init__(self, per_s: float, now: float, at_once: float | None = None) -> None:
        self._per_s = per_s
        self._most = self._left = per_s if at_once is None else at_once
        self._at = now

    def spend(self, amount: float, now: float) -> float:
        """Takes it in any case; returns for how many seconds nothing more shall be taken."""
        self._fill(now)
        self._left -= amount
        return max(0.0, -self._left / self._per_s)

    def take(self, now: float) -> bool:
        """Takes one if there is one."""
        self._fill(now)
        if self._left < 1:
            return False
        self._left -= 1
        return True

    @property
    def left(self) -> float:
        """Share of what there is at most, as of the last call."""
        return self._left / self._most

    def is_full(self, now: float) -> bool:
        self._fill(now)
        return self._left >= self._most

    def _fill(self, now: float) -> None:
        self._left = min(self._most, self._left + (now - self._at) * self._per_s)
        self._at = now


class CallLimits(NamedTuple):
    """Of a client, or of all. Streams are no calls here."""

    calls: int
    streams: int
    calls_per_s: float


@dataclass(slots=True, eq=False)
class Call:
    """``give_way`` ends the call, while its request has not come. ``ended``: it does not count any more."""

    client: str
    is_stream: bool
    began: float
    give_way: Callable[[], None] | None = None
    ended: bool = False


@dataclass(slots=True)
class _Used:
    """``receiving``: calls whose request has not come, the oldest first."""

    bucket: Bucket
    calls: int = 0
    streams: int = 0
    receiving: dict[Call, None] = field(default_factory=dict)


class Budget:
    def __init__(self, of_client: CallLimits, of_all: CallLimits) -> None:
        self._of_client = of_client
        self._of_all = of_all
        self._all = _Used(Bucket(of_all.calls_per_s, 0.0))
        self._clients: dict[str, _Used] = {}

    def begin(self, client: str, is_stream: bool, now: float) -> Call:
        """A call that is ``receiving`` its request. Raises ``Exhausted``; the call does not count then."""
        used = self._clients.get(client)
        if used is None:
            used = self._clients[client] = _Used(Bucket(self._of_client.calls_per_s, now))
        if not used.bucket.take(now):
            raise _too_fast(client, self._of_client)
        if not self._all.bucket.take(now) and used.bucket.left < 1 - SMALL:
            raise _too_fast(ALL, self._of_all)
        self._make_room(used, self._of_client, client, is_stream, now)
        have, limit = (used.streams, self._of_client.streams) if is_stream else (used.calls, self._of_client.calls)
        if have >= SMALL * limit:
            self._make_room(self._all, self._of_all, ALL, is_stream, now)
        oldest = next(iter(self._all.receiving), None)
        if oldest and len(self._all.receiving) >= MAX_RECEIVING:
            self._give_way(oldest, now)
        call = Call(client, is_stream, now)
        for counted in (used, self._all):
            counted.calls += not is_stream
            counted.streams += is_stream
            counted.receiving[call] = None
        return call

    def charge(self, call: Call, calls: float, now: float) -> None:
        """The call costs as much as so many more: its client makes no other until they would have been allowed."""
        if not call.ended:
            for used in (self._clients[call.client], self._all):
                used.bucket.spend(calls, now)

    def received(self, call: Call) -> None:
        """Its request has come, or never will; a second time does nothing."""
        call.give_way = None
        if not call.ended:
            for counted in (self._clients[call.client], self._all):
                counted.receiving.pop(call, None)

    def end(self, call: Call) -> None:
        """A second time does nothing."""
        if call.ended:
            return
        self.received(call)
        call.ended = True
        for counted in (self._clients[call.client], self._all):
            counted.calls -= not call.is_stream
            counted.streams -= call.is_stream

    def _make_room(self, used: _Used, limits: CallLimits, whose: str, is_stream: bool, now: float) -> None:
        """Raises ``Exhausted`` for lack of room, unless a call whose request does not come gives way."""
        have, limit, what = (
            (used.streams, limits.streams, "streams") if is_stream else (used.calls, limits.calls, "calls")
        )
        if have < limit:
            return
        oldest = next((call for call in used.receiving if call.is_stream == is_stream), None)
        if oldest is None or not self._give_way(oldest, now):
            about = {"limit": _key(whose, what), "limitValue": limit, "used": have}
            raise Exhausted(f"{whose}: {have} {what} at once, which is the limit", whose, about=about)

    def _give_way(self, call: Call, now: float) -> bool:
        """Whether the call has waited for its request long enough; it ends then."""
        give_way = call.give_way
        if give_way is None or now < call.began + GIVES_WAY_S:
            return False
        self.end(call)
        give_way()
        return True

    def forget_idle(self, now: float) -> None:
        """Clients that have no calls, and have made none for a while."""
        idle = [
            client
            for client, used in self._clients.items()
            if not used.calls and not used.streams and used.bucket.is_full(now)
        ]
        for client in idle:
            del self._clients[client]


def _too_fast(whose: str, limits: CallLimits) -> Exhausted:
    text = f"{whose}: more than {limits.calls_per_s:g} calls per second, which is the limit"
    about = {"limit": _key(whose, "calls_per_s"), "limitValue": f"{limits.calls_per_s:g}"}
    return Exhausted(text, whose, RETRY_S, about)


def _key(whose: str, what: str) -> str:
    """In the configuration."""
    return f"api.max_{what}" if whose == ALL else f"api.max_client_{what}"
