"""Many frames to one switch as one write: a packet-out for each, packed back to back.

In: ports and frames. Out: what ``Connection.send`` sends. Probes go out by the thousand a second, so what does not
change from one to the next is packed once.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from functools import lru_cache

from controller.fabric.topology import PortNo
from controller.southbound.framework import ofp

# Header, packet-out, one output action (OpenFlow 1.3.5 sections 7.1, 7.3.7 and 7.2.5).
_PACKET_OUT = struct.Struct("!BBHIIIH6xHHIH6x")
_ACTION_BYTES = 16


class PacketOuts:
    """Transaction id 0: nobody waits for an answer, and no other message has it."""

    def __init__(self, frames: Iterable[tuple[PortNo, bytes]]) -> None:
        self.buf = b"".join(_head(port, len(frame)) + frame for port, frame in frames)

    def set_xid(self, _xid: int) -> None:
        """Keeps 0, in all of them."""

    def serialize(self) -> None:
        """Nothing is left to do; the sender asks every message."""


@lru_cache(maxsize=1 << 12)
def _head(port: PortNo, frame_bytes: int) -> bytes:
    return _PACKET_OUT.pack(
        ofp.OFP_VERSION,
        ofp.OFPT_PACKET_OUT,
        _PACKET_OUT.size + frame_bytes,
        0,
        ofp.OFP_NO_BUFFER,
        ofp.OFPP_CONTROLLER,
        _ACTION_BYTES,
        ofp.OFPAT_OUTPUT,
        _ACTION_BYTES,
        port,
        0,
    )
