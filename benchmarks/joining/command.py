"""Benchmark ``joining``: iteration times of real Gloo or Open MPI jobs with ECMP and with planned routes.

    sudo scripts/openvswitch.sh run .venv/bin/python -m benchmarks joining [--library open-mpi] [--seed N]… [--mode M]…

A seed stands for a mix of jobs (``mixes``) that share the 16 hosts of a fabric of 4 leaves and 4 spines. All links have
5 Mbit/s. Each mix runs in three modes:

- ``flat``: all hosts are on one switch. The other modes are compared with this one, because it shows the speed of
  library and machine without a fabric.
- ``ecmp``: switches hash the flows to paths. The jobs open new connections several times; each time is one draw.
- ``planned``: the jobs announce themselves to the controller and report their iterations. One round is run for each
  kind of announcement: right, wrong in one of several ways, or without any traffic (``mixes.Announced``).

The benchmark appends rows to ``rows.jsonl``, so that a long run can be made in parts. From all rows it makes tables and
``joining.json``. The exit status is 1 when a collective gave a wrong result. The argument ``scenario`` runs one of the
``scenarios`` instead.
"""

import json
import shutil
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from statistics import fmean
from typing import Annotated

import typer

from benchmarks.joining.mixes import KINDS, Announced, Mode, Row, mix, read_rows, spec_of, summary
from benchmarks.joining.scenarios import command as scenarios
from benchmarks.joining.scenarios.command import SCENARIOS
from benchmarks.joining.watch import Watch, judged
from benchmarks.measures import report
from mininet_topos.controller_process import Settings
from mininet_topos.demo.phases import HOSTS_PER_LEAF, LEAVES, RATE_BPS, SPINES
from mininet_topos.joining.jobs import Library, LibraryJob, RunningJobs
from mininet_topos.joining.launch import missing
from mininet_topos.lab.lab import Lab
from mininet_topos.lab.record import wait_for
from mininet_topos.lab.running_fabric import install_static_routes, running_fabric
from mininet_topos.leaf_spine import LeafSpine
from mininet_topos.trainer.log import Iteration
from signalbox import words
from signalbox.client import Client
from signalbox.errors import SignalboxError
from signalbox.mapping import word_in

HOSTS = LEAVES * HOSTS_PER_LEAF
MBPS = RATE_BPS / 1e6
PREFIX = "jn"
MIXES = "mixes"
WINDOW_S = 180.0
CYCLES_S = 30.0
"""Seconds that three planning cycles take."""
SETTLE_S = 7.0
POLL_S = 0.1
SETTINGS: Settings = {"planning": {"mode": "ecmp"}}
DRAWS = 20
"""Number of draws of ECMP, each with new connections."""
DRAW_ITERATIONS = 2
"""Number of iterations that each job must finish in a draw."""
ITERATIONS = 5
"""Number of iterations that each job must finish in a window of the other modes."""


# ---- windows


def window(
    jobs: RunningJobs, seed: int, mode: str, number: int, at_least: int, meanwhile: Callable[[], None] = lambda: None
) -> Iterator[Row]:
    """Wait until each job has begun and finished ``at_least`` iterations from now on, and yield a row per job.

    ``meanwhile``: function that is called again and again while waiting."""
    start = time.monotonic()

    def done(job: LibraryJob) -> list[Iteration]:
        return [i for i in jobs.iterations_of(job, number) if i.start >= start]

    def enough() -> bool:
        jobs.check()
        meanwhile()
        return all(len(done(job)) >= at_least for job in jobs.jobs)

    wait_for(enough, f"{at_least} iterations of every job", WINDOW_S, POLL_S)
    for job in jobs.jobs:
        found = done(job)
        yield Row(
            seed=seed,
            mode=mode,
            draw=number,
            job=job.job_id,
            library=job.library,
            collective=job.collective,
            variant=job.variant,
            ranks=len(job.hosts),
            iterations=len(found),
            iteration_s=round(fmean(i.end - i.start for i in found), 4),
            communication_s=round(fmean(i.communication_s for i in found), 4),
            wrong=sum(not i.ok for i in found),
        )


def hashed(jobs: RunningJobs, seed: int, draws: int) -> Iterator[Row]:
    """Yield the rows of ECMP's draws.

    Each draw is a round with new connections, and thus with new source ports to hash."""
    for number in range(draws):
        jobs.begin_round(number)
        jobs.wait_for_iterations(1, number)
        yield from window(jobs, seed, Mode.ECMP, number, DRAW_ITERATIONS)
        jobs.end_round(number)


def planned(jobs: RunningJobs, seed: int, number: int, client: Client, announced: Announced) -> Iterator[Row]:
    """Yield the rows of a planned round. Its window begins ``CYCLES_S`` after the announcement."""
    jobs.begin_round(number)
    wait_for(lambda: all(jobs.logs(job, number) for job in jobs.jobs), "the ranks to connect", WINDOW_S, POLL_S)
    watch = Watch(client, jobs, number, announced is Announced.CONNECTIONS)
    for job in jobs.jobs:
        client.register_job(spec_of(job, announced))
    while time.monotonic() < watch.start + CYCLES_S:
        watch.look()
    rows = list(window(jobs, seed, Mode.PLANNED, number, ITERATIONS, watch.look))
    ends = {job.job_id: client.get_job(job.job_id) for job in jobs.jobs}
    plan = client.get_plan()
    for job in jobs.jobs:
        client.deregister_job(job.job_id)
    jobs.end_round(number)
    certificate = word_in(plan, "certificate") if plan else ""
    for row, more in zip(rows, judged(jobs, number, watch, ends), strict=True):
        yield replace(row, announced=announced, certificate=certificate, **more)
    time.sleep(SETTLE_S)  # else the counters' mean would count this round's traffic as background of the next


# ---- runs


def flat_rows(seed: int, library: Library, logs: Path) -> Iterator[Row]:
    """Yield the rows of the jobs on one switch that has as many hosts as the fabric."""
    with Lab(LeafSpine(1, 1, HOSTS, MBPS, MBPS, prefix=PREFIX), controller=None) as lab:
        install_static_routes(lab)
        with running(lab, seed, library, logs, 1) as jobs:
            jobs.begin_round()
            jobs.wait_for_iterations(1)
            yield from window(jobs, seed, Mode.FLAT, 0, ITERATIONS)
            jobs.end_round()


def fabric_rows(
    seed: int,
    library: Library,
    modes: Collection[Mode],
    sources: Sequence[Announced],
    folder: Path,
    logs: Path,
) -> Iterator[Row]:
    """Yield the rows on the fabric: of ECMP's draws, and then of a planned round for each kind of announcement."""
    topo = LeafSpine(LEAVES, SPINES, HOSTS_PER_LEAF, MBPS, MBPS, prefix=PREFIX)
    draws = DRAWS if Mode.ECMP in modes else 0
    logs.mkdir(parents=True)
    with (
        running_fabric(topo, folder, MBPS, SETTINGS) as (lab, controller, client),
        kept(controller.log, logs),
        running(lab, seed, library, logs, draws + len(sources)) as jobs,
    ):
        yield from hashed(jobs, seed, draws)
        client.set_mode(words.Mode.PLANNED)
        for number, announced in enumerate(sources if Mode.PLANNED in modes else (), draws):
            yield from planned(jobs, seed, number, client, announced)


@contextmanager
def kept(file: Path, folder: Path) -> Iterator[None]:
    """Copy the file to the folder after the block."""
    try:
        yield
    finally:
        shutil.copy(file, folder)


@contextmanager
def running(lab: Lab, seed: int, library: Library, folder: Path, rounds: int) -> Iterator[RunningJobs]:
    """Run the jobs of a seed on the lab's hosts while the block runs."""
    jobs = RunningJobs(lab, [job.on(lab.hosts) for job in mix(seed, library, HOSTS)], folder, rounds=rounds)
    try:
        jobs.start()
        yield jobs
    finally:
        jobs.stop()


# ---- the command


def main(
    scenario: Annotated[str, typer.Argument(help=f"Scenario: mixes, {', '.join(SCENARIOS)}.")] = MIXES,
    seed: Annotated[
        list[int] | None, typer.Option(help="Random seed; 0 to 4 by default for mixes, 0 for other scenarios.")
    ] = None,
    mode: Annotated[list[Mode] | None, typer.Option(help="Mode to run; all by default.")] = None,
    library: Annotated[str, typer.Option(help="Library of the jobs: gloo or open-mpi.")] = "gloo",
    announced: Annotated[
        list[Announced] | None, typer.Option(help="Kind of announcement for the planned rounds; all by default.")
    ] = None,
    repeat: Annotated[int, typer.Option(min=1, help="Number of repetitions of a scenario.")] = 1,
    seconds: Annotated[float | None, typer.Option(min=1, help="Length of a scenario in each mode.")] = None,
    out: Annotated[Path, typer.Option(help="Directory for the results.")] = Path("out/bench/joining"),
) -> None:
    """Run real Gloo or Open MPI jobs on the emulated fabric: flat switch, ECMP, planned."""
    if scenario in SCENARIOS:
        scenarios.run(scenario, seed or [0], set(mode or Mode), repeat, seconds, out)
        return
    if scenario != MIXES:
        raise typer.BadParameter(f"there is no scenario {scenario!r}; there are: {', '.join((MIXES, *SCENARIOS))}")
    kind = known(library)
    modes = set(mode or Mode)
    out.mkdir(parents=True, exist_ok=True)
    with (out / "rows.jsonl").open("a") as file:
        for number in seed or range(5):
            for row in of_seed(number, kind, modes, announced or tuple(Announced), out):
                file.write(json.dumps(asdict(row)) + "\n")
                file.flush()
    found = summary(read_rows(out / "rows.jsonl"))
    titles = {
        "hashed": "ECMP: iteration times / those on the flat switch",
        "planned": "Planned: iteration times / (those on the flat switch x slowdown)",
        "totals": "By kind of announcement",
    }
    report(found, out / "joining.json", {title: found[name] for name, title in titles.items()})
    if found["wrong"]:
        raise typer.Exit(1)


def known(library: str) -> Library:
    """Return the library of this name. Raises ``SignalboxError`` when it is unknown or not installed."""
    for name in KINDS:
        if name == library:
            if name in missing():
                raise SignalboxError(missing()[name])
            return name
    raise SignalboxError(f"there is no library {library!r}; choose one of {', '.join(KINDS)}")


def of_seed(
    seed: int, library: Library, modes: Collection[Mode], sources: Sequence[Announced], out: Path
) -> Iterator[Row]:
    """Yield the rows of a seed. The ranks' logs are kept in ``out``, and replace those of earlier runs."""
    if Mode.FLAT in modes:
        yield from flat_rows(seed, library, logs_in(out, f"{library}-{seed}-flat"))
    if set(modes) - {Mode.FLAT}:
        with tempfile.TemporaryDirectory(prefix="signalbox-joining-") as scratch:
            logs = logs_in(out, f"{library}-{seed}-fabric-{sources[0]}")
            yield from fabric_rows(seed, library, modes, sources, Path(scratch), logs)


def logs_in(out: Path, name: str) -> Path:
    folder = out / "raw" / name
    if folder.exists():
        shutil.rmtree(folder)
    return folder
