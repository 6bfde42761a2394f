"""Jobs that begin and end on a benchmark's stage, as forks of one process that has loaded PyTorch."""

from pathlib import Path

import pytest

from benchmarks.joining.mixes import Mode
from benchmarks.joining.scenarios.stage import RUN_FOLDER, stage
from mininet_topos.joining.jobs import LibraryJob
from mininet_topos.joining.launch import missing
from mininet_topos.lab.record import LabError
from tests.support.lab.needs import needs

ELEMENTS = 12_000
DEADLINE_S = 60.0


def test_jobs_begin_while_others_train_and_end_when_asked(lab_prefix: str, tmp_path: Path) -> None:
    """The second job has two collectives in each iteration, and the third cannot begin: its error is reported.

    Meanwhile the switches have priority over other programs."""
    needs(missing().get("gloo"))
    autogroup = Path("/proc", (RUN_FOLDER / "ovs-vswitchd.pid").read_text().strip(), "autogroup")
    before = autogroup.read_text() if autogroup.exists() else ""
    with stage(Mode.FLAT, tmp_path, lab_prefix) as on:
        assert not before or autogroup.read_text().split()[-1] == "-20"
        hosts = on.lab.hosts
        jobs = [
            LibraryJob("first", "gloo", "all_reduce", hosts[:3], ELEMENTS),
            LibraryJob("second", "gloo", "reduce_scatter+all_gather", hosts[3:5], ELEMENTS),
        ]
        for job in jobs:
            on.begin(job)
            on.wait_for_training()
        on.end_all()
        for job in jobs:
            assert all(ok for *_, ok in on.iterations_of(job.job_id))
        assert on.iterations_of("first")[-1][0] > on.iterations_of("second")[0][0], "both trained at once"
        on.begin(LibraryJob("third", "gloo", "no_such", hosts[:2], ELEMENTS))
        with pytest.raises(LabError, match="no collective 'no_such'"):
            on.wait(on.now_s + DEADLINE_S)
    assert not before or autogroup.read_text() == before
