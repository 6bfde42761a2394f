"""Thread with an asyncio loop, in which gRPC servers listen at the configured addresses of the API.

Calls from HAProxy arrive at a second server. Only that server trusts HAProxy's header fields (``peers``).
"""

from __future__ import annotations

import asyncio
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable
from concurrent.futures import Future
from contextlib import suppress

import grpc
import structlog

from controller.api import guard, listening
from controller.api.files import ApiFiles
from controller.config import ApiConfig

log = structlog.get_logger(__name__)

MOST_CALLS = 8192
"""Largest number of concurrent calls and streams of each server. gRPC refuses more."""
IDLE_MS = 300_000
"""Milliseconds after which a connection without calls is closed."""
STOP_S = 2.0
"""Seconds that gRPC may take to end the calls after the grace is over.

A standby stops its own servers before it takes over, so this time must be short."""
SUMMARY_EVERY_S = 1.0
"""Seconds between summaries of the log lines that were left out."""


class Servers(ABC):
    """Servers of the API, which run in a thread of their own. ``files``: contents of the API's files."""

    def __init__(self, config: ApiConfig, files: ApiFiles) -> None:
        self._config = config
        self.files = files
        self._loop = asyncio.new_event_loop()
        self._bound: Future[tuple[str, ...]] = Future()
        self._thread = threading.Thread(target=self._run, name="grpc-api", daemon=True)
        self._stopping = asyncio.Event()
        self._grace_s = 0.0

    @abstractmethod
    async def _add_handlers(self, server: grpc.aio.Server, proxied: bool) -> None:
        """Add the handlers of all methods to a server for clients.

        ``proxied``: whether its calls are from HAProxy."""

    @abstractmethod
    async def _end(self) -> None:
        """End the calls that wait; called before the servers stop."""

    def start(self) -> tuple[str, ...]:
        """Start serving, and return the addresses with the ports that were chosen for port 0.

        Raises ``OSError`` and serves no address if one of the configured addresses cannot be bound."""
        self._thread.start()
        return self._bound.result()

    def stop(self, grace_s: float = 1.0) -> None:
        """Refuse new calls, cancel running calls after ``grace_s`` seconds, and return when all are closed."""
        self._grace_s = grace_s
        with suppress(RuntimeError):  # a closed loop needs no wake-up
            self._loop.call_soon_threadsafe(self._stopping.set)
        if self._thread.ident is not None:
            self._thread.join()
        self._loop.close()

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
            self._loop.run_until_complete(_end_tasks())
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
            log.info("API listens", addresses=addresses, proxy_socket=str(self._config.proxy_socket or ""))
            self._bound.set_result(addresses)
            await self._wait_for_stop(servers)
            await self._end()
        finally:
            summaries.cancel()
            if stops := [asyncio.create_task(server.stop(self._grace_s)) for server in servers]:
                await asyncio.wait(stops, timeout=self._grace_s + STOP_S)

    async def _listen(self, servers: list[grpc.aio.Server]) -> tuple[str, ...]:
        """Make the servers without starting them, and return the addresses for clients. Raises ``OSError``."""
        config, addresses = self._config, []
        server = self._new_server(servers, config.max_client_calls + config.max_client_streams)
        await self._add_handlers(server, proxied=False)
        for address in config.listen:
            if path := listening.socket_path(address):
                listening.add_socket(server, path, int(config.socket_mode, 8))
                addresses.append(address)
            elif config.proxy_socket is None:  # otherwise HAProxy listens there
                addresses.append(listening.add_tcp(server, address, self.files.certificates.for_server()))
        if path := config.proxy_socket:
            server = self._new_server(servers, config.max_client_calls + config.max_client_streams)
            await self._add_handlers(server, proxied=True)
            listening.add_socket(server, path, listening.proxy_mode(path))
        return tuple(addresses)

    def _new_server(
        self, servers: list[grpc.aio.Server], streams: int, most_bytes: int | None = None
    ) -> grpc.aio.Server:
        """Add a server without handlers, and return it.

        ``streams``: largest number of concurrent calls of one connection. ``most_bytes``: largest size of a message
        in bytes; None: the configured size."""
        server = grpc.aio.server(
            options=_options(self._config, streams, most_bytes), maximum_concurrent_rpcs=MOST_CALLS
        )
        servers.append(server)
        return server

    async def _wait_for_stop(self, servers: Iterable[grpc.aio.Server]) -> None:
        """Wait until ``stop`` is called.

        Raises an error if a gRPC server ends before ``stop`` is called, because its clients would have no server."""
        stopping = asyncio.create_task(self._stopping.wait())
        ended = {asyncio.create_task(server.wait_for_termination()) for server in servers}
        done, _ = await asyncio.wait({stopping, *ended}, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
        if ended & done and stopping not in done:
            raise RuntimeError("the gRPC server has ended unexpectedly")


async def _end_tasks() -> None:
    """Cancel all tasks, and wait for them up to ``STOP_S``: gRPC may never end a call over a broken connection."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=STOP_S)


async def _summaries() -> None:
    while True:
        await asyncio.sleep(SUMMARY_EVERY_S)
        guard.log.summarise()


def _options(config: ApiConfig, streams: int, most_bytes: int | None) -> tuple[tuple[str, int], ...]:
    """Return the options of a gRPC server, most of which are limits.

    The limit of HTTP/2 pings keeps gRPC's default: more than two unnecessary pings end the connection."""
    return (
        # Fail when another process uses the port.
        ("grpc.so_reuseport", 0),
        ("grpc.max_receive_message_length", most_bytes or config.max_message_bytes),
        # Allow no compression: 600 bytes of gzip can be a job that takes a second to process.
        ("grpc.compression_enabled_algorithms_bitset", 1),
        # Limit the concurrent calls of one connection.
        ("grpc.max_concurrent_streams", streams),
        # Close a connection that does not complete the TLS handshake and the exchange of HTTP/2 settings in time.
        ("grpc.server_handshake_timeout_ms", round(1000 * config.silent_s)),
        # Close idle connections; clients connect again without an error.
        ("grpc.max_connection_idle_ms", IDLE_MS),
        # Detect a watcher whose host died without closing its connection.
        ("grpc.keepalive_time_ms", 30_000),
        ("grpc.keepalive_timeout_ms", 10_000),
    )
