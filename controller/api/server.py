"""The gRPC server: a thread with its own asyncio loop.

Owns the health service, and wires what stands before the services: ``relay`` accepts connections, ``calls`` stands
around calls. What HAProxy hands over arrives at another server, which has neither: HAProxy limits clients itself, and
only there its header fields say who calls (``proxied``). In: the configuration and what ``Services`` needs. Out: the
addresses that are served.
"""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import structlog
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection
from grpc_reflection.v1alpha.reflection_pb2_grpc import add_ServerReflectionServicer_to_server as add_reflection

from controller.api import listening, proxied
from controller.api.audit import AuditLog
from controller.api.call_times import CallTimes
from controller.api.calls import Calls, Refusals
from controller.api.files import ApiFiles
from controller.api.gate import Gate
from controller.api.guard import Context, GuardedServer, keep_clients_out_of_log
from controller.api.identities import Identities
from controller.api.lease_tokens import LeaseTokens
from controller.api.peers import Peer, peer_of
from controller.api.relay.accepting import Listener, Pace
from controller.api.relay.connections import ConnectionLimits
from controller.api.relay.relay import Relay
from controller.api.services import Services
from controller.api.waking import wake
from controller.config import ApiConfig
from controller.planning.messages import Request
from controller.private_directory import private_directory
from controller.status import StatusBoard
from signalbox.v1 import signalbox_pb2 as pb
from signalbox.v1 import signalbox_pb2_grpc as pb_grpc

log = structlog.get_logger(__name__)

LAST_STATUS_S = 0.2
"""How long a health watcher may take to receive that the server stops."""

BACKEND_MODE = 0o600
TOO_LARGE = 2
"""A message that is so many times larger than the limit is refused before it is received, by gRPC itself."""
IDLE_MS = 300_000
"""A connection without calls is closed after this time."""

_SERVICES = tuple(service.full_name for service in pb.DESCRIPTOR.services_by_name.values())


class ApiServer:
    """``put`` takes a message for the control loop from any thread and never blocks. ``tokens``: of registrations.
    ``files``: that were read already. Raises ``InvalidInput`` for files that cannot be read."""

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
        self._refusals = Refusals(board.publish_refused)
        self._times = CallTimes(board.publish_call_times)
        limits = ConnectionLimits(
            config.max_connections,
            config.max_client_connections,
            config.silent_s,
            config.max_silent,
        )
        pace = Pace(
            config.max_client_bytes_per_s,
            config.max_client_calls_per_s,
            config.max_calls_per_s,
            config.max_client_connections,
            config.max_client_connections_per_s,
        )
        self._relay = Relay(limits, pace, self._refusals.add)
        board.replaced["relay"] = lambda: self._relay.replaced
        audit = AuditLog()
        self._gate = Gate(board, self.files.identities, config.socket_role, self._peer, audit)
        self._proxied_gate = Gate(board, self.files.identities, config.socket_role, proxied.peer, audit)
        self._services = Services(board, put, tokens)
        self._health = _HealthService()
        self._bound: Future[tuple[str, ...]] = Future()
        self._thread = threading.Thread(target=self._run, name="grpc-api", daemon=True)
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

    def _replace(self, identities: Identities | None) -> None:
        """From any thread, also before the server has started."""
        with suppress(RuntimeError):  # it has stopped
            for gate in (self._gate, self._proxied_gate):
                self._loop.call_soon_threadsafe(gate.replace, identities)

    def _peer(self, context: Context) -> Peer:
        return peer_of(self._relay.name(context.peer()), context.auth_context())

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
        config = self._config
        with private_directory("api") as directory:
            listeners = listening.bind(config, directory)
            calls = Calls(config, self._relay, self._refusals, self._times, self._gate.name)
            server = grpc.aio.server(interceptors=(calls,), options=_options(config, TOO_LARGE))
            servers = [server]
            ticking = asyncio.create_task(calls.run())
            try:
                await self._add_services(server, self._gate)
                for listener in {listener.backend: listener for listener in listeners}.values():
                    _add_backend(server, listener, self.files.certificates.credentials)
                if config.proxy_socket:
                    servers.append(await self._proxied_server(config.proxy_socket))
                for one in servers:
                    await one.start()
                if listeners:
                    self._relay.listen(listeners)
                addresses = tuple(dict.fromkeys(listener.address for listener in listeners))
                self._bound.set_result(addresses)
                log.info("API listens", addresses=addresses, proxy_socket=str(config.proxy_socket or ""))
                await self._stopped(ticking, servers)
                self._services.stop_waiting()
                await self._health.end()
            finally:
                self._relay.stop_listening()
                listening.release(listeners)
                await asyncio.gather(*(one.stop(self._grace_s) for one in servers))
                await self._relay.close()
                self._services.close()
                ticking.cancel()

    async def _proxied_server(self, path: Path) -> grpc.aio.Server:
        """Make the server for calls from HAProxy. Raises ``OSError`` when its socket cannot be made."""
        around = proxied.Around(self._config, self._times, self._proxied_gate.name)
        server = grpc.aio.server(interceptors=(around,), options=_options(self._config, 1))
        await self._add_services(server, self._proxied_gate)
        listening.make_room(path)
        try:
            server.add_insecure_port(f"unix:{path}")
        except RuntimeError as error:
            raise OSError(errno.EADDRNOTAVAIL, f"cannot listen on unix:{path}: {error}") from None
        path.chmod(listening.proxy_mode(path))
        return server

    async def _stopped(self, ticking: asyncio.Task[None], servers: Sequence[grpc.aio.Server]) -> None:
        """Wait for ``stop``. Raises the error of the task that limits calls, or of a gRPC server that ended by itself:
        no call would be served any more, and nobody would know."""
        stopping = asyncio.create_task(self._stopping.wait())
        ended = {asyncio.create_task(server.wait_for_termination()) for server in servers}
        done, _ = await asyncio.wait({stopping, ticking, *ended}, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
        if ended & done and stopping not in done:
            raise RuntimeError("gRPC's server has ended by itself")

    async def _add_services(self, server: grpc.aio.Server, gate: Gate) -> None:
        guarded: Any = GuardedServer(server, gate.behind)
        pb_grpc.add_JobServiceServicer_to_server(self._services, guarded)  # type: ignore[no-untyped-call]
        pb_grpc.add_ControllerServiceServicer_to_server(self._services, guarded)  # type: ignore[no-untyped-call]
        health_pb2_grpc.add_HealthServicer_to_server(self._health, guarded)
        names = (*_SERVICES, health.SERVICE_NAME, reflection.SERVICE_NAME)
        add_reflection(reflection.aio.ReflectionServicer(names), guarded)  # type: ignore[no-untyped-call]
        guarded.refuse_other_methods()
        for name in names:
            await self._health.set(name, health_pb2.HealthCheckResponse.SERVING)


def _add_backend(server: grpc.aio.Server, listener: Listener, credentials: grpc.ServerCredentials | None) -> None:
    """Unix sockets are never encrypted."""
    address = f"unix:{listener.backend}"
    if credentials and not listener.is_unix:
        server.add_secure_port(address, credentials)
    else:
        server.add_insecure_port(address)
    os.chmod(listener.backend, BACKEND_MODE)


def _options(config: ApiConfig, too_large: int) -> tuple[tuple[str, int], ...]:
    """What gRPC limits by itself. Its own limit for pings is kept: a client that sends more than two without need is
    disconnected. ``too_large``: how many times larger than the limit a message has to be for gRPC to refuse it;
    ``calls`` refuses those below, with details."""
    return (
        ("grpc.max_receive_message_length", too_large * config.max_message_bytes),
        # Identity only: bytes are limited as they come, and 600 bytes of gzip can be a job that takes a second.
        ("grpc.compression_enabled_algorithms_bitset", 1),
        # Beyond it a client would wait without a word; ``calls`` refuses before.
        ("grpc.max_concurrent_streams", config.max_client_calls + config.max_client_streams + 100),
        # A connection that sends no HTTP/2 settings.
        ("grpc.server_handshake_timeout_ms", round(1000 * config.silent_s)),
        # Clients connect again without an error.
        ("grpc.max_connection_idle_ms", IDLE_MS),
        # A watcher whose host died without closing its connection is noticed.
        ("grpc.keepalive_time_ms", 30_000),
        ("grpc.keepalive_timeout_ms", 10_000),
    )


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
