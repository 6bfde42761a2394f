"""The two services of the API.

In: requests, converted and put into the control loop's inbox with a future, and the published ``Status`` for every
read. Out: converted answers, or a status code with the fields that were wrong. Handlers decide nothing about jobs or
the network.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from importlib.metadata import version
from typing import Any, NoReturn, TypeVar

import grpc
import structlog
from google.protobuf import any_pb2
from google.protobuf.message import Message
from google.rpc import code_pb2, error_details_pb2, status_pb2
from grpc_status import rpc_status

from controller.api import convert, convert_analysis
from controller.api.mapping import duration
from controller.api.pb.signalbox.v1 import signalbox_pb2 as pb
from controller.api.pb.signalbox.v1 import signalbox_pb2_grpc as pb_grpc
from controller.errors import (
    AlreadyExists,
    Conflict,
    Exhausted,
    FieldProblem,
    InvalidInput,
    NotFound,
    SignalboxError,
    Unavailable,
)
from controller.jobs.messages import DeregisterJob, RegisterJob, RenewLease, ReportConnections, ReportIterations
from controller.jobs.spec import JobId
from controller.planning.analysis.requests import Explain, WhatIf
from controller.planning.messages import Replan, ReplanOutcome, Request, SetStrategy, StrategySet
from controller.status import JobStatus, Status, StatusBoard

log = structlog.get_logger(__name__)

VERSION = version("signalbox")

ANSWER_S = 5.0
"""How long the control loop may take over what needs no switch and no solver; less than clients wait."""

INSTALL_S = 120.0
"""How long a plan and the barriers of all switches may take."""

ANALYSIS_S = 140.0
"""How long an analysis may take, which needs many plans, with those that wait before it."""

MAX_PROBLEMS = 16
MAX_PROBLEM_CHARS = 400
"""The names of all algorithms fit."""
MAX_MESSAGE_BYTES = 1800
"""A status travels in HTTP/2 trailers, twice (as text and as details), and peers refuse more than 8 KiB of them."""


class Stopping(SignalboxError):
    """The controller stops, so there will be no answer."""


_CODES: dict[type[SignalboxError], grpc.StatusCode] = {
    NotFound: grpc.StatusCode.NOT_FOUND,
    AlreadyExists: grpc.StatusCode.ALREADY_EXISTS,
    Conflict: grpc.StatusCode.FAILED_PRECONDITION,
    Exhausted: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Stopping: grpc.StatusCode.UNAVAILABLE,
}

Context = grpc.aio.ServicerContext[Any, Any]

Servicer = TypeVar("Servicer")
Wire = TypeVar("Wire")
Response = TypeVar("Response")


def wake(loop: asyncio.AbstractEventLoop, event: asyncio.Event) -> None:
    """Set the event from any thread. A closed loop needs no wake-up."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(event.set)


# ---- errors


def _answers_errors(
    method: Callable[[Servicer, Wire, Context], Awaitable[Response]],
) -> Callable[[Servicer, Wire, Context], Awaitable[Response]]:
    """The guard around every handler: our errors become their status, anything else INTERNAL and a log entry."""

    @functools.wraps(method)
    async def guarded(self: Servicer, request: Wire, context: Context) -> Response:
        try:
            return await method(self, request, context)
        except InvalidInput as error:
            await _abort_invalid(context, error)
        except Unavailable as error:
            await _abort(
                context,
                code_pb2.UNAVAILABLE,
                str(error),
                error_details_pb2.RetryInfo(retry_delay=duration(error.retry_s)),
            )
        except SignalboxError as error:
            code = _CODES.get(type(error), grpc.StatusCode.UNKNOWN)
            await context.abort(code, _ascii(str(error))[:MAX_MESSAGE_BYTES])
        except TimeoutError:
            log.error("the control loop did not answer in time", method=method.__name__)
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "the controller did not answer in time")
        except Exception:
            log.exception("request failed", method=method.__name__)
            await context.abort(grpc.StatusCode.INTERNAL, "internal error; the controller's log has it")

    return guarded


async def _abort_invalid(context: Context, error: InvalidInput) -> NoReturn:
    shown = _shown(error.problems)
    details = error_details_pb2.BadRequest(
        field_violations=[{"field": problem.path, "description": problem.message} for problem in shown]
    )
    await _abort(context, code_pb2.INVALID_ARGUMENT, str(InvalidInput(shown)), details)


async def _abort(context: Context, code: code_pb2.Code, text: str, details: Message) -> NoReturn:
    packed = any_pb2.Any()
    packed.Pack(details)
    status = rpc_status.to_status(status_pb2.Status(code=code, message=_ascii(text), details=[packed]))
    await context.abort(status.code, status.details, status.trailing_metadata)


def _shown(problems: tuple[FieldProblem, ...]) -> tuple[FieldProblem, ...]:
    """The first problems, as many as fit into a status, at least one; then how many are left out."""
    shown: list[FieldProblem] = []
    size = 0
    for problem in problems[:MAX_PROBLEMS]:
        short = FieldProblem(_short(problem.path), _short(problem.message))
        size += len(str(short)) + 2
        if shown and size > MAX_MESSAGE_BYTES:
            break
        shown.append(short)
    if len(shown) < len(problems):
        shown.append(FieldProblem("", f"and {len(problems) - len(shown)} more"))
    return tuple(shown)


def _short(text: str) -> str:
    text = _ascii(text)
    return text if len(text) <= MAX_PROBLEM_CHARS else text[: MAX_PROBLEM_CHARS - 3] + "..."


def _ascii(text: str) -> str:
    """Percent-encoding would make three bytes of each byte outside ASCII."""
    return text.encode("ascii", "backslashreplace").decode("ascii")


# ---- services


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
        try:
            return self._status.jobs[JobId(job_id)]
        except KeyError:
            raise NotFound(f"there is no job '{job_id}'") from None

    def _message(self, job_id: str, with_pairs: bool = False) -> pb.Job:
        job = self._job(job_id)
        return convert.job_message(job, time.monotonic(), self._status.demands.get(JobId(job_id)), with_pairs)

    async def _ask(self, message: Request, limit_s: float) -> Any:
        """Put the message and wait for its reply. When the caller goes or the time is over, what changes nothing is
        given up: its reply is cancelled. Changes happen once they are put."""
        loop = asyncio.get_running_loop()
        answered = asyncio.Event()
        message.reply.add_done_callback(lambda _: wake(loop, answered))
        self._put(message)
        try:
            async with asyncio.timeout(limit_s):
                await self._wait(answered)
        finally:
            if isinstance(message, Explain | WhatIf | Replan):
                message.reply.cancel()  # does nothing to one that is there
        return message.reply.result()

    # ---- jobs

    @_answers_errors
    async def RegisterJob(self, request: pb.RegisterJobRequest, _: Context) -> pb.RegisterJobResponse:  # noqa: N802
        job_id: JobId = await self._ask(RegisterJob(convert.job_spec(request.spec)), ANSWER_S)
        return pb.RegisterJobResponse(job=self._message(job_id))

    @_answers_errors
    async def GetJob(self, request: pb.GetJobRequest, _: Context) -> pb.GetJobResponse:  # noqa: N802
        return pb.GetJobResponse(job=self._message(request.job_id, with_pairs=True))

    @_answers_errors
    async def ListJobs(self, _request: pb.ListJobsRequest, _: Context) -> pb.ListJobsResponse:  # noqa: N802
        now = time.monotonic()
        status = self._status
        jobs = [convert.job_message(job, now, status.demands.get(key)) for key, job in sorted(status.jobs.items())]
        return pb.ListJobsResponse(jobs=jobs)

    @_answers_errors
    async def DeregisterJob(self, request: pb.DeregisterJobRequest, _: Context) -> pb.DeregisterJobResponse:  # noqa: N802
        await self._ask(DeregisterJob(JobId(request.job_id)), ANSWER_S)
        return pb.DeregisterJobResponse()

    @_answers_errors
    async def RenewLease(self, request: pb.RenewLeaseRequest, _: Context) -> pb.RenewLeaseResponse:  # noqa: N802
        left_s: float = await self._ask(RenewLease(JobId(request.job_id)), ANSWER_S)
        return pb.RenewLeaseResponse(lease_left=duration(left_s))

    @_answers_errors
    async def ReportIterations(  # noqa: N802
        self, request: pb.ReportIterationsRequest, _: Context
    ) -> pb.ReportIterationsResponse:
        await self._ask(ReportIterations(JobId(request.job_id), convert.iterations(request)), ANSWER_S)
        return pb.ReportIterationsResponse()

    @_answers_errors
    async def ReportConnections(  # noqa: N802
        self, request: pb.ReportConnectionsRequest, _: Context
    ) -> pb.ReportConnectionsResponse:
        report = ReportConnections(JobId(request.job_id), request.address, convert.connections(request))
        await self._ask(report, ANSWER_S)
        return pb.ReportConnectionsResponse()

    @_answers_errors
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

    @_answers_errors
    async def GetFabric(self, _request: pb.GetFabricRequest, _: Context) -> pb.GetFabricResponse:  # noqa: N802
        return convert.fabric_message(self._status)

    @_answers_errors
    async def GetPlan(self, _request: pb.GetPlanRequest, _: Context) -> pb.GetPlanResponse:  # noqa: N802
        status = self._status
        plan = convert.plan_message(status.plan, status, status.plan_installed) if status.plan else None
        return pb.GetPlanResponse(plan=plan)

    @_answers_errors
    async def GetStatus(self, _request: pb.GetStatusRequest, _: Context) -> pb.GetStatusResponse:  # noqa: N802
        return convert.status_message(self._status, time.monotonic(), time.time(), VERSION)

    @_answers_errors
    async def Replan(self, _request: pb.ReplanRequest, _: Context) -> pb.ReplanResponse:  # noqa: N802
        outcome: ReplanOutcome = await self._ask(Replan(), INSTALL_S)
        return convert.replan_message(outcome, self._status)

    @_answers_errors
    async def SetStrategy(self, request: pb.SetStrategyRequest, _: Context) -> pb.SetStrategyResponse:  # noqa: N802
        done: StrategySet = await self._ask(SetStrategy(convert.strategy(request.strategy)), INSTALL_S)
        return convert.strategy_message(done)

    @_answers_errors
    async def Explain(self, request: pb.ExplainRequest, _: Context) -> pb.ExplainResponse:  # noqa: N802
        return convert_analysis.explain_message(await self._ask(Explain(JobId(request.job_id)), ANALYSIS_S))

    @_answers_errors
    async def WhatIf(self, request: pb.WhatIfRequest, _: Context) -> pb.WhatIfResponse:  # noqa: N802
        return convert_analysis.what_if_message(await self._ask(convert_analysis.what_if_request(request), ANALYSIS_S))
