"""What ticks do that no other test sees."""

from __future__ import annotations

from itertools import pairwise

from controller.fabric.topology import Dpid, LinkId, PortNo, PortRef
from tests.support.fake_fabric import FakeFabric
from tests.support.three_rings import CONFIG

UPLINK = PortRef(Dpid(1), PortNo(1))


def test_background_is_measured_once_per_interval() -> None:
    fabric = FakeFabric()
    fabric.start(CONFIG)
    fabric.run(3)
    measured = []
    for total in range(200):
        fabric.count({UPLINK: total * 50_000}, {})
        fabric.run(0.1)
        measured.append(fabric.loop.state.load.background)
    changes = sum(before is not after for before, after in pairwise(measured))
    assert abs(changes - 20 / CONFIG.counters.interval_s) <= 1
    assert measured[-1][LinkId(*UPLINK)] > 0
