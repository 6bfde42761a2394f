"""The two services of the API.

In: requests, converted and put into the control loop's inbox with a future, and the published ``Status`` for every
read. Out: converted answers, or errors, which the guard around every handler (``guard``) makes into a status. Handlers
decide nothing about jobs or the network.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import version
from typing import Any

from controller.api import convert, convert_analysis
from controller.api.access import CALLER, may_see, refuse_other_tenants, tenant_of
from controller.api.errors import Stopping
from controller.api.guard import Context
from controller.api.mapping import duration
from controller.api.pb.signalbox.v1 import signalbox_pb2 as pb
from controller.api.pb.signalbox.v1 import signalbox_pb2_grpc as pb_grpc
from controller.errors import NotFound
from controller.jobs.messages import DeregisterJob, RegisterJob, RenewLease, ReportConnections, ReportIterations
from controller.jobs.spec import JobId
from controller.planning.analysis.requests import Explain, WhatIf
from controller.planning.messages import Replan, ReplanOutcome, Request, SetStrategy, StrategySet
from controller.status import JobStatus, Status, StatusBoard

VERSION = version("signalbox")


def wake(loop: asyncio.AbstractEventLoop, event: asyncio.Event) -> None:
    """Set the event from any thread. A closed loop needs no wake-up."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(event.set)


class Services(pb_grpc.JobServiceServicer, pb_grpc.ControllerServiceServicer):
    """``put`` takes a message for the control loop from any thread and never blocks."""

    def __init__(self, board: StatusBoard, put: Callable[[Request], None]) -> None:
        self._board = board
        self._put = put
        self._waiting: set[asyncio.Event] = set()
        self._stopping = False

    def stop_waiting(self) -> None:
        """End every call that waits, with ``Stopping``. For the server's own loop."""
        self._stopping = True
        for event in self._waiting:
            event.set()

    async def _wait(self, event: asyncio.Event) -> None:
        """Raises ``Stopping`` when the server stops first."""
        self._waiting.add(event)
        try:
            if not self._stopping:
                await event.wait()
        finally:
            self._waiting.discard(event)
        if self._stopping:
            raise Stopping("the controller is stopping")

    @property
    def _status(self) -> Status:
        return self._board.status

    def _job(self, job_id: str) -> JobStatus:
        """Raises ``NotFound``, also when the job has become another tenant's."""
        refuse_other_tenants(CALLER.get(), job_id, self._status.jobs)
        try:
            return self._status.jobs[JobId(job_id)]
        except KeyError:
            raise NotFound(f"there is no job '{job_id}'") from None

    def _message(self, job_id: str, with_pairs: bool = False) -> pb.Job:
        job = self._job(job_id)
        return convert.job_message(job, time.monotonic(), self._status.demands.get(JobId(job_id)), with_pairs)

    async def _ask(self, message: Request) -> Any:
        """Put the message and wait for its reply. When the caller goes or the time of the call is over, what changes
        nothing is given up: its reply is cancelled. Changes happen once they are put."""
        loop = asyncio.get_running_loop()
        answered = asyncio.Event()
        message.reply.add_done_callback(lambda _: wake(loop, answered))
        self._put(message)
        try:
            await self._wait(answered)
        finally:
            if isinstance(message, Explain | WhatIf | Replan):
                message.reply.cancel()  # does nothing to one that is there
        return message.reply.result()

    # ---- jobs

    async def RegisterJob(self, request: pb.RegisterJobRequest, _: Context) -> pb.RegisterJobResponse:  # noqa: N802
        job_id: JobId = await self._ask(RegisterJob(convert.job_spec(request.spec)))
        return pb.RegisterJobResponse(job=self._message(job_id))

    async def GetJob(self, request: pb.GetJobRequest, _: Context) -> pb.GetJobResponse:  # noqa: N802
        return pb.GetJobResponse(job=self._message(request.job_id, with_pairs=True))

    async def ListJobs(self, _request: pb.ListJobsRequest, _: Context) -> pb.ListJobsResponse:  # noqa: N802
        now = time.monotonic()
        status = self._status
        jobs = [
            convert.job_message(job, now, status.demands.get(key))
            for key, job in sorted(status.jobs.items())
            if may_see(CALLER.get(), tenant_of(job))
        ]
        return pb.ListJobsResponse(jobs=jobs)

    async def DeregisterJob(self, request: pb.DeregisterJobRequest, _: Context) -> pb.DeregisterJobResponse:  # noqa: N802
        await self._ask(DeregisterJob(JobId(request.job_id)))
        return pb.DeregisterJobResponse()

    async def RenewLease(self, request: pb.RenewLeaseRequest, _: Context) -> pb.RenewLeaseResponse:  # noqa: N802
        left_s: float = await self._ask(RenewLease(JobId(request.job_id)))
        return pb.RenewLeaseResponse(lease_left=duration(left_s))

    async def ReportIterations(  # noqa: N802
        self, request: pb.ReportIterationsRequest, _: Context
    ) -> pb.ReportIterationsResponse:
        await self._ask(ReportIterations(JobId(request.job_id), convert.iterations(request)))
        return pb.ReportIterationsResponse()

    async def ReportConnections(  # noqa: N802
        self, request: pb.ReportConnectionsRequest, _: Context
    ) -> pb.ReportConnectionsResponse:
        report = ReportConnections(JobId(request.job_id), request.address, convert.connections(request))
        await self._ask(report)
        return pb.ReportConnectionsResponse()

    async def WatchRoutes(self, request: pb.WatchRoutesRequest, context: Context) -> None:  # noqa: N802
        """Each turn sends the newest routes: what a slow reader missed is not queued."""
        loop = asyncio.get_running_loop()
        changed = asyncio.Event()
        unsubscribe = self._board.subscribe(lambda: wake(loop, changed))
        try:
            sent: int | None = None
            while True:
                changed.clear()
                status, job = self._status, self._job(request.job_id)
                if job.routes_generation != sent:
                    sent = job.routes_generation
                    await context.write(convert.routes_message(job, status.fabric))
                await self._wait(changed)
        finally:
            unsubscribe()

    # ---- fabric, plan, status

    async def GetFabric(self, _request: pb.GetFabricRequest, _: Context) -> pb.GetFabricResponse:  # noqa: N802
        return convert.fabric_message(self._status)

    async def GetPlan(self, _request: pb.GetPlanRequest, _: Context) -> pb.GetPlanResponse:  # noqa: N802
        status = self._status
        plan = convert.plan_message(status.plan, status, status.plan_installed) if status.plan else None
        return pb.GetPlanResponse(plan=plan)

    async def GetStatus(self, _request: pb.GetStatusRequest, _: Context) -> pb.GetStatusResponse:  # noqa: N802
        return convert.status_message(self._status, time.monotonic(), time.time(), VERSION)

    async def Replan(self, _request: pb.ReplanRequest, _: Context) -> pb.ReplanResponse:  # noqa: N802
        outcome: ReplanOutcome = await self._ask(Replan())
        return convert.replan_message(outcome, self._status)

    async def SetStrategy(self, request: pb.SetStrategyRequest, _: Context) -> pb.SetStrategyResponse:  # noqa: N802
        done: StrategySet = await self._ask(SetStrategy(convert.strategy(request.strategy)))
        return convert.strategy_message(done)

    async def Explain(self, request: pb.ExplainRequest, _: Context) -> pb.ExplainResponse:  # noqa: N802
        return convert_analysis.explain_message(await self._ask(Explain(JobId(request.job_id))))

    async def WhatIf(self, request: pb.WhatIfRequest, _: Context) -> pb.WhatIfResponse:  # noqa: N802
        return convert_analysis.what_if_message(await self._ask(convert_analysis.what_if_request(request)))
