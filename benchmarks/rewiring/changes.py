"""Changes of optical circuits while a job trains: of another job's circuits (``changes``), and by cuts (``failures``).

Both return what the change cost the job that trains: durations, lost packets and iterations.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import permutations
from statistics import median
from typing import Any, NamedTuple

from controller.circuits.wiring.circuits import circulant
from mininet_topos.lab.record import wait_for
from mininet_topos.probe.probing import Probing
from mininet_topos.probe.queues import PROBE_TOS, all_drops, drops_since, prioritise_probes
from mininet_topos.rewiring.answers import give
from mininet_topos.rewiring.fabrics import QUEUE_S, WIRINGS, Circuits, running
from mininet_topos.rewiring.model import Job, sends
from offline.scenarios.topologies import Host
from signalbox.jobs.spec import JobSpec

EACH = 6
"""Number of servers of a job."""
STEPS = ((1, 2, 3, 4), (2, 3, 1, 4))
"""Steps of the two wirings between which the circuits change (``circulant``).

A change gives three interfaces of each server another destination.
"""
CIRCUITS = 18
CHANGE_PROBE_S, CUT_PROBE_S = 0.02, 0.005
CHANGED_S, CUT_S = 1.0, 3.0
"""Seconds from one change to the next, and before each cut."""
JOINED_S, LEFT_S, REWIRED_S = 60.0, 30.0, 90.0
RING_BYTES, PAIR_BYTES = 60_000, 12_000
"""Bytes of the training job's collectives, for interfaces of 1 Mbit/s."""


@dataclass(frozen=True, slots=True)
class Changed:
    """Changes of one job's circuits while another job trains."""

    circuits: int
    ms: tuple[float, ...]
    probes: int
    """Number of probes sent between the servers of the training job."""
    lost: int
    """Number of probes between the servers of the training job that were lost."""
    dropped: int
    """Number of packets that full queues and buffers of the emulation dropped, on all links."""
    iterations: int
    """Number of iterations that the training job finished meanwhile."""

    @property
    def median_ms(self) -> float:
        return median(self.ms)


class Cut(NamedTuple):
    """Cut of the fibre pair between a server and an optical switch of the training job."""

    server: str
    optical: str
    stopped_ms: float
    """Longest period in milliseconds in which all probes of a pair of servers were lost."""
    lost: int
    """Number of probes, of the ``probes`` of all pairs, that were lost."""
    probes: int
    rewired_s: float
    """Seconds from the cut until the controller had made other circuits, and its probes had passed all of them."""
    iterations: int
    """Number of iterations that the job finished within ``rewired_s`` of the cut."""


def _job(*collectives: dict[str, Any]) -> Job:
    return {"groups": [{"name": "all", "ranks": list(range(EACH))}], "collectives": list(collectives)}


@contextmanager
def _probed(fabric: Circuits, hosts: Sequence[Host], every_s: float) -> Iterator[Probing]:
    """Send probes between all pairs of the hosts while the block runs. Raises ``LabError``."""
    with Probing(fabric.lab, hosts, fabric.folder / f"probes-{every_s:g}", tos=PROBE_TOS) as probes:
        for pair in permutations([host.ip for host in hosts], 2):
            probes.send(pair, every_s)
        yield probes


def changes(fabric: Circuits, times: int) -> Changed:
    """Change the circuits of one job ``times`` times while another job trains.

    Raises ``LabError`` when a job does not join, and ``SignalboxError`` when the controller does not answer."""
    steady, swapped = fabric.lab.hosts[:EACH], fabric.lab.hosts[EACH : 2 * EACH]
    job = _job(sends("all_reduce", ["all"], round(RING_BYTES * fabric.size.mbps)))
    prioritise_probes(fabric.lab, QUEUE_S)
    with running(fabric.lab, job, "steady", fabric.folder, fabric.controller.address, steady) as trains:
        wait_for(lambda: fabric.is_pinned("steady") and len(trains.done()) > 1, "the other job to train", JOINED_S, 0.1)
        _join(fabric, job, swapped, -1)  # replaces all present circuits of these servers
        began, done, drops = time.time(), len(trains.done()), all_drops(fabric.lab)
        with _probed(fabric, steady, CHANGE_PROBE_S) as probes:
            for number in range(times):
                trains.check()
                _join(fabric, job, swapped, number)
                time.sleep(CHANGED_S)
            streams, _ = probes.finish()
        done = len(trains.done()) - done
    found = [change.ms for change in fabric.changes(began) if change.circuits == CIRCUITS]
    sent = sum(len(stream.sent) for stream in streams.values())
    lost = sum(len(set(range(len(each.sent))) - {n for n, _ in each.arrivals}) for each in streams.values())
    full = drops_since(drops, all_drops(fabric.lab))
    return Changed(CIRCUITS, tuple(found), sent, lost, full.data + full.probes + full.late, done)


def _join(fabric: Circuits, job: Job, hosts: Sequence[Host], number: int) -> None:
    """Let a job join, wait for its circuits, and let it leave. The circuits stay."""
    job_id = f"swap{number}"
    spec = JobSpec.parse({**job, "job_id": job_id, "endpoints": tuple(host.ip for host in hosts)})
    give(fabric.folder / WIRINGS, job_id, circulant(EACH, STEPS[number % 2]), "", spec, 1.0)
    fabric.client.register_job(spec)
    wait_for(lambda: fabric.is_pinned(job_id), f"{job_id} to be wired and pinned", JOINED_S, 0.05)
    fabric.client.deregister_job(job_id)
    wait_for(lambda: job_id not in fabric.job_ids(), f"{job_id} to leave", LEFT_S, 0.05)


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
        with _probed(fabric, hosts, CUT_PROBE_S) as probes:
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
