"""Benchmark ``moves``: packets lost or duplicated when every pinned flow moves to another path and back, many times.

    sudo scripts/openvswitch.sh run .venv/bin/python -m benchmarks moves [--times N] [--out DIR]

Hosts in rings on the demo's fabric send numbered UDP packets at half the link rate over their pins. The controller's
planner has two plans, and always answers with the one that is not in force (``moves_controller``). Afterwards the pins
are removed and installed again, by changing the mode to ECMP and back.

The result is a table, and ``moves.json``. The exit status is 1 when a packet was lost that no queue dropped, or arrived
twice.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import typer

from benchmarks.live.failures import demo_fabric
from benchmarks.measures import report
from mininet_topos.controller_process import Settings
from mininet_topos.demo.parts import RouteWatch
from mininet_topos.demo.phases import ring_jobs
from mininet_topos.lab.lab import Lab
from mininet_topos.lab.record import wait_for
from mininet_topos.lab.running_fabric import running_fabric
from mininet_topos.leaf_spine import LeafSpine
from mininet_topos.probe.probing import Pair, Probing, Stream
from mininet_topos.probe.queues import Drops, all_drops, drops_since, prioritise_probes
from mininet_topos.trainer.training import announcement
from signalbox.client import Client
from signalbox.jobs.spec import Algorithm
from signalbox.mapping import word_in
from signalbox.words import Mode

JOBS = 2
FRAME_BYTES = 1000
LOAD = 0.5
PAUSE_S = 0.15
"""Seconds of traffic after each move, enough for the switches to update their flow caches."""
QUEUE_S = 1.0
"""Seconds of traffic for which a queue has room.

On a busy machine a sender that had to wait for a processor sends many packets at once, and none of them may be lost.
"""
TIMEOUT_S = 60.0
POLL_S = 0.02
LEASE_S = 3600.0
PLANNING: Settings = {"planning": {"mode": "ecmp", "interval_s": 3600}}
"""Settings that leave the benchmark in control: the planner runs only on request."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """Fabric, and pairs of hosts that all send at the same share of the link rate over their pins."""

    lab: Lab
    client: Client
    watch: RouteWatch
    probing: Probing
    pairs: frozenset[Pair]

    def spines(self) -> dict[Pair, str]:
        """Return the spine of each pair; pairs without a confirmed pin are left out."""
        changes = self.watch.in_force().values()
        return {pair: path[1] for change in changes for pair, path in change.paths.items() if len(path) == 3}

    def settled(self) -> bool:
        status = self.client.get_status()
        return status.switches_in_sync == status.switches == len(self.lab.switches)

    def move(self) -> float:
        """Move every flow to another spine. Returns the seconds until the API reports the switches' confirmation."""
        before, start = self.spines(), time.monotonic()
        outcome = self.client.replan()
        if word_in(outcome, "outcome") != "adopted":
            raise RuntimeError(f"the plan was not adopted: {outcome.reason}")

        def moved() -> bool:
            now = self.spines()
            return now.keys() == self.pairs and all(now[pair] != before[pair] for pair in self.pairs)

        wait_for(moved, "every flow to be moved", TIMEOUT_S, POLL_S)
        took = time.monotonic() - start
        wait_for(self.settled, "the switches to be in sync", TIMEOUT_S, POLL_S)
        time.sleep(PAUSE_S)
        return took

    def set_mode(self, mode: Mode) -> float:
        start = time.monotonic()
        self.client.set_mode(mode)
        took = time.monotonic() - start
        time.sleep(PAUSE_S)
        return took


@dataclass(frozen=True, slots=True)
class Phase:
    what: str
    start: float
    end: float
    moves_s: Sequence[float]
    drops: Drops
    by_port: Mapping[str, int]
    """Number of packets that each leaf has sent to each spine, by "LEAF-SPINE"."""


@contextmanager
def traffic_of(
    topo: LeafSpine, folder: Path, jobs: int, load: float = LOAD, frame_bytes: int = FRAME_BYTES
) -> Iterator[Traffic]:
    """Run ``jobs`` rings of hosts, in which each host sends to the next at ``load`` of the link rate."""
    rate_bps = topo.fabric.hosts[0].bps
    with ExitStack() as stack:
        program = ("benchmarks.live.moves_controller",)
        fabric = running_fabric(topo, folder, rate_bps / 1e6, PLANNING, program)
        lab, controller, client = stack.enter_context(fabric)
        prioritise_probes(lab, QUEUE_S)
        rings = ring_jobs(lab)[:jobs]
        for ring in rings:
            ips = [host.ip for host in ring.hosts]
            client.register_job(announcement(ring.job_id, ips, Algorithm.RING_ALL_REDUCE, 10**6, LEASE_S))
        watch = stack.enter_context(RouteWatch(controller.address, [ring.job_id for ring in rings]))
        hosts = [host for ring in rings for host in ring.hosts]
        probing = stack.enter_context(Probing(lab, hosts, folder / "raw"))
        pairs = frozenset((a.ip, b.ip) for ring in rings for a, b in pairwise((*ring.hosts, ring.hosts[0])))
        for pair in sorted(pairs):
            probing.send(pair, frame_bytes * 8 / (load * rate_bps), frame_bytes)
        wait_for(lambda: client.get_status().jobs_pending == 0, "every host", TIMEOUT_S)
        traffic = Traffic(lab, client, watch, probing, pairs)
        client.set_mode(Mode.PLANNED)
        wait_for(lambda: traffic.spines().keys() == pairs, "every pin", TIMEOUT_S, POLL_S)
        time.sleep(1.0)  # the first packets of a pair wait for an ARP reply
        yield traffic


def moving(traffic: Traffic, times: int) -> Phase:
    return _phase(traffic, "moved to another path and back", [traffic.move] * (2 * times))


def switching(traffic: Traffic, times: int) -> Phase:
    off = [lambda: traffic.set_mode(Mode.ECMP), lambda: traffic.set_mode(Mode.PLANNED)]
    return _phase(traffic, "pins gone and back", off * times)


def _phase(traffic: Traffic, what: str, moves: Sequence[Any]) -> Phase:
    drops, sent = all_drops(traffic.lab), _sent(traffic.lab)
    start = time.monotonic()
    took = [move() for move in moves]
    end = time.monotonic()
    by_port = {port: count - sent[port] for port, count in _sent(traffic.lab).items()}
    return Phase(what, start, end, took, drops_since(drops, all_drops(traffic.lab)), by_port)


def _sent(lab: Lab) -> dict[str, int]:
    """Return the number of packets that each leaf has sent to each spine so far, by "LEAF-SPINE"."""
    return {
        f"{cable.a}-{cable.b}": int(
            Path(f"/sys/class/net/{lab.topo.interface(cable.a, cable.a_port)}/statistics/tx_packets").read_text()
        )
        for cable in lab.links
        if cable.b.startswith("spine")
    }


def build_report(phases: Sequence[Phase], streams: Mapping[Pair, Stream], overflows: int) -> dict[str, Any]:
    return {"late_probes": overflows, "phases": [_told(phase, streams) for phase in phases]}


def _told(phase: Phase, streams: Mapping[Pair, Stream]) -> dict[str, Any]:
    outcomes = {pair: stream.outcome(phase.start, phase.end) for pair, stream in sorted(streams.items())}
    return {
        "what": phase.what,
        "changes": len(phase.moves_s),
        "lasted_s": round(phase.end - phase.start, 1),
        "pairs": len(outcomes),
        "sent": sum(o.sent for o in outcomes.values()),
        "lost": sum(o.lost for o in outcomes.values()),
        "duplicated": sum(o.duplicated for o in outcomes.values()),
        "overtaken": sum(o.overtaken for o in outcomes.values()),
        "silence_ms": round(1e3 * max((o.silence_s for o in outcomes.values()), default=0.0), 1),
        "drops": phase.drops._asdict(),
        "change_ms_median": round(1e3 * median(phase.moves_s), 1),
        "change_ms_max": round(1e3 * max(phase.moves_s), 1),
        "packets_by_port": phase.by_port,
        "losses": [
            {"pair": pair, "at_s": round(at - phase.start, 3), "stopped_ms": round(1e3 * length, 1)}
            for pair, stream in sorted(streams.items())
            for at, length in stream.stops(phase.start, phase.end)
        ],
    }


def main(
    times: Annotated[int, typer.Option(min=1, help="Number of moves, each there and back.")] = 200,
    modes: Annotated[int, typer.Option(min=0, help="Number of changes of the mode, each there and back.")] = 20,
    out: Annotated[Path, typer.Option(help="Directory for the results.")] = Path("out/bench/moves"),
) -> None:
    """Move every pinned flow under traffic and count the packets that arrive."""
    with demo_fabric("mv", out) as (topo, folder), traffic_of(topo, folder, JOBS) as traffic:
        phases = [moving(traffic, times), *([switching(traffic, modes)] if modes else [])]
        found = build_report(phases, *traffic.probing.finish())
    report(found, out / "moves.json", {"Moves": found["phases"]})
    if any(
        phase["lost"] > phase["drops"]["data"] + phase["drops"]["late"] or phase["duplicated"]
        for phase in found["phases"]
    ):
        raise typer.Exit(1)
