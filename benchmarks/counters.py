"""CPU time per second that counters cost the controller, from reading the switches' replies to answering scrapes.

On each leaf-spine fabric three ring jobs span most hosts, and every flow has a planned route with its own rules (a
pin). The controller's own poller polls all switches every two seconds, and replies have the bytes that a switch would
send. The result is a table of CPU time per second by stage and ``out/bench/counters.json``; ``--json`` prints the JSON
instead. No sockets are used, so the time for sending and receiving is not included.
"""

from __future__ import annotations

import random
import struct
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from statistics import median
from urllib.request import urlopen

from rich.console import Console
from rich.progress import track

from benchmarks.measures import report, table_of
from controller.config import Config, MetricsConfig
from controller.control_loop import ControlLoop
from controller.core.messages import Command, Message, Tick
from controller.fabric.messages import LinkSeen, SwitchConnected
from controller.fabric.parts import Declared
from controller.fabric.topology import Dpid, Fabric, PortRef
from controller.fabric.topology_state import DeclaredHost
from controller.jobs.messages import RegisterJob, SavedState
from controller.observability.metrics import MetricsServer
from controller.planning.answers import Answers
from controller.planning.messages import SolvePlan
from controller.serving.publishing import PUBLISH_S
from controller.serving.serve import TICK_S
from controller.southbound import openflow_encode as encode
from controller.southbound.counter_poller import CounterPoller
from controller.southbound.given_rules import GivenRules
from controller.southbound.multipart import Reply
from controller.status import StatusBoard
from controller.tables.messages import InstallStage, ReadRules, StageDone, SwitchResult, SwitchRules
from controller.tables.rules import FlowRule, RuleMod, RuleSet, Table
from offline.scenarios.fabrics import leaf_spine
from signalbox.commands.output import AsJson
from signalbox.jobs.spec import JobSpec

Row = dict[str, str | float]

JOBS = 3
SEED = 1
LINK_BPS = 100e9
SIZES = ((16, 8, 8), (64, 32, 32))
"""Leaves, spines and hosts per leaf."""
PINNED_SHARE = 0.83
"""Share of the hosts that train: 1,700 of 2,048, each of which sends one flow."""
SECONDS = 12.0
START_S = 110.0
INTERVAL_S = Config().counters.interval_s
SCRAPE_S = 15.0
SCRAPES = 5
RESULTS = Path("out/bench/counters.json")

# Multipart types of OpenFlow 1.3.5 section 7.3.5.
PORT_STATS, FLOW, METER = 4, 1, 9


class Switches:
    """Switches in memory that carry out every command at once and reply with counters; they also compute plans."""

    def __init__(self, fabric: Fabric) -> None:
        self.fabric = fabric
        self.rules: dict[Dpid, RuleSet] = {dpid: RuleSet() for dpid in fabric.switches}
        self.planning = Answers()

    def answers(self, commands: Iterable[Command]) -> Iterator[Message]:
        for command in commands:
            match command:
                case ReadRules(dpid):
                    yield SwitchRules(dpid, RuleSet(), 0)
                case InstallStage(change_id, stage):
                    yield StageDone(change_id, dict.fromkeys(stage.mods, SwitchResult()))
                case SolvePlan():
                    repaired, problem = self.planning.repair(command)
                    if repaired:
                        yield repaired
                    limits = replace(command.limits, ecmp_draws=0)
                    yield self.planning.plan(replace(command, limits=limits), problem)

    def replies(self, loop: ControlLoop, busy: bool, now: float) -> dict[Dpid, dict[int, bytes]]:
        """Return the bodies of the multipart replies at the time ``now``, by switch and multipart type.

        ``busy``: every port and pinned flow carries 40 Gbit/s in full packets; every second packet is acknowledged by
        a packet of 66 bytes."""
        packets = int(5e9 * now) // 1514 if busy else 0
        total = 1514 * packets
        announced = {pair for job in loop.state.jobs.jobs.values() for pair in job.pairs}
        bodies = {}
        for dpid, switch in self.fabric.switches.items():
            pinned = [flow for flow in loop.state.sync.installed[dpid].flows.values() if flow.key.table == Table.PINNED]
            bodies[dpid] = {
                PORT_STATS: b"".join(_port_entry(port, total + int(60 * now)) for port in switch.ports),
                FLOW: b"".join(
                    _flow_entry(flow, packets, 1514)
                    if _ends(flow) in announced
                    else _flow_entry(flow, packets // 2, 66)
                    for flow in pinned
                ),
                METER: b"".join(_meter_entry(port) for port in switch.ports),
            }
        return bodies


def _port_entry(port: int, total: int) -> bytes:
    return struct.pack("!I4x4Q8Q2I", port, 1, 1, total, total, *[0] * 10)


def _ends(rule: FlowRule) -> tuple[str, str] | None:
    src, dst = rule.key.match.ip_src, rule.key.match.ip_dst
    return (src.address, dst.address) if src and dst else None


def _flow_entry(rule: FlowRule, packets: int, size: int) -> bytes:
    body = encode.mod_message(RuleMod("add", rule))[48:]
    table, priority = int(rule.key.table), rule.key.priority
    return (
        struct.pack(
            "!HBxIIHHHH4xQQQ", 48 + len(body), table, 9, 9, priority, 0, 0, 0, rule.cookie, packets, packets * size
        )
        + body
    )


def _meter_entry(port: int) -> bytes:
    return struct.pack("!IH6xIQQIIQQ", port, 56, 3, 9, 9, 9, 9, 0, 0)


def converged(fabric: Fabric) -> ControlLoop:
    """Return a control loop that knows the fabric and has pinned the flows of three jobs.

    Raises ``RuntimeError`` when the control loop does not reach that state."""
    loop, switches = ControlLoop(Config(), SavedState(), declared_hosts(fabric), 0.0), Switches(fabric)
    messages = connections(fabric)
    for step in range(300):
        messages = [*switches.answers(loop.handle(messages, step * TICK_S)), Tick()]
        if step == 200:
            messages += [RegisterJob(spec) for spec in _jobs(fabric)]
    if not loop.state.sending.pins or loop.state.sync.unsettled:
        raise RuntimeError("the fabric did not converge")
    return loop


def declared_hosts(fabric: Fabric) -> Declared:
    """Return all hosts, as declared in an inventory."""
    hosts = (
        DeclaredHost(h.ip, f"02:00:00:00:{n >> 8:02x}:{n & 255:02x}", fabric.name(h.at.dpid), _port_name(fabric, h.at))
        for n, h in enumerate(fabric.hosts.values())
    )
    return Declared(tuple(hosts))


def connections(fabric: Fabric) -> list[Message]:
    """Return the messages with which all switches connect and probes pass over all links."""
    connected = [SwitchConnected(s.dpid, s.name, tuple(s.ports.values())) for s in fabric.switches.values()]
    return [*connected, *(LinkSeen(link.src, link.dst) for link in fabric.links.values())]


def _port_name(fabric: Fabric, at: PortRef) -> str:
    return fabric.switches[at.dpid].ports[at.port].name


def _jobs(fabric: Fabric) -> list[JobSpec]:
    ips = list(fabric.hosts)
    chosen = random.Random(SEED).sample(ips, int(PINNED_SHARE * len(ips)) // JOBS * JOBS)
    return [
        JobSpec.parse(
            {
                "job_id": f"job{job}",
                "endpoints": chosen[job::JOBS],
                "groups": [{"name": "dp", "ranks": list(range(len(chosen) // JOBS))}],
                "collectives": [{"algorithm": "ring_all_reduce", "groups": ["dp"], "bytes_per_iteration": 1_000_000}],
                "lease_s": 3600.0,
            }
        )
        for job in range(JOBS)
    ]


class Clock:
    """CPU seconds by stage."""

    def __init__(self) -> None:
        self.spent: defaultdict[str, float] = defaultdict(float)

    @contextmanager
    def of(self, stage: str) -> Iterator[None]:
        began = time.process_time()
        yield
        self.spent[stage] += time.process_time() - began


def measured(leaves: int, spines: int, hosts_per_leaf: int, busy: bool, seconds: float = SECONDS) -> Row:
    """Return the CPU time of every stage in ms per second, and the CPU time of one scrape in ms.

    ``poll and read`` is the southbound's share. ``take in``, ``tick`` and ``status`` are the control loop's shares,
    including everything else that the control loop does on a tick."""
    fabric = leaf_spine(leaves, spines, hosts_per_leaf, LINK_BPS, LINK_BPS)
    loop = converged(fabric)
    polled = _Polled(fabric)
    clock, board = Clock(), StatusBoard()
    every = round(INTERVAL_S / TICK_S)
    for step in range(-4 * every, int(seconds / TICK_S)):
        now = START_S + step * TICK_S
        if step % every == 0:
            polled.bodies = Switches(fabric).replies(loop, busy, now)
        if step == 0:
            clock.spent.clear()  # the window of counters is full from now on
        with clock.of("poll and read"):
            counted = polled.step(now)
        with clock.of("take in"):
            for message in counted:
                loop.handle([message], now)
        with clock.of("tick"):
            loop.handle([Tick()], now)
        if step % round(PUBLISH_S / TICK_S) == 0:
            with clock.of("status"):
                board.publish(loop.status(now))
    scrape_ms = _scrape_ms(board)
    stages = {f"{stage} ms/s": 1000 * spent / seconds for stage, spent in clock.spent.items()}
    return {
        "fabric": f"{leaves}x{spines}x{hosts_per_leaf}",
        "traffic": "training" if busy else "idle",
        "links": len(board.status.links),
        "pins": board.status.pins,
        "counted rules": sum(key.table == Table.PINNED for r in loop.state.sync.installed.values() for key in r.flows),
        **stages,
        "scrape ms": scrape_ms,
        "percent of a core": (sum(stages.values()) + scrape_ms / SCRAPE_S) / 10,
    }


class _Polled:
    """Counter poller whose switches answer at once with ``bodies``, by switch and multipart type."""

    def __init__(self, fabric: Fabric) -> None:
        self.bodies: Mapping[Dpid, Mapping[int, bytes]] = {}
        self._asked: list[tuple[Dpid, Reply]] = []
        self._counted: list[Message] = []
        self._xids = count(1)
        self._poller = CounterPoller(INTERVAL_S, self._send, self._counted.append, GivenRules())
        for dpid in fabric.switches:
            self._poller.switch_connected(dpid, START_S - 5 * INTERVAL_S)

    def _send(self, dpid: Dpid, /, *messages: bytes) -> list[int]:
        kinds = [int.from_bytes(message[8:10], "big") for message in messages]
        replies = [
            Reply(xid, kind, False, self.bodies[dpid][kind]) for kind, xid in zip(kinds, self._xids, strict=False)
        ]
        self._asked += [(dpid, reply) for reply in replies]
        return [reply.xid for reply in replies]

    def step(self, now: float) -> list[Message]:
        """Poll the switches that are due at ``now``, and return the messages for the control loop."""
        self._poller.tick(now)
        asked, self._asked = self._asked, []
        for dpid, reply in asked:
            self._poller.part(dpid, reply, now)
        counted = self._counted.copy()
        self._counted.clear()
        return counted


def _scrape_ms(board: StatusBoard) -> float:
    """Return the median CPU time of several scrapes in milliseconds, since garbage collections slow some of them."""
    server = MetricsServer(MetricsConfig(port=0), board)
    address = f"http://127.0.0.1:{server.start()}/metrics"
    taken = []
    for _ in range(SCRAPES):
        began = time.process_time()
        with urlopen(address) as answer:
            answer.read()
        taken.append(time.process_time() - began)
    server.stop()
    return 1000 * median(taken)


def main(as_json: AsJson = False) -> None:
    """Measure the cost of counters."""
    cases = [(*size, busy) for size in SIZES for busy in (False, True)]
    rows = [measured(*case) for case in track(cases, "measuring", console=Console(stderr=True), transient=True)]
    report({"seconds": SECONDS, "counters": rows}, RESULTS, lambda: table_of("counters", rows), as_json)
