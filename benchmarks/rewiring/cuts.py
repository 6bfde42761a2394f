"""Cuts of fibre pairs while a job trains, and what they cost the job: durations, lost packets and iterations."""

import time
from itertools import permutations
from typing import Any, NamedTuple

from mininet_topos.lab.record import wait_for
from mininet_topos.probe.probing import Probing
from mininet_topos.probe.queues import PROBE_TOS, prioritise_probes
from mininet_topos.rewiring.fabrics import QUEUE_S, Circuits, running
from mininet_topos.rewiring.model import Job, sends

EACH = 6
"""Number of servers of a job."""
CUT_PROBE_S = 0.005
CUT_S = 3.0
"""Seconds before each cut, and after the last one."""
JOINED_S, REWIRED_S = 60.0, 90.0
RING_BYTES, PAIR_BYTES = 60_000, 12_000
"""Bytes of the training job's collectives, for interfaces of 1 Mbit/s."""


class Cut(NamedTuple):
    """Cut of the fibre pair between a server and an optical switch of the training job."""

    server: str
    optical: str
    stopped_ms: float
    """Longest period in milliseconds in which all probes of a pair of servers were lost."""
    lost: int
    """Number of the ``probes`` of all pairs that were lost."""
    probes: int
    rewired_s: float
    """Seconds from the cut until the controller had made other circuits, and its probes had passed all of them."""
    iterations: int
    """Number of iterations that the job finished within ``rewired_s`` of the cut."""


def _job(*collectives: dict[str, Any]) -> Job:
    return {"groups": [{"name": "all", "ranks": list(range(EACH))}], "collectives": list(collectives)}


def failures(fabric: Circuits, times: int) -> list[Cut]:
    """Cut fibre pairs of a training job ``times`` times, one after the other.

    Raises ``LabError`` when the job does not join, or gets no other circuits."""
    hosts = fabric.lab.hosts[:EACH]
    job = _job(
        sends("all_to_all", ["all"], round(PAIR_BYTES * fabric.size.mbps)),
        sends("all_reduce", ["all"], round(RING_BYTES * fabric.size.mbps), 1),
    )
    cuts: list[tuple[str, str, float, float, int]] = []
    prioritise_probes(fabric.lab, QUEUE_S)
    with running(fabric.lab, job, "cut", fabric.folder, fabric.controller.address, hosts) as trains:
        wait_for(lambda: fabric.is_pinned("cut") and len(trains.done()) > 1, "the job to train", JOINED_S, 0.1)
        with Probing(fabric.lab, hosts, fabric.folder / "probes", tos=PROBE_TOS) as probes:
            for pair in permutations([host.ip for host in hosts], 2):
                probes.send(pair, CUT_PROBE_S)
            for number in range(times):
                time.sleep(CUT_S)
                trains.check()
                server, optical = f"server{1 + number % EACH}", f"optical{1 + number % fabric.size.interfaces}"
                before, done = _circuits(fabric), len(trains.done())
                cut_at = time.monotonic()
                fabric.lab.cut(server, optical)
                wait_for(lambda before=before: _is_other(fabric, before), "other circuits", REWIRED_S)  # type: ignore[misc]
                cuts.append((server, optical, cut_at, time.monotonic(), len(trains.done()) - done))
                fabric.lab.plug(server, optical)
            time.sleep(CUT_S)
            streams, _ = probes.finish()
    found = []
    for server, optical, cut_at, rewired_at, iterations in cuts:
        outcomes = [stream.outcome(cut_at - CUT_PROBE_S, rewired_at + CUT_S / 2) for stream in streams.values()]
        stopped_ms = 1000 * max(outcome.stopped_s for outcome in outcomes)
        lost, sent = sum(outcome.lost for outcome in outcomes), sum(outcome.sent for outcome in outcomes)
        found.append(Cut(server, optical, stopped_ms, lost, sent, rewired_at - cut_at, iterations))
    return found


def _circuits(fabric: Circuits) -> set[tuple[int, int, int, int]]:
    """Return the job's circuits, each as (sending server, port, receiving server, port)."""
    found = fabric.client.get_job("cut").wiring.circuits
    return {(each.src.dpid, each.src.port, each.dst.dpid, each.dst.port) for each in found}


def _is_other(fabric: Circuits, before: set[tuple[int, int, int, int]]) -> bool:
    now = _circuits(fabric)
    if now == before:
        return False
    links = {(link.src.dpid, link.src.port, link.dst.dpid, link.dst.port) for link in fabric.client.get_fabric().links}
    return now <= links
