"""A spine is drained while a job trains and the controller is killed; then the spine is pulled, and used again.

The benchmark ``drains`` measures such drains."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.live.drains import drain_and_pull
from benchmarks.live.failures import finish, scene_of
from mininet_topos.leaf_spine import LeafSpine

pytestmark = pytest.mark.lab

MBPS = 5.0
ELEMENTS = 20_000


def test_a_spine_is_pulled_without_a_lost_packet(lab_prefix: str, tmp_path: Path) -> None:
    size = LeafSpine(3, 2, 2, host_mbps=MBPS, fabric_mbps=MBPS, prefix=lab_prefix)
    with scene_of(size, tmp_path, ELEMENTS, jobs=1, close_s=0.01, quiet_s=1.0) as scene:
        drained = drain_and_pull(scene, 0, restart=True)
        report = finish(scene)
    assert drained.host_packets == 0
    assert [event["what"] for event in report["events"]] == ["drained across a restart", "pulled", "used again"]
    for event in report["events"]:
        assert sum(role["duplicated"] for role in event["roles"].values()) == 0, event
        assert sum(role["lost"] for role in event["roles"].values()) <= sum(event["drops"].values()), event
    jobs = report["jobs"]
    assert jobs["restarts"] == jobs["arithmetic_errors"] == jobs["iterations_lost"] == 0
