"""Calls that gRPC never ends, and a channel that it never closes: the client's calls end nevertheless."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest

from signalbox.active_channel import HEALTH, SERVING
from signalbox.client import Client
from signalbox.errors import TooSlow
from tests.support.waiting import DEADLINE_S

TIMEOUT_S = 0.05


class Answered:
    def result(self, timeout: float | None = None) -> bytes:  # noqa: ARG002
        return SERVING

    def trailing_metadata(self) -> tuple[()]:
        return ()

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        callback(self)

    def cancel(self) -> None:
        pass


class Endless:
    def __init__(self) -> None:
        self.is_cancelled = False

    def result(self, timeout: float | None = None) -> bytes:
        threading.Event().wait(timeout)
        raise grpc.FutureTimeoutError

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        pass

    def cancel(self) -> None:
        self.is_cancelled = True


class Hanging:
    """Channel that answers probes of the health service, and never ends another call."""

    def __init__(self) -> None:
        self.calls: list[Endless] = []
        self.may_close = threading.Event()

    def unary_unary(self, path: str, *_: Any, **__: Any) -> Any:
        return Method(self, path)

    unary_stream = unary_unary

    def close(self) -> None:
        self.may_close.wait()


class Method:
    def __init__(self, channel: Hanging, path: str) -> None:
        self._channel, self._path = channel, path

    def future(self, *_: Any, **__: Any) -> Any:
        if self._path == HEALTH:
            return Answered()
        self._channel.calls.append(Endless())
        return self._channel.calls[-1]


@pytest.fixture
def channel(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hanging]:
    channel = Hanging()
    monkeypatch.setattr(grpc, "insecure_channel", lambda *_, **__: channel)
    yield channel
    channel.may_close.set()


@pytest.mark.parametrize("address", ["c:1", "c:1,d:1"])
def test_a_call_and_the_end_of_a_client_are_not_waited_for_when_grpc_hangs(channel: Hanging, address: str) -> None:
    with Client(address, TIMEOUT_S) as client, pytest.raises(TooSlow, match="the answer did not arrive in time"):
        client.renew_lease("job", "token")
    [call] = channel.calls
    assert call.is_cancelled


AT_EXIT = """
import atexit
from signalbox.client import Client

client = Client("127.0.0.1:1", 5.0)

def end():
    try:
        client.renew_lease("job", "token")
    except Exception as error:
        print(type(error).__name__)
    client.close()

atexit.register(end)
"""
"""Program that calls, when it ends, an address at which no server listens."""


def test_calls_are_made_when_the_interpreter_ends() -> None:
    done = subprocess.run([sys.executable, "-c", AT_EXIT], capture_output=True, text=True, timeout=DEADLINE_S)
    assert (done.stdout, done.stderr) == ("Unreachable\n", "")
