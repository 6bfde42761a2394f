"""Detection of the pairs that carry traffic, from the first counters that show it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from controller.demand.pair_counters import Totals
from controller.demand.watched_job import APART_S, FirstBytes
from controller.jobs.job import HEADER_BYTES
from signalbox.jobs.collectives import VirtualLink, VirtualLinks
from signalbox.jobs.spec import Transport
from signalbox.jobs.subflows import Pair

A, B, C = "10.0.1.1", "10.0.2.1", "10.0.3.1"
PAIRS: list[Pair] = [(A, B), (B, A), (B, C), (C, B)]
SEGMENT, ACK, SACKS = (1514, 1448), (66, 0), (94, 28)
"""Kinds of packets: bytes of the packet, and bytes of its payload."""


class Counted:
    """Counters of ``PAIRS``.

    ``before``: packets of each pair that other jobs had sent before."""

    def __init__(self, before: int = 0) -> None:
        self.now = 100.0
        self.bytes = dict.fromkeys(PAIRS, 1514.0 * before)
        self.packets = dict.fromkeys(PAIRS, float(before))
        self.at = dict.fromkeys(PAIRS, self.now)
        self.first = FirstBytes(HEADER_BYTES[Transport.TCP])
        self.first.begin(self.totals, self.now, self.now - 4)

    @property
    def totals(self) -> Totals:
        rows = [[values[pair] for pair in PAIRS] for values in (self.at, self.bytes, self.packets)]
        return Totals(*np.array(rows))

    def poll(
        self,
        seconds: float,
        sent: Mapping[Pair, int],
        kind: tuple[int, int] = SEGMENT,
        known: VirtualLinks = VirtualLinks(),  # noqa: B008
    ) -> bool:
        """Let pairs send, poll them after ``seconds``, and return whether a new pair was found.

        ``sent``: packets that each polled pair sends; the other pairs are not polled."""
        self.now += seconds
        for pair, packets in sent.items():
            self.at[pair] = self.now
            self.bytes[pair] += packets * kind[0]
            self.packets[pair] += packets
        return self.first.look(PAIRS, self.totals, known.pairs, 1.0, self.now)

    def found(self, known: VirtualLinks = VirtualLinks()) -> dict[Pair, int]:  # noqa: B008
        """Return the phase of each known pair and of each pair that was found."""
        return {(link.src_ip, link.dst_ip): link.phase for link in self.first.added_to(known)}


def test_a_pair_is_found_with_the_first_counters_that_show_its_payload() -> None:
    counted = Counted()
    assert not counted.poll(0.5, dict.fromkeys(PAIRS, 0))
    assert counted.poll(0.5, {(A, B): 200})
    assert not counted.poll(0.5, {(A, B): 200})
    assert counted.found() == {(A, B): 0}


def test_handshakes_and_acknowledgements_are_no_traffic_even_before_what_they_answer_is_counted() -> None:
    counted = Counted()
    assert not counted.poll(0.5, dict.fromkeys(PAIRS, 5))
    assert not counted.poll(0.5, {(B, A): 100_000}, ACK)
    assert not counted.poll(0.5, {(B, A): 100_000}, SACKS)
    assert counted.poll(0.5, {(A, B): 100_000})
    assert counted.found() == {(A, B): 0}


def test_a_pair_whose_counters_lag_is_found_with_the_next_ones_and_sends_as_much_at_the_same_time() -> None:
    counted = Counted()
    assert counted.poll(0.5, {(A, B): 10_000, (B, C): 500})
    assert counted.found() == {(A, B): 0}, "a pair that sends little beside others is not found"
    assert counted.poll(0.5, {(A, B): 10_000, (B, C): 9_500})
    assert {(link.phase, link.bytes) for link in counted.first.added_to(VirtualLinks())} == {(0, 2 * 10_000 * 1448)}


def test_pairs_that_are_found_later_send_at_another_time_and_beside_what_is_known() -> None:
    known = VirtualLinks([VirtualLink(C, A, 3, 10)])
    counted = Counted()
    assert counted.poll(0.5, {(A, B): 1000}, known=known)
    assert counted.poll(APART_S + 0.1, {(B, C): 1000}, known=known)
    assert counted.found(known) == {(C, A): 3, (A, B): 4, (B, C): 5}
    assert counted.first.added_to(known) is counted.first.added_to(known)


def test_a_pair_that_is_known_by_now_or_has_sent_little_is_not_added() -> None:
    counted = Counted()
    assert counted.poll(0.5, {(A, B): 1000, (B, C): 1000})
    measured = VirtualLinks([VirtualLink(A, B, 0, 10)])
    assert counted.found(measured) == {(A, B): 0, (B, C): 1}
    counted.first.measured(counted.now + 1)
    assert counted.first.added_to(measured) is measured
    assert not counted.poll(0.5, {(B, C): 1000}, known=measured), "again and again would move routes each time"


def test_a_pair_that_sent_nothing_since_a_time_is_forgotten_if_it_was_found_before() -> None:
    counted = Counted()
    assert counted.poll(0.5, {(A, B): 1000, (B, C): 1000})
    counted.first.forget_silent([], counted.now)
    assert counted.found() == {(A, B): 0, (B, C): 0}
    counted.first.forget_silent([(A, B)], counted.now + 0.01)
    assert counted.found() == {(A, B): 0}


def test_pairs_that_come_to_be_counted_begin_with_their_first_counters() -> None:
    counted = Counted(before=10_000)
    counted.first.of_pairs(np.array([0, 1, -1, -1]))
    assert not counted.poll(0.5, dict.fromkeys(PAIRS, 0))
    assert counted.poll(0.5, {(C, B): 1000})
    assert counted.found() == {(C, B): 0}
