"""The hooks of ``deploy/slurm`` without Slurm: after any error they end in time, with status 0."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from shutil import rmtree

import pytest
import yaml

from tests.support.lab.slurm import installed_hooks

ENDS_WITHIN_S = 60.0
"""Number of seconds far above the time that a hook may take."""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    installed_hooks(tmp_path, "192.0.2.10:50051")
    return tmp_path


def hook(site: Path, name: str, job: int = 7, nodes: str = "n[1-4]", **more: str) -> str:
    """Run a hook with only the variables that slurmctld sets, and return its output.

    The call returns when the hook and all its children have closed the output."""
    done = subprocess.run(
        [site / "hooks" / f"{name}.sh"],
        env={"SLURM_JOB_ID": str(job), "SLURM_JOB_NODELIST": nodes, **more},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=ENDS_WITHIN_S,
    )
    assert done.returncode == 0
    return done.stdout


def jobs(site: Path) -> dict[str, object]:
    return {path.name: yaml.safe_load(path.read_text())["endpoints"] for path in (site / "jobs").glob("*.yaml")}


@pytest.fixture
def program(site: Path) -> Iterator[Path]:
    """Yield the path where the hooks look for programs first."""
    (site / "bin").mkdir()
    settings = site / "hooks" / "settings.sh"
    settings.write_text(settings.read_text().replace("\nPATH=", f"\nPATH={site}/bin:"))
    yield site / "bin"
    for program in (site / "bin").iterdir():
        program.unlink()


def put(program: Path, text: str) -> None:
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(0o755)


def put_hanging(program: Path) -> None:
    """Make the program hang for as long as its file exists."""
    put(program, f"while [ -e {program} ]; do sleep 0.1; done")


def test_a_job_has_a_file_from_its_prolog_to_its_epilog(site: Path) -> None:
    assert hook(site, "prolog-slurmctld") == ""
    hook(site, "prolog-slurmctld", 8, "n1,m[07-09]")
    hook(site, "prolog-slurmctld", 9, "n1")  # a job on one node has none
    assert jobs(site) == {"slurm-7.yaml": ["n[1-4]"], "slurm-8.yaml": ["n1,m[07-09]"]}
    assert hook(site, "epilog-slurmctld") == ""
    hook(site, "epilog-slurmctld", 9, "n1")
    assert jobs(site) == {"slurm-8.yaml": ["n1,m[07-09]"]}


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0)])
def test_a_heterogeneous_job_has_the_nodes_of_all_components(site: Path, order: tuple[int, ...]) -> None:
    nodes = {0: "n1", 1: "n2", 2: "n[2-3]"}
    of = {n: {"SLURM_HET_JOB_ID": "7", "SLURM_HET_JOB_OFFSET": str(n)} for n in nodes}
    for n in order:
        hook(site, "prolog-slurmctld", 7 + n, nodes[n], **of[n])
    assert jobs(site) == {"slurm-7.yaml": ["n1", "n2", "n[2-3]"]}
    for n in order:
        assert "export SIGNALBOX_JOB=slurm-7\n" in hook(site, "task-prolog", 7 + n, **of[n])
        hook(site, "epilog-slurmctld", 7 + n, nodes[n], **of[n])
    assert {path.name for path in (site / "jobs").iterdir()} <= {".swept"}


def test_tasks_are_told_their_job_and_where_the_controller_is(site: Path) -> None:
    told = "export SIGNALBOX_JOB=slurm-7\nexport SIGNALBOX_TAKE_OVER=1\n"
    assert hook(site, "task-prolog") == f"{told}export SIGNALBOX_ADDRESS=192.0.2.10:50051\n"
    (site / "hooks" / "settings.sh").unlink()
    assert hook(site, "task-prolog", address="the job's own") == told


HOOKS = ["prolog-slurmctld", "epilog-slurmctld"]


@pytest.mark.parametrize("name", [*HOOKS, "task-prolog"])
def test_neither_a_missing_folder_nor_wrong_settings_hold_a_job_up(site: Path, name: str) -> None:
    settings = site / "hooks" / "settings.sh"
    right = settings.read_text()
    for text in ("syntax (", "exit 3", "return 3", "echo text", "false"):
        settings.write_text(f"{text}\n")
        hook(site, name)
    settings.unlink()
    hook(site, name)
    settings.write_text(right)
    rmtree(site / "jobs")
    assert hook(site, name).count("\n") == (3 if name == "task-prolog" else 0)


@pytest.mark.parametrize("name", HOOKS)
def test_a_disk_that_does_not_answer_holds_no_job_up(site: Path, program: Path, name: str) -> None:
    for tool in ("mv", "rm"):
        put_hanging(program / tool)
    hook(site, name)


def test_a_disk_that_is_full_leaves_no_part_of_a_file(site: Path) -> None:
    if os.geteuid():
        pytest.skip("needs root, to mount a small disk")
    command = f"mount -t tmpfs -o size=4k none {site}/jobs && cat /dev/zero >{site}/jobs/full 2>/dev/null; "
    command += f"env -i SLURM_JOB_ID=7 SLURM_JOB_NODELIST=n[1-2] {site}/hooks/prolog-slurmctld.sh && ls {site}/jobs"
    done = subprocess.run(
        ["unshare", "-m", "bash", "-c", command], capture_output=True, text=True, timeout=ENDS_WITHIN_S
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "full\n"


def sweep(site: Path, *words: str, cwd: Path | None = None) -> None:
    subprocess.run([site / "hooks" / "sweep.sh", *words], timeout=ENDS_WITHIN_S, check=False, cwd=cwd)


@pytest.mark.parametrize("settings", ["", "jobs=\n", "jobs=nowhere\n"])
def test_without_a_folder_of_jobs_nothing_changes_elsewhere(site: Path, tmp_path: Path, settings: str) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "slurm-1.yaml").write_text("")
    (site / "hooks" / "settings.sh").write_text(f"{settings}PATH={elsewhere}:/usr/bin:/bin\n")
    put(elsewhere / "squeue", "echo 2")
    sweep(site, "--now", cwd=elsewhere)
    assert {path.name for path in elsewhere.iterdir()} == {"slurm-1.yaml", "squeue"}
    hook(site, "prolog-slurmctld", 7)
    assert not Path("/slurm-7.yaml").exists()


def test_files_of_jobs_that_slurm_does_not_know_are_removed(site: Path, program: Path) -> None:
    (site / "jobs" / ".swept").touch()  # the background work of the hooks has nothing to do
    for job in (1, 10, 100):
        hook(site, "prolog-slurmctld", job)
    (site / "jobs" / "by-hand.yaml").write_text('{"endpoints": ["n[1-2]"]}')
    put(program / "squeue", "printf '10\\n11\\n'")
    sweep(site)
    assert len(jobs(site)) == 4, "asked for not long ago"
    sweep(site, "--now")
    assert set(jobs(site)) == {"slurm-10.yaml", "by-hand.yaml"}


@pytest.mark.parametrize("text", ["exit 1", "echo 11; exit 1"])
def test_nothing_is_removed_when_slurm_does_not_answer(site: Path, program: Path, text: str) -> None:
    hook(site, "prolog-slurmctld")
    put(program / "squeue", text)
    sweep(site, "--now")
    assert set(jobs(site)) == {"slurm-7.yaml"}


def test_a_prolog_does_not_wait_for_slurm(site: Path, program: Path) -> None:
    put_hanging(program / "squeue")
    hook(site, "prolog-slurmctld")
