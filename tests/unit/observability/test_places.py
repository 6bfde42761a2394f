"""Who gets a place of the metrics server, and who goes for it."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from controller.observability.metrics import _Client, displaced, last_in_turn, next_in_turn


class Clients:
    """Connections in the order of their beginnings: of an address, in capitals when it has asked."""

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


@pytest.mark.parametrize(
    ("places", "newcomer", "goes"),
    [
        ("AAAA", "b", 0),
        ("AAAa", "b", 3),
        ("BAAA", "b", 1),
        ("BBAA", "b", None),
        ("BbAA", "b", 1),
        ("ABCD", "e", None),
        ("abcd", "e", 0),
        ("abcd", "d", 3),
        ("bAAA", "a", None),
        ("baAA", "a", 1),
    ],
)
def test_a_newcomer_takes_a_place_of_the_address_that_has_most(
    clients: Clients, places: str, newcomer: str, goes: int | None
) -> None:
    held = clients(*places)
    assert displaced(held, clients.one(newcomer)) is (None if goes is None else held[goes])


def test_who_was_ended_already_is_not_ended_again(clients: Clients) -> None:
    held = clients(*"AAA")
    held[0].ended = True
    assert displaced(held, clients.one("b")) is held[1]


def test_turns_go_to_the_address_with_fewest_places_and_then_by_time(clients: Clients) -> None:
    held, waiting = clients(*"AAB"), clients(*"aabc")
    order = []
    while (following := next_in_turn(waiting, held)) is not None:
        waiting.remove(following)
        held.append(following)
        order.append(following.address[0])
    assert order == ["c", "b", "a", "a"]


def test_the_newest_of_the_address_of_which_most_wait_is_refused(clients: Clients) -> None:
    waiting = clients(*"abaca")
    assert last_in_turn(waiting) is waiting[4]
