"""The calls of a training process to its controller, made by a process of its own (``client_process``).

gRPC in a process that forks, as for data loaders, can end the child, the process itself by a signal, or leave a child
that uses gRPC waiting for ever. So the training process does not load it. Owns the other process, which serves all
clients of this one, and a socket to it per client. In: calls for a job. Out: their answers, or the errors of
``signalbox.client.Client``.

The other process ends with this one: it reads from a socket that only this one has, and watches its process id, since
children that C code forks keep the socket open. It is no child, so that a program which waits for all of its children
does not wait for it, and has no descriptor of this one, so that what reads a program's output sees its end.
"""

from __future__ import annotations

import os
import pickle
import signal
import socket
import struct
import sys
import threading
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from signalbox.errors import SignalboxError, TooSlow, Unreachable
from signalbox.jobs.reports import Connected, IterationTime
from signalbox.jobs.spec import JobSpec
from signalbox.own_sockets import OwnSocket, pair
from signalbox.route_following import ToldRoutes

if TYPE_CHECKING:
    from signalbox.credentials import Credentials

START_S = 20.0
"""For the other process to start."""
MARGIN_S = 1.0
"""Beside the time of a call: to be sent on, and for its cause to be found out."""

_LENGTH = struct.Struct("=I")
_OPTIONS = ("-P", "-S", *(("-E",) if sys.flags.ignore_environment else ()))
"""Of the interpreter. What ``site`` runs is for the program; it may join a job itself."""
# First without the program's descriptors, such as pipes that others read until they are closed; at the end with the
# places of its modules. Its working directory is none of them.
_START = """
import os, sys
try:
    last = max(map(int, os.listdir("/proc/self/fd")))
except OSError:
    last = 65536
os.closerange(3, 1 + last)
if os.fork():
    os._exit(0)
os.setsid()
sys.path[:] = sys.argv[2:]
from signalbox.client_process import serve
serve(int(sys.argv[1]))
"""


@dataclass(frozen=True, slots=True)
class Announced:
    lease_token: str = field(repr=False)


# ---- messages between the two processes


def send(to: socket.socket, message: object) -> None:
    """Raises ``OSError`` when the other side is gone: without SIGPIPE, which may end a program."""
    data = pickle.dumps(message)
    to.sendall(_LENGTH.pack(len(data)) + data, socket.MSG_NOSIGNAL)


def receive(of: socket.socket) -> Any:
    """Raises ``EOFError`` when the other side is gone."""
    return pickle.loads(receive_packed(of))


def receive_packed(of: socket.socket) -> bytes:
    """As ``receive``, before it is unpickled."""
    (length,) = _LENGTH.unpack(_read(of, _LENGTH.size))
    return _read(of, length)


def _read(of: socket.socket, length: int) -> bytes:
    parts, missing = [], length
    while missing:
        parts.append(part := of.recv(min(missing, 1 << 20)))
        if not part:
            raise EOFError
        missing -= len(part)
    return b"".join(parts)


def _answer(of: socket.socket) -> Any:
    """Raises what the other process has sent as an error."""
    answer = receive(of)
    if isinstance(answer, Exception):
        raise answer
    return answer


# ---- the other process


class _Process:
    """There is at most one. A process that is forked from this one has none."""

    def __init__(self) -> None:
        self._starting = threading.Lock()
        self._control: OwnSocket | None = None
        self._sockets: WeakSet[OwnSocket] = WeakSet()

    def connect(self) -> OwnSocket:
        """A socket that it serves. Starts it where there is none. Raises ``SignalboxError`` and ``OSError``."""
        with self._starting:
            for _ in range(2):
                control = self._control = self._control or self._start()
                try:
                    return self._offered(control)
                except OSError:  # it has ended
                    self._hang_up()
        raise SignalboxError("the process that calls the controller does not stay")

    def end(self) -> None:
        """Returns at once; one that is starting ends with this process."""
        if self._starting.acquire(blocking=False):
            self._hang_up()
            self._starting.release()

    def forget(self) -> None:
        """In a forked child."""
        self._starting = threading.Lock()
        self._hang_up()
        for each in self._sockets:
            each.close()
        self._sockets = WeakSet()

    def _hang_up(self) -> None:
        if self._control:
            self._control.close()
        self._control = None

    def _pair(self) -> tuple[OwnSocket, OwnSocket]:
        ours, theirs = pair()
        self._sockets.add(ours)
        self._sockets.add(theirs)
        return ours, theirs

    def _offered(self, control: OwnSocket) -> OwnSocket:
        ours, theirs = self._pair()
        with theirs:
            try:
                control.check()
                socket.send_fds(control, [b"\0"], [theirs.fileno()], socket.MSG_NOSIGNAL)
            except OSError:
                ours.close()
                raise
        return ours

    def _start(self) -> OwnSocket:
        if not sys.executable or getattr(sys, "frozen", False):
            raise SignalboxError("there is no interpreter to call the controller with: sys.executable is not one")
        ours, theirs = self._pair()
        try:
            with theirs:
                child = _spawned(theirs)
            with suppress(ChildProcessError):  # the program may wait for all children, or for none
                os.waitpid(child, 0)
            ours.settimeout(START_S)
            _answer(ours)
        except (OSError, EOFError, SignalboxError) as error:
            ours.close()
            raise SignalboxError(
                f"the process that calls the controller does not start: {str(error) or 'it has ended'}"
            ) from None
        return ours


def _spawned(theirs: socket.socket) -> int:
    """The id of a process that ends when it has started the other one. It has this one's memory until it runs, so
    that nothing is copied, and no handler for forks is called. Signals are not for it."""
    here = str(Path(__file__).parents[1])
    paths = [path for path in sys.path if isinstance(path, str) and path]
    argv = [sys.executable, *_OPTIONS, "-W", "ignore", "-c", _START, str(os.getpid()), *paths, here]
    actions = [
        (os.POSIX_SPAWN_DUP2, theirs.fileno(), 0),
        (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_RDWR, 0),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    return os.posix_spawn(argv[0], argv, os.environ, file_actions=actions, setsigmask=signal.valid_signals())


_process = _Process()
os.register_at_fork(after_in_child=_process.forget)


def end_process() -> None:
    """When no client is needed any more; the next one starts it again."""
    _process.end()


class RemoteClient:
    """As ``signalbox.client.Client``, whose calls of a job it makes, and whose errors it raises. One call at a time;
    ``close`` may be called meanwhile."""

    def __init__(self, address: str, timeout_s: float, credentials: Credentials) -> None:
        self._where = f"the controller at {address}"
        self._timeout_s = timeout_s + MARGIN_S
        self._using = threading.Lock()
        self._closed = False
        self._socket = _process.connect()
        try:
            with self._in_use(START_S):  # names may have to be resolved
                send(self._socket, ("open", (address, timeout_s, credentials), {}))
                _answer(self._socket)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._closed = True
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._let_go()

    def register_job(self, spec: JobSpec, *, lease_token: str, request_id: str, take_over: bool) -> Announced:
        given = {"lease_token": lease_token, "request_id": request_id, "take_over": take_over}
        announced: Announced = self._ask("register_job", spec, **given)
        return announced

    def update_job(self, spec: JobSpec, *, lease_token: str) -> None:
        self._ask("update_job", spec, lease_token=lease_token)

    def renew_lease(self, job_id: str, lease_token: str) -> float:
        left_s: float = self._ask("renew_lease", job_id, lease_token)
        return left_s

    def report_iterations(self, job_id: str, iterations: Sequence[IterationTime], lease_token: str) -> None:
        self._ask("report_iterations", job_id, iterations, lease_token)

    def report_connections(self, job_id: str, address: str, connections: Iterable[Connected], lease_token: str) -> None:
        self._ask("report_connections", job_id, address, list(connections), lease_token)

    def deregister_job(self, job_id: str, lease_token: str) -> None:
        self._ask("deregister_job", job_id, lease_token)

    def watch_routes(self, job_id: str, resume_token: str) -> Generator[ToldRoutes, None, None]:
        """Goes on until it is closed; after it the client has no other call."""
        with self._in_use(None):
            send(self._socket, ("watch_routes", (job_id, resume_token), {}))
            while told := _answer(self._socket):
                yield told

    def _ask(self, method: str, *given: object, **named: object) -> Any:
        with self._in_use(self._timeout_s):
            send(self._socket, (method, given, named))
            return _answer(self._socket)

    @contextmanager
    def _in_use(self, timeout_s: float | None) -> Generator[None, None, None]:
        try:
            with self._using:
                if self._closed:
                    raise EOFError
                self._socket.settimeout(timeout_s)
                yield
        except TimeoutError:
            self._closed = True  # the next call would be given the answer of this one
            raise TooSlow(f"no answer from {self._where}: it took too long") from None
        except (EOFError, OSError):
            self._closed = True
            raise Unreachable(f"no answer from {self._where}: the process that calls it has ended") from None
        finally:
            self._let_go()

    def _let_go(self) -> None:
        """The descriptor of a call that is under way stays: the program could have it for another file by then."""
        if self._closed and self._using.acquire(blocking=False):
            self._socket.close()
            self._using.release()
