"""The event history over real gRPC."""

import time
from dataclasses import replace
from functools import partial

import pytest

from controller.api import events
from signalbox.client import Client
from signalbox.errors import InvalidInput
from signalbox.v1 import signalbox_pb2 as pb
from signalbox.words import EventKind
from tests.support.wire.control_stand_in import Running


def happen(api: Running, *whats: str, kind: EventKind = EventKind.PLAN) -> None:
    """Record events, and publish a status afterwards, as the controller does."""
    for what in whats:
        api.control.board.history.add(kind, what, {"n": 1}, time.time())
    api.control.put(lambda: setattr(api.control, "status", replace(api.control.status)))


def test_lists_come_in_pages(api: Running, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "MAX_PAGE", 2)
    happen(api, "a", "b", "c", "d", "e")
    assert [event.what for event in client.list_events()] == ["a", "b", "c", "d", "e"]
    assert [event.what for event in client.list_events(kinds=["drain"])] == []
    assert [event.what for event in client.list_events(time.time() + 60)] == []
    found = list(client.list_events())
    again = list(client.list_events(found[2].event_time.seconds + found[2].event_time.nanos / 1e9))
    assert [event.number for event in again] == [event.number for event in found[2:]]


def test_a_watch_goes_on_with_what_follows_and_after_a_token(api: Running, client: Client) -> None:
    happen(api, "before")
    watch = client.watch_events(after_s=1.0)
    first = next(watch)
    assert [event.what for event in first.events] == ["before"]
    happen(api, "one", kind=EventKind.DRAIN)
    assert [event.what for event in next(watch).events] == ["one"]
    watch.close()
    happen(api, "two")
    resumed = client.watch_events(first.resume_token)
    assert [event.what for event in next(resumed).events] == ["one", "two"]
    resumed.close()
    only = client.watch_events(after_s=1.0, kinds=["drain"])
    assert [event.what for event in next(only).events] == ["one"]
    only.close()


@pytest.mark.parametrize(("request_", "problem"), [
    (pb.ListEventsRequest(page_size=-1), r"page_size: must be at least 0 \(given: -1\)"),
    (pb.ListEventsRequest(page_token="x"), "page_token: 'x' is not a token of this controller"),
    (
        pb.ListEventsRequest(kinds=[pb.EVENT_KIND_UNSPECIFIED]),
        r"kinds\[0\]: must be one of EVENT_KIND_CONTROLLER, ",
    ),
    (pb.ListEventsRequest(kinds=[pb.EVENT_KIND_DRAIN] * 65), r"kinds: at most 64 are allowed \(given: 65\)"),
])  # fmt: skip
def test_wrong_requests_name_the_field(client: Client, request_: pb.ListEventsRequest, problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        client._call(client._controller.ListEvents, request_)


def test_what_is_too_long_or_no_token_is_refused(client: Client) -> None:
    """A watch keeps its list of kinds and searches the list for each event, so a long list would be costly."""
    with pytest.raises(InvalidInput, match="kinds: at most 64 are allowed"):
        next(client.watch_events(kinds=["drain"] * 100_000))
    with pytest.raises(InvalidInput, match="job_ids: at most 10000 are allowed"):
        client.list_routes([""] * 10_001)
    with pytest.raises(InvalidInput, match=r"resume_token: '.*' is not a token of this controller"):
        next(client.watch_events("1" * 30))


@pytest.mark.parametrize("call", ["watch", "list"])
def test_a_token_that_is_later_than_all_events_is_refused(api: Running, client: Client, call: str) -> None:
    """The watch would receive nothing, and report no error."""
    happen(api, "one")
    later = str(api.control.board.history.last + 1)
    asked = {
        "watch": partial(next, client.watch_events(later)),
        "list": partial(client._call, client._controller.ListEvents, pb.ListEventsRequest(page_token=later)),
    }[call]
    with pytest.raises(InvalidInput, match=r"_token: '.*' is later than all events: .*; omit it"):
        asked()


def test_a_clock_that_is_set_back_hides_no_event(api: Running, client: Client) -> None:
    history, now = api.control.board.history, time.time()
    history.add(EventKind.PLAN, "ahead", {}, now + 3600)
    history.add(EventKind.PLAN, "set right", {}, now)
    assert [event.what for event in client.list_events(now + 60)] == ["ahead"]
    watch = client.watch_events(after_s=now + 60)
    assert [event.what for event in next(watch).events] == ["ahead"]
    happen(api, "follows")
    assert [event.what for event in next(watch).events] == ["follows"]
    watch.close()
