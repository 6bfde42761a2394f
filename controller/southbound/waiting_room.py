"""Connections of switches to a standby, so that the switches connect soon when it becomes active.

Open vSwitch waits up to 8 s between two attempts to connect to a controller that it has not reached since its start.
Its setting ``max_backoff`` applies only afterwards. A standby therefore answers hellos and echo requests, and asks for
no other messages. It has no role and changes nothing. When the connections end, the switches connect again.
"""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import structlog

from controller.config import OpenFlowConfig
from controller.southbound.framework import ofp
from controller.southbound.openflow_framing import Malformed, Splitter, message
from controller.tls import TlsContext

log = structlog.get_logger(__name__)

CHUNK = 1 << 12
SILENT_S = 60.0
"""Seconds without a message after which a connection ends."""
NO_MESSAGES = message(ofp.OFPT_SET_ASYNC, bytes(24))
"""Request for no packets, port changes and removed flows (OpenFlow 1.3.5 section 7.3.10)."""


@contextmanager
def waiting_room(openflow: OpenFlowConfig, tls: TlsContext) -> Iterator[None]:
    """Accept switches while the context lasts. A port that cannot be listened on is left alone.

    Another controller on the same machine may use the port."""
    room = _Room(openflow, tls.current)
    thread = threading.Thread(target=lambda: asyncio.run(room.run()), name="waiting-room", daemon=True)
    thread.start()
    try:
        yield
    finally:
        room.close()
        thread.join()


class _Room:
    def __init__(self, openflow: OpenFlowConfig, tls: ssl.SSLContext | None) -> None:
        self._openflow = openflow
        self._tls = tls
        self._closing = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed: asyncio.Event | None = None
        self._connections: set[asyncio.Task[None]] = set()

    def close(self) -> None:
        """End everything; any thread may call it."""
        self._closing.set()
        if self._loop and self._closed:
            with suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._closed.set)

    async def run(self) -> None:
        self._closed, self._loop = asyncio.Event(), asyncio.get_running_loop()
        try:
            server = await asyncio.start_server(
                self._accept, self._openflow.host, self._openflow.port, ssl=self._tls, limit=CHUNK
            )
        except OSError as error:
            log.info("the standby does not listen for switches", why=error.strerror or str(error))
            return
        async with server:
            if not self._closing.is_set():
                await self._closed.wait()
        for connection in tuple(self._connections):
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        if len(self._connections) >= self._openflow.max_connections:
            writer.close()
            return
        self._connections.add(task)
        try:
            await _keep(reader, writer)
        except (OSError, Malformed, TimeoutError, asyncio.CancelledError):
            pass
        finally:
            self._connections.discard(task)
            writer.transport.abort()


async def _keep(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer a switch until it ends the connection, or is silent for ``SILENT_S``."""
    splitter = Splitter()
    writer.write(message(ofp.OFPT_HELLO))
    while data := await asyncio.wait_for(reader.read(CHUNK), SILENT_S):
        for frame in splitter.feed(data):
            if frame.kind == ofp.OFPT_HELLO:
                writer.write(NO_MESSAGES)
            elif frame.kind == ofp.OFPT_ECHO_REQUEST:
                writer.write(message(ofp.OFPT_ECHO_REPLY, frame.body, frame.xid))
        await asyncio.wait_for(writer.drain(), SILENT_S)
