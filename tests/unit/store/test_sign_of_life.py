"""Sign of life: only a process that sent its word, and whose machine refuses the next connection, has ended."""

import errno
import socket
from collections.abc import Iterator
from contextlib import closing
from threading import Event

import pytest

from controller.store import sign_of_life
from controller.store.sign_of_life import SignOfLife, Watch
from signalbox.addresses import host_and_port
from tests.support.waiting import DEADLINE_S, beside, until


@pytest.fixture
def sign() -> Iterator[SignOfLife]:
    with closing(SignOfLife("127.0.0.1:2379")) as made:
        yield made


def test_the_end_of_the_process_is_noticed(sign: SignOfLife) -> None:
    ended = Event()
    with closing(Watch()) as watch:
        watch.follow(sign.address, ended.set)
        until(lambda: watch.known)
        sign.close()
        assert ended.wait(DEADLINE_S)


def test_a_connection_that_ends_alone_says_nothing(sign: SignOfLife, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sign_of_life, "MOST_CONNECTIONS", 1)
    ended = Event()
    with closing(Watch()) as watch:
        watch.follow(sign.address, ended.set)
        until(lambda: watch.known)
        first = watch._connection
        with socket.create_connection(host_and_port(sign.address.split()[0])):
            until(lambda: watch._connection is not first)
        assert not ended.is_set()


def test_a_port_that_never_accepted_a_connection_says_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        host, port = server.getsockname()
    ended = Event()
    Watch()._run(f"{host}:{port} word", ended.set, Event())
    assert not ended.is_set()


@pytest.mark.parametrize("sent", [b"", b"another word", b"wor", b"word and more"])
def test_another_process_at_the_address_says_nothing_when_it_ends(sent: bytes) -> None:
    """A loopback address in etcd, for example, leads a standby on another machine to another process."""
    watch, ended, stopping = Watch(), Event(), Event()
    with socket.create_server(("127.0.0.1", 0)) as server:
        host, port = server.getsockname()
        server.settimeout(DEADLINE_S)
        watching = beside(watch._run, f"{host}:{port} word", ended.set, stopping)
        with server.accept()[0] as connection:
            server.close()
            connection.sendall(sent)
    watching.result(DEADLINE_S)
    assert not ended.is_set()


def test_a_listener_without_descriptors_accepts_later(sign: SignOfLife, monkeypatch: pytest.MonkeyPatch) -> None:
    failed, accept = Event(), socket.socket.accept

    def refused(server: socket.socket) -> tuple[socket.socket, object]:
        if failed.is_set():
            return accept(server)
        failed.set()
        raise OSError(errno.EMFILE, "Too many open files")

    with closing(Watch()) as watch:
        monkeypatch.setattr(socket.socket, "accept", refused)
        with socket.create_connection(host_and_port(sign.address.split()[0])):
            assert failed.wait(DEADLINE_S)
            watch.follow(sign.address, lambda: None)
            until(lambda: watch.known)
