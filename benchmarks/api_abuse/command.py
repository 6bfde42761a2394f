"""Benchmark ``api-abuse``: service that well-behaved clients get while hostile clients attack the API.

    .venv/bin/python -m benchmarks api-abuse [--idle N] [--half-open N] [--watchers N] [--per-s N]
        [--seconds S]

The real controller runs in its own process, with HAProxy in front of its API. Figures of memory and CPU time include
HAProxy. Attackers (``attackers``) connect from several addresses. They hold connections without a call, calls without a
request, and watchers that do not read, and open each again when the server ends it.

Well-behaved clients connect from one more address. They register jobs, connect switches, and renew a lease 100 times a
second. A renewal is timed from the moment at which it is due, even if it is sent later. At the end the controller is
killed and started again.

The exit status is 1 when a call failed, the restarted controller lacks a job that it had acknowledged, or a figure
exceeds its limit: 100 ms for the p99 of renewals, 1 s for a switch to connect, 50 MiB for the growth of the memory.
"""

import json
import math
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from itertools import count
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.api_abuse.attackers import CALLS_PER_CONNECTION, WATCHED
from benchmarks.measures import Spread, Usage, background, figures_of, report, usage
from benchmarks.openflow_bytes import Connection, PlainSwitch, Type, message
from controller.config import ApiConfig
from mininet_topos.controller_process import ControllerProcess, Settings, reserve_port, start
from mininet_topos.haproxy_process import haproxy_before
from mininet_topos.lab.record import wait_for
from signalbox.client import Client
from signalbox.errors import SignalboxError
from signalbox.jobs.spec import JobSpec

OUT = Path("out/bench/api-abuse.json")
MEBI = 1 << 20
PROCESSES = 4
CALLERS = 10
CALLS_PER_S = 100.0
REGISTRATION_EVERY_S = 0.25
SLEEP_S = 0.01
SWITCH_EVERY_S = 1.0
SETTLE_S = 5.0
MOST_S = 60.0
LIMIT_MS = 100.0
SWITCH_LIMIT_S = 1.0
MEMORY_LIMIT_MB = 50.0

_NUMBERS = count(1)
"""Numbers of the registered jobs."""


@dataclass
class Beside:
    late_ms: list[float] = field(default_factory=list)
    """Delays in milliseconds of a thread that only sleeps: how late it wakes. All other figures contain such delays."""
    calls_ms: list[float] = field(default_factory=list)
    registrations_ms: list[float] = field(default_factory=list)
    switches_s: list[float] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)
    acknowledged: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Result:
    """Figures of a run. Figures named ``alone`` are from before the attack, all other figures from during it.

    ``late_*``: how late a thread wakes that only sleeps, in milliseconds; all other times contain such delays."""

    late_alone_ms: Spread | None
    late_ms: Spread | None
    alone_ms: Spread | None
    beside_ms: Spread | None
    registrations_ms: Spread | None
    switches_s: Spread | None
    calls: int
    errors: dict[str, int]
    acknowledged: int
    lost: int
    """Number of acknowledged registrations that the restarted controller does not know."""
    memory_mb: tuple[float, float]
    cpu_cores: float
    descriptors: int
    """Number of file descriptors that the controller had open at the end."""
    open: dict[str, int]
    """Numbers of connections and calls that the attackers had open at the end, by kind."""
    ended: dict[str, int]
    """Numbers of connections and calls that the server has ended, by kind."""
    log_lines: int

    @property
    def failures(self) -> list[str]:
        found = [f"{count} calls failed with {name}" for name, count in self.errors.items()]
        found += [f"{self.lost} acknowledged registrations are lost"] if self.lost else []
        for what, measured, limit in (
            ("a call takes {:.0f} ms at p99", self.beside_ms.p99 if self.beside_ms else math.inf, LIMIT_MS),
            ("a switch takes {:.2f} s", self.switches_s.max if self.switches_s else math.inf, SWITCH_LIMIT_S),
            ("{:.0f} MB more memory", self.memory_mb[1] - self.memory_mb[0], MEMORY_LIMIT_MB),
        ):
            if measured > limit:
                found.append(what.format(measured))
        return found


def job(name: str, number: int) -> JobSpec:
    ips = [f"10.{number // 250}.{number % 250}.1", f"10.{number // 250}.{number % 250}.2"]
    transfers = [{"src": 0, "dst": 1, "bytes_per_iteration": 1_000_000}]
    return JobSpec.parse({"job_id": name, "endpoints": ips, "transfers": transfers, "lease_s": 3600})


# ---- well-behaved clients


def call_at_a_rate(address: str, token: str, first_s: float, beside: Beside, stopping: threading.Event) -> None:
    """Renew a lease ``CALLS_PER_S`` / ``CALLERS`` times a second, and time each call from when it is due."""
    period_s = CALLERS / CALLS_PER_S
    due = time.monotonic() + first_s
    with Client(address) as client:
        while not stopping.wait(max(0.0, due - time.monotonic())):
            try:
                client.renew_lease(WATCHED, token)
                beside.calls_ms.append(1000 * (time.monotonic() - due))
            except SignalboxError as error:
                beside.errors[f"{type(error).__name__}: {error}"[:120]] += 1
            due += period_s


def sleep(beside: Beside, stopping: threading.Event) -> None:
    while not stopping.is_set():
        due = time.monotonic() + SLEEP_S
        time.sleep(SLEEP_S)
        beside.late_ms.append(1000 * (time.monotonic() - due))


def register(address: str, beside: Beside, stopping: threading.Event) -> None:
    with Client(address) as client:
        while not stopping.wait(REGISTRATION_EVERY_S):
            began, number = time.monotonic(), next(_NUMBERS)
            try:
                client.register_job(job(f"job{number}", number))
                beside.registrations_ms.append(1000 * (time.monotonic() - began))
                beside.acknowledged.add(f"job{number}")
            except SignalboxError as error:
                beside.errors[f"{type(error).__name__}: {error}"[:120]] += 1


def connect_switches(port: int, beside: Beside, stopping: threading.Event) -> None:
    """Connect a new switch every ``SWITCH_EVERY_S``, and record the seconds until each is connected.

    A switch is connected when the controller has made all its checks and requests the rules."""
    dpid = 100
    connections: list[Connection] = []
    while not stopping.wait(SWITCH_EVERY_S):
        dpid += 1
        began = time.monotonic()
        try:
            connection = Connection(port, MOST_S)
            connections.append(connection)
            switch = PlainSwitch(dpid, 2)
            connection.send(message(Type.HELLO, 0))
            master = False
            while True:
                heard = connection.hear()
                master = master or (heard[1] == Type.ROLE_REQUEST and heard[11] == 2)
                connection.send(switch.answer(heard))
                if master and heard[1] == Type.MULTIPART_REQUEST:
                    break
            beside.switches_s.append(time.monotonic() - began)
        except (OSError, EOFError) as error:
            beside.errors[f"switch: {error or 'ended'}"] += 1
    for connection in connections:
        connection.close()


# ---- the run


@contextmanager
def attacking(
    address: str, per_s: float, silent: int, greeted: int, half_open: int, watchers: int
) -> Iterator[list[dict[str, Any]]]:
    """Run the attackers; yield the latest report of each attacker process."""
    newest: list[dict[str, Any]] = [{"open": {}, "ended": {}} for _ in range(PROCESSES)]
    processes: list[subprocess.Popen[bytes]] = []

    def listen(number: int) -> None:
        for line in processes[number].stdout or ():
            newest[number] = json.loads(line)

    parts = [str(of // PROCESSES) for of in (silent, greeted, half_open, watchers)]
    for number in range(PROCESSES):
        words = (address, f"127.0.0.{10 + number}", str(per_s / PROCESSES), *parts)
        processes.append(start("benchmarks.api_abuse.attackers", *words, stdout=subprocess.PIPE))
    threads = [threading.Thread(target=listen, args=(number,)) for number in range(PROCESSES)]
    for thread in threads:
        thread.start()
    try:
        yield newest
    finally:
        for process in processes:
            process.kill()
            process.wait()
        for thread in threads:
            thread.join()
        for process in processes:
            if process.stdout:
                process.stdout.close()


def measure(idle: int, half_open: int, watchers: int, per_s: float, seconds: float) -> Result:
    """Return the figures. Raises ``SignalboxError`` when the controller ends by itself."""
    address = f"127.0.0.1:{reserve_port()}"
    alone, beside = Beside(), Beside()
    with tempfile.TemporaryDirectory(prefix="signalbox-abuse-") as name, ExitStack() as stack:
        socket = Path(name, "proxy.sock")
        before_it = stack.enter_context(haproxy_before(Path(name), ApiConfig(listen=(address,), proxy_socket=socket)))
        settings: Settings = {
            "api": {"listen": [address], "proxy_socket": str(socket)},
            "jobs": {"max_jobs": 10_000},
        }
        controller = ControllerProcess(Path(name), settings=settings)

        def used() -> Usage:
            both = [usage(controller.process), usage(before_it)]
            return Usage(*(sum(column) for column in zip(*both, strict=True)))

        controller.start()
        stack.callback(controller.stop)
        client = stack.enter_context(Client(address))
        wait_for(lambda: controller.ready(client), "the controller", MOST_S, 0.05)
        token = client.register_job(job(WATCHED, 0)).lease_token
        with background(*well_meaning(address, controller.openflow_port, token, alone)):
            time.sleep(max(SETTLE_S, seconds / 3))
        beside.acknowledged |= alone.acknowledged
        before = used()
        with attacking(address, per_s, idle - idle // 2, idle // 2, half_open, watchers) as newest:
            # The attackers have opened all connections within this time.
            time.sleep((idle + watchers + half_open / CALLS_PER_CONNECTION) / per_s)
            began, cpu_s = time.monotonic(), used().cpu_s
            most = before.rss_bytes
            with background(*well_meaning(address, controller.openflow_port, token, beside)):
                while time.monotonic() < began + seconds:
                    time.sleep(0.5)
                    controller.check()
                    most = max(most, used().rss_bytes)
            cores = (used().cpu_s - cpu_s) / (time.monotonic() - began)
            assert controller.process is not None
            descriptors = len(list(Path(f"/proc/{controller.process.pid}/fd").iterdir()))
            attackers = [dict(line) for line in newest]
        controller.kill()
        lines = controller.log.read_text(errors="replace").count("\n")
        controller.start()
        restarted = stack.enter_context(Client(address))
        wait_for(lambda: controller.ready(restarted), "the controller", MOST_S, 0.05)
        known = {found.spec.job_id for found in restarted.list_jobs()}
    return Result(
        late_alone_ms=Spread.of(alone.late_ms),
        late_ms=Spread.of(beside.late_ms),
        alone_ms=Spread.of(alone.calls_ms),
        beside_ms=Spread.of(beside.calls_ms),
        registrations_ms=Spread.of(beside.registrations_ms),
        switches_s=Spread.of(beside.switches_s),
        calls=len(beside.calls_ms),
        errors=dict(beside.errors),
        acknowledged=len(beside.acknowledged),
        lost=len(beside.acknowledged - known),
        memory_mb=(before.rss_bytes / MEBI, most / MEBI),
        cpu_cores=cores,
        descriptors=descriptors,
        open=summed(attackers, "open"),
        ended=summed(attackers, "ended"),
        log_lines=lines,
    )


def well_meaning(address: str, openflow_port: int, token: str, beside: Beside) -> list[Any]:
    callers = [
        lambda stopping, first=number / CALLS_PER_S: call_at_a_rate(address, token, first, beside, stopping)
        for number in range(CALLERS)
    ]
    return [
        *callers,
        lambda stopping: sleep(beside, stopping),
        lambda stopping: register(address, beside, stopping),
        lambda stopping: connect_switches(openflow_port, beside, stopping),
    ]


def summed(lines: list[dict[str, Any]], key: str) -> dict[str, int]:
    total: Counter[str] = Counter()
    for line in lines:
        total.update(line[key])
    return dict(total)


def main(
    idle: Annotated[int, typer.Option(help="Number of connections without a call; half send nothing at all.")] = 10_000,
    half_open: Annotated[int, typer.Option(help="Number of calls that send no request.")] = 5_000,
    watchers: Annotated[int, typer.Option(help="Number of watchers that never read.")] = 500,
    per_s: Annotated[float, typer.Option(help="Number of connections per second that the attackers open.")] = 400.0,
    seconds: Annotated[float, typer.Option(help="Seconds for which calls are timed during the attack.")] = 30.0,
) -> None:
    """Attack the API behind HAProxy with connections, half-open calls and watchers that do not read."""
    result = measure(idle, half_open, watchers, per_s, seconds)
    data, failures = asdict(result), result.failures
    said = [f"failed: {failure}" for failure in failures] or ["nothing failed"]
    report(data, OUT, {"Beside the attack": figures_of(data)}, *said)
    raise typer.Exit(bool(failures))
