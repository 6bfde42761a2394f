"""Places for connections to the metrics server: which client gets a place, and which client then loses its place."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from controller.observability.metrics import _Client, displaced


class Clients:
    """Connections of clients by address, in the order in which they began.

    A name in capitals stands for a client that has sent a request."""

    def __init__(self, sockets: ExitStack) -> None:
        self._sockets = sockets
        self._made = 0

    def __call__(self, *names: str) -> list[_Client]:
        return [self.one(name) for name in names]

    def one(self, name: str) -> _Client:
        self._made += 1
        sock = self._sockets.enter_context(socket.socket())
        return _Client(sock, (name.lower(), 1), float(self._made), asked=name.isupper())


@pytest.fixture
def clients() -> Iterator[Clients]:
    with ExitStack() as sockets:
        yield Clients(sockets)


@pytest.mark.parametrize(("places", "newcomer", "goes"), [
    ("AAAA", "b", 0), ("AAAa", "b", 3), ("BAAA", "b", 1), ("BBAA", "b", None), ("BbAA", "b", 1), ("ABCD", "e", None),
    ("abcd", "e", 0), ("abcd", "d", 3), ("bAAA", "a", None), ("baAA", "a", 1),
])  # fmt: skip
def test_a_newcomer_takes_a_place_of_the_address_that_has_most(
    clients: Clients, places: str, newcomer: str, goes: int | None
) -> None:
    held = clients(*places)
    assert displaced(held, clients.one(newcomer)) is (None if goes is None else held[goes])
