"""A relay between a switch and its controller, which can drop the answers with port counters.

In: where it listens, the controller's port. Out: bytes passed on in both directions; what the switch sends message by
message.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from queue import Queue

from benchmarks.openflow_bytes import HEADER, Multipart, Type

KIND = struct.Struct("!H")
CHUNK = 1 << 16
START_S = 10.0


class Relay:
    """``drops_ports``: answers to requests for port counters do not pass. ``port``: it listens there, where no path was
    given."""

    def __init__(self, controller_port: int) -> None:
        self.drops_ports = False
        self.port = 0
        self._controller_port = controller_port
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, path: Path | None, listens: Callable[[Callable[[], object]], object]) -> None:
        """``listens`` is called with what ends it, from any thread."""
        if path:
            server: asyncio.Server = await asyncio.start_unix_server(self._accept, path)
        else:
            server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
            self.port = server.sockets[0].getsockname()[1]
        loop, ends = asyncio.get_running_loop(), asyncio.Event()
        async with server:
            listens(lambda: loop.call_soon_threadsafe(ends.set))
            await ends.wait()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._pass(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _pass(self, from_switch: asyncio.StreamReader, to_switch: asyncio.StreamWriter) -> None:
        """Until one of them ends the connection."""
        with closing(to_switch), suppress(OSError):
            from_controller, to_controller = await asyncio.open_connection("127.0.0.1", self._controller_port)
            with closing(to_controller):
                both = [self._up(from_switch, to_controller), self._down(from_controller, to_switch)]
                tasks = [asyncio.create_task(one) for one in both]
                try:
                    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for task in tasks:
                        task.cancel()
                    await asyncio.gather(*tasks, return_exceptions=True)

    async def _up(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = await reader.readexactly(HEADER.size)
            _, kind, length, _ = HEADER.unpack(head)
            body = await reader.readexactly(length - HEADER.size)
            about_ports = kind == Type.MULTIPART_REPLY and KIND.unpack_from(body)[0] == Multipart.PORT_STATS
            if not (self.drops_ports and about_ports):
                writer.write(head + body)
                await writer.drain()

    async def _down(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while chunk := await reader.read(CHUNK):
            writer.write(chunk)
            await writer.drain()


@contextmanager
def relay(controller_port: int, path: Path | None = None) -> Iterator[Relay]:
    """Running. ``path``: of a Unix socket to listen on; without it a free TCP port on loopback."""
    made = Relay(controller_port)
    listens: Queue[Callable[[], object]] = Queue()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(asyncio.run, made.run(path, listens.put))
        end = listens.get(timeout=START_S)
        try:
            yield made
        finally:
            end()
            running.result()
