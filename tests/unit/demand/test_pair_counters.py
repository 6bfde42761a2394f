"""Total bytes and packets per pair of hosts, whatever happens to the rules that count the pair."""

from __future__ import annotations

import numpy as np
import pytest

from controller.demand import pair_counters
from controller.demand.pair_counters import PairCounters, Totals
from controller.fabric.counter_samples import Counted
from controller.fabric.topology import Dpid
from signalbox.jobs.subflows import Pair, exactly

LEAF, OTHER = Dpid(1), Dpid(2)
PAIR = ("10.0.1.1", "10.0.2.1")
WHOLE, LEARNING = Counted(*PAIR), Counted(*PAIR, "learning")


class Polls:
    """Polls of one switch, two seconds apart."""

    def __init__(self) -> None:
        self.counters = PairCounters()
        self.now = 0.0

    def poll(self, *readings: tuple[Counted, int]) -> float:
        self.now += 2
        counts = np.array([(total, total // 100) for _, total in readings], np.float64).reshape(-1, 2)
        self.counters.count(LEAF, self.now, tuple(what for what, _ in readings), counts)
        totals = self.totals(PAIR)
        assert totals.packets[0] == totals.bytes[0] // 100
        return float(totals.bytes[0])

    def totals(self, *pairs: Pair, job: str = "") -> Totals:
        return self.counters.totals(self.counters.rows(pairs, job, self.counters.version))


@pytest.fixture
def polls() -> Polls:
    return Polls()


Poll = tuple[dict[Counted, int], int]
"""Total of each rule that a poll reads, and the total of the pair after it."""


@pytest.mark.parametrize(
    "each",
    [
        pytest.param([({WHOLE: 10_000}, 0), ({WHOLE: 10_500}, 500)], id="bytes before the first poll are left out"),
        pytest.param([({}, 0), ({WHOLE: 700}, 700)], id="a rule that is new since a poll counts from its start"),
        pytest.param([({WHOLE: 10_000}, 0), ({WHOLE: 12_000}, 2000), ({WHOLE: 400}, 2400)], id="added anew"),
        pytest.param([({WHOLE: 1000}, 0), ({WHOLE: 2000}, 1000), ({}, 1000), ({WHOLE: 3000}, 2000)], id="no answer"),
        pytest.param(
            [({}, 0), ({LEARNING: 1000}, 1000), ({LEARNING: 1500, WHOLE: 300}, 1800), ({WHOLE: 800}, 2300)],
            id="other rules count it",
        ),
    ],
)
def test_the_total_of_a_pair_goes_on_whatever_happens_to_its_rules(polls: Polls, each: list[Poll]) -> None:
    for readings, expected in each:
        assert polls.poll(*readings.items()) == expected


@pytest.mark.parametrize("away_s", [10.0, 61.0, 3600.0])
def test_what_a_connected_switch_counts_is_unknown_for_as_long_as_it_does_not_answer(
    polls: Polls, away_s: float
) -> None:
    polls.poll()
    polls.poll((WHOLE, 700))
    before = polls.now
    assert polls.counters.interrupted(before + 2, 4.0) == frozenset()
    polls.counters.count(OTHER, before + away_s, (Counted("10.0.2.1", "10.0.1.1"),), np.array([[0.0, 0.0]]))
    polls.counters.keep({PAIR})
    assert polls.counters.interrupted(before + away_s, 4.0) == {PAIR}
    polls.now = before + away_s
    assert polls.poll((WHOLE, 900)) == 900
    assert polls.counters.interrupted(polls.now, 4.0) == frozenset()


def test_some_rules_are_polled_in_between_and_all_go_on_from_there(polls: Polls) -> None:
    def poll_some(total: int) -> None:
        polls.counters.count(LEAF, polls.now + 0.5, (LEARNING,), np.array([[total, total // 100]]), all_rules=False)

    poll_some(900)
    assert polls.totals(PAIR).bytes[0] == 0, "it may have counted that long ago"
    assert polls.poll((WHOLE, 100), (LEARNING, 1000)) == 0
    polls.counters.news = False
    poll_some(1500)
    assert polls.totals(PAIR).bytes[0] == 500
    assert polls.counters.news
    assert polls.poll((WHOLE, 300), (LEARNING, 1700)) == 900
    polls.counters.switch_left(LEAF)
    assert polls.counters.interrupted(polls.now, 4.0) == {PAIR}


def test_a_switch_that_comes_back_is_counted_from_then_on(polls: Polls) -> None:
    polls.poll((WHOLE, 10_000))
    assert polls.poll((WHOLE, 11_000)) == 1000
    polls.counters.switch_left(LEAF)
    assert polls.poll((WHOLE, 90_000)) == 1000
    assert polls.poll((WHOLE, 90_500)) == 1500


def test_what_a_reported_connection_carries_is_its_jobs_alone(polls: Polls) -> None:
    connection = Counted(*PAIR, (exactly(40000), exactly(50000)))
    polls.counters.connections = {(*PAIR, 40000, 50000): "mine"}
    polls.poll()
    assert polls.poll((WHOLE, 300), (connection, 900)) == 300
    assert polls.totals(PAIR, job="mine").bytes[0] == 900
    both = polls.totals(PAIR, job="mine").with_others(polls.totals(PAIR), np.array([True]))
    assert both.bytes[0] == 1200


def test_pairs_that_are_not_kept_are_forgotten_and_others_are_not(polls: Polls) -> None:
    polls.poll()
    polls.poll((WHOLE, 100), (Counted("10.0.1.1", "10.0.3.1"), 200))
    polls.counters.keep({PAIR})
    totals = polls.totals(PAIR, ("10.0.1.1", "10.0.3.1"))
    assert totals.bytes.tolist() == [100, 0]
    assert np.isnan(totals.at[1])


def test_when_most_rules_are_new_it_is_time_to_forget(polls: Polls, monkeypatch: pytest.MonkeyPatch) -> None:
    """A switch that reports new rules in each poll neither fills the memory nor changes the totals of a pair."""
    monkeypatch.setattr(pair_counters, "FEW", 10)
    polls.poll((WHOLE, 1))
    for number in range(1000):
        polls.poll((WHOLE, 1), *((Counted("10.0.1.1", f"10.1.{number}.{each}"), 1) for each in range(9)))
        if polls.counters.has_grown:
            polls.counters.keep({PAIR})
            assert not polls.counters.has_grown
    in_time = 9 * pair_counters.AWAY_S / 2
    assert len(polls.counters._rule_of) < 4 * in_time
    assert polls.poll((WHOLE, 701)) == 700
