"""Broken messages of a fixed seed; the benchmark ``fuzz-openflow`` sends any number."""

from __future__ import annotations

from benchmarks.openflow.fuzz import fuzz
from benchmarks.openflow.mutants import MULTIPART, mutant


def test_a_mutant_is_the_same_every_time() -> None:
    assert [mutant(7, number) for number in range(200)] == [mutant(7, number) for number in range(200)]
    assert mutant(7, 1) != mutant(8, 1)


def test_broken_messages_reach_every_reader_and_the_other_switch_is_served() -> None:
    result = fuzz(seed=1, count=120)
    assert result.failure == ""
    assert result.tracebacks == 0
    readers = result.readers
    assert {*MULTIPART, "packet-in", "port status", "error", "handshake"} <= readers.keys()
    for reader in ("flow stats", "group desc", "meter config", "packet-in", "handshake"):
        assert readers[reader].keys() == {"accepted", "refused"}, reader
    assert result.good_echo_ms
    assert result.good_rules_ms
    assert result.good_barriers > 0
