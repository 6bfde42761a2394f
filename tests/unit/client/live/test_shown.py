"""Figures and messages of the API in words."""

from __future__ import annotations

import pytest

from signalbox.live.shown import event_line, rate
from signalbox.v1 import signalbox_pb2 as pb


def event(what: str, **details: str) -> pb.Event:
    return pb.Event(what=what, details=[pb.EventDetail(name=name, value=value) for name, value in details.items()])


def test_an_event_that_has_a_sentence_is_told_by_it() -> None:
    assert event_line(event("alarm over", kind="link_down", text="link a is down")) == "alarm over: link a is down"
    assert event_line(event("plan kept", moves="0", ms="3")) == "plan kept  moves=0  ms=3"
    assert event_line(event("rules adopted")) == "rules adopted"


@pytest.mark.parametrize(
    ("bps", "said"),
    [
        (0.0, "0 bit/s"),
        (999.6, "1 kbit/s"),
        (4.886e6, "4.89 Mbit/s"),
        (999.4e6, "999 Mbit/s"),
        (999.6e6, "1 Gbit/s"),
        (800e9, "800 Gbit/s"),
        (1.6e12, "1.6 Tbit/s"),
    ],
)
def test_a_rate_has_three_digits_and_never_an_exponent(bps: float, said: str) -> None:
    assert rate(bps) == said
