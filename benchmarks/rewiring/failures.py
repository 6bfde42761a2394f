"""Cuts of fibre pairs of a job that trains, one after the other.

The input is a fabric with optical switches. For each cut the results are

- the longest time without packets between any two servers of the job;
- the time until other circuits are used;
- the iterations that ended meanwhile.
"""

from __future__ import annotations

import time
from itertools import permutations
from typing import NamedTuple

from mininet_topos.lab.record import wait_for
from mininet_topos.probe.probing import Probing
from mininet_topos.probe.queues import PROBE_TOS, prioritise_probes
from mininet_topos.rewiring.fabrics import QUEUE_S, Circuits, running
from mininet_topos.rewiring.jobs import Job, sends

SERVERS = 6
PROBE_S = 0.005
SETTLED_S, JOINED_S, REWIRED_S = 3.0, 60.0, 90.0
RING_BYTES, PAIR_BYTES = 60_000, 12_000
"""Bytes of the job's collectives, for interfaces of 1 Mbit/s."""


class Cut(NamedTuple):
    """Cut of the fibre pair between a server and an optical switch."""

    server: str
    optical: str
    stopped_ms: float
    """Longest time in ms in which all packets of a pair were lost."""
    lost: int
    """Lost packets of all pairs, out of ``probes``."""
    probes: int
    rewired_s: float
    """Seconds until probes had passed all circuits that replace the lost ones."""
    iterations: int
    """Iterations that ended within ``rewired_s`` after the cut."""


def failures(fabric: Circuits, times: int) -> list[Cut]:
    """Cut fibre pairs ``times`` times.

    Raises ``LabError`` when the job does not join or gets no new circuits."""
    hosts = fabric.lab.hosts[:SERVERS]
    job: Job = {
        "groups": [{"name": "all", "ranks": list(range(SERVERS))}],
        "collectives": [
            sends("all_to_all", ["all"], round(PAIR_BYTES * fabric.size.mbps)),
            sends("all_reduce", ["all"], round(RING_BYTES * fabric.size.mbps), 1),
        ],
    }
    cuts: list[tuple[str, str, float, float, int]] = []
    prioritise_probes(fabric.lab, QUEUE_S)
    with running(fabric.lab, job, "cut", fabric.folder, fabric.controller.address, hosts) as trains:
        wait_for(lambda: fabric.is_pinned("cut") and len(trains.done()) > 1, "the job to train", JOINED_S, 0.1)
        with Probing(fabric.lab, hosts, fabric.folder / "cuts", tos=PROBE_TOS) as probes:
            for pair in permutations([host.ip for host in hosts], 2):
                probes.send(pair, PROBE_S)
            for number in range(times):
                time.sleep(SETTLED_S)
                trains.check()
                server, optical = f"server{1 + number % SERVERS}", f"optical{1 + number % fabric.size.interfaces}"
                before, done = _circuits(fabric), len(trains.done())
                cut_at = time.monotonic()
                fabric.lab.cut(server, optical)
                wait_for(lambda before=before: _is_other(fabric, before), "other circuits", REWIRED_S)  # type: ignore[misc]
                cuts.append((server, optical, cut_at, time.monotonic(), len(trains.done()) - done))
                fabric.lab.plug(server, optical)
            time.sleep(SETTLED_S)
            streams, _ = probes.finish()
    found = []
    for server, optical, cut_at, rewired_at, iterations in cuts:
        outcomes = [stream.outcome(cut_at - PROBE_S, rewired_at + SETTLED_S / 2) for stream in streams.values()]
        stopped_ms = 1000 * max(outcome.stopped_s for outcome in outcomes)
        lost, sent = sum(outcome.lost for outcome in outcomes), sum(outcome.sent for outcome in outcomes)
        found.append(Cut(server, optical, stopped_ms, lost, sent, rewired_at - cut_at, iterations))
    return found


def _circuits(fabric: Circuits) -> set[tuple[int, int, int, int]]:
    """Return the circuits of the job."""
    found = fabric.client.get_job("cut").wiring.circuits
    return {(each.src.dpid, each.src.port, each.dst.dpid, each.dst.port) for each in found}


def _is_other(fabric: Circuits, before: set[tuple[int, int, int, int]]) -> bool:
    now = _circuits(fabric)
    if now == before:
        return False
    links = {(link.src.dpid, link.src.port, link.dst.dpid, link.dst.port) for link in fabric.client.get_fabric().links}
    return now <= links
