"""Queries of ``benchmarks faults`` to Prometheus, and its reading of metrics; the faults themselves need a lab."""

from types import SimpleNamespace

import pytest

from benchmarks.live import faults_seen
from benchmarks.live.faults import EMPTY, ROUNDS, asked
from benchmarks.live.faults_made import Series, Site
from benchmarks.live.faults_seen import AlertLog, first_times, holds
from benchmarks.monitoring import Prometheus

METRICS = """
signalbox_link_up{link="leaf1:3>spine1",src="leaf1"} 0
signalbox_link_up{link="leaf1:4>spine2",src="leaf1"} 1
signalbox_network_efficiency_ratio 0.5
"""


@pytest.mark.parametrize(
    ("series", "expected"),
    [
        (Series('signalbox_link_up{link="leaf1:3>spine1"', 0, 0), True),
        (Series('signalbox_link_up{link="leaf1:4>spine2"', 0, 0), False),
        (Series('signalbox_link_up{link="leaf9', 0, 0), False),
        (Series("signalbox_network_efficiency_ratio", 0.4, 0.6), True),
        (Series("signalbox_network_efficiency_ratio", 0, 0), False),
    ],
)
def test_a_series_is_found_by_its_beginning_and_value(series: Series, expected: bool) -> None:
    assert holds(METRICS, series) is expected


def test_what_may_be_empty_is_asked_for_and_each_fault_is_made_once() -> None:
    assert EMPTY.keys() <= {name for name, _ in asked("ring1")}
    names = [name for of_round in ROUNDS for name in of_round]
    assert len(names) == len(set(names))
    assert all(callable(getattr(Site, name)) for name in names)


def test_an_alert_has_an_episode_from_pending_to_its_end_and_another_when_it_comes_again() -> None:
    log = AlertLog(Prometheus("127.0.0.1:1"))
    labels = {"alertname": "SignalboxHostDown", "host": "10.0.1.1"}
    for now, states in enumerate([["pending"], ["pending"], ["firing"], [], ["pending"]]):
        log.take([{"labels": labels, "state": state} for state in states], float(now))
    first, second = log.episodes
    assert (first.labels, first.pending, first.firing, first.gone) == (labels, 0.0, 2.0, 3.0)
    assert (second.pending, second.firing, second.gone) == (4.0, None, None)


def test_conditions_are_looked_at_side_by_side_until_each_holds_or_time_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, has_held = 0.0, False

    def holds() -> bool:
        nonlocal has_held
        has_held = True
        return True

    def never_holds() -> bool:
        nonlocal now
        now += 100.0 * has_held
        return False

    monkeypatch.setattr(faults_seen, "time", SimpleNamespace(monotonic=lambda: now))
    soon, never = first_times(50.0, holds, never_holds)
    assert soon is not None
    assert never is None
