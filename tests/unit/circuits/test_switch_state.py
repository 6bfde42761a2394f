"""The times at which optical switches are read, and the switches that accept no commands."""

from __future__ import annotations

from controller.circuits.cabling import cabling_of
from controller.circuits.optical_switches import OpticalSwitches
from controller.fabric.topology import Dpid
from controller.tables.messages import ReadRules, SwitchRules
from controller.tables.rules import RuleSet
from tests.support.optical_fabric import FIRST_OPTICAL

MIRROR = Dpid(FIRST_OPTICAL)
AUDIT_S = 10.0


def made() -> OpticalSwitches:
    """Return the state of one optical switch with two fibres that has not connected yet."""
    cabling = cabling_of({(FIRST_OPTICAL, n): (n, 2) for n in (1, 2)})
    return OpticalSwitches(cabling, 0.1, 0.1, AUDIT_S, {MIRROR: 0.0})


def test_an_optical_switch_is_unable_and_without_a_name_until_it_has_connected() -> None:
    state = made()
    assert (state.unable, state.name(MIRROR)) == (frozenset({MIRROR}), "0x101")
    assert state.connected(MIRROR, "mirror1", ()) == ReadRules(MIRROR)
    assert (state.unable, state.name(MIRROR)) == (frozenset(), "mirror1")


def test_an_optical_switch_is_read_once_an_interval_and_once_until_it_answers() -> None:
    state = made()
    state.connected(MIRROR, "mirror1", ())
    assert state.tick(0.0) == [], "it was asked when it connected"
    for begun_at in (0.0, AUDIT_S):
        state.rules_read(SwitchRules(MIRROR, RuleSet(), 0), begun_at)
        assert state.tick(begun_at + AUDIT_S - 0.1) == []
        assert state.tick(begun_at + AUDIT_S) == [ReadRules(MIRROR)]
        assert state.tick(begun_at + AUDIT_S + 0.1) == []
