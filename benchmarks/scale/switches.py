"""Fake switches of a whole fabric in one process, each connected over TCP to every controller.

A switch stores its rules, answers every request, and obeys roles and generation ids (OpenFlow 1.3.5, section 6.3.5). A
packet that a controller sends out of a port arrives at the switch at the other end of the cable. If that switch has
rules, it sends the packet to its master. There is no other traffic, and counters stay 0.

The parent process calls methods of ``Site`` through a pipe, and learns when changes were confirmed.
"""

import selectors
import socket
import struct
import time
from collections import Counter, deque
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection as Pipe

from benchmarks.fabric.blueprint import Blueprint, Cable
from benchmarks.openflow_bytes import HEADER, Multipart, PlainSwitch, Type, message, messages, port_desc
from controller.fabric.topology import Dpid, PortNo, PortRef
from controller.tables.rules import Table

NOCHANGE, EQUAL, MASTER, SLAVE = range(4)
NO_GENERATION = (1 << 64) - 1
STALE, IS_SLAVE = struct.pack("!HH", 11, 0), struct.pack("!HH", 1, 10)
WRITES = (Type.PACKET_OUT, Type.FLOW_MOD, Type.GROUP_MOD, Type.METER_MOD)
DELETE = 2
LOCAL, NO_BUFFER = 0xFFFF_FFFE, 0xFFFF_FFFF
RECONNECT_S = 1.0
KEPT_BYTES = 1 << 17
"""Size up to which a reply is stored, to be sent again until the switch changes."""
READ_BYTES = 1 << 18

_GROUP_MOD = struct.Struct("!HBxI")
_METER_MOD = struct.Struct("!HHI")
_ROLE = struct.Struct("!I4xQ")
_PACKET_IN = struct.Struct("!IHBBQHHHBBI6x")

Change = tuple[str, bytes]
"""Kind of a change; for a pin also its match, else an empty text."""


class FabricSwitch(PlainSwitch):
    """Switch with rules and cables.

    ``ports``: names of its ports by number. ``known``: buckets of the groups of all switches, so that equal buckets are
    stored only once."""

    def __init__(self, dpid: Dpid, name: str, ports: Mapping[PortNo, str], known: dict[bytes, bytes]) -> None:
        super().__init__(dpid)
        self.links: list[Link] = []
        self.master: Link | None = None
        self.generation = NO_GENERATION
        self.peers: dict[PortNo, tuple[FabricSwitch, PortNo]] = {}
        """Switch and port at the other end of the cable, by port."""
        self.down: set[PortNo] = set()
        self._names, self._local, self._known = ports, port_desc(LOCAL, name), known
        self._groups: dict[int, tuple[int, bytes]] = {}
        self._meters: dict[int, bytes] = {}
        self._replies: dict[bytes, bytes] = {}
        self.set_down(())

    @property
    def has_rules(self) -> bool:
        return bool(self._flows)

    def set_down(self, ports: Collection[PortNo]) -> None:
        """Take ports down, and report this to all controllers (section 7.4.3)."""
        self.down.update(ports)
        descs = {number: port_desc(number, name, number in self.down) for number, name in self._names.items()}
        self._ports = [self._local, *descs.values()]
        self._replies.clear()
        for link in self.links:
            for number in ports:
                link.send(message(Type.PORT_STATUS, 0, struct.pack("!B7x", 2) + descs[number]))

    def change(self, data: bytes) -> Change:
        """Apply a flow-mod, group-mod or meter-mod, and return what it was.

        A group-mod that leaves fewer buckets, but some, is a "narrowed group"."""
        self._replies.clear()
        if data[1] == Type.FLOW_MOD:
            flow = self._keep(data)
            return ("pin", flow.match) if flow.table == Table.PINNED and flow.groups else ("flow", b"")
        if data[1] == Type.METER_MOD:
            command, _, number = _METER_MOD.unpack_from(data, HEADER.size)
            self._meters.pop(number, None)
            if command != DELETE:
                self._meters[number] = struct.pack("!H", len(data) - HEADER.size) + data[HEADER.size + 2 :]
            return "meter", b""
        command, kind, number = _GROUP_MOD.unpack_from(data, HEADER.size)
        buckets = data[HEADER.size + _GROUP_MOD.size :]
        _, before = self._groups.pop(number, (0, b""))
        if command != DELETE:
            self._groups[number] = kind, self._known.setdefault(buckets, buckets)
        return "narrowed group" if 0 < len(buckets) < len(before) else "group", b""

    def _multipart_reply(self, xid: int, request: bytes) -> bytes:
        if (reply := self._replies.get(request)) is None:
            reply = super()._multipart_reply(0, request)
            if len(reply) <= KEPT_BYTES:
                self._replies[request] = reply
        parts = bytearray(reply)
        for _, start, _ in messages(reply):
            struct.pack_into("!I", parts, start + 4, xid)
        return bytes(parts)

    def _entries(self, request: bytes) -> list[bytes]:
        match int.from_bytes(request[:2], "big"):
            case Multipart.PORT_STATS:
                return [struct.pack("!I108x", number) for number in self._names]
            case Multipart.GROUP_DESC:
                return [_GROUP_MOD.pack(8 + len(of), kind, one) + of for one, (kind, of) in self._groups.items()]
            case Multipart.METER_CONFIG:
                return [*self._meters.values()]
            case Multipart.METER:
                return [struct.pack("!IH50x", number, 56) for number in self._meters]
        return super()._entries(request)


class Link:
    """Connection of one switch to one controller, which is opened again when it ends."""

    def __init__(self, switch: FabricSwitch, port: int, site: "Site") -> None:
        self._switch, self._port, self._site = switch, port, site
        self.open()

    def open(self) -> None:
        self._socket = socket.socket()
        self._socket.setblocking(False)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.connect_ex(("127.0.0.1", self._port))
        self._rest, self._role = b"", EQUAL
        self._unsent = bytearray(message(Type.HELLO, 0))
        self._waiting: list[Change] = []
        """Changes since the last barrier request; the next barrier confirms them."""
        self._events = selectors.EVENT_READ | selectors.EVENT_WRITE
        self._site.selector.register(self._socket, self._events, self._ready)

    def send(self, data: bytes) -> None:
        """Queue bytes. They are sent at the end of ``Site.turn``."""
        self._unsent += data
        self._site.unsent.add(self)

    def flush(self) -> None:
        with suppress(OSError):  # the socket's buffer is full, or the connection has ended, which _ready notices
            while self._unsent:
                del self._unsent[: self._socket.send(self._unsent[:READ_BYTES])]
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._unsent else 0)
        if events != self._events and self._socket.fileno() >= 0:
            self._events = events
            self._site.selector.modify(self._socket, events, self._ready)

    def _ready(self, events: int) -> None:
        if events & selectors.EVENT_WRITE:
            self.flush()
        if events & selectors.EVENT_READ:
            data = b""
            with suppress(OSError):
                data = self._socket.recv(READ_BYTES)
            self._take(self._rest + data) if data else self._end()

    def _end(self) -> None:
        self._site.selector.unregister(self._socket)
        self._socket.close()
        self._unsent.clear()
        if self._switch.master is self:
            self._switch.master = None
        self._site.ended.append((time.monotonic() + RECONNECT_S, self))

    def _take(self, data: bytes) -> None:
        end = 0
        for kind, start, end in messages(data):
            one = data[start:end]
            if kind in WRITES and self._role == SLAVE:
                self._site.counts["refused"] += 1
                self.send(message(Type.ERROR, int.from_bytes(one[4:8], "big"), IS_SLAVE + one[:64]))
            elif kind == Type.PACKET_OUT:
                self._pass_on(one)
            elif kind in WRITES:
                self._waiting.append(self._switch.change(one))
            elif kind == Type.ROLE_REQUEST:
                self.send(self._change_role(one))
            else:
                if kind == Type.BARRIER_REQUEST:
                    self._site.confirmed(self._waiting)
                    self._waiting.clear()
                self.send(self._switch.answer(one))
        self._rest = data[end:]

    def _change_role(self, data: bytes) -> bytes:
        switch, xid = self._switch, int.from_bytes(data[4:8], "big")
        role, generation = _ROLE.unpack_from(data, HEADER.size)
        if role in (MASTER, SLAVE):
            if switch.generation != NO_GENERATION and (generation - switch.generation) % (1 << 64) >> 63:
                self._site.counts["refused"] += 1
                return message(Type.ERROR, xid, STALE + data[:64])
            switch.generation = generation
        if role == MASTER and switch.master:
            switch.master._role = SLAVE
        if role != NOCHANGE:
            self._role = role
            switch.master = self if role == MASTER else None if switch.master is self else switch.master
        return message(Type.ROLE_REPLY, xid, _ROLE.pack(self._role, switch.generation))

    def _pass_on(self, data: bytes) -> None:
        """Deliver a packet-out: the switch at the other end of the cable sends the frame to its master."""
        (port,) = struct.unpack_from("!I", data, 28)  # the only action sends to a port
        switch, at = self._switch.peers.get(port, (None, PortNo(0)))
        if switch and switch.master and switch.has_rules and port not in self._switch.down and at not in switch.down:
            frame = data[40:]
            head = _PACKET_IN.pack(NO_BUFFER, len(frame), 1, 0, 0, 1, 12, 0x8000, 0, 4, at)
            switch.master.send(message(Type.PACKET_IN, 0, head + frame))


class Site:
    """All switches, and what was confirmed since the last ``begin``."""

    def __init__(self, blueprint: Blueprint, ports: Sequence[int]) -> None:
        self.selector = selectors.DefaultSelector()
        self.unsent: set[Link] = set()
        self.counts: Counter[str] = Counter()
        """Numbers of confirmed changes by kind, and as "refused" the number of refused writes and claims."""
        self._last: dict[str, float] = {}
        self._pins: dict[bytes, float] = {}
        self.ended: deque[tuple[float, Link]] = deque()
        """Connections that have ended, each with the time at which it is opened again."""
        known: dict[bytes, bytes] = {}
        self._switches = {
            dpid: FabricSwitch(
                dpid, name, {number: blueprint.interface(PortRef(dpid, number)) for number in switch.ports}, known
            )
            for dpid, switch in blueprint.fabric.switches.items()
            for name in [blueprint.bridge(dpid)]
        }
        for link in blueprint.fabric.links.values():
            self._switches[link.src.dpid].peers[link.src.port] = self._switches[link.dst.dpid], link.dst.port
        for switch in self._switches.values():
            switch.links += [Link(switch, port, self) for port in ports]

    def confirmed(self, changes: Sequence[Change]) -> None:
        now = time.monotonic()
        for kind, match in changes:
            self.counts[kind] += 1
            self._last[kind] = now
            if match:
                self._pins[match] = now

    def turn(self) -> None:
        """Wait up to 0.1 s for messages, and answer them."""
        for key, events in self.selector.select(0.1):
            key.data(events)
        while self.ended and self.ended[0][0] <= time.monotonic():
            self.ended.popleft()[1].open()
        while self.unsent:
            self.unsent.pop().flush()

    # ---- calls of the parent

    def begin(self) -> float:
        """Forget all counts and times. Returns the present time in monotonic seconds."""
        for known in (self.counts, self._last, self._pins):
            known.clear()
        return time.monotonic()

    def changes(self) -> tuple[Mapping[str, int], Mapping[str, float]]:
        """Return the number of confirmed changes of each kind, and the time of the latest of each."""
        return dict(self.counts), self._last

    def pins(self) -> Mapping[bytes, float]:
        """Return the time at which each pin was last confirmed, by its match."""
        return self._pins

    def held(self) -> int:
        return sum(switch.master is not None for switch in self._switches.values())

    def cut(self, cable: Cable) -> float:
        """Take down the ports at both ends of a cable, and return the present time."""
        for at in cable:
            self._switches[at.dpid].set_down([at.port])
        return time.monotonic()


def serve(blueprint: Blueprint, ports: Sequence[int], pipe: Pipe) -> None:
    """Run the switches until this process is killed. This is the main function of the process.

    A call that arrives through the pipe is the name of a method of ``Site``, and its arguments."""
    site = Site(blueprint, ports)

    def called(_: int) -> None:
        name, *arguments = pipe.recv()
        pipe.send(getattr(site, name)(*arguments))

    site.selector.register(pipe, selectors.EVENT_READ, called)
    while True:
        site.turn()
