"""Pages and watches of the event history, for the API.

A page token and a resume token are the number of the last event that was sent.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from controller.api.pages import MAX_PAGE, page_size
from controller.api.watches import SPACING_S, Publications, Wait, Write
from controller.events import Event, EventHistory
from controller.status import StatusBoard
from signalbox.errors import FieldProblem, InvalidInput, cut
from signalbox.mapping import message_of, seconds_since_1970, timestamp, word_of
from signalbox.v1 import signalbox_pb2 as pb
from signalbox.words import EventKind

MAX_KINDS = 64
"""Largest number of kinds that one request may name, including repetitions."""


def listed(request: pb.ListEventsRequest, history: EventHistory) -> pb.ListEventsResponse:
    """Return the page of events that the request asks for. Raises ``InvalidInput``."""
    kinds, since = _wanted(request)
    size = page_size(request)
    found = history.after(_number("page_token", request.page_token, 0, history), size + 1, kinds, since)
    token = str(found[size - 1].number) if len(found) > size else ""
    return pb.ListEventsResponse(events=_messages(found[:size]), next_page_token=token)


class EventWatches:
    """Watches of the event history of the ``board``."""

    def __init__(self, board: StatusBoard) -> None:
        self._board = board
        self._publications = Publications(board, SPACING_S)

    async def watch(self, request: pb.WatchEventsRequest, write: Write, wait: Wait) -> None:
        """Write old events, then new ones, until ``wait`` raises. Raises ``InvalidInput`` for an invalid request."""
        history = self._board.history
        kinds, since = _wanted(request)
        first = history.last
        start = 0 if request.HasField("after") else first
        number = _number("resume_token", request.resume_token, start, history)
        if request.resume_token:
            since = -math.inf
        with self._publications.heard(lambda: history.last > number) as published:
            while True:
                while found := history.after(number, MAX_PAGE, kinds):
                    number = found[-1].number
                    wanted = [event for event in found if event.at >= since or event.number > first]
                    if wanted:
                        response = pb.WatchEventsResponse(events=_messages(wanted), resume_token=str(number))
                        await write(response.SerializeToString())
                await wait(published)
                published.clear()


def _wanted(request: Any) -> tuple[frozenset[EventKind], float]:
    """Return the kinds and the earliest time (seconds since 1970) that a request asks for.

    The time is reduced by a microsecond, because the client may have rounded it up. Raises ``InvalidInput``."""
    if len(request.kinds) > MAX_KINDS:
        raise InvalidInput.of("kinds", f"at most {MAX_KINDS} are allowed (given: {len(request.kinds)})")
    words = [word_of(pb.EventKind.DESCRIPTOR, kind) for kind in request.kinds]
    known = f"must be one of {', '.join(pb.EventKind.keys()[1:])}"
    wrong = ((f"kinds[{n}]", request.kinds[n]) for n, word in enumerate(words) if word is None)
    InvalidInput.refuse(FieldProblem(path, f"{known} (given: {given})") for path, given in wrong)
    since = seconds_since_1970(request.after) - 1e-6 if request.HasField("after") else -math.inf
    return frozenset(EventKind(word) for word in words if word), since


def _number(field: str, token: str, start: int, history: EventHistory) -> int:
    """Return the event number in a token, or ``start`` without a token.

    Raises ``InvalidInput`` for a malformed token, and for a number that no event has reached yet: a watch from such a
    number would receive nothing for a long time."""
    if not token:
        return start
    if not (token.isascii() and token.isdigit() and len(token) < 20):
        raise InvalidInput.of(field, f"'{cut(token)}' is not a token of this controller; omit it to start anew")
    if int(token) > history.last:
        why = "earlier events were lost and the clock was set back, or another controller issued the token"
        raise InvalidInput.of(field, f"'{token}' is later than all events: {why}; omit it to start anew")
    return int(token)


def _messages(events: Sequence[Event]) -> list[pb.Event]:
    return [
        message_of(
            pb.Event,
            event,
            event_time=timestamp(event.at),
            details=[pb.EventDetail(name=name, value=value) for name, value in event.details.items()],
        )
        for event in events
    ]
