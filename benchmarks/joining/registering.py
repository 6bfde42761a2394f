"""Jobs that are announced while they train: is any slower than before, is the first plan that of an idle fabric?

    sudo scripts/openvswitch.sh run .venv/bin/python -m benchmarks registering [--seed N] [--cycles N]

The jobs of a seed (``mixes``) train on the fabric of ``joining`` over the same connections all the time, so that ECMP's
hash puts them on the same links. In turn they are left alone for some iterations, and announced rightly for as many.
Compared is the slowest run of five consecutive iterations that each job has in either part.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import fmean, median
from typing import Annotated, Any

import typer

from benchmarks.joining.command import MBPS, PREFIX, SETTLE_S, WINDOW_S, running
from benchmarks.joining.mixes import spec_of
from benchmarks.joining.results import Announced, ratio
from benchmarks.measures import report, table_of
from mininet_topos.demo.phases import HOSTS_PER_LEAF, LEAVES, SPINES
from mininet_topos.joining.jobs import RunningJobs
from mininet_topos.lab.record import wait_for
from mininet_topos.lab.running_fabric import running_fabric
from mininet_topos.leaf_spine import LeafSpine
from signalbox.client import Client
from signalbox.commands.output import AsJson

RUN = 5
"""Consecutive iterations."""


def slowest_s(durations: Sequence[float]) -> float:
    """Of ``RUN`` consecutive iterations, their mean."""
    return max(fmean(durations[i : i + RUN]) for i in range(len(durations) - RUN + 1))


def part(jobs: RunningJobs, iterations: int) -> dict[str, list[float]]:
    """Durations of the iterations that begin from now on, per job; returns when each job has finished so many."""
    start = time.monotonic()

    def done() -> dict[str, list[float]]:
        of = {job.job_id: [i for i in jobs.iterations_of(job) if i.start >= start] for job in jobs.jobs}
        return {job_id: [i.end - i.start for i in found] for job_id, found in of.items()}

    def enough() -> bool:
        jobs.check()
        return all(len(durations) >= iterations for durations in done().values())

    wait_for(enough, f"{iterations} iterations of every job", WINDOW_S)
    return done()


def announce(client: Client, jobs: RunningJobs) -> dict[str, float]:
    """Register all; the first plan that has them, with the seconds that it took."""
    start = time.monotonic()
    for job in jobs.jobs:
        client.register_job(spec_of(job, Announced.RIGHT))

    def planned() -> bool:
        plan = client.get_plan()
        return plan is not None and len(plan.jobs) == len(jobs.jobs)

    wait_for(planned, "a plan of all jobs", WINDOW_S, 0.05)
    plan = client.get_plan()
    assert plan is not None
    return {"plan_s": time.monotonic() - start, "level": plan.max_level, "bound": plan.bound}


def withdraw(client: Client, jobs: RunningJobs) -> None:
    """Deregister all, and wait until no counter knows of them."""
    for job in jobs.jobs:
        client.deregister_job(job.job_id)
    time.sleep(SETTLE_S)


def rows(client: Client, jobs: RunningJobs, cycles: int, iterations: int) -> Iterator[dict[str, Any]]:
    """One per job and cycle. ``idle_level``: of the plan before anything was sent."""
    idle = announce(client, jobs)
    withdraw(client, jobs)
    jobs.begin_round()
    jobs.wait_for_iterations(2)
    for cycle in range(cycles):
        alone = part(jobs, iterations)
        plan = announce(client, jobs)
        announced = part(jobs, iterations)
        withdraw(client, jobs)
        for job, durations in alone.items():
            yield {
                "cycle": str(cycle),
                "job": job,
                "alone_s": fmean(durations),
                "announced_s": fmean(announced[job]),
                "slowest_alone_s": slowest_s(durations),
                "slowest_announced_s": slowest_s(announced[job]),
                "over": ratio(slowest_s(announced[job]), slowest_s(durations)),
                **plan,
                "idle_level": idle["level"],
            }
    jobs.end_round()


def main(
    seed: Annotated[int, typer.Option(help="of the mix")] = 0,
    cycles: Annotated[int, typer.Option(min=1)] = 5,
    iterations: Annotated[int, typer.Option(min=RUN, help="per job, left alone and announced, at least")] = 8,
    out: Annotated[Path, typer.Option(help="directory for the results")] = Path("out/bench/registering"),
    as_json: AsJson = False,
) -> None:
    """Jobs announced while they train, compared with the same connections left alone, in turn."""
    topo = LeafSpine(LEAVES, SPINES, HOSTS_PER_LEAF, MBPS, MBPS, prefix=PREFIX)
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="signalbox-registering-")))
        lab, _, client = stack.enter_context(running_fabric(topo, scratch, MBPS))
        jobs = stack.enter_context(running(lab, seed, "gloo", scratch / "logs", 1))
        found = list(rows(client, jobs, cycles, iterations))
    over = [row["over"] for row in found]
    result = {"rows": found, "over_median": median(over), "over_max": max(over)}
    report(result, out / f"registering-{seed}.json", lambda: table_of("Announced over left alone", found), as_json)
