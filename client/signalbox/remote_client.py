"""Client for a training process; a separate process (``client_process``) makes its calls to the controller.

gRPC is unsafe in a process that forks, as data loaders do. gRPC can crash the child, end the process by a signal, or
let a child that uses gRPC wait for ever. So the training process does not load gRPC. (grpclib 0.4.9 in a thread does
not help: a program that closes all descriptors ends its event loop.) One separate process serves all clients of the
training process, over one socket per client. Calls return answers, or raise the errors of ``signalbox.client.Client``.

The separate process ends when its control socket closes, or when the training process has ended. The second case is
needed because children that C code forks keep the other end of the socket open. The separate process is no child of the
training process, so a program that waits for all its children does not wait for the separate process. It inherits no
descriptors, so readers of the program's output see the end of that output.
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
from signalbox.jobs.reports import Accepted, Connected, IterationTime
from signalbox.jobs.spec import JobSpec
from signalbox.own_sockets import OwnSocket, pair
from signalbox.route_following import PackedRoutes

if TYPE_CHECKING:
    from signalbox.credentials import Credentials

START_S = 20.0
"""Time-out in seconds for the start of the separate process."""
MARGIN_S = 1.0
"""Seconds added to the time-out of a call, for forwarding the call and finding the cause of its failure."""

_LENGTH = struct.Struct("=I")
_OPTIONS = ("-P", "-S", *(("-E",) if sys.flags.ignore_environment else ()))
"""Options of the separate interpreter. ``-S`` omits ``site``, which may run code of the program, even a join."""
# The process first closes the program's descriptors, such as pipes whose readers wait for their end. Then it sets the
# search path of its modules, without the working directory.
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
    """Send a message.

    Raises ``OSError`` when the other side is closed; SIGPIPE, which may end a program, is prevented."""
    data = pickle.dumps(message)
    to.sendall(_LENGTH.pack(len(data)) + data, socket.MSG_NOSIGNAL)


def receive(of: socket.socket) -> Any:
    """Return the next message. Raises ``EOFError`` when the other side is closed."""
    return pickle.loads(receive_packed(of))


def receive_packed(of: socket.socket) -> bytes:
    """Return the next message without unpickling it. Raises ``EOFError`` when the other side is closed."""
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


def _receive_answer(of: socket.socket) -> Any:
    answer = receive(of)
    if isinstance(answer, Exception):
        raise answer
    return answer


# ---- the other process


class _Process:
    """The separate process that makes the calls. A program has at most one; a forked child begins without one."""

    def __init__(self) -> None:
        self._starting = threading.Lock()
        self._control: OwnSocket | None = None
        self._sockets: WeakSet[OwnSocket] = WeakSet()

    def connect(self) -> OwnSocket:
        """Return a socket for a new client, which the separate process serves. Start this process when there is none.

        Raises ``SignalboxError`` and ``OSError``."""
        with self._starting:
            for _ in range(2):
                control = self._control = self._control or self._start()
                try:
                    return self._offered(control)
                except OSError:  # the other process has ended
                    self._hang_up()
        raise SignalboxError("the process that calls the controller ended right after its start")

    def end(self) -> None:
        """End the separate process; return at once. If it is still starting, it ends when the training process ends."""
        if self._starting.acquire(blocking=False):
            self._hang_up()
            self._starting.release()

    def forget(self) -> None:
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
            raise SignalboxError(
                "cannot start the process that calls the controller: sys.executable is not a Python interpreter"
            )
        ours, theirs = self._pair()
        try:
            with theirs:
                child = _spawned(theirs)
            with suppress(ChildProcessError):  # the program may wait for all children, or ignore them
                os.waitpid(child, 0)
            ours.settimeout(START_S)
            _receive_answer(ours)
        except (OSError, EOFError, SignalboxError) as error:
            ours.close()
            raise SignalboxError(
                f"the process that calls the controller does not start: {str(error) or 'it has ended'}"
            ) from None
        return ours


def _spawned(theirs: socket.socket) -> int:
    """Start a helper that starts the separate process and then ends; return the helper's process id.

    The helper shares the memory of the training process until it runs its own program, so nothing is copied and no
    fork handler is called. It blocks all signals."""
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
    """End the separate process when no client is needed any more. The next client starts it again."""
    _process.end()


class RemoteClient:
    """Client with those calls of ``signalbox.client.Client`` that a job needs, and with the same errors.

    It makes one call at a time. ``close`` may be called during a call."""

    def __init__(self, address: str, timeout_s: float, credentials: Credentials) -> None:
        self._where = f"the controller at {address}"
        self._timeout_s = timeout_s + MARGIN_S
        self._using = threading.Lock()
        self._closed = False
        self._socket = _process.connect()
        try:
            with self._in_use(START_S):  # resolving names may take long
                send(self._socket, ("open", (address, timeout_s, credentials), {}))
                _receive_answer(self._socket)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._closed = True
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._close_if_idle()

    def register_job(self, spec: JobSpec, *, lease_token: str, request_id: str, take_over: bool) -> Announced:
        given = {"lease_token": lease_token, "request_id": request_id, "take_over": take_over}
        announced: Announced = self._ask("register_job", spec, **given)
        return announced

    def update_job(self, spec: JobSpec, *, lease_token: str) -> None:
        self._ask("update_job", spec, lease_token=lease_token)

    def renew_lease(self, job_id: str, lease_token: str) -> float:
        left_s: float = self._ask("renew_lease", job_id, lease_token)
        return left_s

    def report_iterations(self, job_id: str, iterations: Sequence[IterationTime], lease_token: str) -> Accepted:
        accepted: Accepted = self._ask("report_iterations", job_id, iterations, lease_token)
        return accepted

    def report_connections(self, job_id: str, address: str, connections: Iterable[Connected], lease_token: str) -> None:
        self._ask("report_connections", job_id, address, list(connections), lease_token)

    def deregister_job(self, job_id: str, lease_token: str) -> None:
        self._ask("deregister_job", job_id, lease_token)

    def watch_routes(self, job_id: str, resume_token: str) -> Generator[PackedRoutes, None, None]:
        """Yield routes until the stream is closed. Afterwards the client can make no other call."""
        with self._in_use(None):
            send(self._socket, ("watch_routes", (job_id, resume_token), {}))
            while message := _receive_answer(self._socket):
                yield message

    def _ask(self, method: str, *given: object, **named: object) -> Any:
        with self._in_use(self._timeout_s):
            send(self._socket, (method, given, named))
            return _receive_answer(self._socket)

    @contextmanager
    def _in_use(self, timeout_s: float | None) -> Generator[None, None, None]:
        try:
            with self._using:
                if self._closed:
                    raise EOFError
                self._socket.settimeout(timeout_s)
                yield
        except TimeoutError:
            self._closed = True  # the next call would receive the answer of this one
            raise TooSlow(f"no answer from {self._where}: it did not arrive in time") from None
        except (EOFError, OSError):
            self._closed = True
            raise Unreachable(f"no answer from {self._where}: the process that calls it has ended") from None
        finally:
            self._close_if_idle()

    def _close_if_idle(self) -> None:
        """Close the socket of a closed client, unless a call is under way.

        If the socket were closed during a call, the program could reuse the socket's descriptor, and the call would use
        another file."""
        if self._closed and self._using.acquire(blocking=False):
            self._socket.close()
            self._using.release()
