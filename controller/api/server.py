"""The gRPC server: a thread with its own asyncio loop.

Owns the listening addresses and the health service. In: the configuration and what ``Services`` needs. Out: the
addresses that are served.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import stat
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import structlog
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection
from grpc_reflection.v1alpha.reflection_pb2_grpc import add_ServerReflectionServicer_to_server as add_reflection

from controller.api.certificates import Certificates
from controller.api.gate import Gate
from controller.api.guard import GuardedServer, keep_clients_out_of_log
from controller.api.identities import READABLE_BY_OTHERS, Identities
from controller.api.lease_tokens import LeaseTokens
from controller.api.pb.signalbox.v1 import signalbox_pb2 as pb
from controller.api.pb.signalbox.v1 import signalbox_pb2_grpc as pb_grpc
from controller.api.services import Services, wake
from controller.config import ApiConfig, host_and_port
from controller.planning.messages import Request
from controller.status import StatusBoard

log = structlog.get_logger(__name__)

LAST_STATUS_S = 0.2
"""How long a health watcher may take to receive that the server stops."""

_SERVICES = tuple(service.full_name for service in pb.DESCRIPTOR.services_by_name.values())


class ApiServer:
    """``put`` takes a message for the control loop from any thread and never blocks. ``tokens``: of registrations.
    Raises ``InvalidInput`` for certificates and tokens that cannot be read."""

    def __init__(
        self, config: ApiConfig, board: StatusBoard, put: Callable[[Request], None], tokens: LeaseTokens
    ) -> None:
        self._config = config
        self._certificates = Certificates(config.tls_files)
        self._gate = Gate(board, _identities(config), config.socket_role)
        self._services = Services(board, put, tokens)
        self._health = _HealthService()
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
        wake(self._loop, self._stopping)
        if self._thread.ident is not None:
            self._thread.join()
        self._loop.close()

    def prepare(self, config: ApiConfig) -> Callable[[], None]:
        """Reads certificates and tokens; what is returned makes them count from now on, from any thread. Raises
        ``InvalidInput``."""
        take_certificates = self._certificates.prepare(config.tls_files)
        identities = _identities(config)

        def take() -> None:
            take_certificates()
            with suppress(RuntimeError):  # the server has stopped
                self._loop.call_soon_threadsafe(self._gate.replace, identities)

        return take

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
        keep_clients_out_of_log()
        server = grpc.aio.server(
            options=(
                ("grpc.max_receive_message_length", self._config.max_message_bytes),
                # Two controllers on one port must not share its connections.
                ("grpc.so_reuseport", 0),
                # A watcher whose host died without closing its connection is noticed.
                ("grpc.keepalive_time_ms", 30_000),
                ("grpc.keepalive_timeout_ms", 10_000),
            )
        )
        guarded: Any = GuardedServer(server, self._gate.behind)
        pb_grpc.add_JobServiceServicer_to_server(self._services, guarded)  # type: ignore[no-untyped-call]
        pb_grpc.add_ControllerServiceServicer_to_server(self._services, guarded)  # type: ignore[no-untyped-call]
        health_pb2_grpc.add_HealthServicer_to_server(self._health, guarded)
        names = (*_SERVICES, health.SERVICE_NAME, reflection.SERVICE_NAME)
        add_reflection(reflection.aio.ReflectionServicer(names), guarded)  # type: ignore[no-untyped-call]
        guarded.refuse_other_methods()
        for name in names:
            await self._health.set(name, health_pb2.HealthCheckResponse.SERVING)
        bound: list[str] = []
        try:
            bound.extend(_bind(server, address, self._config, self._certificates) for address in self._config.listen)
            await server.start()
            self._bound.set_result(tuple(bound))
            log.info("API listens", addresses=bound)
            await self._until_stopped(server)
            self._services.stop_waiting()
            await self._health.end()
        finally:
            await server.stop(self._grace_s)
            for path in filter(None, map(_socket_path, bound)):
                path.unlink(missing_ok=True)

    async def _until_stopped(self, server: grpc.aio.Server) -> None:
        """Raises what gRPC's server has ended by itself with: without it nothing is served, and nobody would know."""
        stopping = asyncio.create_task(self._stopping.wait())
        ended = asyncio.create_task(server.wait_for_termination())
        await asyncio.wait({stopping, ended}, return_when=asyncio.FIRST_COMPLETED)
        if ended.done():
            await ended
            raise RuntimeError("gRPC's server has ended by itself")


class _HealthService(health.aio.HealthServicer):
    """Ends the calls of its watchers, after telling them that the server stops. gRPC's own service leaves them to the
    server, which cancels them with a traceback in the log for each."""

    def __init__(self) -> None:
        super().__init__()
        self._ended = asyncio.Event()

    async def Watch(self, request: health_pb2.HealthCheckRequest, context: Any) -> None:  # noqa: N802
        """Streams the status until the caller goes or the service ends."""
        watching = asyncio.create_task(super().Watch(request, context))
        ended = asyncio.create_task(self._ended.wait())
        try:
            await asyncio.wait({watching, ended}, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait({watching}, timeout=LAST_STATUS_S)
            if watching.done():
                await watching
        finally:
            watching.cancel()
            ended.cancel()

    async def end(self) -> None:
        """Not serving from now on: every watcher receives that, and its call ends."""
        await self.enter_graceful_shutdown()
        self._ended.set()


# ---- addresses


def _bind(server: grpc.aio.Server, address: str, config: ApiConfig, certificates: Certificates) -> str:
    path = _socket_path(address)
    if path:
        _make_directory(path.parent)
        _remove_stale(path)
    else:
        _probe(address)
    credentials = None if path else certificates.credentials
    before = os.umask(READABLE_BY_OTHERS)  # until chmod nobody else may connect to the socket
    try:
        port = server.add_secure_port(address, credentials) if credentials else server.add_insecure_port(address)
    except RuntimeError as error:
        raise OSError(errno.EADDRNOTAVAIL, f"cannot listen on {address}: {error}") from None
    finally:
        os.umask(before)
    if path:
        path.chmod(int(config.socket_mode, 8))
        return address
    return f"{address.rpartition(':')[0]}:{port}"


def _identities(config: ApiConfig) -> Identities | None:
    return Identities.load(config.tokens) if config.tokens else None


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
