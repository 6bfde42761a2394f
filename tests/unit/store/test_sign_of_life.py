"""Sign of life: only a process that accepted a connection, and whose machine refuses the next one, has ended."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing
from threading import Event

import pytest

from controller.store import sign_of_life
from controller.store.sign_of_life import SignOfLife, Watch
from tests.support.waiting import until

LONG_S = 20.0


@pytest.fixture
def sign() -> Iterator[SignOfLife]:
    with closing(SignOfLife("127.0.0.1:2379")) as made:
        yield made


def test_the_end_of_the_process_is_noticed(sign: SignOfLife) -> None:
    ended = Event()
    with closing(Watch()) as watch:
        watch.follow(sign.address, ended.set)
        until(lambda: watch._connection is not None)
        sign.close()
        assert ended.wait(LONG_S)


def test_a_connection_that_ends_alone_says_nothing(sign: SignOfLife, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sign_of_life, "MOST_CONNECTIONS", 1)
    ended = Event()
    with closing(Watch()) as watch:
        watch.follow(sign.address, ended.set)
        until(lambda: watch._connection is not None)
        first = watch._connection
        host, port = sign.address.split(":")
        with socket.create_connection((host, int(port))):
            until(lambda: watch._connection is not first)
        assert not ended.is_set()


def test_a_port_that_never_accepted_a_connection_says_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        host, port = server.getsockname()
    ended = Event()
    Watch()._run(f"{host}:{port}", ended.set, Event())
    assert not ended.is_set()
