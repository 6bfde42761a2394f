"""API of a standby: forwards each call to the leader, and returns the leader's answer unchanged.

In: calls at the configured addresses, and the membership. Out: the same bytes, metadata, deadline and status at the
leader's ``members.api``, with header fields that name the caller (``peers``). All methods are forwarded alike. Only the
leader listens at ``members.api``, so a call is forwarded at most once.

The leader, which holds the claim in etcd, refuses calls as soon as its claim may have ended. The standby ends all calls
to the leader when another member has the claim, or when etcd could not be read for the duration of a lease.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import structlog

from controller.api import listening
from controller.api.errors import NoLeader
from controller.api.files import ApiFiles, Certificates, TlsContents
from controller.api.guard import Context, errors_answered, freed, task_of_call
from controller.api.listening import socket_path
from controller.api.peers import PREFIX, Peer, direct_peer, fields_of, proxied_peer
from controller.api.servers import Servers
from controller.config import ApiConfig
from controller.log_limit import LimitedLog
from controller.store.members import Member, Membership
from signalbox.files import of_another_user

log = structlog.get_logger(__name__)
limited_log = LimitedLog(log)

FOLLOW_S = 0.25
"""Seconds between two checks of which member leads. Each new reading of etcd causes a further check."""

_DETAILS = "grpc-status-details-bin"
"""Key in the trailing metadata of an error that the API has sent. Errors that gRPC itself makes do not have it."""

_OWN_FIELDS = ("user-agent", "grpc-", PREFIX)
"""Prefixes of header fields that are not forwarded. gRPC or this module sets such fields itself."""

_OPTIONS = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
)

Channel = grpc.aio.Channel
Call = grpc.aio.StreamStreamCall[Any, Any]


class _Link(NamedTuple):
    leader: Member
    tls: TlsContents | None
    channel: Channel
    calls: set[Call]


class Forwarder(Servers):
    """API of a standby. ``certificates``: TLS between members. ``beside``: coroutine to run while the API is served."""

    def __init__(
        self,
        config: ApiConfig,
        files: ApiFiles,
        membership: Membership,
        certificates: Certificates,
        beside: Callable[[], Coroutine[Any, Any, None]] | None = None,
    ) -> None:
        super().__init__(config, files)
        self._beside = beside
        self._membership = membership
        self._certificates = certificates
        self._link: _Link | None = None
        self._changed = asyncio.Event()

    def look(self) -> None:
        """Check at once which member leads. Any thread may call this."""
        with suppress(RuntimeError):  # the servers have stopped
            self._loop.call_soon_threadsafe(self._changed.set)

    async def _listen(self, servers: list[grpc.aio.Server]) -> tuple[str, ...]:
        addresses = await super()._listen(servers)
        if own := self._membership.own.api:
            listening.refuse_unusable(own)  # report a mistake now, and not when this controller takes over
        return addresses

    async def _serve(self) -> None:
        tasks = [asyncio.create_task(run()) for run in (self._follow, self._beside) if run]
        try:
            await super()._serve()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _add_handlers(self, server: grpc.aio.Server, proxied: bool) -> None:
        server.add_generic_rpc_handlers((_EveryMethod(self._forward, proxied_peer if proxied else direct_peer),))

    async def _end(self) -> None:
        await self._unlink()

    # ---- the leader

    async def _follow(self) -> None:
        while True:
            try:
                await self._follow_leader()
            except Exception:
                limited_log.exception("cannot connect to the leader because of an unexpected error")
                self._link = None
            with suppress(TimeoutError):
                async with asyncio.timeout(FOLLOW_S):
                    await self._changed.wait()
            self._changed.clear()

    async def _follow_leader(self) -> None:
        leader, tls = self._membership.leader(), self._certificates.newest
        if leader is None or self._obstacle(leader):
            await self._unlink()
        elif self._link is None or (self._link.leader, self._link.tls) != (leader, tls):
            await self._unlink()
            self._link = _Link(leader, tls, channel_to(leader.api, tls), set())
            log.info("forwarding calls", leader=leader.name, address=leader.api)

    async def _unlink(self) -> None:
        link, self._link = self._link, None
        if link:
            for call in link.calls:
                call.cancel()
            await link.channel.close()

    def _obstacle(self, leader: Member) -> str:
        return obstacle(leader, self._membership.own, self._certificates)

    def _no_link(self) -> NoLeader:
        members = self._membership.newest
        if (leader := self._membership.leader()) is None:
            is_old = members.leader is not None or not members.all  # the latest reading has a leader, or there is none
            why = "and etcd does not answer" if is_old else "and no controller is active, or etcd does not answer"
        else:
            why = self._obstacle(leader) or f"and is connecting to the active one, {leader.name}"
        return NoLeader(f"the controller stands by, {why}; retry later")

    # ---- calls

    async def _forward(self, method: str, peer_of: Callable[[Context], Peer], context: Context) -> None:
        async with errors_answered(method.rpartition("/")[2], context):
            if (link := self._link) is None:
                raise self._no_link()
            caller = fields_of(peer_of(context), self._config.socket_role)
            metadata = grpc.aio.Metadata(*filter(_is_forwarded, context.invocation_metadata() or ()), *caller)
            begin: Any = link.channel.stream_stream(method)
            call: Call = begin(_requests(context), timeout=context.time_remaining(), metadata=metadata)
            link.calls.add(call)
            try:
                await _relay_answers(call, context)
            except grpc.aio.AioRpcError as error:
                trailers = tuple(error.trailing_metadata() or ())
                if error.code() is grpc.StatusCode.UNAVAILABLE and all(key != _DETAILS for key, _ in trailers):
                    why = f"the controller stands by, and the active one, {link.leader.name}, does not answer"
                    raise NoLeader(f"{why}: {error.details()}") from None
                await context.abort(error.code(), error.details() or "", trailers)
            except asyncio.CancelledError:
                if link is self._link or task_of_call().cancelling():
                    raise
                raise NoLeader("the controller that answered this call is no longer active; retry later") from None
            finally:
                link.calls.discard(call)
                call.cancel()


def obstacle(leader: Member, own: Member, certificates: Certificates) -> str:
    """Return the reason why calls cannot be forwarded to the leader; empty if they can.

    The reason completes the sentence "the controller stands by, ..."."""
    if leader.id == own.id:
        return "but takes over now"
    if not leader.api:
        return f"and the active one, {leader.name}, has no members.api: call it directly"
    if (path := socket_path(leader.api)) and _is_of_another_user(path):
        return f"and {path}, the socket of the active one, {leader.name}, belongs to another user"
    if not path and certificates.newest is None:
        return f"and has no members.certificate to call the active one at {leader.api}: call it directly"
    return ""


class _EveryMethod(grpc.GenericRpcHandler):
    """Handler of all methods, which treats the requests and answers of every method as streams of bytes."""

    def __init__(self, forward: Callable[..., Any], peer_of: Callable[[Context], Peer]) -> None:
        self._forward = forward
        self._peer_of = peer_of

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        method: str = handler_call_details.method

        async def answer(_requests: object, context: Context) -> None:
            await self._forward(method, self._peer_of, context)

        return grpc.stream_stream_rpc_method_handler(freed(answer))


def _is_of_another_user(path: Path) -> bool:
    """Return whether the socket at this path belongs to another user; the path comes from etcd and may be wrong."""
    try:
        return of_another_user(path) is not None
    except OSError:
        return False  # the socket does not exist yet; gRPC retries until it does


def _is_forwarded(field: tuple[str, str | bytes]) -> bool:
    """Return whether to forward a header field of the client; gRPC would log a field with control characters."""
    key, value = field
    return not key.startswith(_OWN_FIELDS) and (isinstance(value, bytes) or (value.isascii() and value.isprintable()))


async def _requests(context: Context) -> AsyncIterator[bytes]:
    while (data := await context.read()) is not grpc.aio.EOF:
        yield data


async def _relay_answers(call: Call, context: Context) -> None:
    """Send the call's answers, and its initial and trailing metadata, to the client.

    Raises ``grpc.aio.AioRpcError``."""
    answer = await call.read()
    await context.send_initial_metadata(tuple(await call.initial_metadata()))
    while answer is not grpc.aio.EOF:
        await context.write(answer)
        answer = await call.read()
    context.set_trailing_metadata(tuple(await call.trailing_metadata()))


def channel_to(address: str, tls: TlsContents | None) -> Channel:
    """Return a connection to the leader."""
    if socket_path(address):
        return grpc.aio.insecure_channel(address, _OPTIONS)
    assert tls, "the configuration requires certificates"
    return grpc.aio.secure_channel(address, tls.for_client(), _OPTIONS)
