"""Link between each member's southbound and the leader: one gRPC stream of packets per member, at ``members.api``.

In: packets, which this module does not interpret. Out: the same packets at the other end, in order. An end that has
nothing to send sends empty packets; if nothing arrives for the duration of a lease, the other end or the connection has
failed.

A header field of the member names the packet formats that it reads. The leader chooses the newest common one, or
refuses the link. While etcd cannot be reached, a member keeps its link as long as the leader answers.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from typing import Any, Protocol

import grpc
import structlog

from controller.api.errors import TooSlow
from controller.api.files import Certificates
from controller.api.forwarding import Channel, channel_to, obstacle
from controller.api.guard import Context, errors_answered, freed
from controller.api.peers import Peer, direct_peer, forwarded_peer
from controller.link.codec import Refused
from controller.log_limit import LimitedLog
from controller.store.members import LINK_FORMATS, Member, Membership, common_format
from signalbox.errors import Conflict, Unauthenticated

log = structlog.get_logger(__name__)
limited_log = LimitedLog(log, period_s=60)

SERVICE, METHOD = "signalbox.members.Southbound", "Link"
MEMBER = "signalbox-member"
"""Header field with the member whose southbound opens the link, as NAME/ID."""
FORMATS = "signalbox-link-formats"
"""Header field with the oldest and the newest packet format that the member can read, as OLDEST-NEWEST."""
LIVES_S = 1.0
"""Seconds without a packet after which an empty one is sent."""
LOOK_S = 0.1
"""Seconds between two checks of which member leads, and between two attempts to link to it."""

Packets = asyncio.Queue[bytes | None]
"""Queue of packets to send; None ends the link."""


class Link(Protocol):
    """Leader's end of a link, as in ``link.ends``."""

    def begin(self) -> None: ...
    def received(self, data: bytes) -> None: ...
    def close(self) -> None: ...


NewLink = Callable[[str, Callable[[bytes], None], int], Link]
"""Function that returns the leader's end of a new link.

Its arguments are the member as NAME/ID, a function that queues a packet for the member, and the packet format."""


class Southbound(Protocol):
    """Southbound of this member.

    ``link``: function that the ``LeaderLink`` sets, and that a thread of the southbound calls with each packet for the
    leader. If the southbound could not read a packet of the leader, it calls ``link`` with None, which ends the
    link."""

    link: Callable[[bytes | None], None]

    def write(self, packet: bytes, /) -> None: ...
    def broken(self) -> None: ...


def _dropped(packet: bytes | None) -> None: ...


def _queue() -> tuple[Packets, Callable[[bytes | None], None]]:
    """Return a queue, and a function that adds to it from any thread."""
    loop, packets = asyncio.get_running_loop(), Packets()

    def write(packet: bytes | None) -> None:
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(packets.put_nowait, packet)

    return packets, write


async def _send(packets: Packets, write: Callable[[bytes], Any]) -> None:
    """Send the packets, and empty ones while there are none, until None is in the queue."""
    while True:
        try:
            packet = await asyncio.wait_for(packets.get(), LIVES_S)
        except TimeoutError:
            packet = b""
        if packet is None:
            return
        await write(packet)


async def _receive(
    read: Callable[[], Any], silent_s: float | None, received: Callable[[bytes], Awaitable[None]]
) -> None:
    """Receive packets until the stream ends. Raises ``TimeoutError`` after ``silent_s``, if any, without a packet."""
    while (packet := await asyncio.wait_for(read(), silent_s)) is not grpc.aio.EOF:
        if packet:
            await received(packet)


async def _end(*tasks: asyncio.Task[Any]) -> None:
    """Cancel the tasks, and wait for them up to ``LIVES_S``: gRPC may never end a call over a broken connection."""
    for task in tasks:
        task.cancel()
    done, _ = await asyncio.wait(tasks, timeout=LIVES_S)
    for task in done:
        if not task.cancelled():
            task.exception()  # asyncio would log it otherwise


async def _exchange(
    packets: Packets,
    write: Callable[[bytes], Any],
    read: Callable[[], Any],
    silent_s: float | None,
    received: Callable[[bytes], Awaitable[None]],
) -> None:
    """Send and receive until the other end ends the stream.

    Raises the exception that ended either direction."""
    sending = asyncio.create_task(_send(packets, write))
    receiving = asyncio.create_task(_receive(read, silent_s, received))
    try:
        done, _ = await asyncio.wait({sending, receiving}, return_when=asyncio.FIRST_COMPLETED)
        packets.put_nowait(None)  # gRPC sends no status for a call with a write that was cancelled
        await asyncio.wait({sending}, timeout=LIVES_S)
        for task in done:
            task.result()
        if sending in done:
            raise Refused("cannot read a packet from the leader, which may run another version of Signalbox")
    finally:
        await _end(sending, receiving)


# ---- leader


def add_links(
    server: grpc.aio.Server,
    new_link: NewLink,
    names: Collection[str],
    is_leader: Callable[[], bool],
    silent_s: float,
) -> None:
    """Make the server accept links of members. ``names`` and ``is_leader``: see ``MemberPort``."""

    async def answer(_requests: object, context: Context) -> None:
        async with errors_answered(METHOD, context):
            forwarded_peer(names, is_leader, context)
            packets, write = _queue()
            fields = dict(context.invocation_metadata() or ())
            member, form = str(fields.get(MEMBER, "")), _common_format(str(fields.get(FORMATS, "1-1")))
            _refuse_another(member, names, direct_peer(context))
            link = new_link(member, write, form)

            async def received(packet: bytes) -> None:
                # In a thread: the rules of a switch may take a tenth of a second to read.
                await asyncio.to_thread(link.received, packet)

            log.info("the southbound of a member is linked", member=ascii(member), format=form)
            try:
                link.begin()
                await _exchange(packets, context.write, context.read, silent_s, received)
            except TimeoutError:
                raise TooSlow(f"nothing arrived for {silent_s:g} s") from None
            finally:
                link.close()
                log.info("the southbound of a member is no longer linked", member=ascii(member))

    handler: Any = grpc.stream_stream_rpc_method_handler(freed(answer))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {METHOD: handler}),))


def _refuse_another(member: str, names: Collection[str], peer: Peer) -> None:
    """Raise ``Unauthenticated`` if the member's name is in ``names`` and not in the member's certificate.

    ``names``: names that members' certificates may have. A member whose name is in ``names`` cannot use the certificate
    of another member. Members whose names are not in ``names`` may share a certificate."""
    name = member.partition("/")[0]
    if not peer.socket and name in names and name not in peer.names:
        shown = ascii(", ".join(peer.names))
        raise Unauthenticated(f"the link of member {name!a} needs a certificate with this name; this one has {shown}")


def _common_format(formats: str) -> int:
    """Return the newest packet format that this leader and the member can read.

    Raises ``Conflict`` if none exists. ``formats``: value of the header field ``FORMATS``."""
    oldest, _, newest = formats.partition("-")
    theirs = (int(oldest), int(newest)) if oldest.isdigit() and newest.isdigit() else (0, 0)
    if form := common_format(theirs, LINK_FORMATS):
        return form
    ours = "{}-{}".format(*LINK_FORMATS)
    raise Conflict(
        f"this member holds no switches, because its version and the leader's are too far apart: it reads the formats "
        f"{formats!a} of the link, and the leader {ours}; upgrade the older one"
    )


# ---- member


class LeaderLink:
    """Link of this member's southbound to the leader of the moment. ``silent_s``: duration of a lease."""

    def __init__(
        self, membership: Membership, certificates: Certificates, southbound: Southbound, silent_s: float
    ) -> None:
        self._membership = membership
        self._certificates = certificates
        self._southbound = southbound
        self._silent_s = silent_s
        self._heard_at = 0.0
        """Monotonic time of the latest packet of the leader, or of the start of the link."""
        self._ending: set[asyncio.Task[None]] = set()
        """Tasks that wait for the end of earlier links; asyncio itself does not keep them."""

    async def run(self) -> None:
        """Keep a link to the leader until the task is cancelled."""
        while True:
            leader = self._membership.leader()
            if leader and not obstacle(leader, self._membership.own, self._certificates):
                try:
                    await self._follow(leader)
                except Exception as error:
                    why = error.details() if isinstance(error, grpc.aio.AioRpcError) else str(error) or repr(error)
                    limited_log.warning("the link to the leader is broken", leader=leader.name, why=why)
            await asyncio.sleep(LOOK_S)

    async def _follow(self, leader: Member) -> None:
        """Keep the link to this leader until another member leads. Raises an exception when the link breaks."""
        channel = channel_to(leader.api, self._certificates.newest)
        self._heard_at = time.monotonic()
        relaying = asyncio.create_task(self._relay(channel))
        try:
            while not relaying.done() and (self._membership.leader() or leader) == leader:
                await asyncio.wait({relaying}, timeout=LOOK_S)
                if time.monotonic() > self._heard_at + self._silent_s:
                    raise TimeoutError(f"no packet has arrived for {self._silent_s:g} s")
            if relaying.done():
                relaying.result()
        finally:
            self._southbound.link = _dropped  # the task may go on
            self._southbound.broken()
            ending = asyncio.create_task(_end(relaying))
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)
            await channel.close()

    async def _relay(self, channel: Channel) -> None:
        begin: Any = channel.stream_stream(f"/{SERVICE}/{METHOD}")
        own = self._membership.own
        call = begin(metadata=((MEMBER, f"{own.name}/{own.id}"), (FORMATS, "{}-{}".format(*own.link))))
        packets, write = _queue()
        self._southbound.link = write

        async def read() -> Any:
            packet = await call.read()
            self._heard_at = time.monotonic()
            return packet

        async def received(packet: bytes) -> None:
            if self._southbound.link is write:
                self._southbound.write(packet)

        await _exchange(packets, call.write, read, None, received)
        raise ConnectionError(f"the leader has ended the link: {await call.details()}")
