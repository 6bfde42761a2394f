"""Totals and rates from samples of counters, compared with plain interpolation."""

from __future__ import annotations

from bisect import bisect_right
from math import isnan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.fabric.counter_samples import DEPTH, Samples

SPAN = 12.0
WHOLE = 1 << 64


def rate(samples: Samples[str], start: float, end: float, key: str = "a") -> float:
    rows = np.array([samples.row_of[key]])
    return float(samples.rates_bps(rows, np.array([[start, end]]))[0, 0])


def recent(samples: Samples[str], window_s: float = 6.0, key: str = "a") -> float:
    return float(samples.recent_bps(np.array([samples.row_of[key]]), window_s)[0])


def newest(samples: Samples[str], key: str = "a") -> int:
    return int(samples.last(np.array([samples.row_of[key]]))[0])


def counted(*totals: int, every_s: float = 2.0) -> Samples[str]:
    samples: Samples[str] = Samples(SPAN)
    for number, total in enumerate(totals):
        samples.add(100 + number * every_s, {"a": total})
    return samples


def interpolated(times: list[float], totals: list[int], at: float) -> float | None:
    if not times[0] <= at <= times[-1]:
        return None
    right = bisect_right(times, at)
    if right == len(times):
        return float(totals[-1])
    (start, end), (low, high) = times[right - 1 : right + 1], totals[right - 1 : right + 1]
    return low + (high - low) * (at - start) / (end - start)


@given(
    st.lists(st.tuples(st.floats(0.5, 3), st.integers(0, 10**12)), min_size=1, max_size=6),
    st.floats(-1, 20),
    st.floats(0.5, 20),
)
def test_rates_are_those_between_interpolated_totals(
    steps: list[tuple[float, int]], start: float, length: float
) -> None:
    samples: Samples[str] = Samples(SPAN)
    times, totals = [0.0], [5]
    samples.add(0.0, {"other": 7, "a": 5})
    for gap, more in steps:
        times.append(times[-1] + gap)
        totals.append(totals[-1] + more)
        samples.add(times[-1], {"a": totals[-1]})
    low, high = interpolated(times, totals, start), interpolated(times, totals, start + length)
    found = rate(samples, start, start + length)
    if low is None or high is None:
        assert np.isnan(found)
    else:
        assert found == pytest.approx(8 * (high - low) / length, rel=1e-6, abs=1e-2)


def test_a_counter_that_wraps_around_goes_on_and_the_largest_totals_stay_exact() -> None:
    samples = counted(WHOLE - 3000, WHOLE - 1000, 1000)
    assert recent(samples) == pytest.approx(8 * 4000 / 4)
    assert newest(samples) == 1000
    samples = counted(WHOLE - 2)
    assert newest(samples) == WHOLE - 2
    assert recent(counted((1 << 60) + 1, (1 << 60) + 3)) == pytest.approx(8)


@pytest.mark.parametrize("before", [10**6, 1 << 32, (1 << 63) + 5])
def test_a_counter_that_fell_was_reset_and_begins_anew(before: int) -> None:
    samples = counted(before - 100, before, 500)
    assert isnan(recent(samples)), "one sample says nothing"
    samples.add(106, {"a": 1500})
    assert recent(samples) == pytest.approx(8 * 1000 / 2)


def test_a_switch_whose_clock_starts_again_begins_anew() -> None:
    samples = counted(100, 200)
    samples.add(50, {"a": 300})
    assert isnan(recent(samples))
    samples.add(52, {"a": 400})
    assert recent(samples) == pytest.approx(400)


def test_samples_that_come_often_are_thinned_out_and_still_reach_back_a_window() -> None:
    samples = counted(*range(0, 100_000, 100), every_s=0.1)
    end = 100 + 0.1 * 999
    assert rate(samples, end - SPAN + 1, end) == pytest.approx(8000, rel=1e-6)
    assert newest(samples) == 99_900
    assert samples._times.shape[1] == DEPTH


def test_a_counter_at_zero_is_known_before_its_first_sample() -> None:
    samples: Samples[str] = Samples(SPAN)
    samples.begin_at_zero("a", 90, 100)
    samples.add(102, {"a": 1000})
    assert rate(samples, 92, 100) == 0
    assert rate(samples, 100, 102) == pytest.approx(4000)


def test_what_was_before_the_first_sample_can_be_said_later() -> None:
    samples = counted(1000, 3000)
    samples.begin_at_zero("a", 80, 98)
    assert rate(samples, 90, 98) == 0
    assert rate(samples, 98, 100) == pytest.approx(4000)
    assert rate(samples, 100, 102) == pytest.approx(8000)
    samples.begin_at_zero("a", 95, 101)
    assert rate(samples, 98, 100) == pytest.approx(4000), "it was read before then"


def test_those_that_are_kept_keep_their_samples() -> None:
    samples: Samples[str] = Samples(SPAN)
    for at in range(3):
        samples.add(at, {name: factor * at for factor, name in enumerate("abcdef")})
    samples.keep("bdf".__contains__)
    assert list(samples.row_of) == ["b", "d", "f"]
    assert [recent(samples, key=name) for name in "bdf"] == pytest.approx([8, 24, 40])
    samples.add(3, {"a": 9, "f": 20})
    assert isnan(recent(samples, key="a"))
    assert recent(samples, window_s=1, key="f") == pytest.approx(80)
