"""Clients of the ``api-load`` benchmark, and the jobs that they register."""

import asyncio
import random
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import grpc

from mininet_topos.trainer.training import announcement
from signalbox.jobs.spec import Algorithm, JobSpec
from signalbox.mapping import spec_message
from signalbox.v1 import signalbox_pb2 as pb
from signalbox.v1 import signalbox_pb2_grpc as pb_grpc

SHARES = {"renew": 0.70, "report": 0.15, "read": 0.10, "change": 0.05}
DEADLINE_S = 20.0
AT_ONCE = 32
"""Largest number of registrations at the same time, before the load begins."""

Spec = Callable[[], JobSpec]


@dataclass
class Outcome:
    """Results of a load.

    ``took_s``: seconds of each call, by kind of call. A call of the kind "change" appears as ``register`` or
    ``deregister``. ``errors``: how often each error occurred, by status code and text."""

    took_s: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    errors: Counter[str] = field(default_factory=Counter)
    sent: int = 0


class Clients:
    """Clients, each with a connection of its own to the controller.

    ``jobs``: lease tokens of the acknowledged jobs, by job id. ``spec``: function that returns another job on each
    call."""

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
        """Register ``count`` jobs. Raises ``grpc.RpcError``."""
        room = asyncio.Semaphore(AT_ONCE)

        async def one(stub: Any) -> None:
            async with room:
                await self._register(stub)

        await asyncio.gather(*(one(self._stubs[n % len(self._stubs)][0]) for n in range(count)))

    async def load(self, calls_per_s: float, seconds: float) -> Outcome:
        """Send ``calls_per_s`` calls a second without waiting for answers, then wait for all answers."""
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
        """Deregister a job once no call about it is under way, and allow no new call about the job."""
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
    """Return a function that returns jobs with 8 to 64 hosts that the controller does not know."""
    draw, numbers = random.Random(seed), iter(range(1 << 20))

    def spec() -> JobSpec:
        number = next(numbers)
        ips = [f"10.{128 + number // 200 % 100}.{number % 200}.{host}" for host in range(1, draw.randint(8, 64) + 1)]
        return _ring(f"pending-{seed}-{number}", ips)

    return spec


def placed_jobs(seed: int, hosts: Sequence[str]) -> Spec:
    """Return a function that returns rings over 8 to 64 hosts of a fabric. No pair of hosts is in two of the rings."""
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
