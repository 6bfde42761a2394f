"""Capture of the OpenFlow messages between switches and a controller, from packets on an interface.

    python -m benchmarks.fabric.capture PORT FILE INTERFACE

A process of its own reads every TCP segment from and to the controller's port. The time of a message is the time at
which the kernel handed over its last segment (packet(7), SO_TIMESTAMPNS in socket(7)). The process prints a line when
the capture has begun, and ends at the end of stdin. ``Recorder`` runs the process, and passes the messages to a
``Listener``.

The file consists of records: a ``RECORD`` (monotonic nanoseconds, dpid, number of bytes) and that many bytes of the
message. Messages are cut to the bytes that the figures need (``KEPT``). Packet-ins, packet-outs and echoes, which are
most of the traffic, are left out. A record with dpid 0 reports lost packets: it has their number in place of the time.
"""

from __future__ import annotations

import os
import select
import socket
import struct
import subprocess
import sys
import time
from contextlib import suppress
from ctypes import addressof, create_string_buffer
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, BinaryIO, Protocol

from benchmarks.openflow_bytes import HEADER, Type, messages
from controller.fabric.topology import Dpid
from mininet_topos.controller_process import STOP_S, start
from signalbox.errors import SignalboxError

RECORD = struct.Struct("<QQH")
LOST = Dpid(0)
LOOPBACK = "lo"
START_S = 30.0
FLUSH_S = 0.02
URGENT = -10
"""Niceness of the capture, the same as ovs-ctl gives to ovs-vswitchd: with less priority it would lose packets."""
BUFFER_BYTES = 1 << 28
PACKET_BYTES = 1 << 16
MOST_WAITING = 256
"""Number of segments that may wait for a missing one; with more, the missing segment counts as lost."""
_CHUNK = 1 << 22

# packet(7), socket(7), linux/filter.h
_ETH_P_IP, _ETH_P_ALL, _SOL_PACKET, _PACKET_STATISTICS = 0x0800, 0x0003, 263, 6
_SO_ATTACH_FILTER, _SO_RCVBUFFORCE, _SO_TIMESTAMPNS = 26, 33, 35
_TIMESPEC = struct.Struct("@qq")
_FIN_SYN_RST, _SYN = 0x07, 0x02

_WHOLE = 0xFFFF
KEPT: dict[int, int] = {
    Type.ERROR: 84,
    Type.FEATURES_REPLY: 16,
    Type.PORT_STATUS: 24,
    Type.FLOW_MOD: _WHOLE,
    Type.GROUP_MOD: _WHOLE,
    Type.MULTIPART_REQUEST: 16,
    Type.MULTIPART_REPLY: 16,
    Type.BARRIER_REQUEST: HEADER.size,
    Type.BARRIER_REPLY: HEADER.size,
    Type.ROLE_REQUEST: 24,
    Type.ROLE_REPLY: 24,
    Type.METER_MOD: 16,
}
"""Number of bytes to record of each type of message; other types are not recorded."""


@dataclass(slots=True)
class _Direction:
    expected: int
    """Sequence number of the next byte."""
    waiting: dict[int, bytes] = field(default_factory=dict)
    """Segments that came too early, because one before them is missing; by sequence number."""
    rest: bytearray = field(default_factory=bytearray)

    def take(self, number: int, data: bytes) -> None:
        """Append the bytes of a segment in their order. Segments may arrive in any order, or twice."""
        ahead = (number - self.expected) & 0xFFFFFFFF
        if ahead >= 1 << 31:
            data = data[(1 << 32) - ahead :]
        elif ahead:
            self.waiting[number] = data
            return
        while data:
            self.rest += data
            self.expected = (self.expected + len(data)) & 0xFFFFFFFF
            data = self.waiting.pop(self.expected, b"")


class Capture:
    """Conversion of IPv4 packets to records.

    A connection is followed from its first packet on. Its first record is the features reply, which tells the dpid."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._directions: dict[tuple[int, bool], _Direction] = {}
        self._dpids: dict[int, Dpid] = {}

    def packet(self, data: bytes, at_ns: int, into: bytearray) -> int:
        """Append the records of all messages that are complete with this packet.

        Returns the number of packets that are now known to be lost. Raises ``ValueError`` for bytes that are not
        OpenFlow."""
        tcp = (data[0] & 0x0F) * 4
        source, target, number = struct.unpack_from("!HHI", data, tcp)
        to_controller = target == self._port
        key = (source if to_controller else target, to_controller)
        if data[tcp + 13] & _SYN:
            self._directions[key] = _Direction((number + 1) & 0xFFFFFFFF)
            self._dpids.pop(key[0], None)
            return 0
        direction = self._directions.get(key)
        payload = data[tcp + (data[tcp + 12] >> 4) * 4 : int.from_bytes(data[2:4], "big")]
        if direction is None or not payload:
            return 0
        direction.take(number, payload)
        if len(direction.waiting) > MOST_WAITING:
            del self._directions[key]
            return 1
        self._record(key[0], direction.rest, at_ns, into)
        return 0

    def _record(self, peer: int, data: bytearray, at_ns: int, into: bytearray) -> None:
        done = 0
        for kind, begin, end in messages(data):
            done = end
            if kind == Type.FEATURES_REPLY:
                self._dpids[peer] = Dpid(int.from_bytes(data[begin + 8 : begin + 16], "big"))
            kept = KEPT.get(kind)
            if kept is not None and peer in self._dpids:
                body = data[begin : min(end, begin + kept)]
                into += RECORD.pack(at_ns, self._dpids[peer], len(body)) + body
        del data[:done]


# ---- the process


def run(port: int, file: Path, interface: str) -> None:
    with suppress(PermissionError):
        os.nice(URGENT)
    with _packet_socket(port, interface) as packets, file.open("wb") as out:
        print("listening", flush=True)  # noqa: T201  # the parent waits for it
        _copy(packets, Capture(port), out)


def _packet_socket(port: int, interface: str) -> socket.socket:
    """Return a socket that receives the interface's IPv4 packets that pass ``_filter``, without link headers.

    On the loopback interface every packet is sent and received. There, only received packets are read."""
    packets = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM)
    program = create_string_buffer(_filter(port))
    attached = struct.pack("HP", len(program) // 8, addressof(program))  # struct sock_fprog
    packets.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, attached)
    packets.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, BUFFER_BYTES)
    packets.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
    packets.setblocking(False)
    packets.bind((interface, _ETH_P_IP if interface == LOOPBACK else _ETH_P_ALL))
    return packets


def _filter(port: int) -> bytes:
    """Return a filter for TCP segments from or to the port that carry data, or begin or end a connection.

    The filter is a classic BPF program (linux/filter.h). An instruction is (code, jump if true, jump if false,
    operand); jumps count from the next instruction."""
    program = (
        (0x30, 0, 0, 9),  # A = the IP protocol
        (0x15, 0, 15, socket.IPPROTO_TCP),
        (0xB1, 0, 0, 0),  # X = bytes of the IP header
        (0x48, 0, 0, 0),  # A = source port
        (0x15, 2, 0, port),
        (0x48, 0, 0, 2),  # A = target port
        (0x15, 0, 10, port),
        (0x50, 0, 0, 13),  # A = TCP flags
        (0x45, 7, 0, _FIN_SYN_RST),
        (0x50, 0, 0, 12),  # A = bytes of the TCP header
        (0x74, 0, 0, 2),
        (0x54, 0, 0, 0x3C),
        (0x0C, 0, 0, 0),  # X = bytes of both headers
        (0x07, 0, 0, 0),
        (0x28, 0, 0, 2),  # A = bytes of the packet
        (0x1D, 1, 0, 0),
        (0x06, 0, 0, 0xFFFFFFFF),  # accept all of it
        (0x06, 0, 0, 0),  # drop it
    )
    return b"".join(struct.pack("HBBI", *instruction) for instruction in program)


def _copy(packets: socket.socket, capture: Capture, out: BinaryIO) -> None:
    records = bytearray()
    lost = 0
    while True:
        ready, _, _ = select.select([packets, sys.stdin], [], [], FLUSH_S)
        # A pause between the two clock readings makes the difference smaller, so the largest of several is the best.
        since_boot_ns = max(time.monotonic_ns() - time.time_ns() for _ in range(3))
        flush_at = time.monotonic() + FLUSH_S
        with suppress(BlockingIOError):
            while packets in ready and time.monotonic() < flush_at:
                data, ((_, _, stamp),), _, _ = packets.recvmsg(PACKET_BYTES, 64)
                seconds, nanoseconds = _TIMESPEC.unpack(stamp)
                lost += capture.packet(data, seconds * 10**9 + nanoseconds + since_boot_ns, records)
        lost += struct.unpack("II", packets.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, 8))[1]
        if lost:
            records += RECORD.pack(lost, LOST, 0)
            lost = 0
        out.write(records)
        out.flush()
        records.clear()
        if sys.stdin in ready:
            return


# ---- the parent process


class Listener(Protocol):
    def message(self, at: float, dpid: Dpid, data: bytes) -> None: ...


@dataclass
class Recorder:
    """Running capture process, and the reader of its file. ``lost``: number of packets that it could not record."""

    _process: subprocess.Popen[bytes]
    _stream: IO[bytes]
    _rest: bytes = b""
    lost: int = 0

    @classmethod
    def start(cls, file: Path, port: int, interface: str = LOOPBACK) -> Recorder:
        """Start the process, and return once it captures. Raises ``SignalboxError`` if it does not."""
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        process = start("benchmarks.fabric.capture", str(port), str(file), interface, **pipes)
        assert process.stdout is not None
        assert process.stderr is not None
        ready, _, _ = select.select([process.stdout], [], [], START_S)
        if not ready or process.stdout.readline().strip() != b"listening":
            process.kill()
            output = process.stderr.read().decode(errors="replace").strip().splitlines()
            raise SignalboxError(f"the capture does not begin: {output[-1] if output else 'no error message'}")
        return cls(process, file.open("rb"))

    def read(self, into: Listener) -> None:
        """Pass the messages recorded since the last call to ``into``.

        Raises ``SignalboxError`` if the capture has ended."""
        while data := self._stream.read(_CHUNK):
            data = self._rest + data
            at = 0
            while at + RECORD.size <= len(data):
                now_ns, dpid, length = RECORD.unpack_from(data, at)
                body = at + RECORD.size
                if body + length > len(data):
                    break
                if dpid == LOST:
                    self.lost += now_ns
                else:
                    into.message(now_ns / 1e9, dpid, data[body : body + length])
                at = body + length
            self._rest = data[at:]
        if self._process.poll() is not None:
            raise SignalboxError(f"the capture ended with status {self._process.returncode}")

    def stop(self) -> None:
        self._process.communicate(timeout=STOP_S)
        self._stream.close()


if __name__ == "__main__":
    run(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
