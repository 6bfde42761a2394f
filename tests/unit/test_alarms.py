"""Severity of alarms: the kinds that are critical."""

from __future__ import annotations

import pytest

from controller.alarms import Alarm
from signalbox.words import AlarmKind

TRAFFIC_IS_LOST = {AlarmKind.FLOWS_WITHOUT_PATH, AlarmKind.SWITCH_DOWN, AlarmKind.FABRIC_INCOMPLETE}
CHANGES_ARE_REFUSED = {AlarmKind.STATE_NOT_SAVED}
NOT_TRUSTED = {AlarmKind.MASTERSHIP_LOST, AlarmKind.DUPLICATE_DPID, AlarmKind.LLDP_FORGED}
"""Kinds of alarms about another controller or an attacker that acts in the name of a switch or a link."""


@pytest.mark.parametrize("kind", AlarmKind)
def test_lost_traffic_refused_changes_and_what_cannot_be_trusted_are_critical(kind: AlarmKind) -> None:
    critical = kind in TRAFFIC_IS_LOST | CHANGES_ARE_REFUSED | NOT_TRUSTED
    assert Alarm(kind, "leaf1:5").severity == ("critical" if critical else "warning")
