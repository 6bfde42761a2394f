"""Handshake of a connection: hello, features, ports (OpenFlow 1.3.5 sections 6.3.1, 7.3.1 and 7.3.5.7).

Sans-IO. In: the messages of the switch. Out: the answers to them, and in the end the switch's dpid and the bytes that
describe its ports. Each step is accepted only once, in its order.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from enum import Enum, auto

from controller.southbound.framework import ofp
from controller.southbound.limits import MAX_SWITCH_PORTS
from controller.southbound.multipart import multipart_reply
from controller.southbound.openflow_framing import VERSION, Frame, Malformed, message

PORT_SIZE = 64
"""Bytes of a port description (section 7.2.1)."""
_ELEMENT = struct.Struct("!HH")
_FEATURES = struct.Struct("!QIBB2xII")
_MULTIPART = struct.Struct("!HH4x")
_INCOMPATIBLE = struct.pack("!HH", ofp.OFPET_HELLO_FAILED, ofp.OFPHFC_INCOMPATIBLE)


class NoCommonVersion(Exception):
    """The switch does not support OpenFlow 1.3. ``answer``: error message for the switch, perhaps empty."""

    def __init__(self, text: str, answer: bytes = b"") -> None:
        super().__init__(text)
        self.answer = answer


class TooManyPorts(Exception):
    """The switch, or all switches together, have too many ports."""


class _State(Enum):
    HELLO = auto()
    FEATURES = auto()
    PORTS = auto()
    DONE = auto()


class Handshake:
    """State of one handshake.

    ``dpid`` and ``ports`` are complete once the handshake is ``done``. ``ports``: port descriptions of ``PORT_SIZE``
    bytes each, concatenated."""

    def __init__(self) -> None:
        self._state = _State.HELLO
        self.dpid = 0
        self.ports = bytearray()

    @property
    def done(self) -> bool:
        return self._state is _State.DONE

    def begin(self) -> bytes:
        """Return the first message, a hello.

        The hello has no version bitmap, because the controller supports only the version in the header."""
        return message(ofp.OFPT_HELLO)

    def take(self, frame: Frame) -> bytes:
        """Return the answer to a message of the switch; empty if there is none.

        After the hello, messages that are not part of the handshake are ignored. Raises ``Malformed``,
        ``NoCommonVersion`` and ``TooManyPorts``."""
        if self._state is not _State.HELLO and frame.version != VERSION:
            raise Malformed(f"a message has version {frame.version}, but {VERSION} was agreed on")
        if frame.kind == ofp.OFPT_ERROR:
            raise _refused(frame) if self._state is _State.HELLO else Malformed("the switch answers with an error")
        step = _STEPS.get((self._state, frame.kind))
        if step is not None:
            return step(self, frame)
        if self._state is _State.HELLO:
            raise Malformed(f"the switch sent a message of type {frame.kind} before hello")
        return b""

    def _hello(self, frame: Frame) -> bytes:
        versions = _versions(frame.body)
        if not (VERSION in versions if versions else frame.version >= VERSION):
            offered = ", ".join(map(str, sorted(versions or {frame.version})))
            answer = message(ofp.OFPT_ERROR, _INCOMPATIBLE + b"only OpenFlow 1.3 is supported")
            raise NoCommonVersion(f"the switch supports only OpenFlow wire versions {offered}", answer)
        self._state = _State.FEATURES
        return message(ofp.OFPT_FEATURES_REQUEST, xid=1)

    def _features(self, frame: Frame) -> bytes:
        body = frame.body
        if len(body) != _FEATURES.size:
            raise Malformed(f"a features reply has {len(body)} bytes, not {_FEATURES.size}")
        self.dpid, _, _, auxiliary, _, _ = _FEATURES.unpack(body)
        if auxiliary:
            raise Malformed(f"the switch opened auxiliary connection {auxiliary}, which is not used")
        self._state = _State.PORTS
        return message(ofp.OFPT_MULTIPART_REQUEST, _MULTIPART.pack(ofp.OFPMP_PORT_DESC, 0), xid=2)

    def _ports(self, frame: Frame) -> bytes:
        reply = multipart_reply(frame.data)
        if reply.kind != ofp.OFPMP_PORT_DESC:
            return b""
        self.ports += reply.body  # in any number of parts
        if len(self.ports) % PORT_SIZE:
            raise Malformed(f"port descriptions have {len(self.ports)} bytes, not a multiple of {PORT_SIZE}")
        if len(self.ports) > MAX_SWITCH_PORTS * PORT_SIZE:
            raise TooManyPorts(f"it has more than {MAX_SWITCH_PORTS} ports")
        if not reply.more:
            self._state = _State.DONE
        return b""


_STEPS: Mapping[tuple[_State, int], Callable[[Handshake, Frame], bytes]] = {
    (_State.HELLO, ofp.OFPT_HELLO): Handshake._hello,
    (_State.FEATURES, ofp.OFPT_FEATURES_REPLY): Handshake._features,
    (_State.PORTS, ofp.OFPT_MULTIPART_REPLY): Handshake._ports,
}


def _versions(body: bytes) -> frozenset[int]:
    """Return the versions in the bitmaps of a hello; empty if the hello has no bitmap.

    Elements are padded to 8 bytes; their length field does not include the padding (section 7.5.1)."""
    versions: set[int] = set()
    start = 0
    while start < len(body):
        if len(body) - start < _ELEMENT.size:
            raise Malformed(f"a hello has {len(body) - start} bytes after its elements")
        kind, length = _ELEMENT.unpack_from(body, start)
        if not _ELEMENT.size <= length <= len(body) - start:
            raise Malformed(f"an element of a hello has the wrong length of {length} bytes")
        if kind == ofp.OFPHET_VERSIONBITMAP:
            bitmap = body[start + _ELEMENT.size : start + length]
            if len(bitmap) % 4:
                raise Malformed(f"a version bitmap has {len(bitmap)} bytes, not a multiple of 4")
            for word, (bits,) in enumerate(struct.iter_unpack("!I", bitmap)):
                versions.update(32 * word + bit for bit in range(32) if bits >> bit & 1)
        start += (length + 7) // 8 * 8
    return frozenset(versions)


def _refused(frame: Frame) -> Exception:
    if frame.body.startswith(_INCOMPATIBLE):
        return NoCommonVersion("the switch refuses OpenFlow 1.3")
    return Malformed("the switch sent an error instead of hello")
