"""The two switches of the fuzzer: one that sends mutants, and one that must be served all the while.

Both speak to a real controller over loopback. In: mutants. Out: what became of each, and how long the good switch
waited for echoes and for rules.
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from dataclasses import dataclass, field

from benchmarks.openflow.mutants import HANDSHAKE, INSTEAD_OF_HELLO, MULTIPART, Mutant
from tests.support.wire.fake_switch import (
    BARRIER_REPLY,
    BARRIER_REQUEST,
    ECHO_REPLY,
    ECHO_REQUEST,
    FEATURES_REPLY,
    FEATURES_REQUEST,
    FLOW_MOD,
    HELLO,
    METER_MOD,
    MULTIPART_REQUEST,
    PORT_DESC,
    PORT_STATUS,
    FakeSwitch,
    Heard,
    port_desc,
)

GOOD_DPID = 1
HOSTILE_DPID = 2
ANSWER_S = 5.0
ASK_S = 1.0
_AGGREGATE = MULTIPART["aggregate stats"]
_READ_BACK = frozenset(MULTIPART[name] for name in ("flow stats", "aggregate stats", "group desc", "meter config"))
_ADDED = 0


# ---- the good one


@dataclass(slots=True)
class Served:
    """Milliseconds. ``rules_ms``: from the news of a port to the first rule for it."""

    echo_ms: list[float] = field(default_factory=list)
    rules_ms: list[float] = field(default_factory=list)
    barriers: int = 0
    connection_lost: bool = False


class GoodSwitch:
    """A context. Answers everything; asks for an echo every 10 ms; every half second it has one port more."""

    def __init__(self, port: int) -> None:
        self.served = Served()
        self._switch = FakeSwitch(port, GOOD_DPID).connect(ports=2)
        self._sending = threading.Lock()
        self._stopping = threading.Event()
        self._asked_at: dict[int, float] = {}
        self._port_told_at: float | None = None
        self._threads = [threading.Thread(target=self._listen), threading.Thread(target=self._speak)]

    def __enter__(self) -> GoodSwitch:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._threads[1].join()
        self._switch.socket.shutdown(socket.SHUT_RDWR)
        self._threads[0].join()
        self._switch.close()

    @property
    def waits_since(self) -> float | None:
        """Monotonic seconds when the oldest echo was asked for that is not answered."""
        return min(self._asked_at.values(), default=None)

    def _listen(self) -> None:
        try:
            while True:
                self._take(self._switch.hear())
        except (EOFError, OSError):
            self.served.connection_lost = not self._stopping.is_set()

    def _take(self, heard: Heard) -> None:
        now = time.monotonic()
        if heard.kind == ECHO_REPLY and (asked_at := self._asked_at.pop(heard.xid, None)):
            self.served.echo_ms.append((now - asked_at) * 1000)
        elif heard.kind in (FLOW_MOD, METER_MOD) and self._port_told_at:
            self.served.rules_ms.append((now - self._port_told_at) * 1000)
            self._port_told_at = None
        with self._sending:
            answer(self._switch, heard)
        self.served.barriers += heard.kind == BARRIER_REQUEST

    def _speak(self) -> None:
        turn = 0
        while not self._stopping.wait(0.01):
            turn += 1
            with self._sending:
                self._asked_at[turn] = time.monotonic()
                self._switch.send(ECHO_REQUEST, b"", turn)
                if turn % 50 == 0 and self._port_told_at is None:
                    number = 2 + turn // 50
                    self._port_told_at = time.monotonic()
                    self._switch.send(PORT_STATUS, struct.pack("!B7x", _ADDED) + port_desc(number, f"eth{number}"))


def answer(switch: FakeSwitch, heard: Heard) -> None:
    """What an empty switch says."""
    switch.answer(heard)
    if heard.kind == BARRIER_REQUEST:
        switch.send(BARRIER_REPLY, b"", heard.xid)
    elif heard.kind == MULTIPART_REQUEST:
        kind = int.from_bytes(heard.body[:2], "big")
        switch.reply_multipart(heard, kind, bytes(24) if kind == _AGGREGATE else b"")


# ---- the hostile one


class HostileSwitch:
    """Connects, answers as a switch must to be asked for more, and sends mutants where an answer is waited for."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._switch: FakeSwitch | None = None
        self._waiting: dict[int, int] = {}
        self._told: set[int] = set()
        self.connections = 0
        self.thrown_out = 0
        self.mute_s = 0.0

    def send(self, mutant: Mutant) -> None:
        """Sends it where it belongs, then waits until the controller has answered an echo or ended the connection."""
        try:
            if mutant.kind in HANDSHAKE:
                self.close()
            else:
                self._ready_for(mutant)
            switch, xid = self._connected(mutant if mutant.kind in HANDSHAKE else None), self._xid(mutant)
            if mutant.kind not in HANDSHAKE:
                switch.socket.sendall(mutant.numbered(xid))
            if mutant.ends:
                self.close()
            else:
                self._settle(switch)
        except (EOFError, OSError):
            self.thrown_out += 1
            self.close()

    def close(self) -> None:
        if self._switch:
            self._switch.close()
        self._switch = None
        self._waiting = {}
        self._told = set()

    def _connected(self, mutant: Mutant | None) -> FakeSwitch:
        """Connects when it is not, with the mutant in its place in the handshake."""
        if self._switch:
            return self._switch
        self.connections += 1
        switch = self._switch = FakeSwitch(self._port, HOSTILE_DPID)
        switch.socket.settimeout(ANSWER_S)
        kind = mutant.kind if mutant else None
        switch.socket.sendall(mutant.numbered(0)) if mutant and kind in INSTEAD_OF_HELLO else switch.send(HELLO, b"")
        asked = switch.expect(FEATURES_REQUEST)
        if mutant and kind == "features reply":
            switch.socket.sendall(mutant.numbered(asked.xid))
        else:
            switch.send(FEATURES_REPLY, struct.pack("!QIBB2xII", HOSTILE_DPID, 0, 254, 0, 0x4F, 0), asked.xid)
        asked = switch.expect_multipart(PORT_DESC)
        if mutant and kind == "port desc":
            switch.socket.sendall(mutant.numbered(asked.xid))
        else:
            switch.reply_multipart(asked, PORT_DESC, port_desc(1, "eth1") + port_desc(2, "eth2"))
        return switch

    def _ready_for(self, mutant: Mutant) -> None:
        """Waits for the request that it answers, if it answers one that the controller makes."""
        kind = MULTIPART.get(mutant.kind)
        if kind is None or kind in self._waiting:
            return
        if self._switch and kind not in (MULTIPART["port stats"], MULTIPART["meter stats"], MULTIPART["flow stats"]):
            self.close()  # asked for only once, after connecting
        switch = self._connected(None)
        deadline = time.monotonic() + ASK_S
        while kind not in self._waiting and time.monotonic() < deadline:
            self._take(switch, switch.hear())

    def _xid(self, mutant: Mutant) -> int:
        """Of the request that it answers. What follows a last part answers nothing."""
        kind = MULTIPART.get(mutant.kind, -1)
        xid = self._waiting.get(kind, 0)
        more = mutant.data[11:12] == b"\1"
        if not more:
            self._waiting.pop(kind, None)
        return xid

    def _take(self, switch: FakeSwitch, heard: Heard) -> None:
        kind = int.from_bytes(heard.body[:2], "big")
        if heard.kind != MULTIPART_REQUEST:
            answer(switch, heard)
        elif self.connections % 3 == 0 and kind in _READ_BACK and kind not in self._told:
            # Told that there are rules of somebody else, the controller asks for those next.
            self._told.add(kind)
            switch.reply_multipart(heard, kind, struct.pack("!QQI4x", 0, 0, 9) if kind == _AGGREGATE else b"")
        else:
            self._waiting[kind] = heard.xid

    def _settle(self, switch: FakeSwitch) -> None:
        asked_at = time.monotonic()
        switch.send(ECHO_REQUEST, b"settled?", 7)
        while (heard := switch.hear()) != (ECHO_REPLY, 7, b"settled?"):
            self._take(switch, heard)
        self.mute_s = max(self.mute_s, time.monotonic() - asked_at)
