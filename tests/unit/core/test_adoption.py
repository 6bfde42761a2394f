"""How long what switches hold counts for more than what the controller knows."""

from __future__ import annotations

from controller.core.adoption import Adoption
from controller.fabric.topology import Dpid, Fabric


def adoption() -> Adoption:
    return Adoption(patience_s=15, orphan_lease_s=60, expects_rules=False, now=0.0)


def test_the_lease_of_unknown_rules_is_over_once() -> None:
    first = adoption()
    assert not first.lease_over(1000.0), "nothing is adopted yet"
    assert first.is_complete(Fabric(), {}, True, 1.0)
    first.end(1.0)
    assert [first.lease_over(now) for now in (60.9, 61.0, 61.1, 1000.0)] == [False, True, False, False]


def test_a_switch_that_cannot_be_read_is_waited_for_only_so_long() -> None:
    """It may connect again and again: only switches that are new renew the patience."""
    first = adoption()
    for now in range(0, 20, 2):
        first.switch_connected(Dpid(1), float(now))
        if now == 10:
            first.switch_connected(Dpid(2), 10.0)
    assert not first.is_complete(Fabric(), {}, False, 24.9)
    assert first.is_complete(Fabric(), {}, False, 25.0)


def test_another_adoption_waits_for_all_switches_again() -> None:
    second = adoption()
    second.switch_connected(Dpid(1), 0.0)
    second.end(1.0)
    second.begin(100.0)
    second.switch_connected(Dpid(1), 105.0)
    assert not second.is_complete(Fabric(), {}, False, 119.9)
    assert second.is_complete(Fabric(), {}, False, 120.0)
