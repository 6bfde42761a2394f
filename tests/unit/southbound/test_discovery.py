from __future__ import annotations

import pytest

from controller.fabric.topology import Dpid, Port, PortNo, PortRef
from controller.messages import LinkLost, LinkSeen
from controller.southbound.discovery import MAX_STEP_S, Discovery, Probe

INTERVAL, TIMEOUT = 1.0, 5.0
A, B, C = Dpid(1), Dpid(2), Dpid(3)
A1, A2, B1, C1 = PortRef(A, PortNo(1)), PortRef(A, PortNo(2)), PortRef(B, PortNo(1)), PortRef(C, PortNo(1))


def port(number: int, up: bool = True) -> Port:
    return Port(PortNo(number), f"eth{number}", "02:00:00:00:00:01", up, 1e9)


def fabric(key: bytes | None = None) -> Discovery:
    discovery = Discovery(INTERVAL, TIMEOUT, key)
    discovery.switch_connected(A, [port(1), port(2)])
    discovery.switch_connected(B, [port(1), port(2, up=False)])
    discovery.switch_connected(C, [port(1)])
    return discovery


def frames(discovery: Discovery, now: float = 0.0) -> dict[PortRef, bytes]:
    return dict(discovery.tick(now))


class Clock:
    """Ticks as the hub does; ``cables`` carry the probes."""

    def __init__(self, discovery: Discovery, cables: dict[PortRef, PortRef]) -> None:
        self.discovery = discovery
        self.cables = cables
        self.now = 0.0
        self.news: list[LinkSeen | LinkLost] = []

    def run(self, seconds: float, alive: tuple[Dpid, ...] = (A, B, C)) -> list[LinkSeen | LinkLost]:
        self.news = []
        for _ in range(round(seconds / 0.05)):
            self.now += 0.05
            for probe in self.discovery.tick(self.now):
                if probe.at in self.cables:
                    self.news += self.discovery.received(self.cables[probe.at], probe.frame)
            for dpid in alive:
                self.discovery.alive(dpid)
            self.news += self.discovery.lost()
        return self.news


def test_every_port_that_is_up_is_probed_at_once() -> None:
    assert set(frames(fabric())) == {A1, A2, B1, C1}


def test_a_port_that_comes_up_is_probed_at_once() -> None:
    discovery = fabric()
    frames(discovery)
    discovery.port_changed(B, port(2), removed=False)
    assert set(frames(discovery, 0.01)) == {PortRef(B, PortNo(2))}


def test_probes_of_a_big_switch_are_spread_over_the_interval_and_none_is_missed() -> None:
    discovery = Discovery(INTERVAL, TIMEOUT)
    discovery.switch_connected(A, [port(n) for n in range(1, 101)])
    batches = [discovery.tick(n * 0.05) for n in range(61)]
    assert len(batches[0]) == 100
    assert max(len(batch) for batch in batches[1:]) <= 15
    last_interval: list[Probe] = [probe for batch in batches[41:] for probe in batch]
    assert {probe.at.port for probe in last_interval} == set(range(1, 101))
    assert len(last_interval) <= 110


def test_a_link_is_announced_once_and_only_in_the_direction_that_was_seen() -> None:
    clock = Clock(fabric(), {A1: B1})
    assert clock.run(3.0) == [LinkSeen(A1, B1)]


def test_silence_with_both_ports_up_loses_the_link_and_a_probe_brings_it_back() -> None:
    clock = Clock(fabric(), {A1: B1})
    clock.run(2.0)
    clock.cables = {}
    assert clock.run(TIMEOUT - INTERVAL - 0.2) == []
    assert clock.run(2.0) == [LinkLost(A1, B1)]
    clock.cables = {A1: B1}
    assert clock.run(1.5) == [LinkSeen(A1, B1)]


def test_a_hub_that_was_stalled_loses_no_link() -> None:
    clock = Clock(fabric(), {A1: B1})
    clock.run(2.0)
    clock.now += 60.0
    assert clock.run(2.0) == []


def test_a_switch_that_is_too_busy_to_say_anything_loses_no_link_until_it_speaks_again() -> None:
    clock = Clock(fabric(), {A1: B1})
    clock.run(2.0)
    clock.cables = {}
    assert clock.run(4 * TIMEOUT, alive=(A, C)) == []
    assert clock.run(0.1) == [LinkLost(A1, B1)]


@pytest.mark.parametrize("removed", [True, False])
def test_a_port_that_goes_down_takes_its_links_in_both_directions_silently(removed: bool) -> None:
    clock = Clock(fabric(), {A1: B1, B1: A1})
    assert set(clock.run(2.0)) == {LinkSeen(A1, B1), LinkSeen(B1, A1)}
    clock.discovery.port_changed(B, port(1, up=removed), removed)
    assert clock.run(3 * TIMEOUT) == []
    clock.discovery.port_changed(B, port(1), removed=False)
    assert set(clock.run(1.5)) == {LinkSeen(A1, B1), LinkSeen(B1, A1)}


def test_a_switch_that_leaves_takes_its_links_silently_and_finds_them_again() -> None:
    clock = Clock(fabric(), {A1: B1, B1: A1})
    clock.run(2.0)
    clock.discovery.switch_left(B)
    assert clock.run(3 * TIMEOUT) == []
    clock.discovery.switch_connected(B, [port(1)])
    assert set(clock.run(1.5)) == {LinkSeen(A1, B1), LinkSeen(B1, A1)}


def test_a_reconnect_without_a_goodbye_announces_the_links_again_or_loses_them() -> None:
    clock = Clock(fabric(), {A1: B1, A2: C1})
    clock.run(2.0)
    clock.discovery.switch_connected(A, [port(1), port(2)])
    clock.cables = {A1: B1}
    assert clock.run(1.5) == [LinkSeen(A1, B1)]
    assert clock.run(TIMEOUT) == [LinkLost(A2, C1)]


def test_a_reconnect_forgets_the_links_of_ports_that_are_down_by_now() -> None:
    clock = Clock(fabric(), {A1: B1})
    clock.run(2.0)
    clock.discovery.switch_connected(A, [port(1, up=False), port(2)])
    assert clock.run(3 * TIMEOUT) == []


def test_a_cable_that_moved_loses_the_old_link_and_finds_the_new() -> None:
    clock = Clock(fabric(), {A1: B1})
    clock.run(2.0)
    clock.cables = {A1: C1}
    assert clock.run(1.5) == [LinkLost(A1, B1), LinkSeen(A1, C1)]


def test_a_probe_of_another_process_is_refused() -> None:
    ours, theirs = fabric(b"k" * 32), fabric(b"x" * 32)
    assert ours.received(B1, frames(theirs)[A1]) == []
    assert ours.refused == 1
    assert ours.received(B1, frames(ours)[A1]) == [LinkSeen(A1, B1)]


def test_a_host_cannot_change_one_bit_of_what_a_probe_says() -> None:
    discovery = fabric()
    frame = frames(discovery)[A1]
    said = frame.index(bytes.fromhex("02534201")) + 4
    for bit in range(8 * said, 8 * (said + 28)):
        forged = bytearray(frame)
        forged[bit // 8] ^= 1 << bit % 8
        assert discovery.received(B1, bytes(forged)) == []
    assert discovery.refused == 8 * 28


def test_a_probe_sent_back_to_its_own_port_is_no_link() -> None:
    discovery = fabric()
    assert discovery.received(A1, frames(discovery)[A1]) == []


def test_probes_from_and_to_ports_that_are_not_up_are_refused() -> None:
    discovery = fabric()
    frame = frames(discovery)[A1]
    assert discovery.received(PortRef(B, PortNo(2)), frame) == []
    discovery.port_changed(A, port(1, up=False), removed=False)
    assert discovery.received(B1, frame) == []


def test_frames_cut_off_anywhere_are_refused() -> None:
    discovery = fabric()
    frame = frames(discovery)[A1]
    end = frame.index(bytes.fromhex("02534201")) + 4 + 28
    for length in range(end):
        assert discovery.received(B1, frame[:length]) == []


def test_the_listening_clock_steps_no_further_than_its_limit() -> None:
    discovery = fabric()
    probes = frames(discovery)
    discovery.received(B1, probes[A1])
    for n in range(1, round(TIMEOUT / MAX_STEP_S)):
        discovery.tick(n * 100.0)
        discovery.alive(A)
        discovery.alive(B)
        assert discovery.lost() == []
