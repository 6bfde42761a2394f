"""Checks the bytes of a message before a library's parser walks them: those trust every length that they read.

Sans-IO. In: the body of a message, without its header. Out: nothing, or ``Malformed``. Only for messages that a library
parses; what we read ourselves (``handshake``, the decoders of packet-ins and multipart replies) checks as it reads.
Section numbers are those of OpenFlow 1.3.5.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping

from controller.southbound.malformed import Malformed

ERROR, ECHO_REPLY, PORT_STATUS, BARRIER_REPLY, ROLE_REPLY = 1, 3, 12, 21, 25
PORT_SIZE = 64
_EXPERIMENTER_ERROR = 0xFFFF
_PORT_REASONS = 3


def check(kind: int, body: bytes) -> None:
    """Raises ``Malformed`` when a message of this type cannot have this body, ``KeyError`` for a type that is not
    checked here and must therefore not be given to a library."""
    CHECKS[kind](body)


def _error(body: bytes) -> None:
    """Section 7.4.4; an experimenter's error has four bytes more (section 7.4.4, ``ofp_error_experimenter_msg``)."""
    least = 8 if body[:2] == struct.pack("!H", _EXPERIMENTER_ERROR) else 4
    if len(body) < least:
        raise Malformed(f"error message of {len(body)} bytes, not {least} or more")


def _port_status(body: bytes) -> None:
    """Section 7.4.3."""
    _exactly(8 + PORT_SIZE, "port status")(body)
    if body[0] >= _PORT_REASONS:
        raise Malformed(f"port status with reason {body[0]}")


def _exactly(size: int, what: str) -> Callable[[bytes], None]:
    def check_size(body: bytes) -> None:
        if len(body) != size:
            raise Malformed(f"{what} of {len(body)} bytes, not {size}")

    return check_size


def _anything(_: bytes) -> None:
    """The switch may send back what it was sent (section 7.5.3)."""


CHECKS: Mapping[int, Callable[[bytes], None]] = {
    ERROR: _error,
    ECHO_REPLY: _anything,
    PORT_STATUS: _port_status,
    BARRIER_REPLY: _exactly(0, "barrier reply"),
    ROLE_REPLY: _exactly(16, "role reply"),
}
