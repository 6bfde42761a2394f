"""Audit log: one line for each call that changes what the controller does, and for each refused call.

In: the caller, the method, the job, the peer and the status of a call. Out: lines of the event ``audit``, which never
contain a token.

No client can fill the disk: the number of lines is limited for refused calls, and for the calls of each tenant. A
summary counts the calls that have no line. Successful calls of operators always have a line.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextvars import Context, ContextVar
from types import MappingProxyType

import structlog

from controller.api.identities import Caller

log = structlog.get_logger(__name__)

WINDOW_S = 1.0
"""Length in seconds of a window; the number of lines in each window is limited."""
LINES_PER_PEER = 5
"""Largest number of lines for refused calls of one peer in a window. All ports of a host count as one peer."""
LINES = 20
"""Largest number of lines for refused calls of all peers together in a window."""
LINES_PER_TENANT = 20
"""Largest number of lines for calls of one tenant in a window."""
MAX_JOB_CHARS = 63
"""Largest number of characters of a job id in a line; valid ids are not longer."""
MAX_WHY_CHARS = 200
MAX_PARTS = 16
"""Largest number of parts of the fabric that one line names."""

_NOTES: ContextVar[dict[str, str] | None] = ContextVar("notes", default=None)
"""Fields that handlers add to the audit line of the current call; None outside a call."""

Later = Callable[[float, Callable[[], None]], object]


def noting() -> dict[str, str]:
    """Return a new mapping for the audit fields of one call.

    Until the next call of ``noting``, ``note`` adds its fields to this mapping in the current context."""
    notes: dict[str, str] = {}
    _NOTES.set(notes)
    return notes


def note(**what: str) -> None:
    """Add fields to the audit line of the current call."""
    if (notes := _NOTES.get()) is not None:
        notes |= what


def note_parts(names: Sequence[str]) -> None:
    """Add the names of at most ``MAX_PARTS`` parts of the fabric to the audit line of the current call.

    Control characters are escaped, because switches report their own names."""
    more = f" and {len(names) - MAX_PARTS} more" if len(names) > MAX_PARTS else ""
    note(parts=_printable(" ".join(names[:MAX_PARTS])) + more)


class AuditLog:
    """Writer of the audit lines.

    ``later`` calls a function after a number of seconds, in the thread that calls ``record``."""

    def __init__(self, later: Later | None = None) -> None:
        self._later = later
        self._waiting = False
        self._refused: Counter[str] = Counter()
        self._done: Counter[str] = Counter()

    def record(
        self,
        caller: Caller | None,
        method: str,
        job_id: str,
        peer: str,
        code: str,
        why: str = "",
        more: Mapping[str, object] = MappingProxyType({}),
    ) -> None:
        """Write the line of a call, unless a limit of the current window is reached.

        ``caller``: None if unknown. ``method``: name without its service. ``code``: name of the status code. ``why``:
        reason of a refusal. ``more``: further fields, which must not contain text from a caller."""
        if not (self._done_has_room(caller) if code == "OK" else self._refused_has_room(peer)):
            return
        who = {"name": _printable(caller.name), "role": caller.role.value, "tenant": caller.tenant} if caller else {}
        shown = {
            **who,
            "method": method,
            "job_id": _printable(job_id)[:MAX_JOB_CHARS],
            **more,
            "peer": peer,
            "code": code,
            "why": _printable(why)[:MAX_WHY_CHARS],
        }
        log.info("audit", **{key: value for key, value in shown.items() if value})

    def _done_has_room(self, caller: Caller | None) -> bool:
        if caller is None or not caller.tenant:
            return True
        self._begin_window()
        self._done[caller.tenant] += 1
        return self._done[caller.tenant] <= LINES_PER_TENANT

    def _refused_has_room(self, peer: str) -> bool:
        """Count a refused call, and return whether it still gets a line of its own in this window.

        Peers without a line are counted together, because their number is not bounded."""
        self._begin_window()
        host = peer.rpartition(":")[0] or peer
        room = self._refused.total() - self._refused[""] < LINES and self._refused[host] < LINES_PER_PEER
        self._refused[host if room else ""] += 1
        return room

    def _begin_window(self) -> None:
        if not self._waiting:
            self._waiting = True
            # Run in an empty context: the summary at the end of the window must not have the log fields of the call
            # that began the window.
            Context().run(self._later or asyncio.get_running_loop().call_later, WINDOW_S, self._end_window)

    def _end_window(self) -> None:
        if unwritten := self._refused[""]:
            log.warning("audit", refused_calls_not_logged=unwritten)
        for tenant, done in self._done.items():
            if done > LINES_PER_TENANT:
                log.warning("audit", tenant=tenant, calls_not_logged=done - LINES_PER_TENANT)
        self._refused.clear()
        self._done.clear()
        self._waiting = False


def _printable(text: str) -> str:
    """Return the text in ASCII without control characters, so that callers cannot imitate other log lines."""
    return ascii(text)[1:-1]
