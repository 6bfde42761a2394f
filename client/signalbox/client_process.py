"""Process that calls the API on behalf of a training process (see ``remote_client``).

The process receives one socket per client, serves the calls on each socket, and sends back the answers. The process
ends when the training process has ended, even during a call. It ignores signals and prints nothing."""

from __future__ import annotations

import os
import pickle
import resource
import select
import socket
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from signalbox.errors import SignalboxError
from signalbox.remote_client import Announced, receive_packed, send
from signalbox.route_following import packed_routes

if TYPE_CHECKING:
    from signalbox.client import Client

NICE = 5
"""Niceness of the process: training has precedence on the processor."""
MAX_ANSWER_BYTES, MAX_MEMORY_BYTES = 256 << 20, 4 << 30
"""Limits in bytes of one message, and of this process's memory. The routes of 65,536 flows take 7 MiB."""
CONTROL = 0
"""File descriptor of the control socket that the process inherits."""

_ANSWERS: Mapping[str, Callable[[Any], object]] = {
    "register_job": lambda registered: Announced(registered.lease_token),
    "renew_lease": float,
    "report_iterations": lambda accepted: accepted,
}
"""Functions that convert the result of a method into a type that needs no gRPC, by the method's name.

A call of any other method returns None to the training process."""


def serve(process: int) -> None:
    """Serve the clients of the training process ``process`` until it has ended, then exit."""
    try:
        _yield_to_training()
        with socket.socket(fileno=CONTROL) as control:
            send(control, _answered(_import_client))
            _serve_all(control, process)
    finally:
        os._exit(0)


def _yield_to_training() -> None:
    os.nice(NICE)
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    most = MAX_MEMORY_BYTES if hard == resource.RLIM_INFINITY else min(hard, MAX_MEMORY_BYTES)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_DATA, (most, hard))
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


def _import_client() -> None:
    import signalbox.client  # noqa: F401


def _serve_all(control: socket.socket, process: int) -> None:
    ended = select.poll()
    ended.register(control, select.POLLIN)
    with suppress(AttributeError, OSError):  # old kernels lack pidfd_open, and some containers forbid it
        ended.register(os.pidfd_open(process), select.POLLIN)
    while [descriptor for descriptor, _ in ended.poll()] == [CONTROL]:
        more, descriptors, _, _ = socket.recv_fds(control, 1, 1)
        if not more:
            return
        for descriptor in descriptors:
            served = _Served(socket.socket(fileno=descriptor))
            threading.Thread(target=served.run, daemon=True).start()


class _Served:
    def __init__(self, calls: socket.socket) -> None:
        self._calls = calls
        self._client: Client | None = None

    def run(self) -> None:
        with self._calls, suppress(EOFError, OSError):
            try:
                while True:
                    packed = receive_packed(self._calls)
                    send(self._calls, _answered(partial(self._called, packed)))
            finally:
                self._close()

    def _close(self) -> None:
        if self._client:
            self._client.close()

    def _called(self, packed: bytes) -> object:
        method, given, named = pickle.loads(packed)
        if method == "open":
            from signalbox.client import Client

            address, timeout_s, credentials = given
            self._client = Client(address, timeout_s, credentials, MAX_ANSWER_BYTES)
            return None
        assert self._client
        if method == "watch_routes":
            self._watch(self._client.watch_routes(*given))
            return None
        answer = getattr(self._client, method)(*given, **named)
        return _ANSWERS[method](answer) if method in _ANSWERS else None

    def _watch(self, stream: Iterable[Any]) -> None:
        """Send routes until the stream ends or the client is closed; the socket serves no other call afterwards."""
        threading.Thread(target=self._close_when_left, daemon=True).start()
        for response in stream:
            send(self._calls, packed_routes(response))

    def _close_when_left(self) -> None:
        with suppress(OSError):
            self._calls.recv(1)
        self._close()


def _answered(call: Callable[[], object]) -> object:
    """Return the call's result, or its error in a form that the training process can unpickle."""
    try:
        return call()
    except SignalboxError as error:
        return error
    except Exception as error:
        return SignalboxError(f"{type(error).__name__}: {error}")
