"""The audit log: a line for each call that changes what the controller does, and for each that was not allowed.

In: who called what, of which job, from where, and the status it ended with. Out: lines of the event ``audit``. No
client can fill the disk with them: refused calls have a limit, and so has what one tenant does; what is above it is
counted. What operators do always has its line. No token is ever in one.
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
LINES_PER_PEER = 5
"""For refused calls, in each window. A peer is a host: its port does not count."""
LINES = 20
"""For refused calls of all peers, in each window."""
LINES_PER_TENANT = 20
"""For what a tenant does, in each window."""
MAX_JOB_CHARS = 63
"""Of a job's id: valid ones have no more."""
MAX_WHY_CHARS = 200
MAX_PARTS = 16
"""That a line names."""

_NOTES: ContextVar[dict[str, str] | None] = ContextVar("notes", default=None)
"""Of the call that is answered in this context."""

Later = Callable[[float, Callable[[], None]], object]


def noting() -> dict[str, str]:
    """What is noted from now on in this context, until the next time."""
    notes: dict[str, str] = {}
    _NOTES.set(notes)
    return notes


def note(**what: str) -> None:
    """For the line of the call that is answered in this context, besides who makes it and which it is."""
    if (notes := _NOTES.get()) is not None:
        notes |= what


def note_parts(names: Sequence[str]) -> None:
    """Parts of the fabric that the call is about, the first few; their names come from switches."""
    more = f" and {len(names) - MAX_PARTS} more" if len(names) > MAX_PARTS else ""
    note(parts=_printable(" ".join(names[:MAX_PARTS])) + more)


class AuditLog:
    """``later``: calls a function after so many seconds, in the thread that calls ``record``."""

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
        """``caller``: None when it is not known. ``method``: without its service. ``code``: name of the status.
        ``why``: of a refusal. ``more``: none of it may be what a caller has sent."""
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
        """Peers without a line are counted together: there may be any number of them."""
        self._begin_window()
        host = peer.rpartition(":")[0] or peer
        room = self._refused.total() - self._refused[""] < LINES and self._refused[host] < LINES_PER_PEER
        self._refused[host if room else ""] += 1
        return room

    def _begin_window(self) -> None:
        if not self._waiting:
            self._waiting = True
            # What binds log lines to the call that happens to begin the window is not for those at its end.
            Context().run(self._later or asyncio.get_running_loop().call_later, WINDOW_S, self._end_window)

    def _end_window(self) -> None:
        if unwritten := self._refused[""]:
            log.warning("audit", refused_without_a_line=unwritten)
        for tenant, done in self._done.items():
            if done > LINES_PER_TENANT:
                log.warning("audit", tenant=tenant, done_without_a_line=done - LINES_PER_TENANT)
        self._refused.clear()
        self._done.clear()
        self._waiting = False


def _printable(text: str) -> str:
    """Callers choose it: it must not look like something else in the log."""
    return ascii(text)[1:-1]
