"""The API's end of the relay: which connections may stay, and who is behind a call.

In: what the relay process tells of its connections, and gRPC's names for them. Out: decisions for the process, which is
replaced when it ends or does not answer; its connections end with it, and clients connect again. Runs in the API's
thread.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import secrets
import time
from collections.abc import Callable, Sequence
from multiprocessing.process import BaseProcess

import structlog

from controller import child
from controller.api.relay import accepting, channel
from controller.api.relay.accepting import Listener, Pace
from controller.api.relay.channel import (
    Accepted,
    Channel,
    Connect,
    End,
    Failed,
    Finish,
    FromProcess,
    Gone,
    LetIn,
    Opened,
    Ping,
    Punish,
    Refused,
    StopListening,
    ToProcess,
)
from controller.api.relay.connections import Connection, ConnectionLimits, Connections, Ended

log = structlog.get_logger(__name__)

STUCK = 10
"""A process that has left so many pings unanswered, one at each ``tick``, is replaced."""
STUCK_AT_START = 60
"""The same, before it has begun."""
FINISH_S = 3.0


class Relay:
    """``refused`` is called with a reason, the peer and more words, if there are any, for each connection that is ended
    here, or ended before its TLS handshake did. ``pace``: of what the process passes on. ``replaced``: processes that
    have ended although they should work."""

    def __init__(self, limits: ConnectionLimits, pace: Pace, refused: Callable[[str, str, str], None]) -> None:
        self.connections = Connections(limits)
        self.replaced = 0
        self._pace = pace
        self._refused = refused
        self._listeners: Sequence[Listener] = ()
        self._name = ""
        self._last_id = 0
        self._unanswered = 0
        self._process: BaseProcess | None = None
        self._channel: Channel[ToProcess, FromProcess]
        self._began = False  # the process has said something
        self._fault: ChildProcessError | None = None
        self._ended = asyncio.Event()
        self._ended.set()
        self._stopping = False

    def listen(self, listeners: Sequence[Listener]) -> None:
        """Accept from now on; the sockets stay the caller's. In the loop that runs. Raises ``OSError`` when no process
        can be started."""
        self._listeners = listeners
        self._begin()

    def stop_listening(self) -> None:
        self._stopping = True
        if self._process:
            self._channel.send(StopListening())

    async def close(self) -> None:
        """End all connections; what is left to send has a moment to leave."""
        self._stopping = True
        if self._process:
            self._channel.send(Finish())
        try:
            async with asyncio.timeout(FINISH_S):
                await self._ended.wait()
        except TimeoutError:
            self._end()

    def peer(self, grpc_peer: str) -> Connection | None:
        """The connection with this name in gRPC (``context.peer()``); None once it has ended."""
        prefix, _, number = grpc_peer.rpartition("/")
        if not number.isdigit() or not prefix.startswith(f"unix-abstract:{self._name}"):
            return None
        return self.connections.get(int(number))

    def name(self, grpc_peer: str) -> str:
        """Of the client behind it, in gRPC's form: ``ipv4:``, ``ipv6:`` or ``unix:`` before it; ``unknown:`` once its
        connection has ended."""
        connection = self.peer(grpc_peer)
        if connection is None:
            return "unknown:"
        if connection.peer.startswith("unix:"):
            return connection.peer
        return f"ipv6:{connection.peer}" if connection.peer.startswith("[") else f"ipv4:{connection.peer}"

    def end(self, connection: Connection, reason: str, why: str = "") -> None:
        """Break the connection off."""
        if self.connections.get(connection.id) is connection:
            self._refused(reason, connection.peer, why)
            self.connections.gone(connection)
            self._channel.send(End(connection.id))

    def let_in(self, connection: Connection) -> None:
        """Its caller is known: from now on it may send as much as its client may."""
        if not connection.let_in:
            connection.let_in = True
            self._channel.send(LetIn(connection.id))

    def punish(self, connection: Connection) -> None:
        """A call of the client was refused, which costs as much as one that is answered: it counts as many bytes, so
        that a client that goes on regardless is read from less and less."""
        self._channel.send(Punish(connection.id))

    def tick(self, now: float) -> None:
        """Ends connections that do nothing, and a process that does not answer, and starts another one for one that has
        ended; to be called every second or so, also so that a process that always ends is not started all the time.
        Raises ``ChildProcessError`` when the first process could not begin."""
        if self._fault:
            raise self._fault
        self._end_all(self.connections.overdue(now))
        if self._process and self._unanswered >= (STUCK if self._began else STUCK_AT_START):
            self._process.kill()
        elif self._process:
            self._unanswered += 1
            self._channel.send(Ping())
        elif self._listeners and not self._stopping:
            try:
                self._begin()
            except OSError as error:
                log.error("no relay process can be started", why=str(error))

    def _end_all(self, ended: Sequence[Ended]) -> None:
        for connection, reason in ended:
            self.end(connection, reason)

    # ---- the process

    def _begin(self) -> None:
        """Raises ``OSError``."""
        self._name = f"signalbox/{os.getpid()}-{secrets.token_hex(4)}/"
        ours, theirs = channel.pair()
        process = multiprocessing.get_context("spawn").Process(
            target=accepting.work,
            args=(theirs, self._listeners, self._pace, self._name, self._last_id + 1),
            name="relay",
            daemon=True,
        )
        try:
            with theirs, child.kept_from_child():
                process.start()
        except BaseException:
            ours.close()
            raise
        self._process, self._began, self._unanswered = process, False, 0
        self._channel = Channel(ours, self._take, self._process_ended)
        self._ended.clear()

    def _process_ended(self) -> None:
        why = f"the relay process ended with status {self._end()}"
        if self._stopping:
            return
        if not (self._began or self.replaced):
            self._fault = ChildProcessError(f"{why} before it could accept")
            return
        self.replaced += 1
        log.error("another relay process is started", why=why)

    def _end(self) -> int | None:
        """Its connections end with it. Returns its exit status."""
        process, self._process = self._process, None
        status = None
        if process:
            self._channel.close()
            process.join(0.1)
            process.kill()
            process.join()
            status = process.exitcode
        for connection in list(self.connections):
            self.connections.gone(connection)
        self._ended.set()
        return status

    def _take(self, message: FromProcess) -> None:
        now = time.monotonic()
        self._began, self._unanswered = True, 0
        match message:
            case Accepted(number, client, peer):
                self._last_id = number
                _, ended = self.connections.accepted(number, client, peer, now)
                self._end_all(ended)
            case Opened(number):
                if connection := self.connections.get(number):
                    self._end_all(self.connections.opened(connection, now))
                    if self.connections.get(number):
                        self._channel.send(Connect(number))
            case Gone(number):
                if connection := self.connections.get(number):
                    self.connections.gone(connection)
            case Refused(reason, peer, why):
                self._refused(reason, peer, why)
            case Failed(why):
                log.error("the relay has failed", why=why)
