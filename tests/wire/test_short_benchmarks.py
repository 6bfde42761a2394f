"""Short forms of benchmarks: generated requests and broken messages of fixed seeds, a long run, linearizability."""

from pathlib import Path

import pytest

from benchmarks.api_requests.cases import case
from benchmarks.api_requests.command import run
from benchmarks.api_requests.raw import KEPT, KEPT_RAW, raw, send_raw
from benchmarks.api_requests.sending import Sender
from benchmarks.api_requests.values import METHODS, Known
from benchmarks.fabric.blueprint import Blueprint
from benchmarks.linearizability.command import JOBS, recorded, refused_parts
from benchmarks.linearizability.recorder import running
from benchmarks.long_run import PARTS, Load, measured
from benchmarks.openflow.fuzz import fuzz
from benchmarks.openflow.mutants import MULTIPART, mutant
from benchmarks.scale import command as scale
from benchmarks.scale.command import LINK_BPS
from controller.api.access import RULES
from offline.scenarios.fabrics import leaf_spine
from tests.support.wire.control_stand_in import running_api
from tests.support.wire.etcd import running_etcd

NOT_IN_STAND_IN = ("Explain", "WhatIf", "GetPlanProof")


def test_a_request_is_the_same_every_time() -> None:
    assert [case(7, number, Known()) for number in range(300)] == [case(7, number, Known()) for number in range(300)]
    assert [raw(7, number) for number in range(50)] == [raw(7, number) for number in range(50)]
    assert case(7, 1, Known()) != case(8, 1, Known())


def test_requests_of_every_kind_go_to_every_method() -> None:
    cases = [case(3, number, Known()) for number in range(8000)]
    assert RULES.keys() < METHODS.keys()
    for path in METHODS:
        assert {"correct", "one field changed", "bytes"} <= {one.what for one in cases if one.path == path}, path


def test_where_there_are_hosts_and_a_plan_nothing_is_a_defect(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path, known = tmp_path / "api.sock", Known()
    with running_api(f"unix:{path}", max_message_bytes=1 << 20), Sender(f"unix:{path}", known) as sender:
        generated = (case(11, number, known) for number in range(200))
        for sent in (*KEPT, *generated):
            if not sent.path.endswith(NOT_IN_STAND_IN):
                assert (sender.send(sent).wrong(sent), str(sent)) == ("", str(sent))
        for frames in (*KEPT_RAW, *(raw(11, number) for number in range(15))):
            if frames.path.endswith(NOT_IN_STAND_IN):
                continue
            assert (frames.wrong(send_raw(str(path), frames)), str(frames)) == ("", str(frames))
    assert [record.getMessage() for record in caplog.records if record.levelname in ("ERROR", "CRITICAL")] == []


@pytest.mark.long
def test_a_controller_answers_all_and_forgets_nothing_when_it_is_killed() -> None:
    """The controller is killed once more at the end, while a job is being registered."""
    result = run(seed=4, count=3000, kills=5)
    assert result.failures == []
    assert result.bad_lines == 0
    assert min(result.restored) > 0


def test_a_mutant_is_the_same_every_time() -> None:
    assert [mutant(7, number) for number in range(200)] == [mutant(7, number) for number in range(200)]
    assert mutant(7, 1) != mutant(8, 1)


def test_broken_messages_reach_every_reader_and_the_other_switch_is_served() -> None:
    result = fuzz(seed=1, count=120)
    assert result.failure == ""
    assert result.tracebacks == 0
    readers = result.readers
    assert {*MULTIPART, "packet-in", "port status", "error", "handshake"} <= readers.keys()
    for reader in ("flow stats", "group desc", "meter config", "packet-in", "handshake"):
        assert readers[reader].keys() == {"accepted", "refused"}, reader
    assert result.good_echo_ms
    assert result.good_rules_ms
    assert result.good_barriers > 0


@pytest.mark.parametrize("runs", [1, pytest.param(2, marks=pytest.mark.long)])
def test_a_long_run_has_a_sample_for_each_part_and_goes_on_in_the_same_folder(tmp_path: Path, runs: int) -> None:
    for _ in range(runs):
        first, *later = measured(tmp_path, Load(PARTS, 25, 500.0), PARTS)
        assert (first.cycles, first.renewals) == (0, 0)
        assert (later[-1].cycles, later[-1].renewals) == (PARTS, 25)
        assert len(later) <= PARTS  # fewer when the load ends a part before it was measured
        assert all(s.rss_mb > 10 and s.descriptors > 10 and s.state_kib and s.log_kib for s in later)


@pytest.mark.long
def test_two_members_divide_a_fabric_of_fake_switches_and_the_second_takes_over_without_changes(tmp_path: Path) -> None:
    blueprint = Blueprint(leaf_spine(8, 4, 4, LINK_BPS, LINK_BPS), "")
    with scale.running(blueprint, 2, 0.5, tmp_path, lambda _: None) as run:
        scale.measure(run, scale.ring_jobs(blueprint, 4, 1), idle_s=0.1, cuts=1, seed=1, take_over=True)
    steps = {step["step"]: step for step in run.steps}
    assert [*steps] == ["discovery", "idle", "registration", "idle with jobs", "repair", "take-over"]
    assert steps["discovery"]["changes"]["flow"] > 12 * 12
    assert (steps["registration"]["without_pin"], steps["registration"]["flows"]) == (0, 26)
    assert steps["repair"]["changes"]["narrowed group"] >= 7
    assert steps["take-over"]["changes"] == {}
    assert {"etcd", "switches", "member0 loop", "member1 southbound"} <= {row["process"] for row in run.processes}


@pytest.mark.long
def test_calls_about_jobs_are_linearizable_while_members_are_killed_and_paused(tmp_path: Path) -> None:
    with running_etcd(tmp_path / "etcd") as etcd, running(tmp_path / "history", etcd) as members:
        history, faults = recorded(members, 400, 3)
    assert set(faults) == {"pause", "short pause"}
    assert {each.call.job for each in history} == set(range(JOBS))
    assert refused_parts(history) == {}
