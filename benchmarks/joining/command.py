"""Real jobs of a library on the emulated fabric, under ECMP and planned, beside one flat switch.

    sudo scripts/openvswitch.sh run .venv/bin/python -m benchmarks joining [--library open-mpi] [--seed N]… [--mode M]…

Every seed is a mix of jobs (``mixes``) on the 16 hosts of 4 leaves x 4 spines, every link 5 Mbit/s. ``flat``: on one
switch, which shows what the library and the machine reach without a fabric. ``ecmp``: hashed, several draws: the jobs
connect anew for each. ``planned``: announced to the controller. Out: rows appended to ``rows.jsonl``, so that a long
run can be made in parts, and from all its rows a table and ``joining.json``.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from itertools import permutations
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

import typer

from benchmarks.joining.mixes import KINDS, by_bytes, by_formula, mix
from benchmarks.joining.results import Mode, Row, Source, read_rows, summary, tables, totals
from benchmarks.measures import report
from controller.api.client import Client
from controller.commands.output import AsJson
from controller.config import Strategy
from controller.errors import SignalboxError
from controller.jobs.spec import JobSpec
from mininet_topos.controller_process import Settings
from mininet_topos.demo.phases import HOSTS_PER_LEAF, LEAVES, RATE_BPS, SPINES
from mininet_topos.joining.connections import read_connections, received_from, uses_ports
from mininet_topos.joining.jobs import Library, LibraryJob, RunningJobs
from mininet_topos.joining.launch import DATA_PORTS, STORE_PORT, missing
from mininet_topos.lab.lab import Lab
from mininet_topos.lab.record import wait_for
from mininet_topos.lab.running_fabric import running_fabric
from mininet_topos.lab.static_routes import install_static_routes
from mininet_topos.leaf_spine import LeafSpine
from mininet_topos.trainer.log import Iteration

HOSTS = LEAVES * HOSTS_PER_LEAF
MBPS = RATE_BPS / 1e6
PREFIX = "jn"
WINDOW_S = 180.0
PLAN_S = 30.0
SETTLE_S = 15.0
POLL_S = 0.1
DEMAND_ITERATIONS = 3
SETTINGS: Settings = {"planning": {"strategy": "ecmp"}}

Sent = Mapping[tuple[str, str], float]
"""Bytes per iteration, by sending and receiving address."""

Announce = Callable[[LibraryJob, Sent], JobSpec | None]
"""(job, what all jobs send by their sockets) -> what the controller is told; None when it cannot be told."""


ANNOUNCE: Mapping[Source, Announce] = {
    Source.FORMULA: lambda job, _: by_formula(job),
    Source.MEASURED: by_bytes,
}


@dataclass(frozen=True, slots=True)
class Sizes:
    """``draws``: of ECMP's hash. ``draw_iterations``, ``iterations``: that each job does in a draw, in the other
    windows."""

    draws: int
    draw_iterations: int
    iterations: int


# ---- windows


def window(jobs: RunningJobs, seed: int, mode: str, number: int, at_least: int) -> Iterator[Row]:
    """From now until each job has begun and finished ``at_least`` iterations."""
    start = time.monotonic()

    def done(job: LibraryJob) -> list[Iteration]:
        return [i for i in jobs.iterations_of(job, number) if i.start >= start]

    def enough() -> bool:
        jobs.check()
        return all(len(done(job)) >= at_least for job in jobs.jobs)

    wait_for(enough, f"{at_least} iterations of every job", WINDOW_S, POLL_S)
    for job in jobs.jobs:
        found = done(job)
        yield Row(
            seed,
            mode,
            number,
            job.job_id,
            job.library,
            job.collective,
            job.variant,
            len(job.hosts),
            len(found),
            round(fmean(i.end - i.start for i in found), 4),
            sum(not i.ok for i in found),
        )


def hashed(jobs: RunningJobs, seed: int, draws: int, at_least: int) -> Iterator[Row]:
    """Draws of ECMP's hash: a round each, with new connections and so new source ports."""
    for number in range(draws):
        jobs.begin_round(number)
        jobs.wait_for_iterations(1, number)
        yield from window(jobs, seed, Mode.ECMP, number, at_least)
        jobs.end_round(number)


def planned(jobs: RunningJobs, seed: int, number: int, sizes: Sizes, client: Client, source: Source) -> Iterator[Row]:
    """A round under the plan. Formulas are announced before it begins. For bytes that have to be measured it begins
    under ECMP; after the pins the window waits for the next plan, whose background is not the jobs' own traffic."""
    if source is Source.FORMULA:
        if number:
            time.sleep(SETTLE_S)  # or the draws' traffic, still in the counters' mean, would be the plan's background
        specs = announce(jobs, client, source, {})
        jobs.begin_round(number)
        jobs.wait_for_iterations(1, number)
    else:
        jobs.begin_round(number)
        jobs.wait_for_iterations(1, number)
        specs = announce(jobs, client, source, demand(jobs, number))
        time.sleep(SETTLE_S)
    rows = list(window(jobs, seed, Mode.PLANNED, number, sizes.iterations))
    plan = client.get_plan()
    for row in rows:
        level = plan.job_level.get(row.job) if plan else None
        yield replace(row, level=level, certificate=plan.certificate if plan and level else "", announced=source)
    client.set_strategy(Strategy.ECMP)
    for spec in specs:
        client.deregister_job(spec.job_id)
    jobs.end_round(number)


def announce(jobs: RunningJobs, client: Client, source: Source, sent: Sent) -> list[JobSpec]:
    """Register what can be announced, and return when its pins are installed."""
    specs = [spec for job in jobs.jobs if (spec := ANNOUNCE[source](job, sent))]
    for spec in specs:
        client.register_job(spec)
    wait_for(lambda: client.get_status().jobs_pending == 0, "every host to be found", PLAN_S, POLL_S)
    client.set_strategy(Strategy.PLANNED)
    wait_for(lambda: all(pins_in(client, spec) for spec in specs), "every job's pins", PLAN_S, POLL_S)
    return specs


def pins_in(client: Client, spec: JobSpec) -> bool:
    """Whether a job has pins, or no link that could have one."""
    job = client.get_job(spec.job_id)
    return bool(job.pinned) or not job.virtual_links


def demand(jobs: RunningJobs, number: int) -> Sent:
    """Measured with the jobs' sockets, over ``DEMAND_ITERATIONS`` of each job."""
    begun = {job.job_id: len(jobs.iterations_of(job, number)) for job in jobs.jobs}
    before = carried(jobs)
    most = max(begun.values()) + DEMAND_ITERATIONS
    jobs.wait_for_iterations(most, number)
    after = carried(jobs)
    sent: dict[tuple[str, str], float] = {}
    for job in jobs.jobs:
        done = len(jobs.iterations_of(job, number)) - begun[job.job_id]
        sent |= {pair: (after[pair] - before[pair]) / done for pair in permutations(job.peers, 2)}
    return sent


def carried(jobs: RunningJobs) -> Counter[tuple[str, str]]:
    """Bytes by pair of addresses since the ranks connected, by the sockets of the jobs' hosts."""
    of_store, of_mpi = uses_ports({STORE_PORT}), uses_ports(DATA_PORTS)
    total: Counter[tuple[str, str]] = Counter()
    for job in jobs.jobs:
        counts = of_mpi if job.library == "open-mpi" else lambda c: not of_store(c)
        for host in job.hosts:
            total += received_from(read_connections(jobs.lab.namespace(host)), counts)
    return total


# ---- runs


def flat_rows(seed: int, library: Library, sizes: Sizes, logs: Path) -> Iterator[Row]:
    """On one switch with as many hosts."""
    with Lab(LeafSpine(1, 1, HOSTS, MBPS, MBPS, prefix=PREFIX), controller=None) as lab:
        install_static_routes(lab)
        with running(lab, seed, library, logs, 1) as jobs:
            jobs.begin_round()
            jobs.wait_for_iterations(1)
            yield from window(jobs, seed, Mode.FLAT, 0, sizes.iterations)
            jobs.end_round()


def fabric_rows(
    seed: int, library: Library, modes: Collection[Mode], sizes: Sizes, source: Source, folder: Path, logs: Path
) -> Iterator[Row]:
    """On the fabric: ECMP's draws, then the plan."""
    topo = LeafSpine(LEAVES, SPINES, HOSTS_PER_LEAF, MBPS, MBPS, prefix=PREFIX)
    draws = sizes.draws if Mode.ECMP in modes else 0
    logs.mkdir(parents=True)
    with (
        running_fabric(topo, folder, MBPS, SETTINGS) as (lab, controller, client),
        kept(controller.log, logs),
        running(lab, seed, library, logs, draws + (Mode.PLANNED in modes)) as jobs,
    ):
        yield from hashed(jobs, seed, draws, sizes.draw_iterations)
        if Mode.PLANNED in modes:
            yield from planned(jobs, seed, draws, sizes, client, source)


@contextmanager
def kept(file: Path, folder: Path) -> Iterator[None]:
    """Copies the file at the end."""
    try:
        yield
    finally:
        shutil.copy(file, folder)


@contextmanager
def running(lab: Lab, seed: int, library: Library, folder: Path, rounds: int) -> Iterator[RunningJobs]:
    """The jobs of a seed on a lab's hosts, stopped at the end."""
    jobs = RunningJobs(lab, [job.on(lab.hosts) for job in mix(seed, library, HOSTS)], folder, rounds=rounds)
    try:
        jobs.start()
        yield jobs
    finally:
        jobs.stop()


# ---- the command


def main(
    seed: Annotated[list[int] | None, typer.Option(help="of the mixes; 0 to 4 by default")] = None,
    mode: Annotated[list[Mode] | None, typer.Option(help="all by default")] = None,
    library: Annotated[str, typer.Option(help="gloo or open-mpi")] = "gloo",
    announced: Annotated[Source, typer.Option(help="where the announced bytes come from")] = Source.FORMULA,
    draws: Annotated[int, typer.Option(min=1, help="of ECMP's hash")] = 20,
    draw_iterations: Annotated[int, typer.Option(min=1, help="per draw and job, at least")] = 2,
    iterations: Annotated[int, typer.Option(min=1, help="per job in the other windows, at least")] = 5,
    out: Annotated[Path, typer.Option(help="directory for the results")] = Path("out/bench/joining"),
    as_json: AsJson = False,
) -> None:
    """Real Gloo or Open MPI jobs on the emulated fabric: flat switch, ECMP, planned."""
    kind = known(library)
    sizes = Sizes(draws, draw_iterations, iterations)
    modes = set(mode or Mode)
    out.mkdir(parents=True, exist_ok=True)
    with (out / "rows.jsonl").open("a") as file:
        for number in seed or range(5):
            for row in of_seed(number, kind, modes, sizes, announced, out):
                file.write(json.dumps(asdict(row)) + "\n")
                file.flush()
    lines = summary(read_rows(out / "rows.jsonl"))
    found: dict[str, Any] = {"jobs": lines, "total": totals(lines)}
    report(found, out / "joining.json", lambda: tables(found), as_json)
    if found["total"]["wrong"]:
        raise typer.Exit(1)


def known(library: str) -> Library:
    """Raises ``SignalboxError`` for a library that there is not, or that is not installed."""
    for name in KINDS:
        if name == library:
            if name in missing():
                raise SignalboxError(missing()[name])
            return name
    raise SignalboxError(f"there is no library {library!r}; there are: {', '.join(KINDS)}")


def of_seed(
    seed: int, library: Library, modes: Collection[Mode], sizes: Sizes, source: Source, out: Path
) -> Iterator[Row]:
    """The ranks' logs of a seed's last run are kept in ``out``."""
    if Mode.FLAT in modes:
        yield from flat_rows(seed, library, sizes, logs_in(out, f"{library}-{seed}-flat"))
    if set(modes) - {Mode.FLAT}:
        with tempfile.TemporaryDirectory(prefix="signalbox-joining-") as scratch:
            logs = logs_in(out, f"{library}-{seed}-fabric")
            yield from fabric_rows(seed, library, modes, sizes, source, Path(scratch), logs)


def logs_in(out: Path, name: str) -> Path:
    folder = out / "raw" / name
    if folder.exists():
        shutil.rmtree(folder)
    return folder
