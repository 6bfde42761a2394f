from __future__ import annotations

from controller.core.adopting import Adopting
from controller.fabric.topology import Dpid, Fabric


def test_the_lease_of_unknown_rules_is_over_once() -> None:
    adopting = Adopting(patience_s=15, orphan_lease_s=60, expects_rules=False, now=0.0)
    assert not adopting.lease_over(1000.0), "nothing is adopted yet"
    assert adopting.settle(Fabric(), {}, True, 1.0)
    assert [adopting.lease_over(now) for now in (60.9, 61.0, 61.1, 1000.0)] == [False, True, False, False]


def test_a_switch_that_never_lets_itself_be_read_is_waited_for_only_so_long() -> None:
    """It may connect again and again: only switches that are new renew the patience."""
    adopting = Adopting(patience_s=15, orphan_lease_s=60, expects_rules=False, now=0.0)
    for now in range(0, 20, 2):
        adopting.switch_connected(Dpid(1), float(now))
    adopting.switch_connected(Dpid(2), 10.0)
    assert not adopting.settle(Fabric(), {}, False, 24.9)
    assert adopting.settle(Fabric(), {}, False, 25.0)
