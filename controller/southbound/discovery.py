"""Link discovery: which probes to send, what a received one means, which links have fallen silent.

Sans-IO. In: switches and ports as they come and go, frames that switches handed up, the time (``now``, monotonic
seconds). Out: probe frames to send, ``LinkSeen`` and ``LinkLost``. A probe is one LLDP frame (IEEE 802.1AB) with an
organisationally specific TLV that holds the sending port and an HMAC over it with a key of this process, so that a host
cannot invent a link. Two hosts that relay whole frames between each other are out of scope (DESIGN section 4).
"""

from __future__ import annotations

import hashlib
import heapq
import hmac
import math
import secrets
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from controller.fabric.topology import Dpid, Port, PortNo, PortRef
from controller.messages import LinkLost, LinkSeen
from controller.tables.rules import ETH_LLDP

# The nearest-bridge group address of IEEE 802.1AB; the sender is locally administered.
_HEADER = bytes.fromhex("0180c200000e") + bytes.fromhex("025342000002") + struct.pack("!H", ETH_LLDP)
_ORGANISATION = bytes.fromhex("025342")
_PROBE_SUBTYPE = 1
_LOCALLY_ASSIGNED = 7
_PORT = struct.Struct("!QI")
_TAG_BYTES = 16
_AT_ONCE = -math.inf
_CHASSIS, _PORT_ID, _TTL, _END, _ORGANISATIONAL = 1, 2, 3, 0, 127

MAX_STEP_S = 0.25
"""The longest stretch between two ticks that counts as listening: what is beyond it, the hub was stalled."""
GOLDEN = 0.6180339887498949
ROOT_TWO = 0.4142135623730951


class Probe(NamedTuple):
    """Send ``frame`` out of ``at``."""

    at: PortRef
    frame: bytes


@dataclass(slots=True)
class _Heard:
    """A directed link: where its probes arrive, when the last one did (listening time), whether it was announced."""

    dst: PortRef
    last: float
    announced: bool


class Discovery:
    """Times inside are listening time: a clock that stands still while the hub does not listen."""

    def __init__(self, probe_interval_s: float, link_timeout_s: float, key: bytes | None = None) -> None:
        self._interval = probe_interval_s
        self._timeout = link_timeout_s
        self._key = key or secrets.token_bytes(32)
        self._ttl = min(65535, max(1, round(link_timeout_s)))
        self._probes: dict[PortRef, bytes] = {}
        self._due: list[tuple[float, PortRef, int]] = []
        self._epoch: dict[PortRef, int] = {}
        self._epochs = 0
        self._links: dict[PortRef, _Heard] = {}
        self._alive: dict[Dpid, float] = {}
        self._listened = 0.0
        self._ticked: float | None = None
        self.refused = 0
        """How many frames were no probes of this process, or came from or to ports that are not up."""

    # ---- ports

    def switch_connected(self, dpid: Dpid, ports: Iterable[Port]) -> None:
        """The ports of a switch, after every handshake. Links that were known are announced again, when heard again."""
        up = {PortRef(dpid, port.number) for port in ports if port.up}
        for at in [at for at in self._probes if at.dpid == dpid and at not in up]:
            self._port_down(at)
        for src, link in self._links.items():
            if dpid in (src.dpid, link.dst.dpid):
                link.announced = False
        self._alive[dpid] = self._listened
        for at in sorted(up):
            self._port_up(at)

    def switch_left(self, dpid: Dpid) -> None:
        """Forgets the switch, its ports and their links; nobody is told."""
        for at in [at for at in self._probes if at.dpid == dpid]:
            self._port_down(at)
        self._alive.pop(dpid, None)

    def port_changed(self, dpid: Dpid, port: Port, removed: bool) -> None:
        at = PortRef(dpid, port.number)
        if port.up and not removed:
            self._port_up(at)
        else:
            self._port_down(at)

    def _port_up(self, at: PortRef) -> None:
        if at not in self._probes:
            self._probes[at] = self._frame(at)
            self._epochs += 1
            self._epoch[at] = self._epochs
            heapq.heappush(self._due, (_AT_ONCE, at, self._epochs))

    def _port_down(self, at: PortRef) -> None:
        if self._probes.pop(at, None) is not None:
            del self._epoch[at]
        for src in [src for src, link in self._links.items() if at in (src, link.dst)]:
            del self._links[src]

    # ---- time

    def tick(self, now: float) -> list[Probe]:
        """The probes that are due. Call it a few times per ``MAX_STEP_S``."""
        if self._ticked is not None:
            self._listened += min(MAX_STEP_S, max(0.0, now - self._ticked))
        self._ticked = now
        probes = []
        while self._due and self._due[0][0] <= now:
            due, at, epoch = heapq.heappop(self._due)
            if self._epoch.get(at) != epoch:
                continue
            probes.append(Probe(at, self._probes[at]))
            # The second probe comes within an interval, at a phase of the port's own: that spreads the load.
            gap = self._interval * (_phase(at) if due == _AT_ONCE else 1.0)
            heapq.heappush(self._due, (now + gap, at, epoch))
        return probes

    def lost(self) -> list[LinkLost]:
        """Links that fell silent. Only silence that could have been broken counts: both switches must have said
        something, anything, in the second half of it; a switch that says nothing at all is the echo check's."""
        silent_since = self._listened - self._timeout
        silent = [
            (src, link)
            for src, link in self._links.items()
            if link.last < silent_since
            and min(self._alive[src.dpid], self._alive[link.dst.dpid]) >= link.last + self._timeout / 2
        ]
        for src, _ in silent:
            del self._links[src]
        return [LinkLost(src, link.dst) for src, link in silent]

    def alive(self, dpid: Dpid) -> None:
        """The switch said something."""
        if dpid in self._alive:
            self._alive[dpid] = self._listened

    # ---- probes that arrive

    def received(self, dst: PortRef, frame: bytes) -> list[LinkLost | LinkSeen]:
        """What an LLDP frame that came in at ``dst`` tells: a link, the first time; or that a link moved."""
        src = self._sender(frame)
        if src is None or src == dst or src not in self._probes or dst not in self._probes:
            self.refused += 1
            return []
        news: list[LinkLost | LinkSeen] = []
        link = self._links.get(src)
        if link is not None and link.dst != dst:
            news.append(LinkLost(src, link.dst))
            link = None
        if link is None:
            link = self._links[src] = _Heard(dst, self._listened, announced=False)
        link.last = self._listened
        if not link.announced:
            link.announced = True
            news.append(LinkSeen(src, dst))
        return news

    # ---- frames

    def _frame(self, at: PortRef) -> bytes:
        tlvs = (
            _tlv(_CHASSIS, bytes([_LOCALLY_ASSIGNED]) + f"dpid:{at.dpid:016x}".encode()),
            _tlv(_PORT_ID, bytes([_LOCALLY_ASSIGNED]) + str(at.port).encode()),
            _tlv(_TTL, struct.pack("!H", self._ttl)),
            _tlv(_ORGANISATIONAL, _ORGANISATION + bytes([_PROBE_SUBTYPE]) + _PORT.pack(*at) + self._tag(at)),
            _tlv(_END, b""),
        )
        return (_HEADER + b"".join(tlvs)).ljust(60, b"\0")

    def _tag(self, at: PortRef) -> bytes:
        return hmac.digest(self._key, _PORT.pack(*at), hashlib.sha256)[:_TAG_BYTES]

    def _sender(self, frame: bytes) -> PortRef | None:
        """The port a probe of this process left from; None for every other frame."""
        prefix = _ORGANISATION + bytes([_PROBE_SUBTYPE])
        for kind, value in _tlvs(frame):
            if kind == _ORGANISATIONAL and value.startswith(prefix):
                body = value[len(prefix) :]
                if len(body) != _PORT.size + _TAG_BYTES:
                    return None
                dpid, port = _PORT.unpack_from(body)
                at = PortRef(Dpid(dpid), PortNo(port))
                return at if hmac.compare_digest(body[_PORT.size :], self._tag(at)) else None
        return None


def _phase(at: PortRef) -> float:
    """In (0, 1], evenly spread over the ports of a switch and over switches (additive recurrence of irrationals)."""
    return 1.0 - (at.port * GOLDEN + at.dpid * ROOT_TWO) % 1.0


def _tlv(kind: int, value: bytes) -> bytes:
    return struct.pack("!H", kind << 9 | len(value)) + value


def _tlvs(frame: bytes) -> Iterator[tuple[int, bytes]]:
    """The TLVs of an LLDP frame, up to the end or the first that is cut off."""
    if frame[12:14] != _HEADER[12:14]:
        return
    offset = len(_HEADER)
    while offset + 2 <= len(frame):
        (head,) = struct.unpack_from("!H", frame, offset)
        kind, length = head >> 9, head & 0x1FF
        value = frame[offset + 2 : offset + 2 + length]
        if kind == _END or len(value) < length:
            return
        yield kind, value
        offset += 2 + length
