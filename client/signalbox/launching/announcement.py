"""Run a command, and announce its job in separate threads while it runs.

Everything slow (imports, host names, calls) happens in these threads after the command has started. The logger
``signalbox`` reports failures."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
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


NOT_FOUND, NOT_EXECUTABLE = 127, 126
"""Exit statuses of a shell for a command that cannot be started."""

_BY_KERNEL = 0x80
"""Value of ``si_code`` for a signal from the kernel, ``SI_KERNEL`` (sigaction(2)).

Such a signal, for example from Ctrl-C, reaches the whole process group, so it is not forwarded."""

_PASSED = {signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2}
_OF_JOB_CONTROL = {signal.SIGTSTP, signal.SIGCONT}


class Child:
    """A command that runs from its creation on.

    The first thread of a process must make the object, while there are no other threads. Threads that are started later
    must leave all signals to the first thread. Raises ``OSError``."""

    def __init__(self, command: Sequence[str], environ: Mapping[str, str]) -> None:
        # The child inherits ignored signals, as after nohup.
        passed = {number for number in _PASSED | _OF_JOB_CONTROL if signal.getsignal(number) != signal.SIG_IGN}
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._awaited = passed | {signal.SIGCHLD}
        former = signal.pthread_sigmask(signal.SIG_BLOCK, self._awaited)
        self._process = subprocess.Popen(
            command,
            env=environ,
            close_fds=False,  # the command needs some descriptors, such as PMI's
            preexec_fn=partial(signal.pthread_sigmask, signal.SIG_SETMASK, former),
        )

    def wait(self) -> int:
        """Wait for the command; return its exit status, or 128 plus the number of the signal that ended it."""
        while True:
            info = signal.sigwaitinfo(self._awaited)
            if info.si_signo == signal.SIGCHLD:
                pid, status = os.waitpid(self._process.pid, os.WNOHANG)
                if pid:
                    code = self._process.returncode = os.waitstatus_to_exitcode(status)
                    return code if code >= 0 else 128 - code
                continue
            if info.si_code != _BY_KERNEL:
                with suppress(ProcessLookupError):
                    os.kill(self._process.pid, info.si_signo)
            if info.si_signo == signal.SIGTSTP:
                os.kill(os.getpid(), signal.SIGSTOP)
