"""Ports and sockets of processes in different network namespaces.

This module publishes and finds listening ports, and chooses the source port and the send buffer of a connection. A
listener binds any free port and publishes ``IP PORT`` in a file of a directory that the processes share. A process that
connects waits for the file. All ports are therefore ordinary ephemeral ports, as the hash of ECMP expects. Each process
publishes the connections that it opened in the same way, for the process that reports them to the controller.
"""

from __future__ import annotations

import errno
import json
import os
import random
import socket
import time
from collections.abc import Iterable
from pathlib import Path

from signalbox.jobs.reports import Connected
from signalbox.jobs.subflows import PortClass

POLL_S = 0.02
PORT_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
BIND_ATTEMPTS = 256
SEND_BUFFER_BYTES = 64 * 1024


def publish(directory: Path, name: str, address: tuple[str, int]) -> None:
    """Publish ``address`` (IP, port) as ``name``."""
    replace_file(directory / name, f"{address[0]} {address[1]}\n")


def replace_file(path: Path, text: str) -> None:
    """Write a file, and its directory, in one step: readers see either all of the old text or all of the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(text)
    draft.replace(path)


def find(directory: Path, name: str, timeout_s: float) -> tuple[str, int]:
    """Return the address published as ``name``. Raises ``TimeoutError`` when it is not published in time."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            ip, port = (directory / name).read_text().split()
            return ip, int(port)
        except FileNotFoundError:
            if time.monotonic() > deadline:
                raise TimeoutError(f"'{name}' did not appear in {directory} within {timeout_s:.0f} s") from None
            time.sleep(POLL_S)


def publish_opened(directory: Path, rank: int, ends: Iterable[tuple[str, int, str, int]]) -> None:
    """Publish the connections that a rank has opened: address and port of the rank, then of the peer."""
    replace_file(directory / f"opened-{rank}", json.dumps(list(ends)))


def find_opened(directory: Path, ranks: int) -> frozenset[Connected] | None:
    """Return the connections that all ranks have opened; None while a rank has not published its own."""
    try:
        texts = [(directory / f"opened-{rank}").read_text() for rank in range(ranks)]
    except FileNotFoundError:
        return None
    return frozenset(Connected(*ends) for text in texts for ends in json.loads(text))


def prepare_sender(sock: socket.socket) -> None:
    """Set a small send buffer and CUBIC, Linux's default congestion control.

    Some machines use BBR, which pauses every flow for 0.2 s every 10 s; in a ring all ranks wait for each pause."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"cubic")


def bind_in_class(sock: socket.socket, ip: str, ports: PortClass) -> int:
    """Bind to a free ephemeral port of the class, tried at random, and return it.

    Raises ``OSError`` (EADDRINUSE) when none was found. connect() alone would use a port of the kernel's choice, which
    is in the class only by chance. Ports in use, including those of connections in TIME_WAIT, are skipped."""
    low, high = map(int, PORT_RANGE.read_text().split())
    for _ in range(BIND_ATTEMPTS):
        port = random.randint(low, high) & ~ports.mask | ports.value
        if not low <= port <= high:
            continue
        try:
            sock.bind((ip, port))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
        else:
            return port
    raise OSError(errno.EADDRINUSE, f"no free source port p with p & {ports.mask:#x} == {ports.value:#x}")
