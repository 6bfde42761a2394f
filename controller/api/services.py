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
from dataclasses import replace
from importlib.metadata import version
from typing import Any, TypeVar, TypeVarTuple

from google.protobuf.message import Message

from controller.api import audit, convert, convert_analysis
from controller.api.access import CALLER, may_see, only_tenant, own_alarms, own_ends
from controller.api.errors import Stopping
from controller.api.guard import Context
from controller.api.lease_tokens import LeaseTokens
from controller.api.mapping import duration
from controller.api.pages import page, page_token
from controller.api.pb.signalbox.v1 import signalbox_pb2 as pb
from controller.api.pb.signalbox.v1 import signalbox_pb2_grpc as pb_grpc
from controller.api.watches import Watches
from controller.errors import Gone, NotFound, WrongLeaseToken
from controller.jobs.ends import EndReason, not_found
from controller.jobs.messages import (
    DeregisterJob,
    RegisterJob,
    RenewLease,
    ReportConnections,
    ReportIterations,
    UpdateJob,
)
from controller.jobs.spec import JobId
from controller.planning.analysis.requests import Explain, WhatIf
from controller.planning.messages import Replan, ReplanOutcome, Request, SetStrategy, StrategySet
from controller.status import JobStatus, Status, StatusBoard

VERSION = version("signalbox")


LARGE_BYTES = 16_384
"""A request from here on is converted in a thread: the largest take a second, in which other calls go on."""

Args = TypeVarTuple("Args")
Found = TypeVar("Found")


async def _off_loop(request: Message, convert: Callable[[*Args], Found], *args: *Args) -> Found:
    """Call ``convert`` without holding other calls up."""
    return await asyncio.to_thread(convert, *args) if request.ByteSize() > LARGE_BYTES else convert(*args)


def wake(loop: asyncio.AbstractEventLoop, event: asyncio.Event) -> None:
    """Set the event from any thread. A closed loop needs no wake-up."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(event.set)


class Services(pb_grpc.JobServiceServicer, pb_grpc.ControllerServiceServicer):
    """``put`` takes a message for the control loop from any thread and never blocks. ``tokens``: of registrations."""

    def __init__(self, board: StatusBoard, put: Callable[[Request], None], tokens: LeaseTokens) -> None:
        self._board = board
        self._put = put
        self._tokens = tokens
        self._waiting: set[asyncio.Event] = set()
        self._stopping = False
        self._watches = Watches(board, self._job, self._ended)

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

    def _job(self, job_id: str, uid: str | None = None) -> JobStatus:
        """``uid``: of the registration that is meant; None: whichever there is. Raises ``NotFound`` with how it ended,
        and for a job of another tenant."""
        status, caller = self._status, CALLER.get()
        job = status.jobs.get(JobId(job_id))
        if job is None or uid not in (None, job.uid) or not may_see(caller, job.registration.tenant):
            raise not_found(own_ends(caller, status.job_ends), JobId(job_id), uid, id_in_use=job is not None)
        return job

    def _ended(self, job_id: str, uid: str) -> NotFound | None:
        """How the registration ended; None while that is not certain."""
        status = self._status
        ends = own_ends(CALLER.get(), status.job_ends)
        error = not_found(ends, JobId(job_id), uid, id_in_use=JobId(job_id) in status.jobs)
        return None if error.reason is Gone.NO_SUCH_JOB else error

    def _owner(self, job_id: str, lease_token: str) -> str | None:
        """The uid that the token is of; None without a token. Raises ``WrongLeaseToken`` for one that is none, and
        ``NotFound`` if there is no such job either."""
        uid = self._tokens.uid(lease_token)
        if lease_token and uid is None:
            self._job(job_id)
            raise WrongLeaseToken(f"the lease token is not that of job '{job_id}'")
        return uid

    def _note_end(self, job_id: str, reason: EndReason, ended_at: float) -> None:
        """For the audit log, if a registration has ended so."""
        meant = (job_id, reason, ended_at)
        found = (end for end in reversed(self._status.job_ends) if (end.job_id, end.reason, end.ended_at) == meant)
        if end := next(found, None):
            audit.note(uid_ended=end.uid)

    def _message(self, job_id: str, uid: str | None = None, with_pairs: bool = False) -> pb.Job:
        job = self._job(job_id, uid)
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
        caller = CALLER.get()
        registration = RegisterJob(
            await _off_loop(request, convert.job_spec, request.spec),
            owner=self._tokens.uid(request.lease_token),
            take_over=request.take_over,
            tenant=caller.tenant,
            quota=caller.quota,
            request_id=convert.request_id(request),
        )
        uid: str = await self._ask(registration)
        job = self._message(request.spec.job_id, uid)
        if uid == registration.uid:
            if registration.take_over:
                self._note_end(registration.spec.job_id, EndReason.TAKEN_OVER, registration.registered_at)
            audit.note(uid_begun=uid)
        return pb.RegisterJobResponse(job=job, lease_token=self._tokens.token(uid))

    async def GetJob(self, request: pb.GetJobRequest, _: Context) -> pb.GetJobResponse:  # noqa: N802
        return pb.GetJobResponse(job=self._message(request.job_id, with_pairs=True))

    async def ListJobs(self, request: pb.ListJobsRequest, _: Context) -> pb.ListJobsResponse:  # noqa: N802
        size, after = page(request)
        now, status = time.monotonic(), self._status
        caller = CALLER.get()
        ids = sorted(
            key for key, job in status.jobs.items() if key > after and may_see(caller, job.registration.tenant)
        )
        jobs = [convert.job_message(status.jobs[one], now, status.demands.get(one)) for one in ids[:size]]
        more = page_token(ids[size - 1]) if len(ids) > size else ""
        return pb.ListJobsResponse(jobs=jobs, next_page_token=more)

    async def UpdateJob(self, request: pb.UpdateJobRequest, _: Context) -> pb.UpdateJobResponse:  # noqa: N802
        job_id = request.spec.job_id
        owner = self._owner(job_id, request.lease_token)
        spec, merged_with = await _off_loop(request, convert.updated_spec, request, self._job(job_id).spec)
        uid: str = await self._ask(UpdateJob(spec, merged_with, owner, CALLER.get().quota))
        return pb.UpdateJobResponse(job=self._message(job_id, uid))

    async def DeregisterJob(self, request: pb.DeregisterJobRequest, _: Context) -> pb.DeregisterJobResponse:  # noqa: N802
        owner = None if request.force else self._owner(request.job_id, request.lease_token)
        deregister = DeregisterJob(JobId(request.job_id), owner, request.force, CALLER.get().tenant)
        await self._ask(deregister)
        self._note_end(request.job_id, EndReason.DEREGISTERED, deregister.ended_at)
        return pb.DeregisterJobResponse()

    async def RenewLease(self, request: pb.RenewLeaseRequest, _: Context) -> pb.RenewLeaseResponse:  # noqa: N802
        owner = self._owner(request.job_id, request.lease_token)
        left_s: float = await self._ask(RenewLease(JobId(request.job_id), owner))
        return pb.RenewLeaseResponse(lease_left=duration(left_s))

    async def ReportIterations(  # noqa: N802
        self, request: pb.ReportIterationsRequest, _: Context
    ) -> pb.ReportIterationsResponse:
        owner = self._owner(request.job_id, request.lease_token)
        times = await _off_loop(request, convert.iterations, request)
        accepted: int = await self._ask(ReportIterations(JobId(request.job_id), times, owner))
        return pb.ReportIterationsResponse(accepted=accepted)

    async def ReportConnections(  # noqa: N802
        self, request: pb.ReportConnectionsRequest, _: Context
    ) -> pb.ReportConnectionsResponse:
        owner = self._owner(request.job_id, request.lease_token)
        connections = await _off_loop(request, convert.connections, request)
        await self._ask(ReportConnections(JobId(request.job_id), request.address, connections, owner))
        return pb.ReportConnectionsResponse()

    async def WatchRoutes(self, request: pb.WatchRoutesRequest, context: Context) -> None:  # noqa: N802
        await self._watches.routes.watch(request.job_id, request.resume_token, context.write, self._wait)

    async def WatchJobs(self, request: pb.WatchJobsRequest, context: Context) -> None:  # noqa: N802
        await self._watches.jobs.watch(request.resume_token, only_tenant(CALLER.get()), context.write, self._wait)

    async def WatchFabric(self, request: pb.WatchFabricRequest, context: Context) -> None:  # noqa: N802
        await self._watches.fabric.watch(request.resume_token, None, context.write, self._wait)

    async def WatchPlan(self, request: pb.WatchPlanRequest, context: Context) -> None:  # noqa: N802
        await self._watches.plan.watch(request.resume_token, None, context.write, self._wait)

    async def WatchAlarms(self, request: pb.WatchAlarmsRequest, context: Context) -> None:  # noqa: N802
        await self._watches.alarms.watch(request.resume_token, None, context.write, self._wait)

    # ---- fabric, plan, status

    async def GetFabric(self, _request: pb.GetFabricRequest, _: Context) -> pb.GetFabricResponse:  # noqa: N802
        return convert.fabric_message(self._status)

    async def GetPlan(self, _request: pb.GetPlanRequest, _: Context) -> pb.GetPlanResponse:  # noqa: N802
        status = self._status
        plan = convert.plan_message(status.plan, status, status.plan_installed) if status.plan else None
        return pb.GetPlanResponse(plan=plan)

    async def GetStatus(self, _request: pb.GetStatusRequest, _: Context) -> pb.GetStatusResponse:  # noqa: N802
        status = replace(self._status, alarms=own_alarms(CALLER.get(), self._status))
        return convert.status_message(status, time.monotonic(), time.time(), VERSION)

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
