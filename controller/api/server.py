"""gRPC server: a thread with its own asyncio loop.

Owns the health service, and connects the gate and the guard with the services. Calls from HAProxy arrive at a second
server: only that server trusts HAProxy's header fields (``peers``). In: the configuration and the arguments of
``Services``. Out: the addresses that are served.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any

import grpc
import structlog
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection
from grpc_reflection.v1alpha.reflection_pb2_grpc import add_ServerReflectionServicer_to_server as add_reflection

from controller.api import guard, listening
from controller.api.audit import AuditLog
from controller.api.call_times import CallTimes
from controller.api.files import ApiFiles
from controller.api.gate import Debts, Gate
from controller.api.guard import Context, GuardedServer
from controller.api.identities import Identities
from controller.api.lease_tokens import LeaseTokens
from controller.api.peers import Peer, peer_of, proxied_peer
from controller.api.services import Services
from controller.config import ApiConfig
from controller.planning.messages import Request
from controller.status import StatusBoard
from signalbox.v1 import signalbox_pb2 as pb
from signalbox.v1 import signalbox_pb2_grpc as pb_grpc

log = structlog.get_logger(__name__)

LAST_STATUS_S = 0.2
"""Seconds that a health watcher may take to receive its last status, ``NOT_SERVING``, when the server stops."""

MOST_CALLS = 8192
"""Concurrent calls and streams of each of the two servers; gRPC refuses more."""
IDLE_MS = 300_000
"""Milliseconds after which a connection without calls is closed."""
SUMMARY_EVERY_S = 1.0
"""Seconds between log lines that count the lines that were left out."""

_SERVICES = tuple(service.full_name for service in pb.DESCRIPTOR.services_by_name.values())


class ApiServer:
    """API server.

    ``put`` takes a message for the control loop from any thread and never blocks. ``tokens``: lease tokens. ``files``:
    files that were already read. Raises ``InvalidInput`` for files that cannot be read."""

    def __init__(
        self,
        config: ApiConfig,
        board: StatusBoard,
        put: Callable[[Request], None],
        tokens: LeaseTokens,
        files: ApiFiles | None = None,
    ) -> None:
        self._config = config
        self.files = files or ApiFiles(config)
        self._loop = asyncio.new_event_loop()
        self.files.replaced = self._replace
        self._times = CallTimes(partial(setattr, board, "call_times"))
        of_both = Debts(config.max_client_calls_per_s), AuditLog()
        self._gate = Gate(board, self.files.identities, config.socket_role, _peer, *of_both)
        self._proxied_gate = Gate(board, self.files.identities, config.socket_role, proxied_peer, *of_both)
        self._services = Services(board, put, tokens)
        self._health = _HealthService()
        self._bound: Future[tuple[str, ...]] = Future()
        self._thread = threading.Thread(target=self._run, name="grpc-api", daemon=True)
        self._stopping = asyncio.Event()
        self._grace_s = 0.0

    def start(self) -> tuple[str, ...]:
        """Start serving, and return the addresses with the ports that were chosen for port 0.

        Raises ``OSError`` when one of the configured addresses cannot be bound; then none of them is served."""
        self._thread.start()
        return self._bound.result()

    def stop(self, grace_s: float = 1.0) -> None:
        """Refuse new calls, cancel running ones after ``grace_s`` seconds, and return when all are closed."""
        self._grace_s = grace_s
        with suppress(RuntimeError):  # a closed loop needs no wake-up
            self._loop.call_soon_threadsafe(self._stopping.set)
        if self._thread.ident is not None:
            self._thread.join()
        self._loop.close()

    def _replace(self, identities: Identities | None) -> None:
        """Put new identities in force, from any thread and also before the server has started."""
        with suppress(RuntimeError):  # the server has stopped
            for gate in (self._gate, self._proxied_gate):
                self._loop.call_soon_threadsafe(gate.replace, identities)

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
        guard.keep_clients_out_of_log()
        servers: list[grpc.aio.Server] = []
        summaries = asyncio.create_task(_summaries())
        try:
            addresses = await self._listen(servers)
            for server in servers:
                await server.start()
            self._bound.set_result(addresses)
            log.info("API listens", addresses=addresses, proxy_socket=str(self._config.proxy_socket or ""))
            await self._stopped(servers)
            self._services.stop_waiting()
            await self._health.end()
        finally:
            summaries.cancel()
            await asyncio.gather(*(server.stop(self._grace_s) for server in servers))
            self._services.close()

    async def _listen(self, servers: list[grpc.aio.Server]) -> tuple[str, ...]:
        """Add the servers without starting them, and return the addresses for clients. Raises ``OSError``."""
        config, addresses = self._config, []
        server = await self._added_server(servers, self._gate)
        for address in config.listen:
            if path := listening.socket_path(address):
                listening.add_socket(server, path, int(config.socket_mode, 8))
                addresses.append(address)
            elif config.proxy_socket is None:  # otherwise HAProxy listens there
                addresses.append(listening.add_tcp(server, address, self.files.credentials))
        if path := config.proxy_socket:
            server = await self._added_server(servers, self._proxied_gate)
            listening.add_socket(server, path, listening.proxy_mode(path))
        return tuple(addresses)

    async def _added_server(self, servers: list[grpc.aio.Server], gate: Gate) -> grpc.aio.Server:
        """Add a server with all services behind the gate, and return it."""
        server = grpc.aio.server(options=_options(self._config), maximum_concurrent_rpcs=MOST_CALLS)
        servers.append(server)
        guarded: Any = GuardedServer(server, gate.behind, self._times, self._config.silent_s)
        pb_grpc.add_JobServiceServicer_to_server(self._services, guarded)  # type: ignore[no-untyped-call]
        pb_grpc.add_ControllerServiceServicer_to_server(self._services, guarded)  # type: ignore[no-untyped-call]
        health_pb2_grpc.add_HealthServicer_to_server(self._health, guarded)
        names = (*_SERVICES, health.SERVICE_NAME, reflection.SERVICE_NAME)
        add_reflection(reflection.aio.ReflectionServicer(names), guarded)  # type: ignore[no-untyped-call]
        guarded.refuse_other_methods()
        for name in names:
            await self._health.set(name, health_pb2.HealthCheckResponse.SERVING)
        return server

    async def _stopped(self, servers: Iterable[grpc.aio.Server]) -> None:
        """Wait for ``stop``.

        Raises an error when a gRPC server ended by itself, since no call would be served any more."""
        stopping = asyncio.create_task(self._stopping.wait())
        ended = {asyncio.create_task(server.wait_for_termination()) for server in servers}
        done, _ = await asyncio.wait({stopping, *ended}, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
        if ended & done and stopping not in done:
            raise RuntimeError("gRPC's server has ended by itself")


def _peer(context: Context) -> Peer:
    return peer_of(context.peer(), context.auth_context())


async def _summaries() -> None:
    while True:
        await asyncio.sleep(SUMMARY_EVERY_S)
        guard.log.summarise()


def _options(config: ApiConfig) -> tuple[tuple[str, int], ...]:
    """Return gRPC's own limits.

    The limit of HTTP/2 pings keeps gRPC's default: more than two unnecessary pings end the connection."""
    return (
        # Report a port that another process has as an error.
        ("grpc.so_reuseport", 0),
        ("grpc.max_receive_message_length", config.max_message_bytes),
        # Allow no compression: 600 bytes of gzip can be a job that takes a second to process.
        ("grpc.compression_enabled_algorithms_bitset", 1),
        # Limit of one connection.
        ("grpc.max_concurrent_streams", config.max_client_calls + config.max_client_streams),
        # Limit for a connection that completes no TLS handshake or sends no HTTP/2 settings.
        ("grpc.server_handshake_timeout_ms", round(1000 * config.silent_s)),
        # Clients connect again without an error.
        ("grpc.max_connection_idle_ms", IDLE_MS),
        # Detect a watcher whose host died without closing its connection.
        ("grpc.keepalive_time_ms", 30_000),
        ("grpc.keepalive_timeout_ms", 10_000),
    )


class _HealthService(health.aio.HealthServicer):
    """Health service that first reports to its watchers that the server stops, and then ends their calls.

    gRPC's own service leaves the calls to the server, which cancels each with a traceback in the log."""

    def __init__(self) -> None:
        super().__init__()
        self._ended = asyncio.Event()

    async def Watch(self, request: health_pb2.HealthCheckRequest, context: Any) -> None:  # noqa: N802
        """Stream the status until the caller cancels or the service ends."""
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
        """Report ``NOT_SERVING`` to every watcher, and end their calls."""
        await self.enter_graceful_shutdown()
        self._ended.set()
