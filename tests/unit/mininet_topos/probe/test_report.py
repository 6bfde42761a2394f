"""Figures of probes: counts and times in a window, with lost, duplicated and overtaken packets."""

import json
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mininet_topos.probe.probing import Outcome, Stream, read_streams
from mininet_topos.probe.queues import Drops, drops_since

INTERVAL_S = 0.001
DELAY_S = 0.005


def stream(count: int, arrived: list[int]) -> Stream:
    """Return a stream with a packet each millisecond.

    ``arrived``: numbers of the packets that arrive, in this order. Each arrives ``DELAY_S`` after it was sent, but not
    before the packet ahead of it."""
    sent = [number * INTERVAL_S for number in range(count)]
    arrivals: list[tuple[int, float]] = []
    for number in arrived:
        arrivals.append((number, max(sent[number] + DELAY_S, arrivals[-1][1] if arrivals else 0.0)))
    return Stream(("10.0.1.1", "10.0.2.1"), sent, arrivals)


def test_a_stop_lasts_from_the_first_packet_lost_to_the_next_that_arrives() -> None:
    lost = range(40, 60)
    broken = stream(100, [n for n in range(100) if n not in lost])
    outcome = broken.outcome(0, 1)
    assert outcome.lost == 20
    assert outcome.stopped_s == pytest.approx(0.020)
    assert outcome.silence_s == pytest.approx(0.021)
    assert [at for at, _ in broken.stops(0, 1)] == [pytest.approx(0.040)]


def test_a_stop_that_outlives_the_window_counts_to_its_end() -> None:
    broken = stream(100, [n for n in range(100) if n < 40 or n >= 90])
    assert broken.outcome(0, 0.045).lost == 5
    assert broken.outcome(0, 0.045).stopped_s == pytest.approx(0.050)
    assert stream(100, list(range(40))).outcome(0, 1).stopped_s == pytest.approx(0.059), "it never ends"
    assert broken.outcome(0.045, 0.050).stopped_s == pytest.approx(0.045), "it began before: what is left of it"


def test_doubled_and_overtaken_packets_are_told_apart() -> None:
    outcome = stream(6, [0, 1, 1, 3, 2, 4, 5]).outcome(0, 1)
    assert (outcome.lost, outcome.duplicated, outcome.overtaken) == (0, 1, 1)
    right = stream(100, list(range(100))).outcome(0, 1)
    assert (right.sent, right.lost, right.duplicated, right.overtaken, right.stopped_s) == (100, 0, 0, 0, 0)
    assert right.silence_s == pytest.approx(INTERVAL_S)


@given(st.lists(st.integers(0, 49), max_size=80), st.integers(0, 50), st.integers(0, 50))
def test_windows_add_up_and_nothing_is_counted_twice(arrived: list[int], first: int, second: int) -> None:
    """The counts of the windows add up, wherever the stream is cut; overtaking is only seen within a window."""
    whole = stream(50, arrived)
    cuts = [0.0, *sorted((first * INTERVAL_S, second * INTERVAL_S)), 1.0]
    parts = [whole.outcome(a, b) for a, b in pairwise(cuts)]
    total = whole.outcome(0, 1)
    for what in ("sent", "lost", "duplicated"):
        assert sum(getattr(part, what) for part in parts) == getattr(total, what)
    assert total.sent - total.lost + total.duplicated == len(arrived)
    assert sum(part.overtaken for part in parts) <= total.overtaken
    assert max(part.stopped_s for part in parts) == pytest.approx(total.stopped_s)


def test_reports_become_streams(tmp_path: Path) -> None:
    one, two = tmp_path / "one.json", tmp_path / "two.json"
    one.write_text(json.dumps({"ip": "a", "sent": {"b": [1.0, 2.0]}, "received": {}, "overflows": 3}))
    two.write_text(json.dumps({"ip": "b", "sent": {"a": [5.0]}, "received": {"a": [[1, 2.5]]}, "overflows": 0}))
    streams, overflows = read_streams([one, two])
    assert overflows == 3
    assert streams["a", "b"].outcome(0, 9) == Outcome(2, 1, 0, 0, stopped_s=1.0, silence_s=0.0)
    assert streams["b", "a"].outcome(0, 9).lost == 1


def test_a_counter_that_was_reset_counts_from_zero() -> None:
    before = {("leaf1-eth1", "data"): 7, ("leaf1-eth2", "data"): 5}
    after = {("leaf1-eth1", "data"): 9, ("leaf1-eth2", "data"): 1, ("leaf1-eth2", "late"): 4}
    assert drops_since(before, after) == Drops(data=2 + 1, probes=0, late=4, no_way=0)
