"""Switches in reach of a member, when the network between both breaks."""

from controller.fabric.messages import SwitchesInReach
from controller.fabric.topology import Dpid
from controller.southbound.reach import Reach

SILENT_S = 3.0
ONE, TWO = frozenset({Dpid(1)}), frozenset({Dpid(2)})
BOTH = ONE | TWO
NONE: frozenset[Dpid] = frozenset()


def test_when_polled_switches_are_silent_all_switches_are_out_of_reach_until_they_answer() -> None:
    reach = Reach(SILENT_S)
    reach.heard(10.0)
    assert reach.report(BOTH, True, 10.0 + SILENT_S) == SwitchesInReach(BOTH)
    assert reach.report(BOTH, True, 10.1 + SILENT_S) == SwitchesInReach(NONE, BOTH)
    reach.heard(20.0)
    assert reach.report(BOTH, True, 20.0) == SwitchesInReach(NONE, BOTH), "the network may be broken in one direction"
    reach.answered(Dpid(2))
    assert reach.report(BOTH, True, 20.0) == SwitchesInReach(TWO, ONE)
    assert reach.report(TWO, True, 20.0) == SwitchesInReach(TWO), "the other connection has ended"


def test_a_switch_that_answers_is_in_reach_although_those_that_are_polled_are_silent() -> None:
    reach = Reach(SILENT_S)
    assert reach.report(BOTH, True, 3.1) == SwitchesInReach(NONE, BOTH)
    reach.answered(Dpid(2))
    assert reach.report(BOTH, True, 3.2) == SwitchesInReach(TWO, ONE)


def test_switches_that_have_nothing_to_answer_may_be_silent() -> None:
    reach = Reach(SILENT_S)
    assert reach.report(BOTH, False, 100.0) == SwitchesInReach(BOTH)
    assert reach.report(BOTH, True, 100.0 + SILENT_S) == SwitchesInReach(BOTH)
    assert reach.report(BOTH, True, 100.1 + SILENT_S) == SwitchesInReach(NONE, BOTH)
