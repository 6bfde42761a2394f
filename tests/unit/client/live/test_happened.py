"""Events in sentences. ``tests/unit/serving/test_event_log.py`` tests that each kind of event has a sentence."""

import pytest

from signalbox.live.happened import event_line
from signalbox.v1 import signalbox_pb2 as pb


def line(what: str, **details: str) -> str:
    return event_line(
        pb.Event(what=what, details=[pb.EventDetail(name=name, value=value) for name, value in details.items()])
    )


@pytest.mark.parametrize(("what", "details", "said"), [
    ("alarm over", {"kind": "link_down", "text": "link a is down"}, "alarm over: link a is down"),
    ("drained", {"part": "spine2", "flows": "0"}, "spine2 drained: no flow is left on it"),
    ("drained", {"part": "spine2", "flows": "6"}, "spine2 drained: 6 flows still to move"),
    ("link down", {"count": "1", "names": "leaf1:1>spine1"}, "link down: leaf1:1>spine1"),
    ("switch up again", {"count": "6", "names": "a, b, c, d"}, "6 switches up again: a, b, c, d and 2 more"),
    ("hosts found", {"count": "5", "names": "a, b, c, d"}, "5 hosts found: a, b, c, d and 1 more"),
    ("job ended", {"job": "ring", "uid": "7f", "reason": "lease_ran_out"}, "job ring ended: lease ran out"),
    ("circuits changed", {"count": "12", "ms": "310.4"}, "12 circuits set up or removed, in 310 ms"),
    ("job wired", {"job": "ring", "circuits": "12"}, "job ring has 12 circuits"),
    ("plan kept: no better one", {"worst_slowdown": "1.5", "bound": "1.0", "ecmp": "2.1", "solver": "a", "ms": "3"},
     "plan kept: no better one (worst slowdown 1.5, under ECMP 2.1, bound 1.0)"),
])  # fmt: skip
def test_an_event_is_told_by_a_sentence(what: str, details: dict[str, str], said: str) -> None:
    assert line(what, **details) == said


def test_an_event_of_another_version_is_told_as_it_is() -> None:
    assert line("links lost", links="2", ms="3") == "links lost  links=2  ms=3"
    assert line("drained", part="spine2") == "drained  part=spine2"
    assert line("drained", part="spine2", flows="many") == "drained  part=spine2  flows=many"
    assert line("something") == "something"
