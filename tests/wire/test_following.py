"""``Following``: a client's copy of fabric, jobs and plan that follows a real API server."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from controller.api import watches
from signalbox.client import Client
from signalbox.live.following import Following
from signalbox.live.state import Kind
from tests.support.wire.api_calls import ring
from tests.support.wire.control_stand_in import running_api

WAIT_S = 60.0


def until(following: Following, found: Callable[[], object]) -> frozenset[Kind]:
    """Return all changes until the condition holds."""
    changed, end = frozenset[Kind](), time.monotonic() + WAIT_S
    while not found():
        assert time.monotonic() < end
        changed |= following.changes(0.05)
    return changed


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watches, "SPACING_S", 0.01)


def test_it_has_what_the_api_has_and_follows_it() -> None:
    with (
        running_api() as api,
        Following(lambda: Client(api.addresses[0])) as following,
        Client(api.addresses[0]) as client,
    ):
        state = following.state
        changed = until(following, lambda: state.status and state.switches and state.alarms)
        assert {Kind.SHAPE, Kind.STATUS, Kind.ALARMS, Kind.REACHED} <= changed
        assert {switch.name for switch in state.switches.values()} == {"leaf1", "leaf2", "spine1"}
        assert state.lost == ""
        client.register_job(ring())
        assert Kind.JOBS in until(following, lambda: "ring" in state.jobs)
        client.replan()
        assert Kind.PLAN in until(following, lambda: state.plan)


def test_without_a_controller_it_says_why_and_goes_on() -> None:
    with Following(lambda: Client("127.0.0.1:1")) as following:
        assert Kind.REACHED in until(following, lambda: following.state.lost)
        assert "no answer from the controller at 127.0.0.1:1" in (following.state.lost or "")
