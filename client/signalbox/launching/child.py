"""Run a command as a child of this process, with its signals, its terminal, and its exit status.

The child is in the process group of this process. So both have the terminal at the same time, and a shell's job
control stops and continues both. Signals from the terminal reach both; signals sent to this process alone are
forwarded. SIGKILL cannot be forwarded: the child then continues."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial

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
