"""Benchmark ``flood-openflow``: service for jobs and a good switch while one peer floods the OpenFlow port.

    .venv/bin/python -m benchmarks flood-openflow [--kind KIND]... [--seconds S]

For each kind of flood a new controller runs, in its own process; the attacker is another process. Meanwhile clients
renew a lease every 20 ms, and register and end a job every 100 ms. The exit status is 1 when a target is missed:

- the p99 of renewals, and that of registrations: at most 100 ms;
- no failed call, no traceback in the log, and no lost connection of the good switch;
- the memory a while after the flood: at most 10 % more than before;
- the log: at most 10 lines in 10 s.
"""

import multiprocessing
import struct
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import cache
from itertools import count
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.measures import Spread, background, report, usage
from benchmarks.openflow.fuzz import GOOD_DPID, GoodSwitch
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
from controller.tables.rules import Table, cookie
from mininet_topos.controller_process import ControllerProcess
from mininet_topos.trainer.training import announcement
from signalbox.client import Client
from signalbox.jobs.spec import Algorithm, JobSpec

MEBI = 1 << 20
RESULTS = Path("out/bench/flood_openflow.json")
RENEW_S, REGISTER_S = 0.02, 0.1
SETTLE_S = 10.0
LIMIT_MS, MEMORY, LINES = 100.0, 1.1, 10.0
PATIENCE_S = 20.0
LEASE_S = 60.0
HOSTILE_DPID = 0xBAD
PORTS = 4_000
IS_SLAVE = struct.pack("!HH", 1, 10)
"""Type and code of the error with which a switch says that another controller is its master."""
MANY_METERS = 100_000
MANY_RULES = 100_000
MANY_CONFIGS = 1_000_000


# ---- the attacker


class Flooding(EchoingSwitch):
    """Switch that answers requests, and can send messages without end."""

    def __init__(self, port: int, ports: int = 2) -> None:
        super().__init__(port, HOSTILE_DPID, ports, interval_s=1.0)

    def flood(self, data: Callable[[], bytes]) -> None:
        while not self.connection_lost:
            self._send(data())


def port_changes(port: int) -> None:
    """Act as a switch with 4,000 ports, which go down and come up as fast as the controller reads."""

    def status(number: int, up: bool) -> bytes:
        desc = port_desc(number, f"eth{number}")
        desc = desc if up else desc[:32] + struct.pack("!I", 1) + desc[36:]
        return message(Type.PORT_STATUS, 0, struct.pack("!B7x", 2) + desc)

    with Flooding(port, PORTS) as switch:
        data = b"".join(status(number, up) for up in (False, True) for number in range(1, PORTS + 1))
        switch.flood(lambda: data)


def asking(number: int, at: int = 1) -> bytes:
    """Return a packet-in at port ``at`` with an ARP request. ``number``: number of the sending host."""
    match = struct.pack("!HHHBBI4x", 1, 12, 0x8000, 0, 4, at)
    sender = bytes.fromhex("020000000bad") + bytes([10, 66, number >> 8, number & 255])
    body = struct.pack("!HHBBH", 1, 0x0800, 6, 4, 1) + sender + bytes(6) + bytes([10, 0, 0, 1])
    frame = (b"\xff" * 6 + sender[:6] + b"\x08\x06" + body).ljust(60, b"\0")
    head = struct.pack("!IHBBQ", 0xFFFFFFFF, len(frame), 1, 0, 0)
    return message(Type.PACKET_IN, 0, head + match + b"\0\0" + frame)


def arp(port: int) -> None:
    """Act as a switch with a thousand hosts that send ARP requests."""
    data = b"".join(map(asking, range(1000)))
    with Flooding(port) as switch:
        switch.flood(lambda: data)


class EndlessAnswers(Flooding):
    """Switch that answers a request for port counters with empty parts, none of which is the last.

    ``asked``: transaction id of the latest request."""

    asked = 0

    def _take(self, heard: bytes, now: float) -> None:
        if heard[1] == Type.MULTIPART_REQUEST and multipart_kind(heard) == Multipart.PORT_STATS:
            self.asked = xid_of(heard)
        else:
            super()._take(heard, now)


def endless_answers(port: int) -> None:
    """Send parts of an ``EndlessAnswers`` answer without end."""
    part = struct.pack("!HH4x", Multipart.PORT_STATS, 1)
    with EndlessAnswers(port) as switch:
        switch.flood(lambda: message(Type.MULTIPART_REPLY, switch.asked, part) * 1000)


class ManyMeters(PlainSwitch):
    """Switch that reports 100,000 unknown meters in each reply, other meters each time, with dropped packets."""

    turn = 0

    def _entries(self, request: bytes) -> list[bytes]:
        if request[:2] != struct.pack("!H", Multipart.METER):
            return super()._entries(request)
        self.turn += 1
        first = self.turn * MANY_METERS
        return [
            struct.pack("!IH6xIQQIIQQ", first + number, 56, 0, 0, 0, 0, 0, 1 << 32, 0) for number in range(MANY_METERS)
        ]


class ManyRules(PlainSwitch):
    """Switch that reports 100,000 rules in each reply, other rules each time.

    No controller has installed them, but they look like pins of flows from its host."""

    turn = 0

    def _entries(self, request: bytes) -> list[bytes]:
        if request[:2] != struct.pack("!H", Multipart.FLOW):
            return super()._entries(request)
        self.turn += 1
        owner = cookie(Table.PINNED, 7)
        head = struct.pack("!HBxIIHHHH4xQQQ", 80, Table.PINNED, 0, 0, 200, 0, 0, 0, owner, 1000, 1 << 20)
        match = bytes.fromhex("0001 001a 80000a02 0800 80001604 0a420000 80001804")
        first = (11 << 24) + self.turn * MANY_RULES
        return [head + match + struct.pack("!I6x", first + number) for number in range(MANY_RULES)]


class ManyConfigs(PlainSwitch):
    """Switch that reports a million empty meters and a million empty groups. No controller has installed them."""

    def _entries(self, request: bytes) -> list[bytes]:
        (kind,) = struct.unpack_from("!H", request)
        if kind not in (Multipart.METER_CONFIG, Multipart.GROUP_DESC):
            return super()._entries(request)
        return [struct.pack("!HHI", 8, 0, number) for number in range(MANY_CONFIGS)]


def refused_packets(port: int) -> None:
    """Connect as a switch with a new dpid, send an incomplete ARP packet from each of its ports, and leave."""
    switch = PlainSwitch(HOSTILE_DPID + time.monotonic_ns() % (1 << 40), PORTS)
    connection = _connected(port, switch)
    connection.send(b"".join(_incomplete(asking(0, at)) for at in range(1, PORTS + 1)))
    time.sleep(2.0)  # the controller counts once a second
    connection.close()


def _incomplete(packet_in: bytes) -> bytes:
    """Return the packet-in with all fields of its ARP packet set to 0."""
    return packet_in[:-46] + bytes(46)


def many_hosts(port: int) -> None:
    """Connect 16 switches with 64 ports each, and pretend that each switch has 4,000 hosts."""
    switches = [PlainSwitch(HOSTILE_DPID + number, 64) for number in range(16)]
    connections = [_connected(port, switch) for switch in switches]
    time.sleep(3.0)  # until the ports are edge ports
    for number in range(4000):
        for turn, connection in enumerate(connections):
            connection.send(asking(4000 * turn + number, 1 + number % 64))
    for connection in connections:
        connection.hear()
    time.sleep(PATIENCE_S)


class HalfAnswers(PlainSwitch):
    """Switch whose answers with port counters name 130,000 ports, and never get to their last part."""

    def answer(self, data: bytes) -> bytes:
        if data[1] != Type.MULTIPART_REQUEST or multipart_kind(data) != Multipart.PORT_STATS:
            return super().answer(data)
        head = struct.pack("!HH4x", Multipart.PORT_STATS, 1)
        return b"".join(message(Type.MULTIPART_REPLY, xid_of(data), head + part) for part in invented_ports())


@cache
def invented_ports() -> list[bytes]:
    """Return the parts of an answer of ``HalfAnswers``, 15 MB together."""
    return [
        b"".join(struct.pack("!I4x12QII", number, *[number] * 12, 0, 0) for number in range(first, first + 500))
        for first in range(1000, 131_000, 500)
    ]


def half_answers(port: int) -> None:
    switches = [HalfAnswers(HOSTILE_DPID + number, 2) for number in range(40)]
    connections = [(_connected(port, switch), switch) for switch in switches]
    while True:
        for connection, switch in connections:
            connection.send(switch.answer(connection.hear()))


def answering(port: int, switch: PlainSwitch, more: bytes = b"") -> None:
    """Answer each request as ``switch`` does, followed by ``more``."""
    connection = _connected(port, switch)
    while True:
        connection.send(switch.answer(connection.hear()) + more)


def unread_echoes(port: int) -> None:
    """Send echo requests, and never read an answer."""
    connection = _connected(port, PlainSwitch(HOSTILE_DPID, 2))
    while True:
        connection.send(message(Type.ECHO_REQUEST, 0) * 1000)


def phantoms(port: int) -> None:
    """Connect 4,096 switches that the controller has never seen."""
    connections = [_connected(port, PlainSwitch(HOSTILE_DPID + number, 4)) for number in range(4096)]
    connections[-1].hear()


def same_dpid(port: int) -> None:
    """Connect as a switch with the dpid of the good switch, and wait until the controller ends the connection."""
    connection = _connected(port, PlainSwitch(GOOD_DPID, 2))
    while True:
        connection.hear()


def leaving(port: int) -> None:
    """Connect as a switch, report that another controller is the master, and leave."""
    connection = _connected(port, PlainSwitch(HOSTILE_DPID, 2))
    connection.hear()
    connection.send(message(Type.ERROR, 0, IS_SLAVE))
    connection.close()


def silent(port: int) -> None:
    """Open a thousand connections that send nothing."""
    connections = [Connection(port, PATIENCE_S) for _ in range(1000)]
    connections[0].hear()


KINDS: Mapping[str, Callable[[int], None]] = {
    "port-changes": port_changes,
    "arp": arp,
    "unread-echoes": unread_echoes,
    "endless-answers": endless_answers,
    "many-meters": lambda port: answering(port, ManyMeters(HOSTILE_DPID, 2)),
    "many-rules": lambda port: answering(port, ManyRules(HOSTILE_DPID, 2), asking(0)),
    "many-configs": lambda port: answering(port, ManyConfigs(HOSTILE_DPID, 2)),
    "many-ports": lambda port: answering(port, PlainSwitch(HOSTILE_DPID, 60_000)),
    "phantoms": phantoms,
    "same-dpid": same_dpid,
    "leaving": leaving,
    "silent": silent,
    "refused-packets": refused_packets,
    "many-hosts": many_hosts,
    "half-answers": half_answers,
}


def _connected(port: int, switch: PlainSwitch) -> Connection:
    connection = Connection(port, PATIENCE_S)
    connection.send(message(Type.HELLO, 0))
    for _ in range(5):  # hello, features, ports, two role requests
        if answer := switch.answer(connection.hear()):
            connection.send(answer)
    return connection


def attack(kind: str, port: int) -> None:
    """Flood until this process is killed. A kind of flood that ends, or loses its connection, begins again."""
    while True:
        with suppress(OSError, EOFError):
            KINDS[kind](port)


@contextmanager
def attacking(kind: str, port: int) -> Iterator[None]:
    process = multiprocessing.get_context("spawn").Process(target=attack, args=(kind, port), daemon=True)
    process.start()
    try:
        yield
    finally:
        process.kill()
        process.join()


# ---- clients during the flood


@dataclass
class Beside:
    """Durations in milliseconds of the clients' calls, and their errors."""

    renewals: list[float] = field(default_factory=list)
    registrations: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def timed(self, into: list[float], call: Callable[[], object]) -> None:
        began = time.monotonic()
        try:
            call()
        except Exception as error:
            self.errors.append(f"{type(error).__name__}: {error}")
        into.append(1000 * (time.monotonic() - began))


def spec(name: str) -> JobSpec:
    hosts = ("10.9.0.1", "10.9.0.2") if name == "first" else ("10.9.0.3", "10.9.0.4")
    return announcement(name, hosts, Algorithm.RING_ALL_REDUCE, 1_000_000, LEASE_S)


@contextmanager
def calls(address: str, beside: Beside) -> Iterator[None]:
    """Renew a lease and register jobs while the block runs, in one thread each."""
    with Client(address) as client:
        token = client.register_job(spec("first"), take_over=True).lease_token

    def renew(stopping: threading.Event) -> None:
        with Client(address) as client:
            while not stopping.wait(RENEW_S):
                beside.timed(beside.renewals, lambda: client.renew_lease("first", token))

    def register(stopping: threading.Event) -> None:
        with Client(address) as client:
            for number in count():
                if stopping.wait(REGISTER_S):
                    return
                beside.timed(beside.registrations, lambda: client.register_job(spec(f"job{number}")))  # noqa: B023
                client.deregister_job(f"job{number}", force=True)

    with background(renew, register):
        yield


# ---- results


@dataclass(frozen=True, slots=True)
class Result:
    kind: str
    renewals_ms: Spread | None
    registrations_ms: Spread | None
    errors: tuple[str, ...]
    echo_ms: Spread | None
    rules_ms: Spread | None
    good_lost: bool
    rss_mb: tuple[float, float, float]
    """Memory in MiB: before the flood, at its end, and ``SETTLE_S`` later."""
    lines: float
    """Number of lines in the controller's log per ten seconds of the flood, without those about jobs."""
    tracebacks: int
    alarms: tuple[str, ...]

    @property
    def missed(self) -> list[str]:
        slow = [each for each in (self.renewals_ms, self.registrations_ms) if each is None or each.p99 > LIMIT_MS]
        checks = {
            "p99 of calls": bool(slow),
            "errors": bool(self.errors),
            "the good switch": self.good_lost or self.echo_ms is None,
            "memory": self.rss_mb[2] > MEMORY * self.rss_mb[0],
            "log lines": self.lines > LINES,
            "tracebacks": self.tracebacks > 0,
        }
        return [what for what, is_missed in checks.items() if is_missed]


def measure(kind: str, seconds: float) -> Result:
    """Return the figures of one kind of flood. Raises ``SignalboxError`` when the controller ends by itself."""
    beside = Beside()
    with tempfile.TemporaryDirectory(prefix="signalbox-flood-") as name:
        controller = ControllerProcess(Path(name))
        with controller.running() as client, GoodSwitch(controller.openflow_port) as good:
            with calls(controller.address, Beside()):
                time.sleep(SETTLE_S)
            before, lines = usage(controller.process), _lines(controller)
            with calls(controller.address, beside), attacking(kind, controller.openflow_port):
                time.sleep(seconds)
                during, lines = usage(controller.process), _lines(controller) - lines
                alarms = tuple(alarm.text for alarm in client.get_status().alarms)
            time.sleep(SETTLE_S)
            after = usage(controller.process)
            controller.check()
        log = controller.log.read_text(errors="replace")
    return Result(
        kind,
        Spread.of(beside.renewals),
        Spread.of(beside.registrations),
        tuple(sorted(set(beside.errors))),
        Spread.of([1000 * took for _, took in good.answered]),
        Spread.of(good.rules_ms),
        good.connection_lost,
        (before.rss_bytes / MEBI, during.rss_bytes / MEBI, after.rss_bytes / MEBI),
        lines * 10 / seconds,
        log.count("Traceback"),
        alarms,
    )


def _lines(controller: ControllerProcess) -> int:
    """Return the number of lines in the log, without those about jobs."""
    return sum("job" not in line for line in controller.log.read_text(errors="replace").splitlines())


def main(
    kind: Annotated[list[str] | None, typer.Option(help=f"Kind of flood: {', '.join(KINDS)}; all by default.")] = None,
    seconds: Annotated[float, typer.Option(help="Seconds that each flood lasts.")] = 20.0,
) -> None:
    """Flood the OpenFlow port while jobs and another switch must be served."""
    unknown = sorted(set(kind or ()) - KINDS.keys())
    if unknown:
        raise typer.BadParameter(f"there is no kind {unknown[0]!r}", param_hint="--kind")
    results = [measure(each, seconds) for each in kind or KINDS]
    data = [asdict(each) for each in results]
    missed = [f"{each.kind} misses: {', '.join(each.missed)}" for each in results if each.missed]
    report(data, RESULTS, {"Floods": data}, *missed)
    raise typer.Exit(bool(missed))
