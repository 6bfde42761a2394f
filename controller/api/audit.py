"""The audit log: a line for each call that changes what the controller does, and for each that was not allowed.

In: who called what, of which job, from where, and the status it ended with. Out: lines of the event ``audit``. Refused
calls cost their client nothing, so they have a limit; what is above it is counted. No token is ever in a line.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

import structlog

from controller.api.identities import Caller

log = structlog.get_logger(__name__)

WINDOW_S = 1.0
LINES_PER_PEER = 5
"""For refused calls, in each window. A peer is a host: its port does not count."""
LINES = 20
"""For refused calls of all peers, in each window."""
MAX_SHOWN_CHARS = 63
"""Of a job's id: valid ones have no more."""

Later = Callable[[float, Callable[[], None]], object]


class AuditLog:
    """``later``: calls a function after so many seconds, in the thread that calls ``record``."""

    def __init__(self, later: Later | None = None) -> None:
        self._later = later
        self._lines: Counter[str] = Counter()
        self._unwritten = 0

    def record(self, caller: Caller | None, method: str, job_id: str, peer: str, code: str, why: str = "") -> None:
        """``caller``: None when it is not known. ``method``: without its service. ``code``: name of the status.
        ``why``: of a refusal."""
        if code != "OK" and not self._room(peer):
            return
        who = {"name": caller.name, "role": caller.role.value, "tenant": caller.tenant} if caller else {}
        shown = {**who, "method": method, "job_id": _printable(job_id), "peer": peer, "code": code, "why": why}
        log.info("audit", **{key: value for key, value in shown.items() if value})

    def _room(self, peer: str) -> bool:
        """Whether a refused call of this peer has a line. The first one begins a window."""
        if not self._lines:
            (self._later or asyncio.get_running_loop().call_later)(WINDOW_S, self._end_window)
        host = peer.rpartition(":")[0] or peer
        if self._lines.total() >= LINES or self._lines[host] >= LINES_PER_PEER:
            self._unwritten += 1
            return False
        self._lines[host] += 1
        return True

    def _end_window(self) -> None:
        if self._unwritten:
            log.warning("audit", refused_without_a_line=self._unwritten)
        self._lines.clear()
        self._unwritten = 0


def _printable(job_id: str) -> str:
    """Callers choose it: it must not look like something else in the log."""
    return ascii(job_id)[1:-1][:MAX_SHOWN_CHARS]
