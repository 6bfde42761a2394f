"""Totals and rates from samples of counters, and the links that rules may use, compared with plain computations."""

from __future__ import annotations

import math
import random
from bisect import bisect_right
from collections.abc import Mapping
from itertools import chain
from math import isnan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.fabric.counter_samples import DEPTH, Counted, RecentUses, Samples, Uses, UsesOf
from controller.fabric.topology import Dpid, LinkId, PortNo
from tests.support.long_cases import with_long

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
    samples.add(52, {"a": 500})
    assert isnan(recent(samples)), "no time has passed"


def test_samples_that_come_often_are_thinned_out_and_still_reach_back_a_window() -> None:
    samples = counted(*range(0, 100_000, 100), every_s=0.1)
    end = 100 + 0.1 * 999
    assert rate(samples, end - SPAN + 1, end) == pytest.approx(8000, rel=1e-6)
    assert newest(samples) == 99_900
    assert samples._times.shape[1] == DEPTH


def test_a_counter_is_known_to_have_been_zero_whether_that_is_said_before_its_first_sample_or_later() -> None:
    samples: Samples[str] = Samples(SPAN)
    samples.begin_at_zero("a", 90, 100)
    samples.add(102, {"a": 1000})
    assert [rate(samples, 92, 100), rate(samples, 100, 102)] == pytest.approx([0, 4000])
    samples = counted(1000, 3000)
    samples.begin_at_zero("a", 80, 98)
    assert rate(samples, 90, 98) == 0
    assert rate(samples, 98, 100) == pytest.approx(4000)
    assert rate(samples, 100, 102) == pytest.approx(8000)
    samples.begin_at_zero("a", 95, 101)
    assert rate(samples, 98, 100) == pytest.approx(4000), "it was read before then"


def test_those_that_are_not_forgotten_keep_their_samples() -> None:
    samples: Samples[str] = Samples(SPAN)
    for at in range(3):
        samples.add(at, {name: factor * at for factor, name in enumerate("abcdef")})
    before = samples.numbering
    samples.forget("ace")
    assert samples.numbering > before
    samples.forget("ace")
    assert list(samples.row_of) == ["b", "d", "f"]
    assert [recent(samples, key=name) for name in "bdf"] == pytest.approx([8, 24, 40])
    samples.add(3, {"a": 9, "f": 20})
    assert isnan(recent(samples, key="a"))
    assert recent(samples, window_s=1, key="f") == pytest.approx(80)


LINKS = [LinkId(Dpid(1), PortNo(n)) for n in range(6)]
RULES = [Counted(src, dst, part) for src in "abc" for dst in "abc" if src != dst for part in (None, 1)]
SPAN_S = 10.0


class Kept:
    """History of all announced uses of links by rules, and counter samples of some rules and links."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.now = 0.0
        self.history: list[tuple[float, UsesOf]] = []
        self.uses: dict[str, Uses] = {}
        self.links: Samples[LinkId] = Samples(SPAN_S)
        self.flows: Samples[Counted] = Samples(SPAN_S)
        self.recent = RecentUses(SPAN_S)

    def change(self) -> None:
        """Give a job other rules, perhaps some of another job."""
        draw = self.draw
        name = draw.choice("xyz")
        mine = draw.sample(RULES, draw.randrange(5))
        links = {what: apart(draw) for what in mine}
        others = {
            other: {what: sets for what, sets in of.items() if what not in links} if draw.random() < 0.7 else of
            for other, of in self.uses.items()
            if other != name
        }
        same = {other: of if of != self.uses[other] else self.uses[other] for other, of in others.items()}
        self.uses = {**same, name: links} if draw.random() < 0.8 else same
        before = flat(self.history[-1][1]) if self.history else {}
        earlier = {what for at, uses in self.kept()[:-1] for what in flat(uses)} - before.keys()
        self.history.append((self.now, dict(self.uses)))
        found = self.recent.change(self.now, dict(self.uses))
        pairs = {what[:2] for what in before}
        appeared = flat(self.uses).keys() - before.keys()
        assert {*found.again} == {what for what in appeared & earlier if what[:2] not in pairs}
        assert {*found.anew} == {what for what in appeared if what[:2] in pairs}
        self.flows.begin_anew(found.again)

    def kept(self) -> list[tuple[float, UsesOf]]:
        """Return the uses that have lasted into the window, each with the time at which they began."""
        later = [at for at, _ in self.history[1:]] if self.history else []
        return [
            one for one, ended in zip(self.history, [*later, self.now + 1], strict=False) if ended > self.now - SPAN_S
        ]

    def expected(self) -> Mapping[Counted, Mapping[LinkId, float]]:
        """Return the time until which each rule may have used each link."""
        may: dict[Counted, dict[LinkId, float]] = {}
        kept = self.kept()
        for (_, uses), ended in zip(kept, [*(at for at, _ in kept[1:]), math.inf], strict=False):
            for of in uses.values():
                for what, sets in of.items():
                    may.setdefault(what, {}).update(dict.fromkeys(chain(*sets), ended))
        return may


def apart(draw: random.Random) -> tuple[frozenset[LinkId], ...]:
    """Return one or two sets without a link in common."""
    few = draw.sample(LINKS, 4)
    return tuple(map(frozenset, (few[:2], few[2:])[: draw.choice([1, 2])]))


def flat(uses: UsesOf) -> dict[Counted, object]:
    return {what: sets for of in uses.values() for what, sets in of.items()}


@pytest.mark.parametrize("seed", with_long(range(6), range(20)))
def test_users_are_those_of_all_uses_within_the_time(seed: int) -> None:
    kept = Kept(seed)
    for _ in range(60):
        kept.now += kept.draw.choice([0.0, 1.0, 4.0])
        kept.flows.forget(kept.recent.forget(kept.now))
        if kept.draw.random() < 0.6:
            kept.change()
        if kept.draw.random() < 0.5:
            kept.links.add(kept.now, dict.fromkeys(kept.draw.sample(LINKS, 3), 5))
            known = [what for what in kept.expected() if kept.draw.random() < 0.4]
            kept.flows.add(kept.now, dict.fromkeys(known, 7))
        users = kept.recent.users(kept.links, kept.flows)
        assert kept.recent.users(kept.links, kept.flows) is users
        rule_of = {row: what for what, row in kept.flows.row_of.items()}
        link_of = {row: link for link, row in kept.links.row_of.items()}
        expected, now = kept.expected(), flat(kept.uses)
        found = [(rule_of[f], link_of[n]) for f, n in zip(users.flows.tolist(), users.links.tolist(), strict=True)]
        assert len(found) == len({*found}), "each pair once"
        until = {(what, link): at for what, links in expected.items() for link, at in links.items()}
        assert dict(zip(found, users.until.tolist(), strict=True)) == {pair: until[pair] for pair in found}
        assert {*found} == {
            (what, link)
            for what, links in expected.items()
            for link in links
            if what in kept.flows.row_of and link in kept.links.row_of
        }
        assert {rule_of[row] for row in users.gone.tolist()} == (
            expected.keys() - now.keys()
        ) & kept.flows.row_of.keys()
        rows = {what: kept.flows.row_of.get(what, -1) for what in now}
        listed = sorted(zip(users.pairs, users.rows.tolist(), strict=True))
        assert sorted({*listed}) == sorted({(what[:2], row) for what, row in rows.items()})
        assert kept.recent.counted_pairs == {what[:2] for what in now}
        assert kept.flows.row_of.keys() <= expected.keys(), "what is not looked at any more is forgotten"
