"""``Following`` before a controller that sends without end, too much, or nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest

from signalbox.errors import SignalboxError
from signalbox.live import following as module
from signalbox.live import state as kept
from signalbox.live.following import Following
from signalbox.live.state import Kind
from signalbox.v1 import signalbox_pb2 as pb

WAIT_S = 60.0


class Controller:
    """Client of a controller whose watch of the fabric sends ``messages``, and which answers nothing else."""

    def __init__(self, messages: Callable[[], Iterator[pb.WatchFabricResponse]]) -> None:
        self._messages = messages
        self._closed = False
        self.tokens: list[str] = []

    def watch_fabric(self, resume_token: str) -> Iterator[pb.WatchFabricResponse]:
        self.tokens.append(resume_token)
        for message in self._messages():
            if self._closed:
                raise ValueError("the channel is closed")
            yield message

    def _nothing(self, *_: object, **__: object) -> Any:
        raise SignalboxError("refused")

    watch_jobs = watch_alarms = watch_plan = watch_events = get_status = _nothing

    def close(self) -> None:
        self._closed = True


def follows(controller: Controller, found: Callable[[Following], object]) -> None:
    client: Any = controller
    with Following(lambda: client) as following:
        end = time.monotonic() + WAIT_S
        while not found(following):
            assert time.monotonic() < end, following.state.refused
            following.changes(0.05)


def named(number: int, token: str) -> pb.WatchFabricResponse:
    return pb.WatchFabricResponse(switches=[pb.Switch(dpid=number, name="s" * 100)], resume_token=token)


def test_messages_that_arrive_meanwhile_are_left_to_the_next_call() -> None:
    client: Any = Controller(lambda: iter(()))
    following = Following(lambda: client)
    calls = []

    def again() -> frozenset[Kind]:
        calls.append(1)
        following._put(again)
        return frozenset({Kind.RATES})

    following._put(again)
    assert [following.changes() for _ in range(3)] == [{Kind.RATES}] * 3
    assert len(calls) == 3


def test_a_change_without_end_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_BYTES", 10_000)
    endless = Controller(lambda: (named(number, "") for number in count()))
    follows(endless, lambda found: "more than 10,000 bytes for one change" in found.state.refused)


def test_after_many_changes_a_watch_begins_with_a_snapshot_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHANGED_BYTES", 10_000)
    monkeypatch.setattr(module, "RETRY_S", 0.0)
    endless = Controller(lambda: (named(number, "1") for number in count()))
    follows(endless, lambda _: len(endless.tokens) > 2)
    assert set(endless.tokens) == {""}


def test_too_many_entries_are_refused_and_the_view_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "MOST_ENTRIES", 50)
    endless = Controller(lambda: (named(number, "1") for number in count()))
    sizes = []

    def said(following: Following) -> bool:
        sizes.append(len(following.state.switches))
        return "more than 50 messages of the type Switch" in following.state.refused

    follows(endless, said)
    assert max(sizes) == 50


def test_what_was_never_received_is_named() -> None:
    follows(
        Controller(lambda: iter([named(1, "1")])),
        lambda found: found.state.switches and found.state.refused == "refused",
    )
    client: Any = Controller(lambda: iter(()))
    silent = Following(lambda: client)
    assert silent.state.refused == "alarms not received yet; fabric not received yet; jobs not received yet"
