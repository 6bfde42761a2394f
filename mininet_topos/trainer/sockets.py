"""Ports and sockets of processes in different network namespaces, and the division of bytes over connections.

A listener binds any free port and publishes ``IP PORT`` in a file of a directory that the processes share. A process
that connects waits for the file. So no port is fixed, and ECMP hashes ordinary ephemeral ports. Each process publishes
the connections that it opened in the same way, for the process that reports them to the controller.

The controller decides the share of every subflow. Rank 0 receives the shares (``signalbox.join``) and writes them to a
file in the directory. Every rank reads the file before each iteration. ``Shares`` give the order in which slices are
assigned to connections.
"""

from __future__ import annotations

import errno
import json
import os
import random
import socket
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from signalbox.jobs.reports import Connected

if TYPE_CHECKING:  # processes that only send need no specs, whose import takes 0.1 s
    from signalbox.jobs.subflows import PortClass

POLL_S = 0.02
PORT_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
BIND_ATTEMPTS = 256
SEND_BUFFER_BYTES = 64 * 1024


def publish(directory: Path, name: str, address: tuple[str, int]) -> None:
    """Publish ``address`` (IP, port) as ``name``."""
    replace_file(directory / name, f"{address[0]} {address[1]}\n")


def replace_file(path: Path, text: str) -> None:
    """Replace a file in one step: readers see either all of the old text or all of the new one. Make its directory."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(text)
    draft.replace(path)


def find(directory: Path, name: str, timeout_s: float) -> tuple[str, int]:
    """Return the address published as ``name``, once it is. Raises ``TimeoutError`` after ``timeout_s``."""
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


SHARES_FILE = "routes.json"
PARTS = 1000
"""Weight of a whole flow: weights are shares in thousandths."""

SubflowPorts = tuple[float, int, int]
"""Share of a subflow, and value and mask of its source ports."""

Shares = Mapping[str, Sequence[SubflowPorts]]
"""Subflows of every split flow, by ``source>destination``."""


class RoundRobin:
    """Assignment of slices to ``count`` connections in proportion to weights, evenly spread.

    It is smooth weighted round robin. Both ends of a bundle use the same weights, so the receiver knows on which
    connection the next slice arrives. Until weights are set, all slices use the first connection."""

    def __init__(self, count: int) -> None:
        self.weights: tuple[int, ...] = (PARTS, *[0] * (count - 1))
        self._credit = [0] * count

    def set(self, weights: Sequence[int]) -> None:
        """Set the weights. Equal weights change nothing: the order continues where it was."""
        if tuple(weights) != self.weights:
            self.weights = tuple(weights)
            self._credit = [0] * len(weights)

    def next(self) -> int:
        """Return the index of the next slice's connection."""
        self._credit = [credit + weight for credit, weight in zip(self._credit, self.weights, strict=True)]
        chosen = self._credit.index(max(self._credit))
        self._credit[chosen] -= sum(self.weights)
        return chosen


def weights_of(subflows: Iterable[SubflowPorts], source_ports: Sequence[int]) -> tuple[int, ...]:
    """Return the weight of each connection in thousandths, by its source port.

    The weight is the share of the subflow whose class contains the port, at least 1; 0 for connections of no subflow.
    The first connection gets the whole weight when no class contains a port."""
    weights = [0] * len(source_ports)
    for share, value, mask in subflows:
        holder = next((i for i, port in enumerate(source_ports) if port & mask == value), None)
        if holder is not None:
            weights[holder] = max(1, round(share * PARTS))
    return tuple(weights) if any(weights) else (PARTS, *weights[1:])


class SharesFile:
    """File of shares in ``directory``, with the shares that were read last."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / SHARES_FILE
        self._version: tuple[int, int] | None = None
        self._shares: Shares = {}

    def write(self, shares: Shares) -> None:
        replace_file(self._path, json.dumps(shares))

    def read_again(self) -> bool:
        """Read the file again, and return whether it was replaced since the last time."""
        try:
            stat = self._path.stat()
            version = stat.st_mtime_ns, stat.st_ino
            if version == self._version:
                return False
            read = json.loads(self._path.read_text())
        except FileNotFoundError:
            return False
        self._shares = {flow: [(share, value, mask) for share, value, mask in of] for flow, of in read.items()}
        self._version = version
        return True

    def subflows(self, src: str, dst: str) -> Sequence[SubflowPorts]:
        """Return the subflows of a flow; none when it is not split."""
        return self._shares.get(f"{src}>{dst}", ())
