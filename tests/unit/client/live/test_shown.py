"""Messages of the API in words."""

from __future__ import annotations

from signalbox.live.shown import event_line
from signalbox.v1 import signalbox_pb2 as pb


def event(what: str, **details: str) -> pb.Event:
    return pb.Event(what=what, details=[pb.EventDetail(name=name, value=value) for name, value in details.items()])


def test_an_event_that_has_a_sentence_is_told_by_it() -> None:
    assert event_line(event("alarm over", kind="link_down", text="link a is down")) == "alarm over: link a is down"
    assert event_line(event("plan kept", moves="0", ms="3")) == "plan kept  moves=0  ms=3"
    assert event_line(event("rules adopted")) == "rules adopted"
