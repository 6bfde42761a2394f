"""How a connection begins: hello, features, ports (OpenFlow 1.3.5 sections 6.3.1 and 7.3.1, 7.3.5.7).

Sans-IO. In: the messages of the switch. Out: what to answer, and in the end who the switch is and the bytes that
describe its ports. Nothing is taken in twice or before its turn.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from enum import Enum, auto

from controller.southbound.framing import HEADER, Frame
from controller.southbound.malformed import Malformed
from controller.southbound.message_guard import PORT_SIZE

VERSION = 4
"""OpenFlow 1.3 on the wire."""
HELLO, ERROR, FEATURES_REQUEST, FEATURES_REPLY, MULTIPART_REQUEST, MULTIPART_REPLY = 0, 1, 5, 6, 18, 19
MAX_PORTS = 0x10000
"""More than any switch has: descriptions of ports come in as many parts as the switch likes."""

_PORT_DESC = 13
_VERSION_BITMAP = 1
_HELLO_FAILED, _INCOMPATIBLE = 0, 0
_ELEMENT = struct.Struct("!HH")
_FEATURES = struct.Struct("!QIBB2xII")
_MULTIPART = struct.Struct("!HH4x")
_MORE = 1


class NoCommonVersion(Exception):
    """The switch does not speak OpenFlow 1.3. ``answer``: what tells it so."""

    def __init__(self, text: str, answer: bytes = b"") -> None:
        super().__init__(text)
        self.answer = answer


class _State(Enum):
    GREETING = auto()
    FEATURES = auto()
    PORTS = auto()
    DONE = auto()


class Handshake:
    """``dpid`` is known once it is done; ``ports`` are descriptions of 64 bytes, one after the other."""

    def __init__(self) -> None:
        self._state = _State.GREETING
        self.dpid = 0
        self.ports = bytearray()

    @property
    def done(self) -> bool:
        return self._state is _State.DONE

    def begin(self) -> bytes:
        """What to say first. No version bitmap: the header's version is the only one we speak."""
        return message(HELLO, 0)

    def take(self, frame: Frame) -> bytes:
        """What to answer, perhaps nothing. Messages that may come at any time and are no part of this are passed over.
        Raises ``Malformed``, and ``NoCommonVersion`` once it is known that there is none."""
        if self._state is not _State.GREETING and frame.version != VERSION:
            raise Malformed(f"version {frame.version} after {VERSION} was agreed on")
        if frame.kind == ERROR:
            raise (
                _refused(frame) if self._state is _State.GREETING else Malformed("an error in answer to the handshake")
            )
        step = _STEPS.get((self._state, frame.kind))
        if step is not None:
            return step(self, frame)
        if self._state is _State.GREETING:
            raise Malformed(f"a message of type {frame.kind} before hello")
        return b""

    def _hello(self, frame: Frame) -> bytes:
        versions = _versions(frame.body)
        if not (VERSION in versions if versions else frame.version >= VERSION):
            spoken = ", ".join(map(str, sorted(versions or {frame.version})))
            failed = struct.pack("!HH", _HELLO_FAILED, _INCOMPATIBLE) + b"only OpenFlow 1.3 is spoken here"
            raise NoCommonVersion(f"the switch speaks OpenFlow wire versions {spoken}", message(ERROR, 0, failed))
        self._state = _State.FEATURES
        return message(FEATURES_REQUEST, 1)

    def _features(self, frame: Frame) -> bytes:
        body = frame.body
        if len(body) != _FEATURES.size:
            raise Malformed(f"features reply of {len(body)} bytes, not {_FEATURES.size}")
        self.dpid, _, _, auxiliary, _, _ = _FEATURES.unpack(body)
        if auxiliary:
            raise Malformed(f"auxiliary connection {auxiliary}, which nobody asked for")
        self._state = _State.PORTS
        return message(MULTIPART_REQUEST, 2, _MULTIPART.pack(_PORT_DESC, 0))

    def _ports(self, frame: Frame) -> bytes:
        body = frame.body
        if len(body) < _MULTIPART.size:
            raise Malformed(f"multipart reply of {len(body)} bytes")
        kind, flags = _MULTIPART.unpack_from(body)
        if kind != _PORT_DESC:
            return b""
        self.ports += body[_MULTIPART.size :]
        if len(self.ports) % PORT_SIZE or len(self.ports) > MAX_PORTS * PORT_SIZE:
            raise Malformed(f"{len(self.ports)} bytes of port descriptions of {PORT_SIZE}")
        if not flags & _MORE:
            self._state = _State.DONE
        return b""


_STEPS: Mapping[tuple[_State, int], Callable[[Handshake, Frame], bytes]] = {
    (_State.GREETING, HELLO): Handshake._hello,
    (_State.FEATURES, FEATURES_REPLY): Handshake._features,
    (_State.PORTS, MULTIPART_REPLY): Handshake._ports,
}


def message(kind: int, xid: int, body: bytes = b"") -> bytes:
    """A message of OpenFlow 1.3 with its header."""
    return HEADER.pack(VERSION, kind, HEADER.size + len(body), xid) + body


def _versions(body: bytes) -> frozenset[int]:
    """The versions in the bitmaps of a hello, empty when it has none. Elements are padded to 8 bytes, which their
    length does not count (section 7.5.1)."""
    versions: set[int] = set()
    start = 0
    while start < len(body):
        if len(body) - start < _ELEMENT.size:
            raise Malformed(f"hello with {len(body) - start} bytes after its elements")
        kind, length = _ELEMENT.unpack_from(body, start)
        if not _ELEMENT.size <= length <= len(body) - start:
            raise Malformed(f"hello element of {length} bytes")
        if kind == _VERSION_BITMAP:
            for word, (bits,) in enumerate(
                struct.iter_unpack("!I", _words(body[start + _ELEMENT.size : start + length]))
            ):
                versions.update(32 * word + bit for bit in range(32) if bits >> bit & 1)
        start += (length + 7) // 8 * 8
    return frozenset(versions)


def _words(bitmap: bytes) -> bytes:
    if len(bitmap) % 4:
        raise Malformed(f"version bitmap of {len(bitmap)} bytes")
    return bitmap


def _refused(frame: Frame) -> Exception:
    kind, code = struct.unpack_from("!HH", frame.body) if len(frame.body) >= 4 else (None, None)
    if (kind, code) == (_HELLO_FAILED, _INCOMPATIBLE):
        return NoCommonVersion("the switch refuses OpenFlow 1.3")
    return Malformed("an error instead of hello")
