from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.fabric.messages import LinkLost, LinkSeen, RefusedPacket
from controller.fabric.topology import Dpid, Port, PortNo, PortRef
from controller.southbound.discovery import (
    BLOCK,
    BURST,
    BURST_S,
    FIRST_GAP_S,
    FRESH_TIMEOUTS,
    MAX_REFUSED,
    MAX_STEP_S,
    Discovery,
    Probe,
    phase,
)

INTERVAL, TIMEOUT, RATE = 1.0, 5.0, 1250.0
MARK = bytes.fromhex("02534201")
SAID_BYTES, TAG_BYTES = 20, 16
A, B, C = Dpid(1), Dpid(2), Dpid(3)
A1, A2, B1, C1 = PortRef(A, PortNo(1)), PortRef(A, PortNo(2)), PortRef(B, PortNo(1)), PortRef(C, PortNo(1))


def port(number: int, up: bool = True) -> Port:
    return Port(PortNo(number), f"eth{number}", "02:00:00:00:00:01", up, 1e9)


@pytest.fixture
def discovery() -> Discovery:
    return fabric()


def fabric(key: bytes | None = None) -> Discovery:
    discovery = Discovery(INTERVAL, TIMEOUT, RATE, key)
    discovery.switch_connected(A, [port(1), port(2)])
    discovery.switch_connected(B, [port(1), port(2, up=False)])
    discovery.switch_connected(C, [port(1)])
    return discovery


def frames(discovery: Discovery, now: float = 0.0) -> dict[PortRef, bytes]:
    return dict(discovery.tick(now))


class Clock:
    """Clock that ticks like the hub; ``cables`` carry the probes."""

    def __init__(
        self,
        discovery: Discovery,
        cables: dict[PortRef, PortRef],
        switches: tuple[Dpid, ...] = (A, B, C),
        without_rules: set[Dpid] | None = None,
    ) -> None:
        self.discovery = discovery
        self.cables = cables
        self.switches = switches
        self.without_rules = without_rules or set()
        self.now = 0.0
        self.sent = 0
        self.sent_at: dict[PortRef, list[float]] = defaultdict(list)
        self.news: list[LinkSeen | LinkLost] = []

    def sent_from(self, at: PortRef, seconds: float) -> list[float]:
        self.run(seconds)
        return self.sent_at[at]

    def run(self, seconds: float, alive: tuple[Dpid, ...] | None = None) -> list[LinkSeen | LinkLost]:
        self.news = []
        for _ in range(round(seconds / 0.05)):
            self.now += 0.05
            for probe in self.discovery.tick(self.now):
                self.sent += 1
                self.sent_at[probe.at].append(self.now)
                if probe.at in self.cables and self.cables[probe.at].dpid not in self.without_rules:
                    self.news += self.discovery.received(self.cables[probe.at], probe.frame)
            for dpid in self.switches if alive is None else alive:
                self.discovery.alive(dpid)
            self.news += self.discovery.lost()
        return self.news


def linked(cables: dict[PortRef, PortRef]) -> Clock:
    """Return a clock by which the links have been seen."""
    clock = Clock(fabric(), cables)
    assert len(clock.run(2.0)) == len(cables)
    return clock


def test_ports_are_probed_when_they_come_up_and_then_with_doubling_gaps_up_to_the_interval(
    discovery: Discovery,
) -> None:
    assert set(frames(discovery)) == {A1, A2, B1, C1}
    discovery.port_changed(B, port(2), removed=False)
    assert set(frames(discovery, 0.01)) == {PortRef(B, PortNo(2))}
    clock = Clock(fabric(), {})
    gaps = [later - sooner for sooner, later in pairwise(clock.sent_from(A1, 12.0))]
    assert gaps[:2] == pytest.approx([FIRST_GAP_S, 2 * FIRST_GAP_S])
    assert gaps[2] <= INTERVAL + 0.05, "until its slot in the interval"
    assert gaps[3:] == pytest.approx([INTERVAL] * len(gaps[3:]), abs=0.06)


def test_probes_of_a_big_switch_are_spread_over_the_interval_and_none_is_missed() -> None:
    discovery = Discovery(INTERVAL, TIMEOUT, RATE)
    discovery.switch_connected(A, [port(n) for n in range(1, 101)])
    batches = [discovery.tick(n * 0.05) for n in range(101)]
    assert len(batches[0]) == 100
    assert max(len(batch) for batch in batches[61:]) == BLOCK
    assert sum(bool(batch) for batch in batches[61:]) <= 9
    last_interval: list[Probe] = [probe for batch in batches[81:] for probe in batch]
    assert {probe.at.port for probe in last_interval} == set(range(1, 101))
    assert len(last_interval) <= 110


def test_a_switch_whose_ports_get_other_numbers_takes_no_more_memory() -> None:
    clock, held = linked({A1: B1}), list[int]()
    for number in range(10, 40):
        there = PortRef(B, PortNo(number))
        clock.discovery.port_changed(B, port(number), removed=False)
        clock.cables[A1] = there
        clock.run(2.0)
        clock.discovery.port_changed(B, port(number), removed=True)
        held.append(sum(len(each) for each in vars(clock.discovery).values() if isinstance(each, dict)))
    assert held[-1] == held[0]


@pytest.mark.parametrize("first", [1, 0x00A1_5E00_0000_0000, 0xFFFF_0000_0000_0000])
@pytest.mark.parametrize("step", [1, 1 << 16])
def test_the_probes_of_many_switches_are_spread_over_the_interval_whatever_their_numbers(first: int, step: int) -> None:
    phases = sorted(phase(Dpid(first + number * step)) for number in range(64))
    gaps = [later - sooner for sooner, later in pairwise([*phases, phases[0] + 1])]
    assert max(gaps) < 4 / 64


def big(leaves: int, spines: int, hosts: int, rate: float = RATE) -> Clock:
    """Return the clock of a leaf-spine whose switches are all connected; ``rate``: its ``max_probes_per_s``."""
    discovery = Discovery(INTERVAL, TIMEOUT, rate)
    cables: dict[PortRef, PortRef] = {}
    for leaf in range(1, leaves + 1):
        discovery.switch_connected(Dpid(leaf), [port(n) for n in range(1, spines + hosts + 1)])
        for spine in range(1, spines + 1):
            ends = PortRef(Dpid(leaf), PortNo(spine)), PortRef(Dpid(1000 + spine), PortNo(leaf))
            cables |= {ends[0]: ends[1], ends[1]: ends[0]}
    for spine in range(1, spines + 1):
        discovery.switch_connected(Dpid(1000 + spine), [port(n) for n in range(1, leaves + 1)])
    return Clock(discovery, cables, tuple({at.dpid for at in cables}))


def test_a_large_fabric_is_found_at_once_probed_within_its_rate_and_silent_links_are_lost_in_time() -> None:
    clock = big(leaves=32, spines=32, hosts=32)
    assert len(clock.run(2.0)) == len(clock.cables) == 2048
    clock.run(20.0)
    sent = clock.sent
    assert clock.run(10.0) == []
    assert clock.sent - sent <= 10.1 * RATE
    cut = PortRef(Dpid(1), PortNo(1))
    peer = clock.cables.pop(cut)
    assert clock.run(12.0) == [LinkLost(cut, peer)]


def test_a_fabric_too_large_for_its_rate_is_probed_at_that_rate_and_keeps_its_links() -> None:
    """A probe that was not sent costs no link."""
    clock = big(leaves=16, spines=16, hosts=0, rate=60.0)
    assert len(clock.run(15.0)) == len(clock.cables) == 512
    clock.run(40.0)
    sent = clock.sent
    assert clock.run(20.0) == []
    assert clock.sent - sent <= 21 * 60


def test_a_switch_with_thousands_of_ports_delays_the_probes_of_no_other_switch() -> None:
    """Neither the first nor the later probes of large switches keep the controller from finding a silent cut."""
    discovery = Discovery(INTERVAL, TIMEOUT, 200.0)
    for dpid in (A, B):
        discovery.switch_connected(dpid, [port(1), port(2)])
    clock = Clock(discovery, {A1: B1, B1: A1})
    clock.run(5.0)
    flooding = [Dpid(1000 + number) for number in range(3)]
    for dpid in flooding:
        discovery.switch_connected(dpid, [port(n) for n in range(1, 2001)])
    others = len(clock.sent_at[A2])
    assert len(clock.sent_from(A2, 20.0)) - others >= 3
    clock.cables.pop(A1)
    assert clock.run(3 * TIMEOUT) == [LinkLost(A1, B1)]
    probed = {at for at in clock.sent_at if at.dpid in flooding}
    assert len(probed) > 1000, "they are probed too, in what is left"


def test_many_new_ports_do_not_exceed_the_burst_rate() -> None:
    clock = big(leaves=32, spines=32, hosts=32)
    batches = [len(clock.discovery.tick(n * 0.05)) for n in range(100)]
    assert batches[0] <= BURST * RATE * BURST_S
    assert sum(batches[1:]) <= 5 * BURST * RATE


def test_a_switch_is_probed_once_its_rules_are_confirmed_and_the_other_ends_send_probes_too() -> None:
    """Switches without rules, those in ``without_rules``, send no probes to the controller."""
    clock = Clock(fabric(), {A1: B1, B1: A1}, without_rules={B})
    assert clock.run(10.0) == [LinkSeen(B1, A1)]
    clock.without_rules = set()
    clock.now += 0.3  # so that no regular probe is due at this moment
    clock.discovery.rules_confirmed([B])
    assert clock.run(0.4) == [LinkSeen(A1, B1)]


def test_a_link_is_announced_once_lost_when_its_probes_stop_and_restored_by_the_next_probe() -> None:
    """The links of the two directions of a cable are independent."""
    clock = Clock(fabric(), {A1: B1})
    assert clock.run(3.0) == [LinkSeen(A1, B1)]
    clock.cables = {}
    assert clock.run(TIMEOUT - INTERVAL - 0.2) == []
    assert clock.run(2.0) == [LinkLost(A1, B1)]
    clock.cables = {A1: B1}
    assert clock.run(1.5) == [LinkSeen(A1, B1)]
    clock.cables = {A1: C1}
    assert clock.run(1.5) == [LinkLost(A1, B1), LinkSeen(A1, C1)], "the cable was moved"


def test_links_that_came_and_went_leave_the_rate_of_probes_as_it_was() -> None:
    def sent_in(seconds: float) -> int:
        before = clock.sent
        clock.run(seconds)
        return clock.sent - before

    clock = linked({A1: B1, B1: A1})
    steady = sent_in(10.0)
    for _ in range(2000):
        clock.discovery.connected_anew([A1])
        clock.run(0.2)
    clock.run(2.0)
    assert sent_in(10.0) == steady


def test_neither_a_stalled_hub_nor_a_switch_that_sends_no_message_loses_a_link() -> None:
    clock = linked({A1: B1})
    clock.now += 60.0
    assert clock.run(2.0) == []
    clock.cables = {}
    assert clock.run(4 * TIMEOUT, alive=(A, C)) == []
    assert clock.run(TIMEOUT - 0.1) == [], "the network may have lost the probes while B was silent"
    assert clock.run(0.2) == [LinkLost(A1, B1)]


def test_links_of_a_switch_that_the_network_had_cut_off_are_not_lost_when_it_is_back() -> None:
    clock = linked({A1: B1, B1: A1})
    cables, clock.cables = clock.cables, {}
    assert clock.run(2 * TIMEOUT, alive=(A, C)) == []
    assert clock.run(0.5) == [], "B is heard again, before the first probe"
    clock.cables = cables
    assert clock.run(2 * TIMEOUT) == []


def test_a_port_that_goes_down_and_a_switch_that_leaves_lose_their_links_without_a_message_and_get_them_back() -> None:
    clock = Clock(fabric(), {A1: B1, B1: A1})
    both = {LinkSeen(A1, B1), LinkSeen(B1, A1)}
    assert set(clock.run(2.0)) == both
    for removed in (True, False):
        clock.discovery.port_changed(B, port(1, up=removed), removed)
        assert clock.run(3 * TIMEOUT) == []
        clock.discovery.port_changed(B, port(1), removed=False)
        assert set(clock.run(1.5)) == both
    clock.discovery.switch_left(B)
    assert clock.run(3 * TIMEOUT) == []
    clock.discovery.switch_connected(B, [port(1)])
    assert set(clock.run(1.5)) == both


def test_a_reconnect_announces_the_links_again_or_loses_them() -> None:
    clock = linked({A1: B1, A2: C1})
    clock.discovery.switch_connected(A, [port(1), port(2)])
    clock.cables = {A1: B1}
    assert clock.run(1.5) == [LinkSeen(A1, B1)]
    assert clock.run(TIMEOUT) == [LinkLost(A2, C1)]
    clock.discovery.switch_connected(A, [port(1, up=False), port(2)])
    assert clock.run(3 * TIMEOUT) == [], "links of ports that are down by now are forgotten"


def refused(discovery: Discovery) -> dict[tuple[PortRef, str], int]:
    return {(at, reason): count for (at, reason), count in discovery.take_refused().items()}


def test_a_probe_of_another_process_is_forged() -> None:
    ours, theirs = fabric(b"k" * 32), fabric(b"x" * 32)
    assert ours.received(B1, frames(theirs)[A1]) == []
    assert refused(ours) == {(B1, "forged"): 1}
    assert refused(ours) == {}, "reported once"
    assert ours.received(B1, frames(ours)[A1]) == [LinkSeen(A1, B1)]


def test_a_probe_with_one_changed_bit_is_forged(discovery: Discovery) -> None:
    frame = frames(discovery)[A1]
    said = frame.index(MARK) + len(MARK)
    for bit in range(8 * said, 8 * (said + SAID_BYTES + TAG_BYTES)):
        forged = bytearray(frame)
        forged[bit // 8] ^= 1 << bit % 8
        assert discovery.received(B1, bytes(forged)) == []
    assert refused(discovery) == {(B1, "forged"): 8 * (SAID_BYTES + TAG_BYTES)}


def test_a_probe_counts_once_at_any_port_and_not_after_a_later_one(discovery: Discovery) -> None:
    earlier, later = frames(discovery)[A1], frames(discovery, FIRST_GAP_S)[A1]
    assert discovery.received(B1, later) == [LinkSeen(A1, B1)]
    for at, frame in ((C1, later), (B1, later), (C1, earlier)):
        assert discovery.received(at, frame) == []
    assert refused(discovery) == {(C1, "replayed"): 2, (B1, "replayed"): 1}


def test_a_delayed_probe_counts_while_it_is_fresh_and_not_when_it_is_old() -> None:
    clock = Clock(fabric(), {})
    sent = frames(clock.discovery)
    clock.run(FRESH_TIMEOUTS * TIMEOUT - 1)
    assert clock.discovery.received(B1, sent[A1]) == [LinkSeen(A1, B1)]
    clock.run(1.1)
    assert clock.discovery.received(C1, sent[A2]) == []
    assert refused(clock.discovery) == {(C1, "replayed"): 1}


def test_no_probe_from_before_a_port_went_down_counts_when_it_is_up_again(discovery: Discovery) -> None:
    frame = frames(discovery)[A1]
    for up in (False, True):
        discovery.port_changed(A, port(1, up), removed=False)
    assert discovery.received(B1, frame) == []
    assert refused(discovery) == {(B1, "replayed"): 1}
    assert discovery.received(B1, frames(discovery, 0.5)[A1]) == [LinkSeen(A1, B1)]


def test_probes_sent_back_to_their_own_port_and_from_and_to_ports_that_are_not_up_are_refused() -> None:
    discovery, down = fabric(), PortRef(B, PortNo(2))
    frame = frames(discovery)[A1]
    assert discovery.received(A1, frame) == discovery.received(down, frame) == []
    discovery.port_changed(A, port(1, up=False), removed=False)
    assert discovery.received(B1, frame) == []
    assert refused(discovery) == {(A1, "reflected"): 1, (down, "not_a_port"): 1, (B1, "not_a_port"): 1}


def test_truncated_frames_and_lldp_of_a_host_are_refused(discovery: Discovery) -> None:
    frame = frames(discovery)[A1]
    end = frame.index(MARK) + len(MARK) + SAID_BYTES + TAG_BYTES
    for length in range(14, end):
        assert discovery.received(B1, frame[:length]) == []
    marked = frame.index(MARK) + len(MARK)
    assert refused(discovery) == {(B1, "foreign"): marked - 14, (B1, "malformed"): end - marked}
    theirs = bytes.fromhex("0180c200000e 020000000001 88cc 0207 04 020000000001 0403 05 6530 0602 0078 0000")
    assert discovery.received(B1, theirs) == []
    assert refused(discovery) == {(B1, "foreign"): 1}


@given(tail=st.binary(max_size=200), kept=st.integers(0, 200))
def test_random_frames_of_a_host_are_refused(tail: bytes, kept: int) -> None:
    discovery = fabric()
    genuine = frames(discovery)[A1]
    spliced = genuine[:kept] + tail
    authentic = spliced.startswith(genuine[:-2])  # a host cannot know it, hypothesis might copy it
    assert discovery.received(B1, spliced) == ([LinkSeen(A1, B1)] if authentic else [])
    assert sum(discovery.take_refused().values()) == (not authentic)


def test_refusals_counted_between_two_reports_are_bounded(discovery: Discovery) -> None:
    for number in range(2 * MAX_REFUSED):
        discovery.refuse(RefusedPacket(PortRef(A, PortNo(number)), "malformed_arp"))
    assert len(discovery.take_refused()) == MAX_REFUSED


def test_the_listening_clock_steps_no_further_than_its_limit(discovery: Discovery) -> None:
    probes = frames(discovery)
    discovery.received(B1, probes[A1])
    for n in range(1, round(TIMEOUT / MAX_STEP_S)):
        discovery.tick(n * 100.0)
        discovery.alive(A)
        discovery.alive(B)
        assert discovery.lost() == []


# ---- two southbounds


class Two:
    """Southbound of A, and southbound of B and C, with cables between their switches; the leader passes on probes."""

    def __init__(self, cables: dict[PortRef, PortRef]) -> None:
        self.one, self.two = Discovery(INTERVAL, TIMEOUT, RATE), Discovery(INTERVAL, TIMEOUT, RATE)
        self.cables = cables
        self.now = 0.0
        for discovery in (self.one, self.two):
            discovery.share(b"key")
        self.one.switch_connected(A, [port(1), port(2)])
        self.two.switch_connected(B, [port(1)])
        self.two.switch_connected(C, [port(1)])

    def run(self, seconds: float, alive: tuple[Dpid, ...] = (A, B, C), passed_on: bool = True) -> list[object]:
        news: list[object] = []
        for step in range(round(seconds / 0.05)):
            self.now += 0.05
            for discovery in (self.one, self.two):
                for probe in discovery.tick(self.now):
                    if dst := self.cables.get(probe.at):
                        news += (self.one if dst.dpid == A else self.two).received(dst, probe.frame)
            for dpid in alive:
                (self.one if dpid == A else self.two).alive(dpid)
            for near, far in ((self.one, self.two), (self.two, self.one)):
                heard = near.take_elsewhere(with_alive=step % 20 == 0)
                if heard and passed_on:
                    news += far.heard_elsewhere(heard)
                news += near.lost()
        return news

    def judged_by_two(self, frame: bytes) -> list[LinkLost | LinkSeen]:
        """Return what follows from a probe that arrives at B1, and that the leader passes to the second southbound."""
        assert self.two.received(B1, frame) == []
        heard = self.two.take_elsewhere(with_alive=False)
        assert heard
        return self.two.heard_elsewhere(heard)

    def probe_of(self, at: PortRef) -> bytes:
        while True:
            self.now += 0.05
            if frame := dict(self.one.tick(self.now)).get(at):
                return frame


def test_links_between_switches_of_two_southbounds_are_found_and_lost() -> None:
    two = Two({A1: B1, B1: A1})
    assert set(two.run(3.0)) == {LinkSeen(A1, B1), LinkSeen(B1, A1)}
    assert two.run(2 * TIMEOUT) == []
    del two.cables[A1]
    assert two.run(2 * TIMEOUT) == [LinkLost(A1, B1)]


def test_a_link_is_not_lost_while_the_southbound_at_its_other_end_is_not_heard() -> None:
    two = Two({A1: B1, B1: A1})
    two.run(3.0)
    assert two.run(3 * TIMEOUT, passed_on=False) == []
    two.one.expect([(A1, B1)])
    two.two.expect([(B1, A1)])
    assert two.run(3 * TIMEOUT) == []


def test_a_link_to_a_switch_elsewhere_that_was_silent_is_not_lost_at_its_first_message() -> None:
    two = Two({A1: B1, B1: A1})
    two.run(3.0)
    cables, two.cables = two.cables, {}
    assert two.run(2 * TIMEOUT, alive=(A, C)) == []
    assert two.run(1.5) == []
    two.cables = cables
    assert two.run(2 * TIMEOUT) == []


def test_a_link_to_a_switch_that_this_southbound_takes_over_is_not_lost_before_it_is_probed() -> None:
    two = Two({A1: B1, B1: A1})
    two.run(3.0)
    assert two.run(2 * TIMEOUT, passed_on=False) == []
    two.one.switch_connected(B, [port(1)])
    two.one.alive(A)
    assert two.one.lost() == []


def test_probes_that_were_used_or_are_old_are_refused_also_from_elsewhere() -> None:
    two = Two({})
    two.run(FRESH_TIMEOUTS * TIMEOUT)
    frame = two.probe_of(A1)
    two.two.received(B1, frame)
    heard = two.two.take_elsewhere(with_alive=False)
    assert heard
    assert two.one.heard_elsewhere(heard) == [LinkSeen(A1, B1)]
    assert two.one.heard_elsewhere(heard) == []
    assert two.one.take_refused() == {RefusedPacket(B1, "replayed"): 1}


def test_probes_of_the_former_holder_of_a_switch_are_no_replays() -> None:
    two = Two({})
    two.run(FRESH_TIMEOUTS * TIMEOUT)
    frame = two.probe_of(A1)
    two.two.switch_connected(A, [port(1)])
    for _ in range(2):
        assert two.judged_by_two(frame) == []
        assert two.two.take_refused() == {}
    two.run(FRESH_TIMEOUTS * TIMEOUT + 1)
    assert two.judged_by_two(frame) == []
    assert two.two.take_refused() == {RefusedPacket(B1, "replayed"): 1}


def test_probes_of_the_next_holder_of_a_switch_are_no_replays_at_the_former_one() -> None:
    """The former holder may learn late that it no longer holds a switch. Until then it would also lose the link."""
    two = Two({})
    two.one.switch_connected(B, [port(1)])
    two.run(FRESH_TIMEOUTS * TIMEOUT)
    two.now += INTERVAL
    frame = dict(two.two.tick(two.now))[B1]
    assert two.one.received(A1, frame) == []
    heard = two.one.take_elsewhere(with_alive=False)
    assert heard
    assert two.two.heard_elsewhere(heard) == [LinkSeen(B1, A1)]
    assert two.one.take_refused() == two.two.take_refused() == {}


def test_a_recorded_probe_of_an_earlier_process_with_the_same_key_proves_no_link() -> None:
    key = b"key"
    frame = frames(fabric(key))[A1]
    discovery = fabric(key)
    frames(discovery)
    assert discovery.received(B1, frame) == []
    assert refused(discovery) == {(B1, "replayed"): 1}


def test_probes_of_another_key_or_of_an_own_port_that_is_down_are_refused() -> None:
    two = Two({})
    frame = dict(two.one.tick(0.05))[A1]
    two.two.share(b"other")
    two.two.received(B1, frame)
    two.one.port_changed(A, port(1, up=False), removed=False)
    two.one.received(A2, frame)
    assert two.two.take_refused() == {RefusedPacket(B1, "forged"): 1}
    assert two.one.take_refused() == {RefusedPacket(A2, "not_a_port"): 1}


def test_an_expected_link_that_is_not_there_is_lost() -> None:
    two = Two({A1: B1, B1: A1})
    two.two.expect([(B1, A1), (C1, A2)])
    news = two.run(2 * TIMEOUT)
    assert LinkLost(C1, A2) in news
    assert LinkSeen(B1, A1) in news
    assert LinkLost(B1, A1) not in news


def test_a_link_to_a_released_switch_is_lost_only_if_it_is_expected_after_the_release() -> None:
    for is_expected in (False, True):
        two = Two({A1: B1, B1: A1})
        two.one.switch_connected(B, [port(1)])
        two.run(3.0)
        two.one.expect([(A1, B1)])
        two.one.switch_left(B)
        if is_expected:
            two.one.expect([(A1, B1)])
        two.cables = {}
        assert (LinkLost(A1, B1) in two.run(3 * TIMEOUT)) is is_expected


def test_one_southbound_alone_reports_nothing_about_probes_of_others(discovery: Discovery) -> None:
    discovery.alive(A)
    assert discovery.take_elsewhere(with_alive=True) is None
