"""From ``pip install`` to a pinned job, by each way to join, and what the job then takes beside one flat switch.

    sudo scripts/openvswitch.sh run .venv/bin/python -m benchmarks ways [--way ddp]…

The client is installed from its wheel into an environment of its own. Two jobs of four hosts, one on each leaf of
4 leaves x 4 spines with links of 5 Mbit/s, run the program of the way (``examples/training``), first on one flat switch
without the lines that are Signalbox's, then on the fabric, where the controller has its default settings. Out: seconds,
and iteration time / (that on the flat switch x the level of the plan).
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

import typer

from benchmarks.measures import report, table_of
from mininet_topos.joining.jobs import SUBNET
from mininet_topos.joining.launch import SYSTEM_PYTHON, missing, mpi_settings, torch_python
from mininet_topos.joining.slurm import Slurm, slurm_cluster
from mininet_topos.joining.slurm import missing as missing_slurm
from mininet_topos.joining.slurm_hooks import installed_hooks
from mininet_topos.lab.lab import Lab
from mininet_topos.lab.record import LabError, wait_for
from mininet_topos.lab.running_fabric import LINK_MBPS, running_fabric
from mininet_topos.lab.static_routes import install_static_routes
from mininet_topos.leaf_spine import LeafSpine
from offline.scenarios.topologies import Host
from signalbox.commands.output import AsJson
from signalbox.errors import SignalboxError
from signalbox.mapping import word_in

ROOT = Path(__file__).resolve().parents[1]
PROGRAMS = ROOT / "examples" / "training"
LEAVES, SPINES, JOBS = 4, 4, 2
PREFIX = "wy"
PORT = 29_500
ITERATIONS = 100_000
WINDOW, WARM = 10, 3
PINNED_S, WINDOW_S, SETTLE_S, GONE_S = 240.0, 240.0, 20.0, 10.0
MOST_LINES = 2
TARGET = 1.07


@dataclass(frozen=True, slots=True)
class Run:
    """Where a job runs: a namespace, a host and an interface per rank. ``address``: of the controller; None on the flat
    switch, where the job does not join. ``programs``: their folder. ``bin``: of the environment with the client."""

    job_id: str
    namespaces: Sequence[str]
    hosts: Sequence[Host]
    interfaces: Sequence[str]
    programs: Path
    bin: Path
    address: str | None


Commands = Callable[[Run], Iterator[tuple[str, list[str]]]]


def pytorch(program: str) -> Commands:
    """A process per host, as a launcher of PyTorch's starts it."""

    def commands(run: Run) -> Iterator[tuple[str, list[str]]]:
        for rank, namespace in enumerate(run.namespaces):
            words = {
                "RANK": rank,
                "WORLD_SIZE": len(run.hosts),
                "MASTER_ADDR": run.hosts[0].ip,
                "MASTER_PORT": PORT,
                "SIGNALBOX_JOB": run.job_id,
                "SIGNALBOX_ADDRESS": run.address or "",
                "GLOO_SOCKET_IFNAME": run.interfaces[rank],
                "OMP_NUM_THREADS": 1,
            }
            environment = [f"{name}={value}" for name, value in words.items()]
            python = str(run.bin / "python")
            yield namespace, ["env", *environment, python, str(run.programs / program), str(ITERATIONS)]

    return commands


def open_mpi(run: Run) -> Iterator[tuple[str, list[str]]]:
    """mpirun on the first host, behind the prefix."""
    program = [SYSTEM_PYTHON, str(run.programs / "all_reduce_mpi.py"), str(ITERATIONS)]
    session = run.programs.parent / f"mpirun-{run.job_id}"
    command = ["mpirun", *mpi_settings(run.namespaces, SUBNET, session), *program]
    if run.address:
        prefix = [str(run.bin / "signalbox"), "run", "--address", run.address, "--job", run.job_id]
        hosts = ",".join(host.ip for host in run.hosts)
        command = [*prefix, "--hosts", hosts, "--", *command]
    yield run.namespaces[0], command


SLURM = "slurm"
SBATCH = """#!/bin/bash
#SBATCH --array=0-{last} --nodes={nodes} --ntasks-per-node=1 --exclusive --output={folder}/slurm-%j.log
mpirun --mca btl_tcp_if_include {subnet} {program}
"""

WAYS: dict[str, Commands] = {
    "ddp": pytorch("ddp.py"),
    "all_reduce": pytorch("all_reduce.py"),
    "open-mpi": open_mpi,
}
ALL = [*WAYS, SLURM]


# ---- what is installed


def installed(folder: Path) -> tuple[Path, float]:
    """A new environment with the client's wheel, and what that needs, without pip's cache; its folder of programs, and
    how long pip took. PyTorch is seen in it, as if it had been there before."""
    subprocess.run([ROOT / "scripts" / "wheels.sh", folder / "dist", "signalbox-client"], check=True)
    subprocess.run([sys.executable, "-m", "venv", folder / "env"], check=True)
    python = folder / "env" / "bin" / "python"
    began = time.monotonic()
    subprocess.run(
        [python, "-m", "pip", "install", "-qqq", "--find-links", folder / "dist", "signalbox-client"],
        check=True,
        env={**os.environ, "PIP_NO_CACHE_DIR": "1", "PYTHONPATH": ""},
    )
    took_s = time.monotonic() - began
    where = "import sysconfig; print(sysconfig.get_path('purelib'))"
    own, of_torch = (
        subprocess.run([each, "-c", where], check=True, capture_output=True, text=True).stdout.strip()
        for each in (python, torch_python())
    )
    Path(own, "torch.pth").write_text(f"{of_torch}\n")
    return python.parent, took_s


def plain(folder: Path) -> Path:
    """The programs without the lines that are Signalbox's. Raises ``SignalboxError`` for a program with too many."""
    for program in PROGRAMS.glob("*.py"):
        lines = program.read_text().splitlines(keepends=True)
        ours = [line for line in lines if re.match(r"\s*(import )?signalbox\b", line)]
        if len(ours) > MOST_LINES:
            raise SignalboxError(f"{program.name} needs {len(ours)} lines to join")
        (folder / program.name).write_text("".join(line for line in lines if line not in ours))
    return folder


# ---- jobs


@dataclass
class Running:
    """One job's processes, and what its first one prints."""

    run: Run
    commands: Commands
    folder: Path
    began: float = 0.0
    processes: list[subprocess.Popen[Any]] = field(default_factory=list)

    def start(self) -> None:
        self.began = time.monotonic()
        for number, (namespace, argv) in enumerate(self.commands(self.run)):
            with self._log(number).open("w") as output:
                self.processes.append(
                    subprocess.Popen(
                        ["ip", "netns", "exec", namespace, *argv],
                        stdin=subprocess.DEVNULL,
                        stdout=output,
                        stderr=subprocess.STDOUT,
                        env={**os.environ, "PYTHONPATH": ""},
                        start_new_session=True,
                    )
                )

    def iterations(self) -> list[float]:
        """Seconds that each has taken. Raises ``LabError`` when a process has ended."""
        for number, process in enumerate(self.processes):
            if process.poll() is not None:
                said = self._log(number).read_text(errors="replace")[-2000:]
                raise LabError(f"process {number} of {self.run.job_id} ended with {process.returncode}: {said}")
        return [float(s) for s in re.findall(r"^iteration \d+ ([\d.]+) s$", self._log(0).read_text(), re.MULTILINE)]

    def stop(self) -> None:
        """As a scheduler does: SIGTERM to the processes that were started."""
        for process in self.processes:
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
        for process in self.processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(GONE_S)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _log(self, number: int) -> Path:
        return self.folder / f"{self.run.job_id}-{number}.log"


@dataclass
class SlurmJob(Running):
    """A job of Slurm's, called as ``run.job_id``."""

    slurm: Slurm | None = None

    def stop(self) -> None:
        assert self.slurm
        number = self.run.job_id.removeprefix("slurm-")
        self.slurm.run("scancel", number, check=False)
        self.slurm.wait_for_state(int(number), "CANCELLED", "")

    def _log(self, _: int) -> Path:
        return self.folder / f"{self.run.job_id}.log"


@contextmanager
def of_slurm(lab: Lab, programs: Path, bin_: Path, address: str | None, folder: Path) -> Iterator[list[Running]]:
    """An array of two jobs of MPI, submitted to a Slurm whose nodes are the lab's hosts; joined by its hooks alone."""
    hosts = [host for number in range(JOBS) for host in lab.hosts[number::JOBS]]
    nodes = {f"n{number}": lab.namespace(host) for number, host in enumerate(hosts, start=1)}
    slurm = Slurm(folder, nodes, installed_hooks(folder, address) if address else [])
    (folder / "addresses.yaml").write_text(
        "".join(f"n{number}: {host.ip}\n" for number, host in enumerate(hosts, start=1))
    )
    script = folder / "train.sh"
    program = f"nice -n 19 {SYSTEM_PYTHON} {programs / 'all_reduce_mpi.py'} {ITERATIONS}"
    script.write_text(SBATCH.format(nodes=LEAVES, last=JOBS - 1, folder=folder, subnet=SUBNET, program=program))
    with ExitStack() as stack:
        stack.enter_context(slurm_cluster(slurm))
        if address:
            stack.enter_context(kept(bin_, folder, address))
        root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        began = time.monotonic()
        slurm.submit(str(script), env={**root, "OMPI_MCA_mpi_yield_when_idle": "1"})
        wait_for(lambda: len(list(folder.glob("slurm-*.log"))) == JOBS, "the jobs to run", WINDOW_S)
        running: list[Running] = []
        for log in sorted(folder.glob("slurm-*.log")):
            run = Run(log.stem, [*nodes.values()], hosts, (), programs, bin_, address)
            running.append(SlurmJob(run, open_mpi, folder, began, slurm=slurm))
        yield running


@contextmanager
def kept(bin_: Path, folder: Path, address: str) -> Iterator[None]:
    """``signalbox jobs keep``, as its service runs beside slurmctld."""
    words = [bin_ / "signalbox", "jobs", "keep", folder / "jobs", "--addresses", folder / "addresses.yaml"]
    environ = {**os.environ, "PYTHONPATH": "", "SIGNALBOX_ADDRESS": address, "XDG_STATE_HOME": str(folder)}
    with (folder / "keep.log").open("wb") as log:
        process = subprocess.Popen([*map(str, words)], stdin=subprocess.DEVNULL, stderr=log, env=environ)
    try:
        wait_for(lambda: "are kept registered" in (folder / "keep.log").read_text(), "the daemon", GONE_S)
        yield
    finally:
        process.terminate()
        process.wait()


@contextmanager
def started(
    lab: Lab, way: str, programs: Path, bin_: Path, address: str | None, folder: Path
) -> Iterator[list[Running]]:
    """Each job has one host on each leaf, or as many hosts of one switch."""
    folder.mkdir()
    if way == SLURM:
        with of_slurm(lab, programs, bin_, address, folder) as jobs:
            yield jobs
        return
    running = []
    for number in range(JOBS):
        hosts = lab.hosts[number::JOBS]
        spaces = [lab.namespace(host) for host in hosts]
        interfaces = [lab.topo.interface(host.name, 0) for host in hosts]
        run = Run(f"{way}-{number}", spaces, hosts, interfaces, programs, bin_, address)
        running.append(Running(run, WAYS[way], folder))
    try:
        for job in running:
            job.start()
        yield running
    finally:
        for job in running:
            job.stop()


def mean_s(jobs: Sequence[Running]) -> list[float]:
    """Of the iterations that follow, per job."""
    before = [len(job.iterations()) for job in jobs]

    def enough() -> bool:
        return all(len(job.iterations()) >= count + WINDOW + 1 for job, count in zip(jobs, before, strict=True))

    wait_for(enough, f"{WINDOW} iterations of every job", WINDOW_S)
    # The first one may have begun before.
    return [fmean(job.iterations()[count + 1 :]) for job, count in zip(jobs, before, strict=True)]


def flat(way: str, programs: Path, bin_: Path, folder: Path) -> list[float]:
    with Lab(LeafSpine(1, 1, LEAVES * JOBS, LINK_MBPS, LINK_MBPS, prefix=PREFIX), controller=None) as lab:
        install_static_routes(lab)
        with started(lab, way, programs, bin_, None, folder) as jobs:
            wait_for(lambda: all(len(job.iterations()) >= WARM for job in jobs), "the first iterations", WINDOW_S)
            return mean_s(jobs)


def joined(way: str, bin_: Path, folder: Path) -> dict[str, Any]:
    topo = LeafSpine(LEAVES, SPINES, JOBS, LINK_MBPS, LINK_MBPS, prefix=PREFIX)
    with running_fabric(topo, folder, LINK_MBPS) as (lab, controller, client):
        with started(lab, way, PROGRAMS, bin_, controller.address, folder / "logs") as jobs:
            waited = {"listed_s": 0.0, "pinned_s": 0.0}

            def reached(state: str, *states: str) -> None:
                def all_jobs() -> bool:
                    for job in jobs:
                        job.iterations()
                    found = [word_in(job, "state") for job in client.list_jobs()]
                    return len(found) == JOBS and (not states or set(found) <= set(states))

                wait_for(all_jobs, f"the jobs to be {state}", PINNED_S, 0.1)
                waited[f"{state}_s"] = round(time.monotonic() - jobs[0].began, 1)

            reached("listed")
            reached("pinned", "pinned")
            time.sleep(SETTLE_S)
            took = mean_s(jobs)
            levels = {job.spec.job_id: job.level for job in client.list_jobs()}
            for job in jobs:
                job.stop()
            ended = time.monotonic()
            wait_for(lambda: not client.list_jobs(), "the jobs to be released", GONE_S, 0.02)
            gone_s = round(time.monotonic() - ended, 2)
        return {**waited, "gone_s": gone_s, "took": took, "levels": [levels[job.run.job_id] for job in jobs]}


def rows_of(way: str, bin_: Path, folder: Path) -> Iterator[dict[str, Any]]:
    programs = folder / "plain"
    programs.mkdir(exist_ok=True)
    on_one_switch = flat(way, plain(programs), bin_, folder / f"{way}-flat")
    (scratch := folder / way).mkdir()
    found = joined(way, bin_, scratch)
    for number, (took, one, level) in enumerate(zip(found["took"], on_one_switch, found["levels"], strict=True)):
        yield {
            "job": f"{way}-{number}",
            "listed_s": found["listed_s"],
            "pinned_s": found["pinned_s"],
            "gone_s": found["gone_s"],
            "flat_s": round(one, 3),
            "iteration_s": round(took, 3),
            "level": round(level, 3),
            "ratio": round(took / (one * level), 3),
        }


def main(
    way: Annotated[list[str] | None, typer.Option(help=f"{', '.join(ALL)}; all by default")] = None,
    out: Annotated[Path, typer.Option(help="directory for the results")] = Path("out/bench/ways"),
    as_json: AsJson = False,
) -> None:
    """From pip install to a pinned job, by each way to join."""
    wanted = way or ALL
    if unknown := [each for each in wanted if each not in ALL]:
        raise SignalboxError(f"there is no way {unknown[0]!r}; there are: {', '.join(ALL)}")
    for absent in (*missing().values(), missing_slurm()):
        if absent:
            raise SignalboxError(absent)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="signalbox-ways-")))
        bin_, install_s = installed(folder)
        rows = [row for each in wanted for row in rows_of(each, bin_, folder)]
    worst = max(row["ratio"] for row in rows)
    found = {"install_s": round(install_s, 1), "jobs": rows, "worst": worst, "target": TARGET}
    title = f"pip install {install_s:.1f} s, then seconds from the start of the programs"
    report(found, out / "ways.json", lambda: table_of(title, rows), as_json)
    if worst > TARGET:
        raise typer.Exit(1)
