"""A command as the child of this process: its signals, its terminal, its exit status.

The child is in the process group of this process: it has the terminal when this process has it, and a shell's job
control stops and continues both. Signals that the terminal sends reach both; those that are sent to this process alone
are passed on. SIGKILL cannot be: the child goes on.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial

NOT_FOUND, NOT_EXECUTABLE = 127, 126
"""Exit statuses, as shells have them."""

_BY_KERNEL = 0x80
"""``SI_KERNEL`` of a signal's ``si_code`` (sigaction(2)): such as Ctrl-C, which the whole process group gets."""

_PASSED = {signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2}
_OF_JOB_CONTROL = {signal.SIGTSTP, signal.SIGCONT}


class Child:
    """Started when it is made, by the first thread of a process without others; those that are made later leave all
    signals to it. Raises ``OSError``."""

    def __init__(self, command: Sequence[str], environ: Mapping[str, str]) -> None:
        # What is ignored, as after nohup, is ignored by the child too.
        passed = {number for number in _PASSED | _OF_JOB_CONTROL if signal.getsignal(number) != signal.SIG_IGN}
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._awaited = passed | {signal.SIGCHLD}
        former = signal.pthread_sigmask(signal.SIG_BLOCK, self._awaited)
        self._process = subprocess.Popen(
            command,
            env=environ,
            close_fds=False,  # some are for the command, as that of PMI is
            preexec_fn=partial(signal.pthread_sigmask, signal.SIG_SETMASK, former),
        )

    def wait(self) -> int:
        """Returns its exit status, 128 and the number of the signal that has ended it."""
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
