"""A relay that passes bytes both ways, as a program: while SIGSTOP stops it, its two sides are cut off from each other.

    python -m benchmarks.live.relay LISTEN TO    # each the path of a Unix socket, or a TCP port on loopback

Connections stay open then, and carry nothing. Of new ones a Unix socket accepts many, TCP ``BACKLOG``; the SYN of
further ones gets no answer.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress

from mininet_topos.controller_process import start

BACKLOG = 2
CHUNK = 1 << 16


@contextmanager
def relay(listen: str, to: str) -> Iterator[int]:
    """Running, and soon listening. Yields its process id."""
    process = start("benchmarks.live.relay", listen, to, stdin=subprocess.DEVNULL)
    try:
        yield process.pid
    finally:
        process.kill()
        process.wait()


@contextmanager
def stopped(send: Callable[[int, int], object], to: int) -> Iterator[None]:
    """By SIGSTOP. ``send``: ``os.kill`` for a process, ``os.killpg`` for a group."""
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
    """Until one of the two ends the connection; closing one side ends the other direction too."""
    with closing(writer), suppress(OSError):
        while chunk := await reader.read(CHUNK):
            writer.write(chunk)
            await writer.drain()


if __name__ == "__main__":
    asyncio.run(_serve(*sys.argv[1:3]))
