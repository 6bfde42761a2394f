"""Whose calls wait for those of others."""

from __future__ import annotations

from controller.api.relay.accepting import (
    CALLS_AT_ONCE,
    EARLY_BYTES,
    EARLY_BYTES_PER_S,
    SHARE_CALLS,
    SHARE_S,
    Accepting,
    Pace,
)


def accepting() -> Accepting:
    return Accepting(Pace(1e9, 800.0, 1000.0, connections=10, connections_per_s=10.0), "test/")


def test_who_catches_up_does_not_wait_for_the_calls_of_others_and_who_begins_many_does() -> None:
    r = accepting()
    assert r.too_fast_s("attacker", r.share(), 1, 5000) > 1
    catching_up = r.share()
    assert r.too_fast_s("catches up", catching_up, 1, CALLS_AT_ONCE // 4) == 0
    assert r.too_fast_s("catches up", catching_up, 1, CALLS_AT_ONCE // 8) == 0
    assert r.too_fast_s("many", r.share(), 1, CALLS_AT_ONCE - 1) > 1


def test_a_connection_within_its_share_does_not_wait_for_others_of_its_client() -> None:
    r = accepting()
    assert r.too_fast_s("a", r.share(), 1, 5000) > 5
    quiet = r.share()
    assert r.too_fast_s("a", quiet, 1, int(SHARE_CALLS)) == 0
    assert r.too_fast_s("a", quiet, 1, 5) > 5


def test_a_connection_that_has_used_its_share_of_bytes_waits_with_its_client() -> None:
    r = accepting()
    assert r.too_fast_s("a", r.share(), 3_000_000_000, 0) > 1
    quiet = r.share()._replace(early=None)
    assert r.too_fast_s("a", quiet, int(1e9 * SHARE_S) // 2, 0) == 0
    assert r.too_fast_s("a", quiet, int(1e9 * SHARE_S), 0) > 1


def test_a_connection_whose_client_is_not_known_may_send_little() -> None:
    """Compressed header fields are a thousand times as large in gRPC as on the wire."""
    r = accepting()
    unknown = r.share()
    assert r.too_fast_s("a", unknown, EARLY_BYTES - 1, 0) == 0
    assert r.too_fast_s("a", unknown, int(10 * EARLY_BYTES_PER_S), 0) > 8
    assert r.too_fast_s("a", r.share(), EARLY_BYTES - 1, 0) == 0, "another one has its own"
    assert r.too_fast_s("a", r.share(), 2 * EARLY_BYTES, 0) > 8, "but what is beyond that is of all together"
    assert r.too_fast_s("b", r.share(), 2 * EARLY_BYTES, 0) == 0
    assert r.too_fast_s("a", r.share()._replace(early=None), 1_000_000, 0) == 0, "a call of it was let in"
