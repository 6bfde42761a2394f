"""Benchmark ``fuzz-openflow``: broken OpenFlow messages from one switch, while the controller must serve another.

    .venv/bin/python -m benchmarks fuzz-openflow [--count N] [--seed S] [--first I]

The real controller runs in its own process, on free ports. Message I of seed S is always the same; to repeat it, add
``--first I --count 1``. The results are the number of connections that the controller ended, and the times for which
the good switch waited for echoes and for rules. The exit status is 1 when the controller died or did not end cleanly,
or when the good switch lost its connection or waited 5 s for an echo.
"""

import json
import struct
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.measures import Spread, figures_of, report, usage
from benchmarks.openflow.mutants import HANDSHAKE, INSTEAD_OF_HELLO, MULTIPART, PORT_DESC, Mutant, mutant
from benchmarks.openflow_bytes import (
    Connection,
    EchoingSwitch,
    Multipart,
    PlainSwitch,
    Type,
    message,
    multipart_kind,
    port_desc,
    xid_of,
)
from mininet_topos.controller_process import ControllerProcess, Settings
from signalbox.errors import SignalboxError

GOOD_DPID = 1
HOSTILE_DPID = 2
PORTS = 2
ANSWER_S = 5.0
PORT_EVERY_S = 0.5
ASK_S = 1.0
_READ_BACK = frozenset(MULTIPART[name] for name in ("flow stats", "aggregate stats", "group desc", "meter config"))
_ASKED_ONCE = _READ_BACK - {MULTIPART["flow stats"]}
"""Multipart requests that the controller makes only once per connection.

A request for flow stats is repeated, because flow stats are counters, too.
"""
_FOREIGN_RULES = struct.pack("!QQI4x", 0, 0, 9)
_ADDED = 0


# ---- good switch


class GoodSwitch(EchoingSwitch):
    """Correct switch that adds a port every half second.

    ``rules_ms``: milliseconds from the announcement of each port to the first rule that follows."""

    def __init__(self, port: int) -> None:
        super().__init__(port, GOOD_DPID, PORTS)
        self.rules_ms: list[float] = []
        self.barriers = 0
        self._told_at: float | None = None
        self._next_port = PORTS + 1
        self._threads.append(threading.Thread(target=self._add_ports))

    def __exit__(self, *details: object) -> None:
        super().__exit__(*details)
        self._threads[-1].join()

    def _take(self, heard: bytes, now: float) -> None:
        if heard[1] in (Type.FLOW_MOD, Type.METER_MOD) and self._told_at:
            self.rules_ms.append((now - self._told_at) * 1000)
            self._told_at = None
        self.barriers += heard[1] == Type.BARRIER_REQUEST
        super()._take(heard, now)

    def _add_ports(self) -> None:
        while not self._stopping.wait(PORT_EVERY_S) and not self.connection_lost:
            if self._told_at is None:
                added = struct.pack("!B7x", _ADDED) + port_desc(self._next_port, f"eth{self._next_port}")
                self._next_port += 1
                self._told_at = time.monotonic()
                self._send(message(Type.PORT_STATUS, 0, added))


# ---- hostile switch


class HostileSwitch:
    """Switch that sends a mutant (a broken message) in place of some answers. All other answers are correct."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._switch = PlainSwitch(HOSTILE_DPID, PORTS)
        self._connection: Connection | None = None
        self._waiting: dict[int, int] = {}
        self._told: set[int] = set()
        self.connections = 0
        self.thrown_out = 0

    def send(self, mutant: Mutant) -> None:
        """Send a mutant when the controller expects a message of its kind, and wait until it has been read.

        The mutant has been read when the controller answers an echo request that follows it, or ends the connection."""
        try:
            if mutant.kind in HANDSHAKE:
                self.close()
                connection = self._connected(mutant)
            else:
                self._ready_for(mutant)
                connection = self._connected(None)
                connection.send(mutant.numbered(self._xid(mutant)))
            if mutant.ends:
                self.close()
            else:
                self._settle(connection)
        except (EOFError, OSError):
            self.thrown_out += 1
            self.close()

    def close(self) -> None:
        if self._connection:
            self._connection.close()
        self._connection = None
        self._waiting = {}
        self._told = set()

    def _connected(self, mutant: Mutant | None) -> Connection:
        """Return the connection. If there is none, connect; the mutant then replaces a message of the handshake."""
        if self._connection:
            return self._connection
        self.connections += 1
        self._switch = PlainSwitch(HOSTILE_DPID, PORTS)
        connection = self._connection = Connection(self._port, ANSWER_S)
        kind = mutant.kind if mutant else None
        hello = mutant.numbered(0) if mutant and kind in INSTEAD_OF_HELLO else message(Type.HELLO, 0)
        connection.send(hello)
        for name, request, body in (
            ("features reply", Type.FEATURES_REQUEST, None),
            (PORT_DESC, Type.MULTIPART_REQUEST, Multipart.PORT_DESC),
        ):
            asked = connection.hear()
            while asked[1] != request or (body is not None and multipart_kind(asked) != body):
                connection.send(self._switch.answer(asked))
                asked = connection.hear()
            broken = mutant.numbered(xid_of(asked)) if mutant and kind == name else None
            connection.send(broken or self._switch.answer(asked))
        return connection

    def _ready_for(self, mutant: Mutant) -> None:
        """Wait until the controller has sent the request that the mutant answers, if there is such a request."""
        kind = MULTIPART.get(mutant.kind)
        if kind is None or kind in self._waiting:
            return
        if kind in _ASKED_ONCE:
            self.close()
            self._told = {kind}  # the mutant is the only answer, because the controller would not repeat the request
        connection = self._connected(None)
        deadline = time.monotonic() + ASK_S
        while kind not in self._waiting and time.monotonic() < deadline:
            self._take(connection, connection.hear())

    def _xid(self, mutant: Mutant) -> int:
        """Return the transaction id of the request that the mutant answers; 0 if no such request is open.

        The request is closed, unless the mutant announces that more parts follow."""
        kind = MULTIPART.get(mutant.kind, -1)
        xid = self._waiting.get(kind, 0)
        more = mutant.data[11:12] == b"\1"
        if not more:
            self._waiting.pop(kind, None)
        return xid

    def _take(self, connection: Connection, heard: bytes) -> None:
        if heard[1] != Type.MULTIPART_REQUEST:
            connection.send(self._switch.answer(heard))
            return
        kind, xid = multipart_kind(heard), xid_of(heard)
        if self.connections % 3 == 0 and kind in _READ_BACK and kind not in self._told:
            # This answer reports foreign rules, so that the controller requests them next.
            self._told.add(kind)
            body = _FOREIGN_RULES if kind == Multipart.AGGREGATE else b""
            connection.send(message(Type.MULTIPART_REPLY, xid, struct.pack("!HH4x", kind, 0) + body))
        else:
            self._waiting[kind] = xid

    def _settle(self, connection: Connection) -> None:
        """Wait until the controller has answered an echo request."""
        request = message(Type.ECHO_REQUEST, 7, b"settled?")
        connection.send(request)
        reply = message(Type.ECHO_REPLY, 7, b"settled?")
        while (heard := connection.hear()) != reply:
            self._take(connection, heard)


RESULTS = Path("out/bench/fuzz_openflow.json")
SETTINGS: Settings = {"counters": {"interval_s": 0.05}}
MEBI = 1 << 20
STUCK_S = 5.0
"""Seconds that the good switch may wait for an echo."""


@dataclass(frozen=True, slots=True)
class Result:
    seed: int
    first: int
    count: int
    seconds: float
    failure: str
    """First failure, in words; empty if there was none."""
    at: int
    """Number of the last message that was sent."""
    connections: int
    thrown_out: int
    """Number of connections that the controller ended."""
    good_echo_ms: Spread | None
    good_rules_ms: Spread | None
    good_barriers: int
    rss_mb: tuple[float, float]
    tracebacks: int
    readers: Mapping[str, Mapping[str, int]]
    """Numbers of messages that each reader has accepted and refused."""


def fuzz(seed: int, count: int, first: int = 0) -> Result:
    """Send messages ``first`` to ``first + count - 1`` of the seed in order, up to the first failure."""
    failure, at = "", first
    with tempfile.TemporaryDirectory(prefix="signalbox-fuzz-") as name:
        file = Path(name) / "reached.json"
        controller = ControllerProcess(Path(name), settings=SETTINGS, program=("benchmarks.openflow.controller",))
        with controller.running("--reached", str(file)):
            with GoodSwitch(controller.openflow_port) as good:
                hostile = HostileSwitch(controller.openflow_port)
                before, began = usage(controller.process), time.monotonic()
                for at in range(first, first + count):
                    hostile.send(mutant(seed, at))
                    failure = _failure(controller, good)
                    if failure:
                        break
                hostile.close()
                seconds = time.monotonic() - began
                after = usage(controller.process)
            exit_status = controller.stop()
        if not failure and exit_status != 0:
            failure = f"the controller ended with {exit_status}"
        readers = json.loads(file.read_text()) if file.exists() else {}
        tracebacks = controller.log.read_text(errors="replace").count("Traceback")
    return Result(
        seed=seed,
        first=first,
        count=at - first + 1,
        seconds=seconds,
        failure=failure,
        at=at,
        connections=hostile.connections,
        thrown_out=hostile.thrown_out,
        good_echo_ms=Spread.of([1000 * took for _, took in good.answered]),
        good_rules_ms=Spread.of(good.rules_ms),
        good_barriers=good.barriers,
        rss_mb=(before.rss_bytes / MEBI, after.rss_bytes / MEBI),
        tracebacks=tracebacks,
        readers=readers,
    )


def _failure(controller: ControllerProcess, good: GoodSwitch) -> str:
    try:
        controller.check()
    except SignalboxError as error:
        return str(error)
    if good.connection_lost:
        return "the good switch lost its connection"
    if any(time.monotonic() - since > STUCK_S for since in good.unanswered):
        return f"the good switch waits {STUCK_S:g} s for an echo"
    return ""


def main(
    count: Annotated[int, typer.Option(help="Number of messages.")] = 10_000,
    seed: Annotated[int, typer.Option(help="Random seed.")] = 1,
    first: Annotated[int, typer.Option(help="Number of the first message.")] = 0,
) -> None:
    """Send broken OpenFlow messages to the controller while another switch must be served."""
    result = fuzz(seed, count, first)
    data = asdict(result)
    readers = [{"what": name, **counts} for name, counts in data["readers"].items()]
    figures = figures_of({name: data[name] for name in data if name != "readers"})
    report(data, RESULTS, {"Messages that reached a reader": readers, "Broken messages": figures})
    raise typer.Exit(bool(result.failure))
