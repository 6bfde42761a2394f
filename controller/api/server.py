"""The gRPC server: a thread with its own asyncio loop.

Owns the listening addresses and the two services. In: requests, converted and put into the control loop's inbox with a
future, and the published ``Status`` for every read. Out: converted answers, or a status code with the fields that were
wrong. Handlers decide nothing about jobs or the network.
"""

from __future__ import annotations

import asyncio
import errno
import functools
import os
import socket
import stat
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import grpc
import structlog
from google.protobuf import any_pb2
from google.rpc import code_pb2, error_details_pb2, status_pb2
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection
from grpc_status import rpc_status

from controller.api import convert, convert_analysis
from controller.api.health_watch import HealthService
from controller.api.pb.signalbox.v1 import signalbox_pb2 as pb
from controller.api.pb.signalbox.v1 import signalbox_pb2_grpc as pb_grpc
from controller.config import ApiConfig, host_and_port
from controller.errors import AlreadyExists, Conflict, Exhausted, FieldProblem, InvalidInput, NotFound, SignalboxError
from controller.jobs.messages import DeregisterJob, RegisterJob, RenewLease, ReportIterations
from controller.jobs.spec import JobId
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

SOCKET_MODE = 0o660
"""Owner and group of the controller may connect: a client that connects can change the fabric's routes."""

MAX_PROBLEMS = 16
MAX_PROBLEM_CHARS = 160
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

_SERVICES = tuple(service.full_name for service in pb.DESCRIPTOR.services_by_name.values())

Context = grpc.aio.ServicerContext[Any, Any]

Servicer = TypeVar("Servicer")
Wire = TypeVar("Wire")
Response = TypeVar("Response")


class ApiServer:
    """``put`` takes a message for the control loop from any thread and never blocks."""

    def __init__(self, config: ApiConfig, board: StatusBoard, put: Callable[[Request], None]) -> None:
        self._config = config
        self._services = (_JobService(board, put), _ControllerService(board, put))
        self._health = HealthService()
        self._bound: Future[tuple[str, ...]] = Future()
        self._thread = threading.Thread(target=self._run, name="grpc-api", daemon=True)
        self._loop = asyncio.new_event_loop()
        self._stopping = asyncio.Event()
        self._grace_s = 0.0

    def start(self) -> tuple[str, ...]:
        """Serve; returns the addresses with the ports that were chosen for port 0. Raises ``OSError`` when one of the
        configured addresses cannot be bound; then none is."""
        self._thread.start()
        return self._bound.result()

    def stop(self, grace_s: float = 1.0) -> None:
        """Refuse new calls, give running ones ``grace_s`` to end, cancel the rest. Returns when all is closed."""
        self._grace_s = grace_s
        _wake(self._loop, self._stopping)
        if self._thread.ident is not None:
            self._thread.join()
        self._loop.close()

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._serve())
        except BaseException as error:
            if isinstance(error, OSError) and not self._bound.done():
                self._bound.set_exception(error)
                return
            log.critical("the API has failed, stopping the process", exc_info=True)
            os._exit(1)

    async def _serve(self) -> None:
        server = grpc.aio.server(
            options=(
                ("grpc.max_receive_message_length", self._config.max_message_bytes),
                # Two controllers on one port must not share its connections.
                ("grpc.so_reuseport", 0),
                # A watcher whose host died silently is noticed.
                ("grpc.keepalive_time_ms", 30_000),
                ("grpc.keepalive_timeout_ms", 10_000),
            )
        )
        jobs, controller = self._services
        pb_grpc.add_JobServiceServicer_to_server(jobs, server)  # type: ignore[no-untyped-call]
        pb_grpc.add_ControllerServiceServicer_to_server(controller, server)  # type: ignore[no-untyped-call]
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        names = (*_SERVICES, health.SERVICE_NAME, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, server)
        for name in names:
            await self._health.set(name, health_pb2.HealthCheckResponse.SERVING)
        bound: list[str] = []
        try:
            bound.extend(_bind(server, address) for address in self._config.listen)
            await server.start()
            self._bound.set_result(tuple(bound))
            log.info("API listens", addresses=bound)
            await self._stopping.wait()
            for service in self._services:
                service.stop_waiting()
            await self._health.end()
        finally:
            await server.stop(self._grace_s)
            for path in filter(None, map(_socket_path, bound)):
                path.unlink(missing_ok=True)


def _wake(loop: asyncio.AbstractEventLoop, event: asyncio.Event) -> None:
    """Set the event from any thread. A closed loop needs no wake-up."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(event.set)


# ---- addresses


def _bind(server: grpc.aio.Server, address: str) -> str:
    path = _socket_path(address)
    if path:
        _make_directory(path.parent)
        _remove_stale(path)
    else:
        _probe(address)
    try:
        port = server.add_insecure_port(address)
    except RuntimeError as error:
        raise OSError(errno.EADDRNOTAVAIL, f"cannot listen on {address}: {error}") from None
    if path:
        path.chmod(SOCKET_MODE)
        return address
    return f"{address.rpartition(':')[0]}:{port}"


def _socket_path(address: str) -> Path | None:
    return Path(address.removeprefix("unix:")) if address.startswith("unix:") else None


def _make_directory(directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OSError(error.errno, f"cannot make {directory} for the API's socket: {error.strerror}") from None


def _probe(address: str) -> None:
    """Bind and let go: gRPC itself does not say why it cannot. Raises ``OSError``."""
    host, port = host_and_port(address)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, kind, _, _, where in found:
            with socket.socket(family, kind) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(where)
    except OSError as error:
        raise OSError(error.errno, f"cannot listen on {address}: {error.strerror}") from None


def _remove_stale(path: Path) -> None:
    """gRPC would take over any socket file, also that of a running server. Raises ``OSError`` when another process
    listens there, or the file is no socket."""
    try:
        is_socket = stat.S_ISSOCK(path.stat().st_mode)
    except FileNotFoundError:
        return
    if not is_socket:
        raise OSError(errno.EEXIST, f"cannot listen on unix:{path}: the file exists and is not a socket")
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
    raise OSError(errno.EADDRINUSE, f"cannot listen on unix:{path}: another process does")


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
        except SignalboxError as error:
            await context.abort(_CODES.get(type(error), grpc.StatusCode.UNKNOWN), _trailer_text(str(error)))
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
    packed = any_pb2.Any()
    packed.Pack(details)
    text = str(InvalidInput(shown))
    status = rpc_status.to_status(status_pb2.Status(code=code_pb2.INVALID_ARGUMENT, message=text, details=[packed]))
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


def _trailer_text(text: str) -> str:
    return _ascii(text)[:MAX_MESSAGE_BYTES]


def _ascii(text: str) -> str:
    """Percent-encoding would make three bytes of each byte outside ASCII."""
    return text.encode("ascii", "backslashreplace").decode("ascii")


# ---- services


class _Service:
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

    async def _ask(self, message: Request, reply: Future[Any], limit_s: float) -> Any:
        """Put the message and wait for its reply. The reply is never cancelled: what was put happens, also when the
        caller has gone."""
        loop = asyncio.get_running_loop()
        answered = asyncio.Event()
        reply.add_done_callback(lambda _: _wake(loop, answered))
        self._put(message)
        async with asyncio.timeout(limit_s):
            await self._wait(answered)
        return reply.result()


class _JobService(_Service, pb_grpc.JobServiceServicer):
    @_answers_errors
    async def RegisterJob(self, request: pb.RegisterJobRequest, _: Context) -> pb.RegisterJobResponse:  # noqa: N802
        message = RegisterJob(convert.job_spec(request))
        job_id: JobId = await self._ask(message, message.reply, ANSWER_S)
        return pb.RegisterJobResponse(job=convert.job_message(self._job(job_id), time.monotonic()))

    @_answers_errors
    async def GetJob(self, request: pb.GetJobRequest, _: Context) -> pb.GetJobResponse:  # noqa: N802
        return pb.GetJobResponse(job=convert.job_message(self._job(request.job_id), time.monotonic()))

    @_answers_errors
    async def ListJobs(self, _request: pb.ListJobsRequest, _: Context) -> pb.ListJobsResponse:  # noqa: N802
        now = time.monotonic()
        jobs = [convert.job_message(job, now) for _, job in sorted(self._status.jobs.items())]
        return pb.ListJobsResponse(jobs=jobs)

    @_answers_errors
    async def DeregisterJob(self, request: pb.DeregisterJobRequest, _: Context) -> pb.DeregisterJobResponse:  # noqa: N802
        message = DeregisterJob(JobId(request.job_id))
        await self._ask(message, message.reply, ANSWER_S)
        return pb.DeregisterJobResponse()

    @_answers_errors
    async def RenewLease(self, request: pb.RenewLeaseRequest, _: Context) -> pb.RenewLeaseResponse:  # noqa: N802
        message = RenewLease(JobId(request.job_id))
        left_s: float = await self._ask(message, message.reply, ANSWER_S)
        return pb.RenewLeaseResponse(lease_left=convert.duration(left_s))

    @_answers_errors
    async def ReportIterations(  # noqa: N802
        self, request: pb.ReportIterationsRequest, _: Context
    ) -> pb.ReportIterationsResponse:
        message = ReportIterations(JobId(request.job_id), convert.iterations(request))
        await self._ask(message, message.reply, ANSWER_S)
        return pb.ReportIterationsResponse()

    @_answers_errors
    async def WatchRoutes(self, request: pb.WatchRoutesRequest, context: Context) -> None:  # noqa: N802
        """Each turn sends the newest routes: what a slow reader missed is not queued."""
        loop = asyncio.get_running_loop()
        changed = asyncio.Event()
        unsubscribe = self._board.subscribe(lambda: _wake(loop, changed))
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


class _ControllerService(_Service, pb_grpc.ControllerServiceServicer):
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
        return convert.status_message(self._status, time.monotonic(), VERSION)

    @_answers_errors
    async def Replan(self, _request: pb.ReplanRequest, _: Context) -> pb.ReplanResponse:  # noqa: N802
        message = Replan()
        outcome: ReplanOutcome = await self._ask(message, message.reply, INSTALL_S)
        return convert.replan_message(outcome, self._status)

    @_answers_errors
    async def SetStrategy(self, request: pb.SetStrategyRequest, _: Context) -> pb.SetStrategyResponse:  # noqa: N802
        message = SetStrategy(convert.strategy(request.strategy))
        done: StrategySet = await self._ask(message, message.reply, INSTALL_S)
        return convert.strategy_message(done)

    @_answers_errors
    async def Explain(self, request: pb.ExplainRequest, _: Context) -> pb.ExplainResponse:  # noqa: N802
        message = convert_analysis.explain_request(request)
        return convert_analysis.explain_message(await self._ask(message, message.reply, ANALYSIS_S))

    @_answers_errors
    async def WhatIf(self, request: pb.WhatIfRequest, _: Context) -> pb.WhatIfResponse:  # noqa: N802
        message = convert_analysis.what_if_request(request)
        return convert_analysis.what_if_message(await self._ask(message, message.reply, ANALYSIS_S))
