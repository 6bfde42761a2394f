"""Load on the API by clients that renew, report, read and change thousands of jobs, and its cost in the control loop.

    .venv/bin/python -m benchmarks api-load [--seconds 60] [--only pending|pinned] [--json]

200 clients in one process send 400 calls a second in an open loop: independent of the answers. The time of a call
counts from when it was due. The first load is on 2,000 jobs of 8 to 64 endpoints whose hosts are unknown. The second is
on 1,000 jobs whose flows have rules on a fabric in memory (``controller``). Each load is compared with the same calls
on a controller with few jobs.
"""

import asyncio
import json
import random
import signal
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

import grpc
import typer

from benchmarks.api_load.controller import Measured, fabric_of
from benchmarks.measures import Spread, report, usage
from mininet_topos.controller_process import ControllerProcess, Settings
from mininet_topos.lab.record import wait_for
from mininet_topos.trainer.training import announcement
from signalbox.client import Client
from signalbox.commands.output import AsJson
from signalbox.errors import SignalboxError
from signalbox.jobs.spec import Algorithm, JobSpec
from signalbox.mapping import spec_message
from signalbox.v1 import signalbox_pb2 as pb
from signalbox.v1 import signalbox_pb2_grpc as pb_grpc

SHARES = {"renew": 0.70, "report": 0.15, "read": 0.10, "change": 0.05}
DEADLINE_S = 20.0
AT_ONCE = 32
"""Largest number of concurrent registrations before the load begins."""

Spec = Callable[[], JobSpec]


@dataclass
class Outcome:
    """Results of a load.

    ``took_s``: seconds of each call, by kind; a change is a ``register`` or a ``deregister``. ``errors``: number by
    code and text."""

    took_s: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    errors: Counter[str] = field(default_factory=Counter)
    sent: int = 0


class Clients:
    """Clients of one controller, each with its own channel.

    ``jobs``: lease tokens of the acknowledged jobs, by id. ``spec``: function that makes another job each time."""

    def __init__(self, address: str, count: int, spec: Spec, seed: int) -> None:
        self.jobs: dict[str, str] = {}
        self._spec = spec
        self._random = random.Random(seed)
        # The unique option gives each client its own connection: gRPC shares one among channels with equal arguments.
        self._channels = [grpc.aio.insecure_channel(address, options=[("benchmark.client", n)]) for n in range(count)]
        self._stubs: list[tuple[Any, Any]] = [
            (pb_grpc.JobServiceStub(channel), pb_grpc.ControllerServiceStub(channel))  # type: ignore[no-untyped-call]
            for channel in self._channels
        ]
        self._reported: Counter[str] = Counter()
        self._busy: Counter[str] = Counter()
        self._most = 0

    async def close(self) -> None:
        for channel in self._channels:
            await channel.close()

    async def register(self, count: int) -> None:
        """Register ``count`` jobs before the load. Raises ``grpc.RpcError``."""
        room = asyncio.Semaphore(AT_ONCE)

        async def one(stub: Any) -> None:
            async with room:
                await self._register(stub)

        await asyncio.gather(*(one(self._stubs[n % len(self._stubs)][0]) for n in range(count)))

    async def load(self, calls_per_s: float, seconds: float) -> Outcome:
        """Send calls in an open loop, call n at n / ``calls_per_s`` seconds, and wait for all answers."""
        outcome, tasks = Outcome(), set[asyncio.Task[None]]()
        self._most = len(self.jobs)
        began = time.perf_counter()
        for due_s, kind in self._due(calls_per_s, seconds):
            if (wait_s := began + due_s - time.perf_counter()) > 0:
                await asyncio.sleep(wait_s)
            task = asyncio.ensure_future(self._call(kind, began + due_s, outcome))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
            outcome.sent += 1
        if tasks:
            await asyncio.wait(tasks)
        return outcome

    def _due(self, calls_per_s: float, seconds: float) -> Iterator[tuple[float, str]]:
        kinds, weights = list(SHARES), list(SHARES.values())
        for n in range(int(calls_per_s * seconds)):
            yield n / calls_per_s, self._random.choices(kinds, weights)[0]

    async def _call(self, kind: str, due_at: float, outcome: Outcome) -> None:
        stub, _ = self._random.choice(self._stubs)
        if kind == "change":
            kind = "deregister" if len(self.jobs) > self._most else "register"
        try:
            await self._send(kind, stub)
        except grpc.aio.AioRpcError as error:
            outcome.errors[f"{kind}: {error.code().name}: {(error.details() or '')[:120]}"] += 1
        else:
            outcome.took_s[kind].append(time.perf_counter() - due_at)

    async def _send(self, kind: str, stub: Any) -> None:
        if kind == "register":
            await self._register(stub)
            return
        job_id = self._random.choice(list(self.jobs))
        token = self.jobs[job_id]
        if kind == "deregister":
            await self._deregister(stub, job_id, token)
            return
        self._busy[job_id] += 1
        try:
            await self._use(kind, stub, job_id, token)
        finally:
            self._busy[job_id] -= 1

    async def _deregister(self, stub: Any, job_id: str, token: str) -> None:
        """Deregister a job. No other call names it from now on; calls under way are awaited first."""
        del self.jobs[job_id]
        while self._busy[job_id]:
            await asyncio.sleep(0.001)
        await _answered(stub.DeregisterJob, pb.DeregisterJobRequest(job_id=job_id, lease_token=token))

    async def _use(self, kind: str, stub: Any, job_id: str, token: str) -> None:
        if kind == "renew":
            request: Any = pb.RenewLeaseRequest(job_id=job_id, lease_token=token)
            await stub.RenewLease(request, timeout=DEADLINE_S)
        elif kind == "report":
            self._reported[job_id] += 1
            iteration = pb.Iteration(index=self._reported[job_id])
            iteration.duration.FromMilliseconds(500)
            iteration.communication.FromMilliseconds(100)
            request = pb.ReportIterationsRequest(job_id=job_id, iterations=[iteration], lease_token=token)
            await stub.ReportIterations(request, timeout=DEADLINE_S)
        else:
            await stub.GetJob(pb.GetJobRequest(job_id=job_id), timeout=DEADLINE_S)

    async def _register(self, stub: Any) -> None:
        spec = self._spec()
        request = pb.RegisterJobRequest(spec=spec_message(spec))
        response: pb.RegisterJobResponse = await _answered(stub.RegisterJob, request)
        self.jobs[spec.job_id] = response.lease_token


async def _answered(method: Callable[..., Awaitable[Any]], request: Any) -> Any:
    return await method(request, timeout=DEADLINE_S)


def pending_jobs(seed: int) -> Spec:
    """Return a function that makes jobs of 8 to 64 endpoints on unknown hosts."""
    draw, numbers = random.Random(seed), iter(range(1 << 20))

    def spec() -> JobSpec:
        number = next(numbers)
        ips = [f"10.{128 + number // 200 % 100}.{number % 200}.{host}" for host in range(1, draw.randint(8, 64) + 1)]
        return _ring(f"pending-{seed}-{number}", ips)

    return spec


def placed_jobs(seed: int, hosts: Sequence[str]) -> Spec:
    """Return a function that makes rings over 8 to 64 hosts of a fabric; no pair of hosts is announced twice."""
    draw, numbers, taken = random.Random(seed), iter(range(1 << 20)), set[tuple[str, str]]()

    def spec() -> JobSpec:
        while True:
            ips = draw.sample(hosts, draw.randint(8, 64))
            pairs = set(zip(ips, [*ips[1:], ips[0]], strict=True))
            if taken.isdisjoint(pairs):
                taken.update(pairs)
                return _ring(f"placed-{seed}-{next(numbers)}", ips)

    return spec


def _ring(job_id: str, ips: list[str]) -> JobSpec:
    return announcement(job_id, ips, Algorithm.RING_ALL_REDUCE, 100_000_000, 3600.0)


CLIENTS = 200
CALLS_PER_S = 400.0
PENDING_JOBS = 2_000
PINNED_JOBS = 1_000
FEW_JOBS = 20
FABRIC = "32x16x32"
PLANNED_S = 300.0
QUIET_S = 3.0
IDLE_S = 10.0
MEBI = 1 << 20
RESULTS = Path("out/bench/api_load.json")
SETTINGS: Settings = {"jobs": {"max_jobs": 4_000}, "log": {"level": "warning"}}
PROGRAM = ("benchmarks.api_load",)


@dataclass(frozen=True, slots=True)
class Scene:
    """Setting of a load. ``fabric``: size of a fabric in memory; if it is empty, the hosts of jobs are unknown."""

    name: str
    fabric: str = ""


PENDING = Scene("pending")
PINNED = Scene("pinned", FABRIC)


@dataclass(frozen=True, slots=True)
class Result:
    """Result of one load."""

    scene: str
    jobs: int
    flows: int
    seconds: float
    sent: int
    errors: dict[str, int]
    unary: Spread | None
    """Milliseconds of all calls, from the time at which each was due."""
    registration: Spread | None
    renewal: Spread | None
    handle: Measured
    rss_mb: tuple[float, float]
    """Memory of the controller before and after the load, in MiB."""
    idle_cpu_percent: float


@contextmanager
def running(scene: Scene, folder: Path) -> Iterator[tuple[ControllerProcess, Path]]:
    """Run a controller without jobs; yield it, and the file in which it writes its measurements when it stops."""
    measured = folder / "measured.json"
    settings = {**SETTINGS, **_hosts(scene.fabric, folder)} if scene.fabric else SETTINGS
    controller = ControllerProcess(folder, settings=settings, program=PROGRAM)
    options = ["--measured", str(measured)]
    options += ["--fabric", scene.fabric] if scene.fabric else []
    controller.start(*options)
    try:
        with Client(controller.address) as client:
            wait_for(lambda: _answers(controller, client), "the controller", 60.0)
        yield controller, measured
    finally:
        controller.stop()


def _answers(controller: ControllerProcess, client: Client) -> bool:
    controller.check()
    try:
        client.get_status()
    except SignalboxError:
        return False
    return True


def _hosts(size: str, folder: Path) -> Settings:
    """Return settings with an inventory of all hosts of the fabric, since none of them sends ARP."""
    fabric, file = fabric_of(size), folder / "inventory.toml"
    entries = []
    for number, host in enumerate(fabric.hosts.values()):
        port = fabric.switches[host.at.dpid].ports[host.at.port].name
        mac = f"02:00:00:00:{number >> 8:02x}:{number & 255:02x}"
        entries.append(
            f'[[host]]\nip = "{host.ip}"\nmac = "{mac}"\nswitch = "{fabric.name(host.at.dpid)}"\nport = "{port}"\n'
        )
    file.write_text("\n".join(entries))
    return {"fabric": {"inventory": str(file)}, "discovery": {"adoption_patience_s": 2.0}}


def load(scene: Scene, jobs: int, seconds: float, seed: int) -> Result:
    """Run a controller with ``jobs`` jobs, send the calls of the load for ``seconds``, and return the figures."""
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
    """Discard what the controller has measured so far."""
    assert controller.process
    # setpriv starts the program and is replaced by it, so the process id is the program's.
    controller.process.send_signal(signal.SIGUSR1)


async def _settled(controller: ControllerProcess, clients: Clients) -> int:
    """Wait until every job is pinned, and return the number of flows. Raises ``SignalboxError``."""

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
    as_json: AsJson = False,
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
    report(data, RESULTS, as_json, {"api-load": data["results"]})
