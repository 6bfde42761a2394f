"""Announce a job while a command runs, in separate threads.

Everything slow (imports, host names, calls) happens in these threads after the command has started. The logger
``signalbox`` reports failures."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from signalbox.errors import SignalboxError

if TYPE_CHECKING:
    from signalbox.jobs.spec import JobSpec
    from signalbox.membership import Membership
    from signalbox.rounds import Rounds

log = logging.getLogger("signalbox")


class Announcement:
    """Announcement of one job.

    - ``find``: returns the job's spec, or None when there is nothing to announce
    - ``address``: as for ``signalbox.join``
    - ``take_over``: whether to end another registration that has the job's id"""

    def __init__(self, job_id: str, find: Callable[[], JobSpec | None], address: str | None, take_over: bool) -> None:
        self._job_id, self._find, self._address, self._take_over = job_id, find, address, take_over
        self._membership: Membership | None = None
        self._rounds: Rounds | None = None
        self._lock = threading.Lock()
        self._over = False

    def begin(self) -> None:
        """Begin the announcement; return at once."""
        try:
            threading.Thread(target=self._begin, name="signalbox-announce", daemon=True).start()
        except RuntimeError as error:
            self._say(error)

    def end(self) -> None:
        """Release the job, within a second."""
        with self._lock:
            self._over = True
        if self._rounds and self._membership:
            from signalbox.rounds import LEAVE_S

            self._rounds.leave()
            self._rounds.join(LEAVE_S)
            self._membership.cancel()

    def _begin(self) -> None:
        try:
            spec = self._find()
            if spec is None:
                return
            from signalbox.client import Client
            from signalbox.joining import connecting
            from signalbox.membership import Membership
            from signalbox.rounds import Rounds

            connect, _ = connecting(Client, self._address, None)
            membership = Membership(connect, spec, lambda _: None, take_over=self._take_over, hands_over=True)
            rounds = Rounds("signalbox-lease", lambda: membership.round(time.monotonic()), membership.leave)
            with self._lock:
                if not self._over:
                    rounds.start()
                    self._membership, self._rounds = membership, rounds
        except Exception as error:
            self._say(error)

    def _say(self, error: Exception) -> None:
        what = str(error) if isinstance(error, SignalboxError) else f"{type(error).__name__}: {error}"
        log.warning("job '%s' is not announced, the command runs: %s", self._job_id, what)
