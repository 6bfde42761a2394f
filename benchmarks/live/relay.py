"""Relays between switches or clients and the controller, which can cut this connection.

    python -m benchmarks.live.relay LISTEN TO    # each the path of a Unix socket, or a TCP port on loopback

This program passes bytes in both directions until it is stopped with SIGSTOP. While it is stopped, connections stay
open, but carry nothing. Its Unix socket still accepts many new connections. Its TCP port accepts ``BACKLOG`` new
connections; the SYN of a further connection gets no answer. ``relay`` runs the program.

``openflow_relay`` runs in a thread instead. It passes the messages of switches one by one, and can drop the answers
with port counters.
"""

import asyncio
import signal
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from queue import Queue

from benchmarks.openflow_bytes import HEADER, Multipart, Type
from mininet_topos.controller_process import start

BACKLOG = 2
CHUNK = 1 << 16
START_S = 10.0
KIND = struct.Struct("!H")


# ---- relay as a program


@contextmanager
def relay(listen: str, to: str) -> Iterator[int]:
    """Run a relay as a process, and yield its process id. It may take a moment until it listens."""
    process = start("benchmarks.live.relay", listen, to, stdin=subprocess.DEVNULL)
    try:
        yield process.pid
    finally:
        process.kill()
        process.wait()


@contextmanager
def stopped(send: Callable[[int, int], object], to: int) -> Iterator[None]:
    """Stop a process or a group with SIGSTOP while the block runs. ``send``: ``os.kill`` or ``os.killpg``."""
    send(to, signal.SIGSTOP)
    try:
        yield
    finally:
        send(to, signal.SIGCONT)


async def _serve(listen: str, to: str) -> None:
    async def accept(near: asyncio.StreamReader, to_near: asyncio.StreamWriter) -> None:
        with closing(to_near), suppress(OSError):
            tcp = to.isdigit()
            far, to_far = await (
                asyncio.open_connection("127.0.0.1", int(to)) if tcp else asyncio.open_unix_connection(to)
            )
            await asyncio.gather(_pass(near, to_far), _pass(far, to_near))

    tcp = listen.isdigit()
    server = await (
        asyncio.start_server(accept, "127.0.0.1", int(listen), backlog=BACKLOG)
        if tcp
        else asyncio.start_unix_server(accept, listen)
    )
    await server.serve_forever()


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy bytes until one side ends its connection; then end the other connection."""
    with closing(writer), suppress(OSError):
        while chunk := await reader.read(CHUNK):
            writer.write(chunk)
            await writer.drain()


# ---- relay in a thread


class OpenFlowRelay:
    """Relay that listens on ``port``. ``drops_ports``: whether it drops the switches' answers with port counters."""

    def __init__(self, controller_port: int) -> None:
        self.drops_ports = False
        self.port = 0
        self._controller_port = controller_port

    async def run(self, listens: Callable[[Callable[[], object]], object]) -> None:
        """Listen and relay. ``listens`` is called once, with a function that ends the relay from any thread."""
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        loop, ends = asyncio.get_running_loop(), asyncio.Event()
        listens(lambda: loop.call_soon_threadsafe(ends.set))
        await ends.wait()
        server.close()

    async def _accept(self, from_switch: asyncio.StreamReader, to_switch: asyncio.StreamWriter) -> None:
        with closing(to_switch), suppress(OSError):
            from_controller, to_controller = await asyncio.open_connection("127.0.0.1", self._controller_port)
            await asyncio.gather(self._up(from_switch, to_controller), _pass(from_controller, to_switch))

    async def _up(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with closing(writer), suppress(OSError, EOFError):
            while True:
                head = await reader.readexactly(HEADER.size)
                _, kind, length, _ = HEADER.unpack(head)
                body = await reader.readexactly(length - HEADER.size)
                about_ports = kind == Type.MULTIPART_REPLY and KIND.unpack_from(body)[0] == Multipart.PORT_STATS
                if not (self.drops_ports and about_ports):
                    writer.write(head + body)
                    await writer.drain()


@contextmanager
def openflow_relay(controller_port: int) -> Iterator[OpenFlowRelay]:
    """Run a relay in a thread, on a free port of loopback, while the block runs."""
    made = OpenFlowRelay(controller_port)
    listens: Queue[Callable[[], object]] = Queue()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(asyncio.run, made.run(listens.put))
        end = listens.get(timeout=START_S)
        try:
            yield made
        finally:
            end()
            running.result()


if __name__ == "__main__":
    asyncio.run(_serve(*sys.argv[1:3]))
