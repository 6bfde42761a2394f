"""Short runs of drains, failures and moves under traffic on real switches.

The benchmarks ``drains``, ``failures`` and ``moves`` measure them.

The tests check no times, only facts that are true on every machine. All phases end in order, and jobs train during all
phases. Packets sent after the end of a phase arrive exactly once."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks.live.drains import drain_and_pull
from benchmarks.live.failures import KINDS, WITHOUT_ETCD, finish, run_kind, scene_of
from benchmarks.live.moves import build_report, moving, switching, traffic_of
from mininet_topos.leaf_spine import LeafSpine

WITHOUT_CONTROLLER = ("cable without controller",)
"""Kinds of failure that the short test causes; the long test causes all kinds.

The modules ``test_controller`` and ``test_three_tiers`` test other kinds without probes."""
LEAVES, SPINES, HOSTS = 3, 2, 2
MBPS = 1.0
ELEMENTS = 4_000
PROBE_S = 0.03
MOVES_MBPS = 5.0
LOAD, SMALL_FRAMES = 0.03, 200
"""Load of the links and bytes of a frame: 300 packets per second in all, so few that a busy machine loses none."""


@pytest.mark.parametrize(
    ("kinds", "events"), [(WITHOUT_CONTROLLER, 3), pytest.param(KINDS, 10, marks=pytest.mark.long)], ids=["one", "all"]
)
def test_jobs_train_through_drain_and_failures(
    lab_prefix: str, tmp_path: Path, kinds: Sequence[str], events: int
) -> None:
    """First the controller is killed as a spine is drained; the spine is then pulled without a lost packet."""
    size = LeafSpine(LEAVES, SPINES, HOSTS, host_mbps=MBPS, fabric_mbps=MBPS, prefix=lab_prefix)
    with scene_of(size, tmp_path, ELEMENTS, jobs=1, close_s=PROBE_S, quiet_s=0.5) as scene:
        drained = drain_and_pull(scene, 0, restart=True)
        for turn, kind in enumerate(kinds):
            run_kind(scene, kind, turn)
        report = finish(scene)
    assert drained.host_packets == 0
    jobs = report["jobs"]
    assert jobs["restarts"] == jobs["arithmetic_errors"] == jobs["iterations_lost"] == 0
    assert jobs["iterations"] > len(kinds)
    told = {event["what"]: event for event in report["events"]}
    assert [*told][:3] == ["drained across a restart", "pulled", "used again"]
    assert len(told) == 3 + events
    for what, event in told.items():
        assert sum(role["sent"] for role in event["roles"].values()) > 0, what
        assert sum(role["duplicated"] for role in event["roles"].values()) == 0, what
    for event in list(told.values())[:3]:
        assert sum(role["lost"] for role in event["roles"].values()) <= sum(event["drops"].values()), event
    for what in told.keys() & {"cable replugged", "spine returned"}:
        assert sum(role["lost"] for role in told[what]["roles"].values()) == 0, told[what]
    for what in told.keys() & {"leaf deleted", "cable cut, no controller"}:
        lost = told[what]["roles"]["close 2"]["lost"]
        assert lost > 0, f"{what}: the probes see what is cut off"


@pytest.mark.long
def test_a_cable_that_is_cut_while_etcd_is_away_is_repaired(lab_prefix: str, tmp_path: Path) -> None:
    """Neither the loss of etcd nor its return costs a packet or an iteration."""
    size = LeafSpine(LEAVES, SPINES, HOSTS, host_mbps=MBPS, fabric_mbps=MBPS, prefix=lab_prefix)
    with scene_of(size, tmp_path, ELEMENTS, jobs=1, close_s=PROBE_S, quiet_s=0.5, in_etcd=True) as scene:
        run_kind(scene, WITHOUT_ETCD, 0)
        report = finish(scene)
    jobs = report["jobs"]
    assert jobs["restarts"] == jobs["arithmetic_errors"] == jobs["iterations_lost"] == 0
    lost = {event["what"]: sum(role["lost"] for role in event["roles"].values()) for event in report["events"]}
    assert [*lost] == ["etcd killed", "cable cut, no etcd", "cable replugged", "etcd back"]
    assert lost["etcd killed"] == lost["cable replugged"] == lost["etcd back"] == 0


def test_moved_flows_lose_and_double_nothing(lab_prefix: str, tmp_path: Path) -> None:
    size = LeafSpine(LEAVES, SPINES, HOSTS, host_mbps=MOVES_MBPS, fabric_mbps=MOVES_MBPS, prefix=lab_prefix)
    with traffic_of(size, tmp_path, jobs=1, load=LOAD, frame_bytes=SMALL_FRAMES) as traffic:
        phases = [moving(traffic, times=2), switching(traffic, times=1)]
        report = build_report(phases, *traffic.probing.finish())
    for phase in report["phases"]:
        assert phase["sent"] > 0
        assert phase["lost"] == phase["duplicated"] == phase["drops"]["no_way"] == 0, phase
    moved = report["phases"][0]["packets_by_port"]
    assert all(packets > 0 for packets in moved.values()), "both spines carried the flows"
