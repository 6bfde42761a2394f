"""Switches that record the requests of a poller or reader of the southbound, and answer when the test says so."""

import struct
from itertools import count
from typing import Any

from controller.fabric.topology import Dpid
from controller.southbound.multipart import Reply

A = Dpid(1)


class AskedSwitches:
    """Stand-in for the connections to switches.

    ``asks``: the tested object, which sends its requests with ``send``. Each subclass makes it.
    ``asked``: time, switch and kind of each request.
    ``open``: transaction ids of the newest requests to each switch, by switch and kind."""

    asks: Any
    STEP_S = 0.05

    def __init__(self) -> None:
        self.asked: list[tuple[float, Dpid, int]] = []
        self.open: dict[tuple[Dpid, int], int] = {}
        self.now = 0.0
        self._xids = count(1)

    def send(self, dpid: Dpid, /, *messages: bytes) -> list[int]:
        kinds = [struct.unpack_from("!H", message, 8)[0] for message in messages]
        self.asked += [(self.now, dpid, kind) for kind in kinds]
        sent = {(dpid, kind): next(self._xids) for kind in kinds}
        self.open = {at: xid for at, xid in self.open.items() if at[0] != dpid} | sent
        return list(sent.values())

    def run(self, seconds: float) -> None:
        until = self.now + seconds
        while self.now < until:
            self.now += self.STEP_S
            self.asks.tick(self.now)

    def answer(self, kind: int, body: bytes = b"", more: bool = False, dpid: Dpid = A) -> bool:
        """Answer the newest request of a kind, and return whether the answer belongs to a request."""
        return bool(self.asks.part(dpid, Reply(self.open[dpid, kind], kind, more, body), self.now))

    def refuse(self, kind: int, dpid: Dpid = A) -> bool:
        return bool(self.asks.error(dpid, self.open[dpid, kind]))

    def answer_all(self, bodies: dict[int, bytes]) -> None:
        """Answer all open requests to the switch ``A``, each with its body in ``bodies`` or an empty body."""
        for kind in [kind for dpid, kind in self.open if dpid == A]:
            self.answer(kind, bodies.get(kind, b""))

    def kinds(self) -> list[int]:
        return [kind for _, _, kind in self.asked]
