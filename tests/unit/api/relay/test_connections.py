"""Which connections may stay."""

from __future__ import annotations

import itertools

import pytest

from controller.api.relay.connections import Connection, ConnectionLimits, Connections, Ended

LIMITS = ConnectionLimits(connections=6, of_client=3, silent_s=5.0, silent=4, uncalled=4)


@pytest.fixture
def connections() -> Connections:
    return Connections(LIMITS)


NUMBERS = itertools.count()


def accepted(connections: Connections, client: str, now: float) -> tuple[Connection, list[Ended]]:
    return connections.accepted(next(NUMBERS), client, f"{client}:1", now)


def opened(connections: Connections, client: str, now: float = 0.0) -> tuple[Connection, list[tuple[int, str]]]:
    connection, _ = accepted(connections, client, now)
    ended = connections.opened(connection, now)
    for gone, _ in ended:
        connections.gone(gone)
    return connection, [(gone.id, reason) for gone, reason in ended]


def called(connections: Connections, client: str, now: float = 0.0) -> tuple[Connection, list[tuple[int, str]]]:
    """With one call that is over."""
    connection, ended = opened(connections, client, now)
    connections.call_began(connection, now)
    connections.call_ended(connection, now)
    return connection, ended


def test_the_newest_silent_connection_replaces_the_oldest_of_who_has_most(connections: Connections) -> None:
    other, _ = accepted(connections, "other", 0.0)
    first, *_ = [accepted(connections, "many", 1.0)[0] for _ in range(3)]
    newest, ended = accepted(connections, "third", 2.0)
    assert ended == [(first, "silent")]
    connections.gone(first)
    assert {connections.get(c.id) for c in (other, newest)} == {other, newest}


def test_connections_without_a_call_end_in_time(connections: Connections) -> None:
    silent, _ = accepted(connections, "a", 0.0)
    waiting, _ = opened(connections, "a", 0.0)
    quiet, _ = called(connections, "b", 0.0)
    assert connections.overdue(4.9) == []
    assert connections.overdue(5.0) == [(silent, "silent")]
    assert connections.overdue(10.0) == [(silent, "silent"), (waiting, "no_call")]
    assert connections.get(quiet.id) is quiet


def test_one_client_replaces_its_own_first_those_without_a_call_then_the_longest_idle(connections: Connections) -> None:
    idle = [called(connections, "a", now)[0] for now in (1.0, 2.0)]
    waiting, _ = opened(connections, "a", 3.0)
    assert opened(connections, "b", 3.5)[1] == []
    assert called(connections, "a", 4.0)[1] == [(waiting.id, "client_connections")]
    connections.call_began(idle[0], 5.0)
    connections.call_ended(idle[0], 6.0)
    assert opened(connections, "a", 7.0)[1] == [(idle[1].id, "client_connections")]


def test_busy_connections_are_never_replaced(connections: Connections) -> None:
    for _ in range(3):
        connection, _ = opened(connections, "a")
        connections.call_began(connection, 0.0)
    newest, ended = opened(connections, "a")
    assert ended == [(newest.id, "client_connections")]
    assert len(connections) == 3


def test_who_has_most_makes_room_for_others(connections: Connections) -> None:
    first, *_ = [called(connections, "many")[0] for _ in range(3)]
    for client in ("a", "b", "c"):
        assert called(connections, client)[1] == []
    assert opened(connections, "d")[1] == [(first.id, "connections")]


def test_too_many_without_a_call_replace_each_other(connections: Connections) -> None:
    first, _ = opened(connections, "a")
    for client in ("a", "b", "c"):
        assert opened(connections, client)[1] == []
    assert opened(connections, "d")[1] == [(first.id, "no_call")]


def test_what_has_gone_counts_no_more(connections: Connections) -> None:
    for _ in range(20):
        connection, ended = called(connections, "a")
        assert ended == []
        connections.gone(connection)
        connections.gone(connection)
    assert len(connections) == 0
