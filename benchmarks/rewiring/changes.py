"""Repeated changes of one job's circuits while another job trains.

The input is a fabric with optical switches. The results are the durations of the changes, and whether packets of the
other job were lost.
"""

from __future__ import annotations

import time
from itertools import permutations

from benchmarks.rewiring.results import Changed
from controller.circuits.wiring.circuits import circulant
from mininet_topos.lab.record import wait_for
from mininet_topos.probe.probing import Probing
from mininet_topos.probe.queues import PROBE_TOS, all_drops, drops_since, prioritise_probes
from mininet_topos.rewiring.answers import give
from mininet_topos.rewiring.fabrics import QUEUE_S, WIRINGS, Circuits, running
from mininet_topos.rewiring.jobs import Job, sends
from offline.scenarios.topologies import Host
from signalbox.jobs.spec import JobSpec

EACH = 6
"""Number of servers of each job."""
STEPS = ((1, 2, 3, 4), (2, 3, 1, 4))
"""Steps of the two alternating wirings (``circulant``); three interfaces of each server change their destination."""
CIRCUITS = 18
PROBE_S = 0.02
SETTLED_S, JOINED_S, LEFT_S = 1.0, 60.0, 30.0
STEADY_BYTES = 60_000
"""Bytes of the other job's all-reduce, for interfaces of 1 Mbit/s."""


def changes(fabric: Circuits, times: int) -> Changed:
    """Change the circuits ``times`` times.

    Raises ``LabError`` when a job does not join, and ``SignalboxError`` when the controller does not answer."""
    steady, swapped = fabric.lab.hosts[:EACH], fabric.lab.hosts[EACH : 2 * EACH]
    job: Job = {
        "groups": [{"name": "all", "ranks": list(range(EACH))}],
        "collectives": [sends("all_reduce", ["all"], round(STEADY_BYTES * fabric.size.mbps))],
    }
    prioritise_probes(fabric.lab, QUEUE_S)
    with running(fabric.lab, job, "steady", fabric.folder, fabric.controller.address, steady) as trains:
        wait_for(lambda: fabric.is_pinned("steady") and len(trains.done()) > 1, "the other job to train", JOINED_S, 0.1)
        _join(fabric, job, swapped, -1)  # replaces all present circuits of these servers
        began, done, drops = time.time(), len(trains.done()), all_drops(fabric.lab)
        with Probing(fabric.lab, steady, fabric.folder / "probes", tos=PROBE_TOS) as probes:
            for pair in permutations([host.ip for host in steady], 2):
                probes.send(pair, PROBE_S)
            for number in range(times):
                trains.check()
                _join(fabric, job, swapped, number)
                time.sleep(SETTLED_S)
            streams, _ = probes.finish()
        done = len(trains.done()) - done
    found = [change.ms for change in fabric.changes(began) if change.circuits == CIRCUITS]
    sent = sum(len(stream.sent) for stream in streams.values())
    lost = sum(len(set(range(len(each.sent))) - {n for n, _ in each.arrivals}) for each in streams.values())
    full = drops_since(drops, all_drops(fabric.lab))
    return Changed(CIRCUITS, tuple(found), sent, lost, full.data + full.probes + full.late, done)


def _join(fabric: Circuits, job: Job, hosts: tuple[Host, ...] | list[Host], number: int) -> None:
    """Let a job join, get its circuits, and leave; the circuits stay."""
    job_id = f"swap{number}"
    spec = JobSpec.parse({**job, "job_id": job_id, "endpoints": tuple(host.ip for host in hosts)})
    give(fabric.folder / WIRINGS, job_id, circulant(EACH, STEPS[number % 2]), "", spec, 1.0)
    fabric.client.register_job(spec)
    wait_for(lambda: fabric.is_pinned(job_id), f"{job_id} to be wired and pinned", JOINED_S, 0.05)
    fabric.client.deregister_job(job_id)
    wait_for(lambda: job_id not in fabric.job_ids(), f"{job_id} to leave", LEFT_S, 0.05)
