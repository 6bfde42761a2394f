"""Whose calls wait for those of others."""

from __future__ import annotations

from controller.api.connections import ConnectionLimits
from controller.api.relay import CALLS_AT_ONCE, CallsPerS, Relay


def test_who_catches_up_does_not_wait_for_the_calls_of_others_and_who_begins_many_does() -> None:
    relay = Relay(ConnectionLimits(10, 10, 10.0, 1.0), 1e9, CallsPerS(800.0, 1000.0), lambda *_: None)
    assert relay.too_fast_s("attacker", 1, 5000) > 1
    assert relay.too_fast_s("catches up", 1, CALLS_AT_ONCE // 4) == 0
    assert relay.too_fast_s("catches up", 1, CALLS_AT_ONCE // 8) == 0
    assert relay.too_fast_s("many", 1, CALLS_AT_ONCE - 1) > 1
