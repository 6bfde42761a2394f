"""Benchmark ``api-load``: times of API calls, and of the control loop, with thousands of jobs.

    .venv/bin/python -m benchmarks api-load [--seconds 60] [--only pending|pinned]

200 clients in one process send 400 calls a second, whether or not earlier calls are answered. They renew leases, report
iterations, read jobs, and register and deregister jobs. A call is timed from the moment at which it is due.

There are two loads. "pending" has 2,000 jobs of 8 to 64 hosts that the controller does not know. "pinned" has 1,000
jobs whose flows have rules on a fabric in memory (``controller``). Each load also runs with few jobs, for comparison.
"""

import asyncio
import json
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.api_load.clients import Clients, Outcome, Spec, pending_jobs, placed_jobs
from benchmarks.api_load.controller import Measured
from benchmarks.api_load.setting import FABRIC, PROGRAM, SETTINGS, fabric_of, hosts_of
from benchmarks.measures import Spread, report, usage
from mininet_topos.controller_process import ControllerProcess
from mininet_topos.lab.record import wait_for
from signalbox.client import Client
from signalbox.errors import SignalboxError

CLIENTS = 200
CALLS_PER_S = 400.0
PENDING_JOBS = 2_000
PINNED_JOBS = 1_000
FEW_JOBS = 20
PLANNED_S = 300.0
QUIET_S = 3.0
IDLE_S = 10.0
MEBI = 1 << 20
RESULTS = Path("out/bench/api_load.json")


@dataclass(frozen=True, slots=True)
class Scene:
    """Kind of load. ``fabric``: size of the fabric in memory (``fabric_of``); empty for jobs with unknown hosts."""

    name: str
    fabric: str = ""


PENDING = Scene("pending")
PINNED = Scene("pinned", FABRIC)


@dataclass(frozen=True, slots=True)
class Result:
    scene: str
    jobs: int
    flows: int
    seconds: float
    sent: int
    errors: dict[str, int]
    unary: Spread | None
    """Milliseconds of all calls, each from the moment at which the call was due."""
    registration: Spread | None
    renewal: Spread | None
    handle: Measured
    rss_mb: tuple[float, float]
    """Memory of the controller before and after the load, in MiB."""
    idle_cpu_percent: float


@contextmanager
def running(scene: Scene, folder: Path) -> Iterator[tuple[ControllerProcess, Path]]:
    """Run a controller without jobs. Yields it, and the file that gets its measurements when it stops."""
    measured = folder / "measured.json"
    settings = {**SETTINGS, **hosts_of(scene.fabric, folder)} if scene.fabric else SETTINGS
    controller = ControllerProcess(folder, settings=settings, program=PROGRAM)
    options = ["--measured", str(measured)]
    options += ["--fabric", scene.fabric] if scene.fabric else []
    controller.start(*options)
    try:
        with Client(controller.address) as client:
            wait_for(lambda: controller.answers(client), "the controller", 60.0)
        yield controller, measured
    finally:
        controller.stop()


def load(scene: Scene, jobs: int, seconds: float, seed: int) -> Result:
    """Run a controller with ``jobs`` jobs, send calls for ``seconds``, and return the figures."""
    with tempfile.TemporaryDirectory(prefix="signalbox-load-") as name:
        with running(scene, Path(name)) as (controller, measured):
            result = asyncio.run(_load(scene, controller, jobs, seconds, seed))
        handle: Measured = json.loads(measured.read_text())
        outcome, flows, rss_mb, idle_percent = result
    everything = [1000 * took for of_kind in outcome.took_s.values() for took in of_kind]
    spread = {kind: Spread.of([1000 * took for took in of_kind]) for kind, of_kind in outcome.took_s.items()}
    return Result(
        scene=scene.name,
        jobs=jobs,
        flows=flows,
        seconds=seconds,
        sent=outcome.sent,
        errors=dict(outcome.errors),
        unary=Spread.of(everything),
        registration=spread.get("register"),
        renewal=spread.get("renew"),
        handle=handle,
        rss_mb=rss_mb,
        idle_cpu_percent=idle_percent,
    )


async def _load(
    scene: Scene, controller: ControllerProcess, jobs: int, seconds: float, seed: int
) -> tuple[Outcome, int, tuple[float, float], float]:
    clients = Clients(controller.address, CLIENTS, _specs(scene, seed), seed)
    await clients.register(jobs)
    flows = await _settled(controller, clients) if scene.fabric else 0
    await asyncio.sleep(QUIET_S)
    before = usage(controller.process)
    _begin(controller)
    outcome = await clients.load(CALLS_PER_S, seconds)
    after = usage(controller.process)
    await asyncio.sleep(QUIET_S)
    began = usage(controller.process).cpu_s
    await asyncio.sleep(IDLE_S)
    idle_percent = 100 * (usage(controller.process).cpu_s - began) / IDLE_S
    await clients.close()
    controller.check()
    return outcome, flows, (before.rss_bytes / MEBI, after.rss_bytes / MEBI), idle_percent


def _specs(scene: Scene, seed: int) -> Spec:
    if not scene.fabric:
        return pending_jobs(seed)
    return placed_jobs(seed, list(fabric_of(scene.fabric).hosts))


def _begin(controller: ControllerProcess) -> None:
    assert controller.process
    # setpriv starts the program and is replaced by it, so the process id is the program's.
    controller.process.send_signal(signal.SIGUSR1)


async def _settled(controller: ControllerProcess, clients: Clients) -> int:
    """Wait until every job is pinned, and return the number of pinned flows.

    Raises ``SignalboxError`` if it takes too long."""

    def pinned() -> int:
        with Client(controller.address) as client:
            found = client.list_jobs()
        whole = [job.pinned for job in found if job.pinned]
        return sum(whole) if len(whole) == len(clients.jobs) else 0

    ends = time.monotonic() + PLANNED_S
    while time.monotonic() < ends:
        controller.check()
        if flows := await asyncio.to_thread(pinned):
            return flows
        await asyncio.sleep(1.0)
    raise SignalboxError(f"not every job was pinned within {PLANNED_S:.0f} s")


def main(
    seconds: Annotated[float, typer.Option(help="Seconds of each load.")] = 60.0,
    seed: Annotated[int, typer.Option(help="Random seed of jobs and calls.")] = 1,
    only: Annotated[str, typer.Option(help="Load to run, pending or pinned; both when empty.")] = "",
    jobs: Annotated[int, typer.Option(help="Number of jobs, instead of 2,000 pending or 1,000 pinned ones.")] = 0,
) -> None:
    """Load the API with clients of thousands of jobs."""
    results = []
    for scene, many in ((PENDING, jobs or PENDING_JOBS), (PINNED, jobs or PINNED_JOBS)):
        if only in ("", scene.name):
            results += [load(scene, FEW_JOBS, seconds, seed), load(scene, many, seconds, seed)]
    data: dict[str, Any] = {
        "clients": CLIENTS,
        "calls_per_s": CALLS_PER_S,
        "results": [asdict(result) for result in results],
    }
    report(data, RESULTS, {"api-load": data["results"]})
