"""Bytes that this process's own TCP connections have carried, as counted by the kernel.

``OwnSockets`` reads sock_diag(7), which needs no privileges, and finds which sockets are this process's. The layouts
of the messages are from linux/netlink.h, linux/inet_diag.h and linux/tcp.h. The time of a poll is linear in the number
of TCP sockets of the network namespace."""

from __future__ import annotations

import os
import socket
import struct
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import NamedTuple

from signalbox.ip_addresses import from_kernel
from signalbox.jobs.reports import Connected
from signalbox.jobs.subflows import Pair

NETLINK_SOCK_DIAG = 4
SOCK_DIAG_BY_FAMILY = 20
NLM_F_REQUEST, NLM_F_DUMP = 1, 0x300
NLMSG_ERROR, NLMSG_DONE = 2, 3
INET_DIAG_INFO = 2
OPEN = sum(1 << state for state in (1, 4, 5, 8, 9, 11))
"""Bit mask of the socket states to read: ESTABLISHED, and the states in which one end has closed the connection."""

_REQUEST = struct.Struct("=IHHIIBBBxI48x")
_HEADER = struct.Struct("=IH")
_ENDS = struct.Struct("!HH16s16s")
_INODE = struct.Struct("=I")
_ATTRIBUTE = struct.Struct("=HH")
_COUNTED = struct.Struct("=QQ")
_ENDS_AT, _INODE_AT, _ATTRIBUTES_AT = 20, 84, 88
"""Offsets in bytes from the start of a message to the ports and addresses, to the inode, and to the attributes."""
_COUNTED_AT = 4 + 120
"""Offset in bytes from the start of an attribute to ``tcpi_bytes_acked``, which ``tcpi_bytes_received`` follows."""

_RECEIVED_AT_ONCE = 1 << 18


class Exchanged(NamedTuple):
    """Payload bytes of connections: ``sent`` (acknowledged by the other end) and ``received``.

    The kernel counts opening a connection as one byte sent by the end that opens it, and closing it as one byte
    received."""

    sent: int = 0
    received: int = 0


class OwnSockets:
    """TCP connections of this process. Only one thread at a time may use the object.

    ``counts``: function that selects the connections of interest; it is called once per connection."""

    def __init__(self, counts: Callable[[Connected], bool] = lambda _: True) -> None:
        self._counts = counts
        self._known: dict[int, Connected | None] = {}  # by inode; None if another process's, or unwanted
        self._carried: dict[int, Exchanged] = {}  # bytes of open sockets, by inode
        self._closed: defaultdict[Pair, Exchanged] = defaultdict(Exchanged)
        self._open: set[int] = set()

    @property
    def connections(self) -> frozenset[Connected]:
        """Connections that were open at the latest poll.

        The source is this process's end, whichever end opened the connection."""
        return frozenset(connected for inode in self._open if (connected := self._known[inode]))

    @property
    def exchanged(self) -> dict[Pair, Exchanged]:
        """Bytes since each connection was opened, added up by own and peer address, as of the latest poll.

        Bytes that a socket carried between its last poll and its end are missing."""
        total = self._closed.copy()
        for inode, carried in self._carried.items():
            self._add(total, inode, carried)
        return dict(total)

    def poll(self) -> None:
        """Read the counters of all sockets. Raises ``OSError`` when the kernel does not report them."""
        carried: dict[int, Exchanged] = {}
        new: dict[int, Connected | None] = {}
        seen = set()
        for inode, at, data in _sockets():
            seen.add(inode)
            if inode in self._known:
                if self._known[inode]:
                    carried[inode] = _exchanged(data, at)
                continue
            connected = _connected(data, at)
            new[inode] = connected if connected and self._counts(connected) else None
            if new[inode]:
                carried[inode] = _exchanged(data, at)
        missing = self._carried.keys() - seen
        ours = _own_inodes() if missing or any(new.values()) else set()
        for inode, connected in new.items():
            self._known[inode] = connected if inode in ours else None
            if inode not in ours:
                carried.pop(inode, None)
        self._open = set(carried)
        for inode in missing:
            if inode in ours:  # reset, or missing because other sockets opened or closed during the dump
                carried[inode] = self._carried[inode]
            else:
                self._add(self._closed, inode, self._carried[inode])
        self._carried = carried
        for inode in self._known.keys() - seen - carried.keys():
            del self._known[inode]

    def _add(self, total: defaultdict[Pair, Exchanged], inode: int, more: Exchanged) -> None:
        connected = self._known[inode]
        assert connected
        pair = connected.src_ip, connected.dst_ip
        total[pair] = Exchanged(total[pair].sent + more.sent, total[pair].received + more.received)


def _own_inodes() -> set[int]:
    found = set()
    with os.scandir("/proc/self/fd") as files:
        for file in files:
            with suppress(FileNotFoundError):
                link = os.readlink(file.path)
                if link.startswith("socket:["):
                    found.add(int(link[8:-1]))
    return found


def _sockets() -> Iterator[tuple[int, int, bytes]]:
    """Yield a triple for each TCP socket of the network namespace: its inode, an offset and a buffer.

    The message about the socket begins at this offset of the buffer. Sockets of which no process has a descriptor have
    no inode and are left out."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, NETLINK_SOCK_DIAG) as kernel:
        for family in (socket.AF_INET, socket.AF_INET6):
            extension = 1 << (INET_DIAG_INFO - 1)
            flags = NLM_F_REQUEST | NLM_F_DUMP
            ask = _REQUEST.pack(
                _REQUEST.size, SOCK_DIAG_BY_FAMILY, flags, 0, 0, family, socket.IPPROTO_TCP, extension, OPEN
            )
            kernel.sendto(ask, (0, 0))
            more = True
            while more:
                data = kernel.recv(_RECEIVED_AT_ONCE)
                at = 0
                while at < len(data):
                    length, kind = _HEADER.unpack_from(data, at)
                    if kind == NLMSG_ERROR:
                        (code,) = struct.unpack_from("=i", data, at + 16)
                        raise OSError(-code, f"sock_diag: {os.strerror(-code)}")
                    if kind == NLMSG_DONE:
                        more = False
                        break
                    (inode,) = _INODE.unpack_from(data, at + _INODE_AT)
                    if inode:
                        yield inode, at, data
                    at += length + 3 & ~3


def _connected(data: bytes, at: int) -> Connected | None:
    """Return the connection that a message describes; None when a job spec cannot contain its addresses."""
    port, peer_port, ip, peer_ip = _ENDS.unpack_from(data, at + _ENDS_AT)
    own, other = from_kernel(data[at + 16], ip), from_kernel(data[at + 16], peer_ip)
    return Connected(own, port, other, peer_port) if own and other else None


def _exchanged(data: bytes, at: int) -> Exchanged:
    """Return the bytes of a socket from its message; 0 when the kernel's tcp_info lacks these counters."""
    (length,) = _INODE.unpack_from(data, at)
    end = at + length
    at += _ATTRIBUTES_AT
    while at + 4 <= end:
        size, kind = _ATTRIBUTE.unpack_from(data, at)
        if kind == INET_DIAG_INFO:
            return Exchanged(*_COUNTED.unpack_from(data, at + _COUNTED_AT)) if size >= _COUNTED_AT + 16 else Exchanged()
        at += size + 3 & ~3
    return Exchanged()
