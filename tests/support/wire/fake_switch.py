"""A switch that speaks OpenFlow 1.3 as a test tells it, without the code of Ryu."""

import ssl
import struct
from typing import NamedTuple, Self

from benchmarks.openflow_bytes import HEADER, Connection, Multipart, Type, message, port_desc, xid_of
from tests.support.waiting import DEADLINE_S

NOCHANGE, EQUAL, MASTER, SLAVE = range(4)
LOCAL = 0xFFFFFFFE
PORT_DOWN = 1
PART = 1000
"""Largest number of ports that one message describes."""


class Heard(NamedTuple):
    kind: int
    xid: int
    body: bytes


class FakeSwitch:
    """OpenFlow connection of a switch, through TLS when there is a context.

    It answers echo and role requests while it waits, unless ``mute``."""

    def __init__(self, port: int, dpid: int, mute: bool = False, tls: ssl.SSLContext | None = None) -> None:
        self.dpid = dpid
        self.mute = mute
        self.connection = Connection(port, DEADLINE_S, tls)

    def connect(self, ports: int = 1) -> Self:
        self.send(Type.HELLO, b"")
        asked = self.expect(Type.FEATURES_REQUEST)
        self.send(Type.FEATURES_REPLY, struct.pack("!QIBB2xII", self.dpid, 0, 254, 0, 0x4F, 0), asked.xid)
        asked = self.expect_multipart(Multipart.PORT_DESC)
        descs = [port_desc(LOCAL, f"fake{self.dpid}"), *(port_desc(n, f"eth{n}") for n in range(1, ports + 1))]
        for first in range(0, len(descs), PART):
            part = b"".join(descs[first : first + PART])
            self.reply_multipart(asked, Multipart.PORT_DESC, part, more=first + PART < len(descs))
        if not self.mute:
            self.accept_master()
        return self

    def accept_master(self) -> int:
        claim = self.expect(Type.ROLE_REQUEST)
        self.send(Type.ROLE_REPLY, claim.body, claim.xid)
        role, claimed = struct.unpack("!I4xQ", claim.body)
        assert role == MASTER
        return int(claimed)

    def send(self, kind: int, body: bytes, xid: int = 0) -> None:
        self.connection.send(message(kind, xid, body))

    def hear(self) -> Heard:
        data = self.connection.hear()
        return Heard(data[1], xid_of(data), data[HEADER.size :])

    def expect(self, kind: int) -> Heard:
        while True:
            heard = self.hear()
            if heard.kind == kind:
                return heard
            if not self.mute:
                self.answer(heard)

    def answer(self, heard: Heard) -> None:
        """Answer echo requests, and grant role requests."""
        if heard.kind == Type.ECHO_REQUEST:
            self.send(Type.ECHO_REPLY, heard.body, heard.xid)
        elif heard.kind == Type.ROLE_REQUEST:
            self.send(Type.ROLE_REPLY, heard.body, heard.xid)

    def expect_multipart(self, kind: int) -> Heard:
        while True:
            heard = self.expect(Type.MULTIPART_REQUEST)
            if heard.body[:2] == struct.pack("!H", kind):
                return heard

    def reply_multipart(self, asked: Heard, kind: int, body: bytes, more: bool = False) -> None:
        self.send(Type.MULTIPART_REPLY, struct.pack("!HH4x", kind, more) + body, asked.xid)

    def packet_in(self, port: int, frame: bytes) -> None:
        match = struct.pack("!HHHBBI4x", 1, 12, 0x8000, 0, 4, port)
        self.send(Type.PACKET_IN, struct.pack("!IHBBQ", 0xFFFFFFFF, len(frame), 1, 0, 0) + match + b"\0\0" + frame)

    def expect_frame(self) -> tuple[int, bytes]:
        body = self.expect(Type.PACKET_OUT).body
        actions = struct.unpack_from("!H", body, 8)[0]
        return struct.unpack_from("!I", body, 20)[0], body[16 + actions :]

    def wait_closed(self) -> None:
        while True:
            try:
                self.hear()
            except (EOFError, ConnectionError):
                return

    def close(self) -> None:
        self.connection.close()


def flow_stats(priority: int, owner: int) -> bytes:
    """Return an entry of table 2 that outputs to port 1."""
    match = struct.pack("!HH4x", 1, 4)
    actions = struct.pack("!HH4xHHIH6x", 4, 24, 0, 16, 1, 0)
    size = 48 + len(match) + len(actions)
    return struct.pack("!HBxIIHHHH4xQQQ", size, 2, 0, 0, priority, 0, 0, 0, owner, 0, 0) + match + actions
