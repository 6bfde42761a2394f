"""Signals that end the demo or the lab, handled at points where the program can stop; a closed terminal counts too.

A signal handler that raises an exception may do so in the middle of a clean-up. So a handler here only notes the first
signal. ``check`` and ``sleep`` then raise ``Interrupted``, once. In a block of ``held`` they do not raise it. Until
``note_signals`` has been called, as in tests, signals have their usual effect.
"""

import errno
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, NoReturn

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(SystemExit):
    """A signal arrived. It ends the process with the status that shells give for the signal."""

    def __init__(self, number: int) -> None:
        super().__init__(128 + number)
        self.number = number


class _Noted:
    """First signal that arrived. ``wake_up``: end of a pipe that any thread writes to when a signal arrives."""

    def __init__(self, wake_up: int) -> None:
        self._wake_up = wake_up
        self._events = select.poll()
        self._events.register(wake_up, select.POLLIN)
        if sys.stdout.isatty():
            self._events.register(1, 0)
        self.first: int | None = None
        self.raised = False
        self.held = 0

    def note(self, number: int, _frame: FrameType | None) -> None:
        if self.first is None:
            self.first = number
        elif number == signal.SIGINT:
            with suppress(OSError):  # the terminal may be gone
                os.write(2, b"\nstill removing the lab\n")

    def wait(self, seconds: float) -> None:
        """Wait for ``seconds``, or until a signal arrives.

        When a terminal is closed, the kernel notifies only the leader of the session, which need not pass that on
        (``ssh -t HOST make demo``). So the wait watches the terminal as well."""
        for file, events in self._events.poll(1000 * seconds):
            if file == self._wake_up:
                os.read(file, 64)
            elif events & (select.POLLHUP | select.POLLERR):
                self._events.unregister(file)
                self.note(signal.SIGHUP, None)


_noted: _Noted | None = None


def note_signals() -> None:
    """Note signals from now on, until the process ends; to be called before anything else.

    The parent may have started this process with signals blocked (``scripts/openvswitch.sh``). Signals that are ignored
    at the start stay ignored."""
    global _noted
    wake_up, written = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    _noted = _Noted(wake_up)
    signal.set_wakeup_fd(written, warn_on_full_buffer=False)
    for number in ENDING:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _noted.note)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)


def check() -> None:
    """Raise ``Interrupted`` when a signal was noted that has not been raised yet."""
    sleep(0)


def sleep(seconds: float) -> None:
    """Sleep, at most until a signal arrives. Raises ``Interrupted`` as ``check`` does."""
    if _noted is None:
        time.sleep(seconds)
        return
    _noted.wait(seconds)
    if _noted.first is not None and not _noted.raised and not _noted.held:
        _noted.raised = True
        raise Interrupted(_noted.first)


@contextmanager
def held() -> Iterator[None]:
    """Keep signals from interrupting the block."""
    if _noted is None:
        with _handlers(dict.fromkeys(ENDING, signal.SIG_IGN)):
            yield
        return
    _noted.held += 1
    try:
        yield
    finally:
        _noted.held -= 1


@contextmanager
def kept_from_children() -> Iterator[None]:
    """Keep the signals in ``ENDING`` from processes that are started in the block.

    A process in a new session gets no Ctrl-C either, but only from a moment after its start."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def unwinding() -> Iterator[None]:
    """Raise ``Interrupted`` inside the block as soon as SIGTERM or SIGHUP arrives.

    Their default action would end the process without a clean-up. After ``note_signals`` the block changes nothing."""
    if _noted is None:
        with _handlers({signal.SIGTERM: _raise, signal.SIGHUP: _raise}):
            yield
        return
    yield


def run(program: Callable[[], object]) -> NoReturn:
    """Run the program and end the process.

    No traceback is printed for a failure after a signal or because the terminal is closed. Such failures are usual,
    since Ctrl-C also reaches the commands that the program has started."""
    status: Any = 0
    try:
        program()
    except SystemExit as ended:
        status = ended.code
    except Exception as error:
        closed = isinstance(error, OSError) and error.errno in (errno.EIO, errno.EPIPE)
        if not closed and (_noted is None or _noted.first is None):
            raise
        status = 1
    try:
        sys.stdout.flush()
    except OSError:
        status = 1
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # otherwise the interpreter would report a failed write at its end
    if status == 1 and _noted and _noted.first is not None:
        status = 128 + _noted.first
    sys.exit(status)


def _raise(number: int, _frame: FrameType | None) -> NoReturn:
    raise Interrupted(number)


@contextmanager
def _handlers(handlers: dict[signal.Signals, Any]) -> Iterator[None]:
    """Set signal handlers inside the block, in the main thread only, since other threads may not set them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
