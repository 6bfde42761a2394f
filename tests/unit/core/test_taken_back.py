"""A failed commit: which requests are taken back, in which order, and the reply to each of them."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest

from controller.core.commits import Commits, KnownJobs
from controller.jobs.messages import SavedState, SaveState
from signalbox.errors import Unavailable
from signalbox.words import Mode

CHANGED = SavedState(mode=Mode.ECMP)


class Requests:
    """Requests that wait for the disk.

    ``did``: their outcomes, in order."""

    def __init__(self) -> None:
        self.commits = Commits(SavedState())
        self.did: list[tuple[str, str, float]] = []
        self.replies: dict[str, Future[Any]] = {}

    def hold(self, *names: str) -> None:
        for name in names:
            self.replies[name] = Future()

            def undo(now: float, name: str = name) -> None:
                self.did.append(("undone", name, now))

            def then(now: float, name: str = name) -> None:
                self.did.append(("done", name, now))

            self.commits.hold(self.replies[name], name, undo, then)

    def begin(self) -> None:
        (save,) = self.commits.begin(CHANGED, KnownJobs(), 1.0)
        assert isinstance(save, SaveState)


@pytest.fixture
def requests() -> Requests:
    return Requests()


def test_what_is_under_way_and_what_waits_is_taken_back_the_newest_first(requests: Requests) -> None:
    """A later request was accepted on top of the earlier requests, so it is undone before them."""
    requests.hold("a", "b")
    requests.begin()
    requests.hold("c", "d")
    replies = requests.commits.failed("disk full", 7.0)
    assert requests.did == [("undone", name, 7.0) for name in "dcba"]
    assert [reply.future for reply in replies] == [requests.replies[name] for name in "abcd"]
    assert {type(reply.value) for reply in replies} == {Unavailable}
    assert not requests.commits.holding
    assert not requests.commits.busy


def test_what_has_failed_is_taken_back_once(requests: Requests) -> None:
    requests.hold("a")
    requests.begin()
    requests.commits.failed("disk full", 7.0)
    requests.hold("b")
    requests.begin()
    requests.did.clear()
    assert [reply.value for reply in requests.commits.done(1, 9.0)] == ["b"]
    assert requests.did == [("done", "b", 9.0)]
    assert requests.commits.on_disk == CHANGED


def test_what_comes_while_a_commit_is_under_way_waits_for_the_next_one(requests: Requests) -> None:
    requests.hold("a")
    requests.begin()
    requests.hold("b")
    assert [reply.value for reply in requests.commits.done(1, 8.0)] == ["a"]
    assert requests.commits.holding
    requests.commits.begin(SavedState(), KnownJobs(), 9.0)
    assert [reply.value for reply in requests.commits.failed("disk full", 10.0)] != ["b"]
    assert requests.did == [("done", "a", 8.0), ("undone", "b", 10.0)]
