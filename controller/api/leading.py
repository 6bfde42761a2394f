"""Check that the state behind an answer is current: no other controller can have changed it.

A handler is wrapped, and raises ``NoLeader`` if the check fails both at the beginning and at the end of the call.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

from controller.api.errors import NoLeader
from controller.api.guard import Context
from signalbox.errors import AlreadyExists, ConcurrentUpdate, Conflict, NotFound, WrongLeaseToken

Found = TypeVar("Found")

_REPLACED = (
    "the controller cannot renew its claim of the state (signalbox alarms list says why), so it may have been replaced "
    "by another one, which has changed the state; retry later"
)
"""Text of the error ``NoLeader``.

Clients show the text to the user only if it begins with "the controller". They replace any other text of this error."""


class Leading(Protocol):
    def knows_state(self) -> bool:
        """Return whether this controller still has the newest state: no other one can have changed it."""


Method = Callable[[Any, Any, Context], Coroutine[Any, Any, Found]]


def by_leader(method: Method[Found]) -> Method[Found]:
    """Return the handler with a check that raises ``NoLeader`` if the answer may be outdated (``knows_state``)."""

    @functools.wraps(method)
    async def checked(services: Leading, request: Any, context: Context) -> Found:
        is_certain = services.knows_state()
        try:
            answer = await method(services, request, context)
        except (NotFound, AlreadyExists, WrongLeaseToken, Conflict, ConcurrentUpdate):
            if is_certain or services.knows_state():
                raise
            raise NoLeader(_REPLACED) from None
        if is_certain or services.knows_state():
            return answer
        raise NoLeader(_REPLACED)

    return checked
