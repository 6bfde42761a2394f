"""Which connections of clients may stay: the decision, without sockets.

In: what connections do, with ``now`` in monotonic seconds. Out: the connections that have to end, each with a reason.

A connection is ``silent`` until its client has begun to speak HTTP/2 or TLS, ``opened`` until its first call, and then
``busy`` or ``idle``. Only ``busy`` ones are never ended: where a limit is reached the newest connection replaces the
oldest silent one, the oldest without a call, or the one whose last call is longest ago. Of the clients the one with
the most connections loses one. So who only opens connections takes no place from clients that call.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

MAX_SILENT = 1024
MAX_UNCALLED = 128
"""Opened connections without a call, of all clients: gRPC keeps state for each."""

Stage = Literal["silent", "opened", "idle", "busy"]
Reason = Literal["silent", "no_call", "client_connections", "connections"]


class ConnectionLimits(NamedTuple):
    """``silent`` and ``uncalled``: of all clients. ``connections``, of all clients, and ``of_client`` leave the silent
    ones out. ``silent_s``: how long a connection may be silent, and twice
    that without a call."""

    connections: int
    of_client: int
    silent_s: float
    silent: int = MAX_SILENT
    uncalled: int = MAX_UNCALLED


@dataclass(slots=True, eq=False)
class Connection:
    """``client``: what is counted together. ``peer``: for people, with the port. ``since``: when the stage began.
    ``let_in``: a caller that is known has used it."""

    id: int
    client: str
    peer: str
    since: float
    stage: Stage = "silent"
    calls: int = 0
    let_in: bool = False


Ended = tuple[Connection, Reason]
_Pool = dict[str, dict[int, Connection]]
"""By client, those that have been longest in their stage first."""


class Connections:
    def __init__(self, limits: ConnectionLimits) -> None:
        self._limits = limits
        self._known: dict[int, Connection] = {}
        self._pools: dict[Stage, _Pool] = {"silent": {}, "opened": {}, "idle": {}, "busy": {}}
        self._count: Counter[Stage] = Counter()
        self._of_client: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._known)

    def get(self, connection_id: int) -> Connection | None:
        return self._known.get(connection_id)

    def __iter__(self) -> Iterator[Connection]:
        return iter(self._known.values())

    def accepted(self, connection_id: int, client: str, peer: str, now: float) -> tuple[Connection, list[Ended]]:
        """A new connection, with an id that no other one has had, and the one that it replaces."""
        connection = self._known[connection_id] = Connection(connection_id, client, peer, now)
        self._enter(connection, "silent", now)
        if self._count["silent"] <= self._limits.silent:
            return connection, []
        return connection, [(self._oldest("silent"), "silent")]

    def opened(self, connection: Connection, now: float) -> list[Ended]:
        """The client has begun to speak. Returns what is replaced; that may be the connection itself."""
        self._leave(connection)
        self._enter(connection, "opened", now)
        client = connection.client
        self._of_client[client] += 1
        if self._of_client[client] > self._limits.of_client:
            return [(self._replaced(client, connection), "client_connections")]
        if sum(self._count.values()) - self._count["silent"] > self._limits.connections:
            most = max(self._of_client, key=self._of_client.__getitem__)
            return [(self._replaced(most, connection), "connections")]
        if self._count["opened"] > self._limits.uncalled:
            return [(self._oldest("opened"), "no_call")]
        return []

    def call_began(self, connection: Connection, now: float) -> None:
        connection.calls += 1
        if connection.calls == 1 and connection.id in self._known:
            self._leave(connection)
            self._enter(connection, "busy", now)

    def call_ended(self, connection: Connection, now: float) -> None:
        connection.calls -= 1
        if connection.calls == 0 and connection.id in self._known:
            self._leave(connection)
            self._enter(connection, "idle", now)

    def gone(self, connection: Connection) -> None:
        """It has ended; a second time does nothing."""
        if self._known.pop(connection.id, None) is None:
            return
        self._leave(connection)
        if connection.stage != "silent":
            self._of_client[connection.client] -= 1
            if not self._of_client[connection.client]:
                del self._of_client[connection.client]

    def overdue(self, now: float) -> list[Ended]:
        """Those that have been silent, or without a call, for too long."""
        late: list[Ended] = []
        for stage, reason, limit_s in (
            ("silent", "silent", self._limits.silent_s),
            ("opened", "no_call", 2 * self._limits.silent_s),
        ):
            for pool in self._pools[stage].values():  # type: ignore[index]
                for connection in pool.values():
                    if now < connection.since + limit_s:
                        break
                    late.append((connection, reason))  # type: ignore[arg-type]
        return late

    def _enter(self, connection: Connection, stage: Stage, now: float) -> None:
        connection.stage, connection.since = stage, now
        self._pools[stage].setdefault(connection.client, {})[connection.id] = connection
        self._count[stage] += 1

    def _leave(self, connection: Connection) -> None:
        pool = self._pools[connection.stage]
        of_client = pool[connection.client]
        del of_client[connection.id]
        if not of_client:
            del pool[connection.client]
        self._count[connection.stage] -= 1

    def _oldest(self, stage: Stage) -> Connection:
        """Of the client that has most of them."""
        return next(iter(max(self._pools[stage].values(), key=len).values()))

    def _replaced(self, client: str, newest: Connection) -> Connection:
        """The connection of ``client`` that ``newest`` replaces; ``newest`` itself when all others are busy."""
        for stage in ("opened", "idle"):
            for connection in self._pools[stage].get(client, {}).values():
                if connection is not newest:
                    return connection
        return newest
