"""The probe as bytes: one LLDP frame (IEEE 802.1AB) that says which port it left, signed by this process.

In: a port and a counter; or a frame that a switch handed up. Out: the frame; or the port and the counter it names, or
why it is none of ours. An organisationally specific TLV holds the port, the counter and an HMAC over both (RFC 2104,
SHA-256 cut to 16 bytes) with a key that only this process knows: a host cannot invent a probe, nor change one, nor keep
one over a restart of the controller (a switch drops what it has for a controller that is gone, so none of the last
process's arrive by themselves). Whether a counter may still be used is ``discovery``'s to say.
"""

from __future__ import annotations

import hmac
import secrets
import struct
from typing import Literal, NamedTuple

from controller.fabric.topology import Dpid, PortNo, PortRef
from controller.tables.rules import ETH_LLDP

Unread = Literal["foreign", "malformed", "forged"]
"""Somebody else's LLDP; ours by its marks, but not whole; whole, but not signed with this process's key."""

# The nearest-bridge group address of IEEE 802.1AB; the sender is locally administered.
_ETHERNET = bytes.fromhex("0180c200000e") + bytes.fromhex("025342000002") + struct.pack("!H", ETH_LLDP)
_ETH_TYPE = _ETHERNET[12:14]
_LOCALLY_ASSIGNED = 7
_CHASSIS, _PORT_ID, _TTL, _END, _ORGANISATIONAL = 1, 2, 3, 0, 127
_TTL_S = 120
_PORT = struct.Struct("!QI")
_SAID = struct.Struct("!QIQ")
_TAG_BYTES = 16
_BODY_BYTES = _SAID.size + _TAG_BYTES
_OURS = bytes.fromhex("025342") + bytes([1])  # the organisation (locally administered), the subtype
_MARK = struct.pack("!H", _ORGANISATIONAL << 9 | len(_OURS) + _BODY_BYTES) + _OURS


class Said(NamedTuple):
    """What a genuine probe says."""

    at: PortRef
    counter: int


class ProbeFrames:
    """Writes and reads the probes of one key. ``key``: 32 random bytes unless given."""

    def __init__(self, key: bytes | None = None) -> None:
        self._key = key or secrets.token_bytes(32)

    @staticmethod
    def head(at: PortRef) -> bytes:
        """The part of a port's probes that never changes."""
        return b"".join(
            (
                _ETHERNET,
                _tlv(_CHASSIS, bytes([_LOCALLY_ASSIGNED]) + f"dpid:{at.dpid:016x}".encode()),
                _tlv(_PORT_ID, bytes([_LOCALLY_ASSIGNED]) + str(at.port).encode()),
                _tlv(_TTL, struct.pack("!H", _TTL_S)),
                _MARK,
                _PORT.pack(*at),
            )
        )

    def frame(self, head: bytes, counter: int) -> bytes:
        """The whole probe, from a port's ``head``; longer than Ethernet's shortest frame."""
        number = counter.to_bytes(8, "big")
        return head + number + self._tag(head[-_PORT.size :] + number) + b"\0\0"

    def read(self, frame: bytes) -> Said | Unread:
        """The mark is looked for rather than parsed up to: what is around it proves nothing, the tag does."""
        if frame[12:14] != _ETH_TYPE:
            return "foreign"
        start = frame.find(_MARK, len(_ETHERNET))
        if start < 0:
            return "malformed" if _OURS in frame else "foreign"
        start += len(_MARK)
        said, tag = frame[start : start + _SAID.size], frame[start + _SAID.size : start + _BODY_BYTES]
        if len(tag) < _TAG_BYTES:
            return "malformed"
        if not hmac.compare_digest(tag, self._tag(said)):
            return "forged"
        dpid, port, counter = _SAID.unpack(said)
        return Said(PortRef(Dpid(dpid), PortNo(port)), counter)

    def _tag(self, said: bytes) -> bytes:
        return hmac.digest(self._key, said, "sha256")[:_TAG_BYTES]


def _tlv(kind: int, value: bytes) -> bytes:
    return struct.pack("!H", kind << 9 | len(value)) + value
