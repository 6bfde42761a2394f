from __future__ import annotations

from controller.adopting import Adopting
from controller.fabric.topology import Fabric


def test_the_lease_of_unknown_rules_is_over_once() -> None:
    adopting = Adopting(patience_s=15, orphan_lease_s=60, expects_rules=False, now=0.0)
    assert not adopting.lease_over(1000.0), "nothing is adopted yet"
    assert adopting.settle(Fabric(), {}, 1.0)
    assert [adopting.lease_over(now) for now in (60.9, 61.0, 61.1, 1000.0)] == [False, True, False, False]
