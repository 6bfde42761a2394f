"""Release the jobs of a process when the process ends: at its exit and at SIGTERM. Forked children have no jobs.

This module owns one ``atexit`` function, the fork handler, and the action of SIGTERM when the program has none. A
program with its own handler keeps the handler; the jobs of such a program are released when it exits.

SIGTERM ends the process even while its main thread waits inside a library, where no Python handler would run. A
separate thread notices the signal through ``signal.set_wakeup_fd``, releases the jobs, and ends the process by the
signal's default action.
"""

from __future__ import annotations

import atexit
import os
import signal
import socket
import struct
import sys
import threading
import time
from contextlib import suppress
from types import FrameType
from typing import Any, Protocol

from signalbox.own_sockets import pair
from signalbox.rounds import LEAVE_S, start_deaf

_CREDENTIALS = struct.Struct("=iii")
"""Layout of ``struct ucred``: process, user, group (unix(7))."""
_STOP, _CALLED = b"\0", b"\xff"
"""Bytes that this process sends to the thread of ``_Sigterm``: by ``restore``, and by the signal handler.

Python sends bytes to this thread too: the number of each signal that arrives."""


class Held(Protocol):
    """Object that must be released when the process ends, such as a joined job.

    - ``begin_leaving``: begins the release and returns at once
    - ``end_leaving``: returns when the object has been released, or after ``timeout_s`` seconds
    - ``forget``: the only method that is called in a forked child, because locks may belong to threads of the parent"""

    def begin_leaving(self) -> None: ...
    def end_leaving(self, timeout_s: float) -> None: ...
    def forget(self) -> None: ...


_held: set[Held] = set()
_once = threading.Lock()
_handlers_set = False
_ends_as_child = False
_sigterm: _Sigterm | None = None


def hold(thing: Held) -> None:
    """Release the object when the process ends.

    The action of SIGTERM is set only if this function is called in the main thread."""
    global _handlers_set, _ends_as_child, _sigterm
    with _once:
        if not _handlers_set:
            atexit.register(_at_exit)
            os.register_at_fork(after_in_child=_forget_all)
            _handlers_set = True
        if not _ends_as_child and (ending := _end_of_child()):
            ending.Finalize(None, _at_exit, exitpriority=0)
            _ends_as_child = True
        if not _sigterm and _is_main_thread() and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
            with suppress(ImportError, OSError, RuntimeError):  # then SIGTERM releases no job; leases run out
                _sigterm = _Sigterm()
        _held.add(thing)


def let_go(thing: Held) -> None:
    """Undo ``hold`` for an object that has been released.

    If no object is left, restore the default action of SIGTERM; only the main thread restores it."""
    global _sigterm
    with _once:
        _held.discard(thing)
        if _sigterm and not _held and _is_main_thread():
            _sigterm.end_if_received()
            _sigterm.restore()
            _sigterm = None


def holds_any() -> bool:
    return bool(_held)


def release_all() -> None:
    """Release all objects at the same time. Return when they are released, or after ``LEAVE_S``."""
    deadline = time.monotonic() + LEAVE_S
    held = tuple(_held)
    for thing in held:
        thing.begin_leaving()
    for thing in held:
        thing.end_leaving(deadline - time.monotonic())


def _at_exit() -> None:
    release_all()
    if _sigterm:
        _sigterm.end_if_received()


def _end_of_child() -> Any:
    """Return the module ``multiprocessing.util`` in a child process of ``multiprocessing``, else None.

    At its end, such a child runs the finalizers of ``multiprocessing.util`` instead of the functions of ``atexit``."""
    process = sys.modules.get("multiprocessing.process")
    return sys.modules.get("multiprocessing.util") if process and process.parent_process() else None


def _forget_all() -> None:
    global _once, _ends_as_child, _sigterm
    _once = threading.Lock()
    _ends_as_child = False
    if _sigterm:
        _sigterm.restore()
        _sigterm.close()
        _sigterm = None
    for thing in _held:
        thing.forget()
    _held.clear()


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


class _Sigterm:
    """Action of SIGTERM that releases all objects first. The main thread sets it; it is in force until ``restore``.

    Raises ``ImportError``, ``OSError`` and ``RuntimeError`` when it cannot be set."""

    def __init__(self) -> None:
        import ctypes  # imported here: an import in another thread can block a child forked meanwhile

        self._set_signal = ctypes.pythonapi.PyOS_setsig
        self._set_signal.argtypes, self._set_signal.restype = (ctypes.c_int, ctypes.c_void_p), ctypes.c_void_p
        self._received = False
        self._noticed, self._notice = pair(socket.SOCK_DGRAM)
        # A child forked without Python's knowledge has the same descriptor, so each byte carries its writer's process
        # id.
        self._noticed.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self._notice.setblocking(False)
        start_deaf(threading.Thread(target=self._run, name="signalbox-sigterm", daemon=True))
        self._former_fd = signal.set_wakeup_fd(self._notice.fileno(), warn_on_full_buffer=False)
        # If the program has set a descriptor of its own, the handler runs only when the main thread can.
        if self._former_fd != -1:
            signal.set_wakeup_fd(self._former_fd)
        signal.signal(signal.SIGTERM, self._handle)

    def restore(self) -> None:
        """Restore the default action of SIGTERM. Must be called in the main thread."""
        if signal.getsignal(signal.SIGTERM) == self._handle:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if self._former_fd == -1:
            now = signal.set_wakeup_fd(-1)
            if now not in (-1, self._notice.fileno()):
                signal.set_wakeup_fd(now)
        self._write(_STOP)

    def close(self) -> None:
        """Close the sockets.

        Only the thread of this object calls this method. A forked child, which does not have this thread, calls this
        method itself."""
        self._noticed.close()
        self._notice.close()

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        """Record the signal, without a lock, because the interrupted thread may hold it.

        Python calls this handler, and so may a handler that the program sets later."""
        self._received = True
        self._write(_CALLED)

    def end_if_received(self) -> None:
        """End the process by SIGTERM if this signal has arrived. Called in the main thread after the release.

        Normally the thread of this object ends the process. But the signal may have interrupted a call of the program,
        and the program may end because of this before that thread can act. The exit status must show the signal even if
        the program ends first."""
        if self._received:
            self._end()

    def _write(self, what: bytes) -> None:
        with suppress(OSError):
            self._notice.send(what)

    def _end(self) -> None:
        self._set_signal(signal.SIGTERM, None)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        os.kill(os.getpid(), signal.SIGTERM)

    def _run(self) -> None:
        with suppress(OSError):  # the program has closed the socket
            self._follow()
        self.close()

    def _follow(self) -> None:
        while True:
            data, ancillary, _, _ = self._noticed.recvmsg(1, socket.CMSG_SPACE(_CREDENTIALS.size))
            if _sender_pid(ancillary) != os.getpid():
                continue
            if data == _STOP:
                break
            is_ours = data[0] == signal.SIGTERM and signal.getsignal(signal.SIGTERM) == self._handle
            if is_ours or data == _CALLED:
                with suppress(Exception):
                    release_all()
                self._end()


def _sender_pid(ancillary: list[tuple[int, int, bytes]]) -> int | None:
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS):
            return int(_CREDENTIALS.unpack_from(data)[0])
    return None
