"""API of the active controller: its services behind the gate and the guard, and the health service.

In addition to the servers for clients (``servers``), one server receives the calls that standbys forward
(``forwarding``). Only that server trusts the header fields that members set.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection
from grpc_reflection.v1alpha.reflection_pb2_grpc import add_ServerReflectionServicer_to_server as add_reflection

from controller.api import listening
from controller.api.audit import AuditLog
from controller.api.call_times import CallTimes
from controller.api.files import ApiFiles, Certificates
from controller.api.gate import Debts, Gate
from controller.api.guard import GuardedServer
from controller.api.identities import Identities
from controller.api.leader_link import NewLink, add_links
from controller.api.lease_tokens import LeaseTokens
from controller.api.peers import direct_peer, forwarded_peer, proxied_peer
from controller.api.servers import MOST_CALLS, Servers
from controller.api.services import Services
from controller.config import ApiConfig
from controller.link.codec import MOST_BYTES
from controller.planning.messages import Request
from controller.status import StatusBoard
from signalbox.v1 import signalbox_pb2 as pb
from signalbox.v1 import signalbox_pb2_grpc as pb_grpc

LAST_STATUS_S = 0.2
"""Seconds for which a stopping server waits until health watchers have received the last status, ``NOT_SERVING``."""

_SERVICES = tuple(service.full_name for service in pb.DESCRIPTOR.services_by_name.values())


class MemberPort(NamedTuple):
    """Server at which the active controller receives the calls and links of other members."""

    address: str
    certificates: Certificates
    """TLS for an address ``HOST:PORT``; a Unix socket has none."""
    names: frozenset[str]
    """Names of members; the certificate of a member must have one of them."""
    is_leader: Callable[[], bool]
    """Function that returns False while another controller may be active; calls are then refused."""
    new_link: NewLink | None = None
    """Function that makes the leader's end of a link to a member's southbound; None if there are no links."""
    silent_s: float = 3.0
    """Seconds without a packet after which the link to a member's southbound ends."""


class ApiServer(Servers):
    """API server.

    ``put``: queues a message for the control loop; any thread may call it, and it never blocks. ``tokens``: lease
    tokens. ``files``: files that were already read; None to read them here. ``members``: server for other members.
    Raises ``InvalidInput`` for files that cannot be read."""

    def __init__(
        self,
        config: ApiConfig,
        board: StatusBoard,
        put: Callable[[Request], None],
        tokens: LeaseTokens,
        files: ApiFiles | None = None,
        members: MemberPort | None = None,
    ) -> None:
        super().__init__(config, files or ApiFiles(config))
        self.files.replaced = self._replace
        self._members = members
        self._times = CallTimes(partial(setattr, board, "call_times"))
        of_all = Debts(config.max_client_calls_per_s), AuditLog()
        identities = self.files.identities
        self._gate = Gate(board, identities, config.socket_role, direct_peer, *of_all)
        self._proxied_gate = Gate(board, identities, config.socket_role, proxied_peer, *of_all)
        self._gates = [self._gate, self._proxied_gate]
        if members:
            peer = partial(forwarded_peer, members.names, members.is_leader)
            self._gates.append(Gate(board, identities, config.socket_role, peer, *of_all))
        self._services = Services(board, put, tokens)
        self._health = _HealthService()

    def _replace(self, identities: Identities | None) -> None:
        """Put new identities in force. Any thread may call this, even before the server has started."""
        with suppress(RuntimeError):  # the server has stopped
            for gate in self._gates:
                self._loop.call_soon_threadsafe(gate.replace, identities)

    async def _serve(self) -> None:
        try:
            await super()._serve()
        finally:
            self._services.close()

    async def _end(self) -> None:
        self._services.stop_waiting()
        await self._health.end()

    async def _listen(self, servers: list[grpc.aio.Server]) -> tuple[str, ...]:
        addresses = await super()._listen(servers)
        if members := self._members:
            # A member has one connection for all of its clients.
            server = self._new_server(servers, MOST_CALLS, max(MOST_BYTES, self._config.max_message_bytes))
            if members.new_link:
                add_links(server, members.new_link, members.names, members.is_leader, members.silent_s)
            await self._add_services(server, self._gates[-1])
            if path := listening.socket_path(members.address):
                listening.add_socket(server, path, 0o600)
            else:
                listening.add_tcp(server, members.address, members.certificates.for_server())
        return addresses

    async def _add_handlers(self, server: grpc.aio.Server, proxied: bool) -> None:
        await self._add_services(server, self._proxied_gate if proxied else self._gate)

    async def _add_services(self, server: grpc.aio.Server, gate: Gate) -> None:
        guarded: Any = GuardedServer(server, gate.behind, self._times, self._config.silent_s)
        pb_grpc.add_JobServiceServicer_to_server(self._services, guarded)  # type: ignore[no-untyped-call]
        pb_grpc.add_ControllerServiceServicer_to_server(self._services, guarded)  # type: ignore[no-untyped-call]
        health_pb2_grpc.add_HealthServicer_to_server(self._health, guarded)
        names = (*_SERVICES, health.SERVICE_NAME, reflection.SERVICE_NAME)
        add_reflection(reflection.aio.ReflectionServicer(names), guarded)  # type: ignore[no-untyped-call]
        guarded.refuse_other_methods()
        for name in names:
            await self._health.set(name, health_pb2.HealthCheckResponse.SERVING)


class _HealthService(health.aio.HealthServicer):
    """Health service that first reports to its watchers that the server stops, and then ends their calls.

    With gRPC's own health service, the stopping server would cancel each of these calls with a traceback in the log."""

    def __init__(self) -> None:
        super().__init__()
        self._ended = asyncio.Event()

    async def Watch(self, request: health_pb2.HealthCheckRequest, context: Any) -> None:  # noqa: N802
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
