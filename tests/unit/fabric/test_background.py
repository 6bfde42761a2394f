"""The part of a link's traffic that may belong to announced flows whose bytes are not counted yet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.fabric.counter_samples import Counted, Uses
from controller.fabric.link_load import (
    HOLD_S,
    LAG_S,
    LEFT_S,
    LinkLoad,
    Measured,
    RecentBackground,
    background,
    planned_background,
)
from controller.fabric.topology import CandidatePaths, LinkId
from controller.planning.problem import FlowId
from controller.planning.snapshot import capacities
from controller.tables.flow_tables import Pin
from controller.tables.running_routes import possible_links
from offline.scenarios.fabrics import leaf_spine
from tests.support.link_figures import background_of

RATE = 1e6
FABRIC = leaf_spine(2, 2, 3, RATE, RATE)
A, B, C = "10.0.0.1", "10.0.0.2", "10.0.0.3"
X, Y, Z = "10.0.1.1", "10.0.1.2", "10.0.1.3"
HOSTS = FABRIC.hosts
CAPACITY = capacities(FABRIC.links, HOSTS, {})
PATHS = CandidatePaths(FABRIC, 64)
FIRST, _ = PATHS.between(HOSTS[A].at.dpid, HOSTS[X].at.dpid)
UP = FIRST[0]
BACK = PATHS.between(HOSTS[X].at.dpid, HOSTS[A].at.dpid)[0]
NOISE = 0.1


def may_use(*flows: tuple[str, str]) -> Uses:
    """Return, by flow, the links of all its candidate paths and of its hosts."""
    return possible_links(FABRIC, (Pin(FlowId(*flow), 0, None) for flow in flows), PATHS)


def left(
    beyond_bps: Mapping[LinkId, float],
    sent_bps: Mapping[str, float],
    received_bps: Mapping[str, float],
    *flows: tuple[str, str],
) -> dict[LinkId, float]:
    """Return the background on links while these flows are not counted yet.

    ``beyond_bps``: traffic of links beyond counted flows.
    ``sent_bps``, ``received_bps``: traffic of hosts."""
    place = {link: number for number, link in enumerate(CAPACITY)}
    beyond, sent = np.zeros(len(place)), np.full(len(place), np.inf)
    for link, bps in beyond_bps.items():
        beyond[place[link]] = bps
    for ip, bps in sent_bps.items():
        sent[place[HOSTS[ip].uplink]] = bps
    for ip, bps in received_bps.items():
        sent[place[HOSTS[ip].downlink]] = bps
    noise, at_most = np.full(len(place), NOISE * RATE), sent[:, None]
    measured = Measured(place, beyond, beyond[:, None], sent, at_most, noise, frozenset(), beyond > 0)
    return dict(background(measured, may_use(*flows), HOSTS))


def test_what_the_sources_cannot_have_sent_stays() -> None:
    assert left({UP: 8e5}, {A: 3e5}, {X: 9e5}, (A, X)) == {UP: pytest.approx(5e5)}
    assert left({UP: 8e5}, {A: 2e5, B: 3e5}, {X: 9e5, Y: 9e5}, (A, X), (B, Y)) == {UP: pytest.approx(3e5)}
    assert left({UP: 8e5}, {A: 9e5}, {X: 9e5}, (A, X)) == {}
    several = (A, X), (A, Y), (A, Z)
    found = left({UP: 8e5}, {A: 3e5}, {X: 9e5, Y: 9e5, Z: 9e5}, *several)
    assert found == {UP: pytest.approx(5e5)}, "a source counts once, however many flows it has"


def test_what_the_destinations_cannot_have_received_stays() -> None:
    assert left({UP: 8e5}, {A: 9e5, B: 9e5}, {X: 3e5}, (A, X), (B, X)) == {UP: pytest.approx(5e5)}
    found = left({UP: 8e5}, {A: 9e5, B: 1e5}, {X: 1e5, Y: 9e5}, (A, X), (B, Y))
    assert found == {UP: pytest.approx(6e5)}, "a flow is no more than its source sent and its destination received"
    uplink, downlink = HOSTS[A].uplink, HOSTS[X].downlink
    found = left({uplink: 3e5, downlink: 8e5}, {A: 3e5}, {X: 8e5}, (A, X))
    assert found == {downlink: pytest.approx(5e5)}, "the links of hosts are no exception"


def test_links_that_the_flows_cannot_use_keep_all_and_others_nothing_while_it_is_not_known_what_hosts_send() -> None:
    elsewhere = {BACK[0]: 8e5, HOSTS[B].uplink: 5e5}
    assert left(elsewhere, {A: 9e5}, {X: 9e5}, (A, X)) == elsewhere
    assert left({UP: 8e5}, {A: 8e5}, {X: 8e5}) == {UP: 8e5}, "there are no flows"
    assert left({UP: 8e5}, {}, {}, (A, X)) == {}
    assert left({UP: 8e5}, {}, {X: 3e5}, (A, X)) == {UP: pytest.approx(5e5)}, "it received no more"


def test_little_that_is_left_is_noise() -> None:
    assert left({UP: 8e5}, {A: 7.5e5}, {X: 9e5}, (A, X)) == {}
    assert left({UP: 0.5e5}, {A: 0.0}, {X: 9e5}, (A, X)) == {UP: 0.5e5}, "but hosts that send nothing hide nothing"


# ---- background measured before the registration, until the flows are counted

JOB = (Counted(A, X), Counted(X, B), Counted(B, Y))
STRAY = (Counted(C, Y), Counted(Z, C), Counted(C, X), Counted(Z, B))
INTERVAL_S, WINDOW_S = 2, 6


@dataclass
class Run:
    """Flows that send, with all counters read every two seconds.

    The rules of the job begin to count one interval after ``registered`` is set."""

    load: LinkLoad = field(default_factory=lambda: LinkLoad(WINDOW_S, NOISE))
    now: int = 0
    registered: bool = False
    links: dict[LinkId, int] = field(default_factory=lambda: dict.fromkeys(CAPACITY, 0))
    rules: dict[Counted, int] = field(default_factory=dict)
    sent: dict[str, list[float]] = field(default_factory=lambda: {ip: [] for ip in HOSTS})

    def interval(self, bps: Mapping[Counted, float], spine: Mapping[Counted, int]) -> None:
        sent = dict.fromkeys(HOSTS, 0.0)
        for flow, rate in bps.items():
            for link in self.links.keys() & on_path(flow, spine[flow]):
                self.links[link] += int(rate * INTERVAL_S / 8)
            sent[flow.src_ip] += rate
            if flow in self.rules:
                self.rules[flow] += int(rate * INTERVAL_S / 8)
        for ip, rate in sent.items():
            self.sent[ip].append(rate)
        self.now += INTERVAL_S
        self.load.count_links(self.now, self.links)
        self.load.count_flows(self.now, self.rules)
        if self.registered and not self.rules:
            self.rules = dict.fromkeys(JOB, 0)
            pinned = {flow: (frozenset(on_path(flow, spine[flow])),) for flow in JOB}
            self.load.routes_changed(self.now, lambda: {"job": pinned})
        self.load.update(self.now, CAPACITY)

    def uncounted(self) -> Uses:
        flows = [flow for flow in JOB if self.registered and flow[:2] not in self.load.measured.counted]
        return may_use(*((flow.src_ip, flow.dst_ip) for flow in flows))

    def background(self) -> Mapping[LinkId, float]:
        return background(self.load.measured, self.uncounted(), HOSTS)

    def takes_off_no_more_than_was_sent(self) -> None:
        found, most = self.background(), sum(max(self.sent[ip], default=0.0) for ip in (A, B, X))
        for link, bps in background_of(self.load).items():
            rest = bps - most - 1
            assert found.get(link, 0.0) >= (rest if rest > NOISE * RATE else 0.0)


def on_path(flow: Counted, spine: int) -> list[LinkId]:
    src, dst = HOSTS[flow.src_ip], HOSTS[flow.dst_ip]
    return [src.uplink, *(PATHS.between(src.at.dpid, dst.at.dpid) * 2)[spine], dst.downlink]


rates = st.sampled_from([0.0, 0.03, 0.08, 0.2, 0.5, 0.9]).map(lambda share: share * RATE)
job_bps = st.fixed_dictionaries(dict.fromkeys(JOB, rates))
stray_bps = st.fixed_dictionaries(dict.fromkeys(STRAY, rates))
spines = st.fixed_dictionaries(dict.fromkeys((*JOB, *STRAY), st.integers(0, 1)))


@given(st.lists(st.tuples(job_bps, stray_bps), min_size=3, max_size=12), st.data())
@settings(max_examples=50)
def test_registering_a_job_takes_off_no_more_than_its_hosts_sent(
    intervals: list[tuple[dict[Counted, float], dict[Counted, float]]], data: st.DataObject
) -> None:
    before, after = data.draw(spines), data.draw(spines)
    run, at = Run(), data.draw(st.integers(1, len(intervals)))
    for job, stray in intervals[:at]:
        run.interval(job | stray, before)
    assert dict(run.background()) == dict(background_of(run.load))
    run.registered = True
    run.takes_off_no_more_than_was_sent()
    for job, stray in intervals[at:]:
        run.interval(job | stray, before | {flow: after[flow] for flow in JOB})
        run.takes_off_no_more_than_was_sent()


@given(st.lists(job_bps, min_size=3, max_size=14), st.data())
@settings(max_examples=50)
def test_a_jobs_own_bytes_are_no_background_from_its_registration_on(
    intervals: list[dict[Counted, float]], data: st.DataObject
) -> None:
    before, after = data.draw(spines), data.draw(spines)
    run, at = Run(), data.draw(st.integers(1, len(intervals)))
    for job in intervals[:at]:
        run.interval(job, before)
    run.registered = True
    assert dict(run.background()) == {}
    for number, job in enumerate(intervals[at:], at + 1):
        run.interval(job, after)
        assert dict(run.background()) == {}, f"after {number} of {len(intervals)}"


@pytest.mark.parametrize(
    "shares",
    [
        pytest.param([(0.5, 0.0, 0.5)] * 6 + [(0.0, 0.0, 0.0)] * 3, id="it pauses"),
        pytest.param([(0.08, 0.0, 0.08)] * 40, id="each host sends little"),
        pytest.param([(0.6, 0.0, 0.0), (0.0, 0.0, 0.6)] * 4, id="its hosts take turns"),
    ],
)
def test_own_bytes_are_no_background_though(shares: list[tuple[float, float, float]]) -> None:
    run, spine, seen = Run(), dict.fromkeys(JOB, 0), False
    for of_flow in shares:
        run.interval({flow: share * RATE for flow, share in zip(JOB, of_flow, strict=True)}, spine)
        seen |= bool(run.background())
    assert seen, "nobody has announced it"
    run.registered = True
    assert dict(run.background()) == {}


@pytest.mark.parametrize("missing_s", [0.0, 0.2, LAG_S])
def test_a_new_flow_is_no_background_while_counters_of_its_hosts_other_flows_catch_up(missing_s: float) -> None:
    """The counted flow ends when the new flow begins, but its last bytes are counted only while the new flow sends.

    These late bytes are subtracted from what the host sent, so the rest is less than what the new flow sent."""
    known, new = Counted(A, X), Counted(A, Y)
    paths = {known: on_path(known, 0), new: on_path(new, 1)}
    load = LinkLoad(WINDOW_S, NOISE)
    for number in range(6):
        carried_s = {known: 0.5 * min(number, 4), new: 1.0 * (number == 5)}
        load.routes_changed(2 * number, lambda: {"job": {known: (frozenset(paths[known]),)}})
        links = dict.fromkeys(CAPACITY, 0)
        for flow, seconds in carried_s.items():
            links |= {link: links[link] + int(RATE / 8 * seconds) for link in paths[flow]}
        counted_s = carried_s[known] - (missing_s if 0 < number < 5 else 0.0)
        load.count_links(2 * number, links)
        load.count_flows(2 * number, {known: int(RATE / 8 * counted_s)})
        load.update(2 * number, CAPACITY)
    assert load.measured.counted == {known[:2]}
    assert dict(background_of(load))[paths[new][1]] == pytest.approx(0.5 * RATE)
    assert dict(background(load.measured, may_use((A, Y)), HOSTS)) == {}


def test_what_a_host_sends_beyond_counted_flows_is_little_when_these_come_in_bursts() -> None:
    run, spine = Run(registered=True), dict.fromkeys(JOB, 0)
    for number in range(12):
        run.interval(dict.fromkeys(JOB, 0.6 * RATE * (number % 2)), spine)
    measured = run.load.measured
    assert measured.counted == {flow[:2] for flow in JOB}
    assert measured.sent_bps[measured.place[HOSTS[A].uplink]] < 0.02 * RATE


def test_a_link_that_is_not_read_any_more_does_not_keep_flows_from_being_counted() -> None:
    run, spine = Run(), dict.fromkeys(JOB, 0)
    for _ in range(6):
        run.interval({}, spine)
    del run.links[on_path(JOB[0], 0)[1]]
    run.registered = True
    for _ in range(8):
        run.interval(dict.fromkeys(JOB, 0.4 * RATE), spine)
    assert not run.uncounted()


@given(stray_bps, job_bps, st.data())
@settings(max_examples=50)
def test_all_that_others_send_is_background_as_soon_as_the_job_is_counted(
    stray: dict[Counted, float], job: dict[Counted, float], data: st.DataObject
) -> None:
    before, after = data.draw(spines), data.draw(spines)
    run = Run()
    for _ in range(6):
        run.interval(job | stray, before)
    run.registered = True
    while run.uncounted():
        run.interval(job | stray, before | {flow: after[flow] for flow in JOB})
    others = dict.fromkeys(CAPACITY, 0.0)
    for flow in STRAY:
        for link in on_path(flow, before[flow]):
            others[link] += stray[flow]
    assert dict(run.background()) == {
        link: pytest.approx(bps, rel=0.01) for link, bps in others.items() if bps > NOISE * RATE
    }


# ---- links that were busy


def follow(recent: RecentBackground, now: float, background: Mapping[LinkId, float], *on: LinkId) -> set[LinkId]:
    """Return the links that plans must keep free while there are flows on the links ``on``."""
    flows = {link: frozenset(["flow"]) for link in on}
    recent.follow(background, flows, {}, now)
    planned = planned_background(background, recent.held, recent.left, flows, {})
    return {link for link, bps in planned.items() if bps > background.get(link, 0.0)}


def test_a_link_that_was_busy_lately_is_not_free_and_bursts_keep_it_busy() -> None:
    recent = RecentBackground()
    follow(recent, 0, {UP: 5e5})
    assert follow(recent, HOLD_S - 1, {}) == {UP}
    assert follow(recent, HOLD_S, {}) == set()
    recent = RecentBackground()
    held = [follow(recent, now, {UP: 5e5} if now % 10 == 0 else {}) for now in range(0, 60, 2)]
    assert all(UP in links for now, links in zip(range(0, 60, 2), held, strict=True) if now % 10)
    assert follow(recent, 62, {UP: 1e5}) == {UP}, "the most of lately counts"


def test_flows_on_a_link_see_it_as_it_is_and_bytes_of_flows_that_just_left_do_not_make_it_free_for_them() -> None:
    recent = RecentBackground()
    follow(recent, 0, {UP: 5e5}, UP)
    assert follow(recent, 2, {}, UP) == set()
    recent = RecentBackground()
    recent.follow({UP: 5e5}, {UP: frozenset(["one", "other"])}, {}, 0)
    assert follow(recent, 2, {}, UP) == {UP}
    assert follow(recent, 2 + LEFT_S, {}, UP) == set()


def test_what_may_have_been_the_bytes_of_a_job_is_not_held() -> None:
    recent, uncounted = RecentBackground(), may_use((A, X))
    follow(recent, 0, {UP: 5e5, BACK[0]: 5e5})
    follow(recent, 2, {})
    planned = planned_background({}, recent.held, recent.left, {}, uncounted)
    assert planned == {BACK[0]: 5e5}
    recent.follow({}, {}, uncounted, 4)
    assert recent.held == {BACK[0]: 5e5}, "nor later"
