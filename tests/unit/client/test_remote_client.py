"""Calls through another process: its sockets, the messages on them, and the errors when there is no answer."""

import os
import pickle
import resource
import socket
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from signalbox import errors, remote_client
from signalbox.credentials import Credentials
from signalbox.errors import (
    AlreadyExists,
    Exhausted,
    FieldProblem,
    Gone,
    InvalidInput,
    NotFound,
    NotKnownYet,
    SignalboxError,
    Unavailable,
    Unreachable,
)
from signalbox.own_sockets import OwnSocket, pair
from signalbox.remote_client import Announced, RemoteClient, receive, send


@pytest.fixture
def limit() -> Iterator[int]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, hard))
    yield 512
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_their_numbers_are_high_as_long_as_there_are_such(limit: int) -> None:
    found = [one for _ in range(50) for one in pair()]
    numbers = {one.fileno() for one in found}
    assert numbers > set(range(limit - 64, limit))
    assert len(numbers) == 100
    assert min(numbers) > 2
    for one in found:
        one.close()


def test_one_whose_number_is_another_file_by_now_leaves_that_alone() -> None:
    ours, theirs = pair()
    read, write = os.pipe()
    number = ours.fileno()
    os.dup2(write, number)
    for use in (lambda: ours.sendall(b"1"), lambda: ours.send(b"1"), lambda: ours.recv(1), lambda: ours.shutdown(2)):
        with pytest.raises(OSError, match="Bad file descriptor"):
            use()
    ours.close()
    assert ours.fileno() == -1
    os.write(number, b"still open")
    assert os.read(read, 100) == b"still open"
    assert theirs.recv(1) == b"", "the program has closed it"
    for descriptor in (read, write, number):
        os.close(descriptor)
    theirs.close()
    assert isinstance(theirs, OwnSocket)
    assert theirs.fileno() == -1


ABOUT = {"jobId": "job"}
ERRORS: list[SignalboxError] = [
    InvalidInput((FieldProblem("endpoints[1]", "is missing", "NO_SUCH_NAME"), FieldProblem("", "and 3 more"))),
    NotFound("over", Gone.JOB_TAKEN_OVER, ABOUT),
    AlreadyExists("taken", {"heldBy": "caller"}),
    Exhausted("too many", "tenant", 1.5, ABOUT),
    Unavailable("not now", 2.0),
    NotKnownYet("not yet", ABOUT, 3.0),
]
OTHERS = [
    kind("text", ABOUT)
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, SignalboxError) and kind not in {type(error) for error in ERRORS}
]


@pytest.mark.parametrize("error", [*ERRORS, *OTHERS], ids=lambda error: type(error).__name__)
def test_errors_are_the_same_in_another_process(error: SignalboxError) -> None:
    error.about = {**error.about, "more": "said"}
    there = pickle.loads(pickle.dumps(error))
    assert type(there) is type(error)
    assert (str(there), vars(there)) == (str(error), vars(error))


@pytest.fixture
def peer(monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """Yield the other end of the socket of a client whose calls nobody serves."""
    ours, theirs = socket.socketpair()
    monkeypatch.setattr(remote_client._process, "connect", lambda: ours)
    send(theirs, None)  # the process has started
    with ours, theirs:
        yield theirs


def client(timeout_s: float) -> RemoteClient:
    return RemoteClient("192.0.2.10:50051", timeout_s - remote_client.MARGIN_S, Credentials())


def test_an_answer_that_comes_too_late_is_not_taken_for_that_of_the_next_call(peer: socket.socket) -> None:
    calls = client(0.05)
    with pytest.raises(Unreachable, match="50051: it did not arrive in time"):
        calls.renew_lease("job", "token")
    with pytest.raises(Unreachable):
        calls.deregister_job("job", "token")
    assert [receive(peer)[0], receive(peer)[0]] == ["open", "renew_lease"]
    with pytest.raises(EOFError):
        receive(peer)


def test_a_call_ends_when_the_client_is_closed(peer: socket.socket) -> None:
    calls = client(60.0)
    found: list[Any] = []

    def ask() -> None:
        try:
            calls.renew_lease("job", "token")
        except SignalboxError as error:
            found.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    assert [receive(peer)[0], receive(peer)[0]] == ["open", "renew_lease"]
    calls.close()
    thread.join(60.0)
    assert [type(error) for error in found] == [Unreachable]
    assert calls._socket.fileno() == -1


@pytest.mark.usefixtures("peer")
def test_the_descriptor_of_a_call_that_is_under_way_stays_until_that_has_ended() -> None:
    """A file that the program opens could get the number of the closed descriptor while the call still reads."""
    calls = client(60.0)
    with calls._in_use(None):
        calls.close()
        assert calls._socket.fileno() != -1
    assert calls._socket.fileno() == -1


def test_messages_of_any_length_arrive_whole() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        long = ("x" * 3_000_000, Announced("token"))
        thread = threading.Thread(target=send, args=(ours, long))
        thread.start()
        assert receive(theirs) == long
        thread.join()


@pytest.mark.parametrize(("name", "value"), [("frozen", True), ("executable", ""), ("executable", "/no/such/file")])
def test_a_program_without_an_interpreter_is_told(name: str, value: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error keeps a frozen program from starting itself a second time."""
    remote_client.end_process()
    monkeypatch.setattr(sys, name, value, raising=False)
    with pytest.raises(SignalboxError, match="the controller"):
        RemoteClient("192.0.2.10:50051", 1.0, Credentials())
