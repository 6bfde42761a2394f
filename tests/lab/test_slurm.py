"""The hooks of ``deploy/slurm`` with a real Slurm, the real API server and ``signalbox jobs keep``; no fabric."""

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from mininet_topos.joining.launch import ROOT
from mininet_topos.lab.record import LabError
from signalbox.commands.get import topology_conf, tree
from signalbox.jobs.spec import JobId
from tests.support.lab.needs import needs
from tests.support.lab.slurm import Slurm, installed_hooks, missing, plain_namespaces, slurm_cluster
from tests.support.lab.waits import wait_for
from tests.support.wire.control_stand_in import Running, running_api
from tests.support.wire.keeping import KeepProcess, keeping

POD_CABLES = [(f"edge{n}", f"agg{1 + n // 3}{a}") for n in (1, 2, 3, 4) for a in "xy"]
POD_CABLES += [(f"agg{pod}{a}", f"core{a}") for pod in (1, 2) for a in "xy"]

ADDRESS = {f"n{n}": f"10.0.{n}.1" for n in range(1, 5)}
WAITS = "#!/bin/bash\nwhile [[ ! -e $1 ]]; do sleep 0.02; done\n"
JOINS = """#!/bin/bash
exec {python} -c '
import sys, time, signalbox, os
assert os.environ["SIGNALBOX_JOB"] == "slurm-" + os.environ["SLURM_JOB_ID"]
with signalbox.join(os.environ["SIGNALBOX_JOB"], endpoints=["10.0.1.1", "10.0.2.1"], max_subflows=4, strict=True):
    while not os.path.exists(sys.argv[1]):
        time.sleep(0.02)
' $1
"""


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    needs(missing())
    folder = tmp_path_factory.mktemp("slurm")
    hooks = installed_hooks(folder, f"unix:{folder}/api")
    (folder / "addresses.yaml").write_text("n[1-4]: 10.0.1-4.1\n")
    for name, text in {"waits": WAITS, "joins": JOINS.format(python=sys.executable)}.items():
        (folder / name).write_text(text)
    with plain_namespaces(4) as nodes, slurm_cluster(Slurm(folder, nodes, hooks)) as slurm:
        yield slurm


@dataclass
class Announced:
    """Jobs of Slurm that are registered at the API.

    ``folder``: folder of the files that the hooks keep for these jobs."""

    slurm: Slurm
    api: Running
    keep: KeepProcess
    number: int = 0

    @property
    def folder(self) -> Path:
        return self.slurm.folder / "jobs"

    def submit(self, *words: str, program: str = "waits") -> tuple[int, Path]:
        """Submit a job that ends when a path exists; return its number and the path."""
        self.number += 1
        end = self.slurm.folder / f"end{os.getpid()}-{id(self)}-{self.number}"
        return self.slurm.submit("-o", "/dev/null", *words, str(self.slurm.folder / program), str(end)), end

    def has(self, **jobs: str) -> None:
        """Wait until exactly these jobs are announced; ``slurm_7="n1 n2"`` is a job with these nodes."""
        wanted = {
            name.replace("_", "-"): tuple(ADDRESS[node] for node in nodes.split()) for name, nodes in jobs.items()
        }
        try:
            wait_for(lambda: self.endpoints() == wanted, f"{wanted}")
        except LabError as error:
            state = self.slurm.run("squeue", "--states=all") + self.slurm.run("sinfo", "-N", "-l")
            raise LabError(f"{error}: {self.endpoints()}\n{state}\n{self.keep.log.read_text()}") from None

    def endpoints(self) -> dict[str, tuple[str, ...]]:
        return {job_id: job.spec.endpoints for job_id, job in self.api.control.registry.jobs.items()}

    def subflows(self, job: int) -> int | None:
        found = self.api.control.registry.jobs.get(JobId(f"slurm-{job}"))
        return found.spec.max_subflows if found else None


@pytest.fixture
def announced(slurm: Slurm, tmp_path: Path) -> Iterator[Announced]:
    api_socket = slurm.folder / "api"
    options = ("--addresses", slurm.folder / "addresses.yaml")
    with (
        running_api(f"unix:{api_socket}") as api,
        keeping(slurm.folder / "jobs", f"unix:{api_socket}", tmp_path, tmp_path / "log", *options) as keep,
    ):
        yield Announced(slurm, api, keep)
        slurm.run("scancel", "--user=root")
        wait_for(lambda: not any((slurm.folder / "jobs").glob("*.yaml")), "the files to go")
        slurm.wait_for_nodes()


def test_each_task_of_an_array_is_announced_while_it_runs(announced: Announced) -> None:
    first, end = announced.submit("-N2", "--exclusive", "--array=0-1")
    wait_for(lambda: len(announced.endpoints()) == 2, "two jobs")
    jobs = announced.endpoints()
    assert f"slurm-{first}" in jobs
    assert sorted(jobs.values()) == [("10.0.1.1", "10.0.2.1"), ("10.0.3.1", "10.0.4.1")]
    end.touch()
    announced.has()


def test_a_cancelled_job_is_released_and_one_on_a_single_node_never_announced(announced: Announced) -> None:
    alone, _ = announced.submit("-N1")
    job, _ = announced.submit("-N4")
    announced.slurm.wait_for_state(alone, "RUNNING")
    announced.has(**{f"slurm_{job}": "n1 n2 n3 n4"})
    announced.slurm.run("scancel", str(job))
    announced.has()


@pytest.mark.long
def test_a_heterogeneous_job_is_one_job_with_all_its_nodes(announced: Announced) -> None:
    job, _ = announced.submit("-N1", "-w", "n3", ":", "-N2", "-w", "n[1-2]")
    announced.has(**{f"slurm_{job}": "n3 n1 n2"})


def test_a_program_that_joins_by_itself_takes_its_job_over(announced: Announced) -> None:
    job, end = announced.submit("-N2", "-w", "n[1-2]", f"--export=ALL,PYTHONPATH={ROOT / 'client'}", program="joins")
    wait_for(lambda: announced.subflows(job) == 4, "the program's announcement")
    end.touch()
    announced.has()


@pytest.mark.long
def test_a_job_whose_node_dies_is_released(announced: Announced) -> None:
    job, _ = announced.submit("-N2", "-w", "n[1-2]", "--no-requeue")
    announced.has(**{f"slurm_{job}": "n1 n2"})
    announced.slurm.kill("n2")
    announced.has()
    announced.slurm.start_node("n2")


@pytest.mark.long
def test_a_job_that_is_requeued_is_announced_with_its_new_nodes(announced: Announced) -> None:
    job, _ = announced.submit("-N2", "-w", "n[2-3]", "--requeue")
    announced.has(**{f"slurm_{job}": "n2 n3"})
    announced.slurm.run("scontrol", "update", f"JobId={job}", "ReqNodeList=", check=False)
    announced.slurm.kill("n3")
    wait_for(lambda: announced.endpoints() == {}, "its release")
    announced.slurm.start_node("n3")
    wait_for(lambda: len(announced.endpoints()) == 1, "its next run")
    assert set(announced.endpoints()) == {f"slurm-{job}"}


@pytest.mark.long
def test_a_job_outlives_slurmctld_and_is_released_when_it_ends(announced: Announced) -> None:
    job, end = announced.submit("-N2")
    announced.has(**{f"slurm_{job}": "n1 n2"})
    announced.slurm.wait_for_saved(job)
    announced.slurm.kill("slurmctld")
    announced.slurm.start_slurmctld()
    announced.slurm.wait_for_state(job, "RUNNING")
    announced.has(**{f"slurm_{job}": "n1 n2"})
    end.touch()
    announced.has()


def test_jobs_that_slurm_does_not_know_are_swept_out_when_the_next_one_starts(announced: Announced) -> None:
    runs, _ = announced.submit("-N2")
    announced.has(**{f"slurm_{runs}": "n1 n2"})
    left = announced.folder / "slurm-999999.yaml"
    left.write_text('job_id: slurm-999999\nhosts: "n[3-4]"\n')
    announced.has(**{f"slurm_{runs}": "n1 n2", "slurm_999999": "n3 n4"})
    os.utime(announced.folder / ".swept", (0, 0))
    alone, _ = announced.submit("-N1")
    announced.slurm.wait_for_state(alone, "RUNNING")
    announced.has(**{f"slurm_{runs}": "n1 n2"})


def test_jobs_run_without_a_controller_and_are_announced_when_it_is_there(slurm: Slurm, tmp_path: Path) -> None:
    file = slurm.folder / "jobs"
    job = slurm.submit("-N2", "-o", "/dev/null", str(slurm.folder / "waits"), str(tmp_path / "end"))
    slurm.wait_for_state(job, "RUNNING")
    assert [path.name for path in file.glob("*.yaml")] == [f"slurm-{job}.yaml"]
    options = ("--addresses", slurm.folder / "addresses.yaml")
    with running_api() as api, keeping(file, api.addresses[0], tmp_path, tmp_path / "log", *options):
        wait_for(lambda: list(api.control.registry.jobs) == [f"slurm-{job}"], "the job")
        (tmp_path / "end").touch()
        wait_for(lambda: not api.control.registry.jobs, "its release")


@pytest.mark.long
def test_slurm_takes_the_tree_of_a_fat_tree(tmp_path: Path) -> None:
    needs(missing())
    conf = topology_conf(tree(POD_CABLES, {f"edge{n}": [f"n{n}"] for n in (1, 2, 3, 4)}))
    with plain_namespaces(4) as nodes, slurm_cluster(Slurm(tmp_path, nodes, topology=conf), "10.65.0") as slurm:
        shown = slurm.run("scontrol", "show", "topology").splitlines()
        levels = {line.split()[0]: " ".join(line.split()[1:4:2]) for line in shown}
        assert levels["SwitchName=edge1"] == "Level=0 Nodes=n1"
        assert levels["SwitchName=tier1-1"] == "Level=1 Nodes=n[1-2]"
        assert levels["SwitchName=tier2-1"] == "Level=2 Nodes=n[1-4]"
