"""The fabric benchmark on real switches: it measures everything and removes everything, even when it is stopped."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from benchmarks.fabric import openvswitch
from mininet_topos.lab.record import run
from tests.support.lab.waits import wait_for

BENCHMARK = (sys.executable, "-m", "benchmarks", "fabric")
LITTLE = ("--quiet-s", "2", "--idle-s", "1", "--settled-s", "1", "--hosts-per-leaf", "4")


def marked_bridges() -> dict[str, str]:
    found = run("ovs-vsctl", "--format=json", "--columns=name,external_ids", "find", "Bridge")
    rows = [(name, dict(ids[1]).get(openvswitch.MARK)) for name, ids in json.loads(found)["data"]]
    return {name: owner for name, owner in rows if owner}


def bridges_of(pid: int) -> list[str]:
    return [name for name, owner in marked_bridges().items() if owner.startswith(f"{pid}-")]


@contextmanager
def started(*argv: str) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([*BENCHMARK, *argv], stderr=subprocess.DEVNULL) as bench:
        try:
            wait_for(lambda: bool(controllers_of(bench.pid)), "the benchmark to start its controller")
            yield bench
        finally:
            bench.kill()


def controllers_of(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in children if b"serve" in command_of(child)]


def command_of(pid: str) -> bytes:
    """Return the command line of a process, empty when it has ended; the benchmark also starts short-lived programs."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


@pytest.mark.parametrize(("leaves", "spines", "cuts"), [(2, 2, 1), pytest.param(16, 8, 5, marks=pytest.mark.long)])
def test_the_paper_in_small(tmp_path: Path, leaves: int, spines: int, cuts: int) -> None:
    size = ("--leaves", str(leaves), "--spines", str(spines), "--cuts", str(cuts))
    done = subprocess.run([*BENCHMARK, *size, *LITTLE, "--out", str(tmp_path)])
    found = json.loads((tmp_path / "fabric.json").read_text())
    assert (done.returncode, found["problems"]) == (0, [])
    assert (tmp_path / "fabric.log").stat().st_size
    links = 2 * leaves * spines
    assert (found["switches"], found["links_expected"], found["links_found"]) == (leaves + spines, links, links)
    assert found["false_link_downs"] == 0
    assert found["rules_rewritten_on_restart"] == 0
    assert found["switches_changed_on_restart"] == 0
    assert found["pins"] >= found["flows"] > 0
    assert found["cuts"] == cuts
    times = ("discovery_s", "install_s", "silent_loss_detect_s", "reconnect_resync_s", "restart_s")
    assert all(found[name] > 0 for name in times)
    for name in ("echo_ms", "repair_ms", "controller_repair_ms"):
        assert 0 < found[name]["p50"] <= found[name]["p99"] <= found[name]["max"]
    assert len(found["repairs"]) == cuts
    assert all(0 < cut["controller_repair_ms"] < cut["repair_ms"] for cut in found["repairs"])
    assert found["packets_lost"] == 0
    assert found["rss_mb"] > 10
    assert not marked_bridges()


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.long)])
def test_nothing_is_left_when_it_is_stopped(tmp_path: Path, number: signal.Signals) -> None:
    with started("--leaves", "2", "--spines", "1", "--out", str(tmp_path)) as bench:
        assert len(bridges_of(bench.pid)) == 3
        (controller,) = controllers_of(bench.pid)
        bench.send_signal(number)
        assert bench.wait(60) == 128 + number
        assert not bridges_of(bench.pid)
        wait_for(lambda: not Path(f"/proc/{controller}").exists(), "its controller to end with it")


def test_what_a_killed_run_left_is_removed_by_the_next(tmp_path: Path) -> None:
    with started("--leaves", "2", "--spines", "1", "--out", str(tmp_path)) as bench:
        (controller,) = controllers_of(bench.pid)
        bench.kill()
        bench.wait(60)
        assert len(bridges_of(bench.pid)) == 3
        wait_for(lambda: not Path(f"/proc/{controller}").exists(), "its controller to end with it")
        assert openvswitch.remove_leftovers() == 3
        assert not bridges_of(bench.pid)
