"""The criteria for a run of the rewiring demo, and its tables."""

import pytest

from mininet_topos.rewiring.command import targets
from mininet_topos.rewiring.report import CHOSEN, RANDOM, SWITCH, Row, as_modelled, markdown


def row(fabric: str, measured_s: float, modelled_s: float | None = 2.0) -> Row:
    return Row(fabric, "hybrid", 4, modelled_s, measured_s, (measured_s, measured_s))


@pytest.mark.parametrize(("measured_s", "met"), [(1.79, False), (1.81, True), (2.0, True), (2.19, True), (2.21, False)])
def test_what_is_measured_should_be_within_a_tenth_of_what_is_modelled(measured_s: float, met: bool) -> None:
    assert as_modelled(row(CHOSEN, measured_s)).met is met
    assert as_modelled(row(CHOSEN, measured_s, None))[1:] == ("-", "0.90 to 1.10", None), "the model has no value"


def test_the_chosen_wiring_should_be_faster_than_both_others() -> None:
    judged = targets([row(CHOSEN, 2.0), row(RANDOM, 5.0, 5.1), row(SWITCH, 1.9)])
    assert [target.met for target in judged] == [True, True, True, True, False]
    assert judged[3].figure == "2.50"


def test_the_report_has_every_fabric_and_every_target() -> None:
    rows = [row(CHOSEN, 2.1), row(SWITCH, 6.3, 6.0)]
    text = markdown("title", rows, [as_modelled(each) for each in rows], ["a paragraph"])
    lines = text.splitlines()
    assert lines[:3] == ["# title", "", "a paragraph"]
    assert "| chosen wiring | hybrid | 4 | 2.00 | 2.10 | 1.050 | 1.00 | 2.10 2.10 |" in lines
    assert "| one switch of the same cost | hybrid | 4 | 6.00 | 6.30 | 1.050 | 3.00 | 6.30 6.30 |" in lines
    assert "| chosen wiring: measured / modelled | 1.050 | 0.90 to 1.10 | met |" in lines
