"""A job that is announced while a command runs, in threads of their own.

Everything that takes time is done there, after the command has started: imports, names of hosts, calls. Whatever
happens is logged by the logger ``signalbox``.
"""

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
    """``find``: the job's spec; None when there is nothing to announce. ``address``: as for ``signalbox.join``.
    ``take_over``: end another registration with the job's id."""

    def __init__(self, job_id: str, find: Callable[[], JobSpec | None], address: str | None, take_over: bool) -> None:
        self._job_id, self._find, self._address, self._take_over = job_id, find, address, take_over
        self._membership: Membership | None = None
        self._rounds: Rounds | None = None
        self._lock = threading.Lock()
        self._over = False

    def begin(self) -> None:
        """Returns at once."""
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
