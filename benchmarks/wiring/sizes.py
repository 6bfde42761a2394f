"""Hops in the finder's wirings, and the time to find them, for one job on all servers of clusters of many sizes.

A wiring with steps connects interface k of server n to server n + step k, modulo the number of servers. A row has the
numbers of hops of

- near-geometric steps;
- the finder's steps, also as counted by networkx on the finder's circuits (``searched_…``);

and a lower bound of the mean for all wirings.
"""

import time
from statistics import median
from typing import Any

import numpy as np

from benchmarks.wiring.independent import most_and_mean_hops
from controller.circuits.wiring.circuits import total_and_most
from controller.circuits.wiring.finder import Found, find
from controller.circuits.wiring.rings import geometric_steps
from controller.circuits.wiring.traffic import Rings, Traffic
from offline.design.exact import least_mean_hops

SERVERS = (12, 16, 64, 128, 1024)
INTERFACES = range(2, 9)
GBPS = 1e9
RUNS = 3
SENT = 2e9
"""Bytes that a server sends in rings. In pairs it sends a tenth of that to other servers."""

Row = dict[str, Any]


def job(servers: int) -> Traffic:
    """Return an all-reduce over all servers in phase 1, and an all-to-all in phase 0."""
    pairs = np.ones((servers, servers))
    np.fill_diagonal(pairs, 0.0)
    sent = SENT / 10 * servers * pairs / pairs.sum()
    return Traffic(servers, (Rings((tuple(range(servers)),), ({1: SENT},), ()),), {0: sent})


def row(servers: int, interfaces: int) -> Row:
    """Return the row of one size. ``ms``, ``cpu_ms``: wall time and CPU time of the finder, medians in milliseconds."""
    traffic = job(servers)
    ms, cpu_ms, found = _timed(traffic, interfaces)
    published = total_and_most(servers, geometric_steps(servers, interfaces))
    circuits = ((circuit.src.server, circuit.dst.server) for circuit in found.wiring.circuits)
    most, mean = most_and_mean_hops(servers, circuits)
    assert published is not None
    return {
        "servers": servers,
        "interfaces": interfaces,
        "steps": found.wiring.steps,
        "rings": len(found.orders[0]),
        "diameter": found.diameter,
        "mean_hops": found.mean_hops,
        "searched_diameter": most,
        "searched_mean_hops": mean,
        "geometric_diameter": published[1],
        "geometric_mean_hops": published[0] / (servers - 1),
        "least_mean_hops": least_mean_hops(traffic.of_pairs, interfaces),
        "ms": ms,
        "cpu_ms": cpu_ms,
    }


def _timed(traffic: Traffic, interfaces: int) -> tuple[float, float, Found]:
    """Return the median wall time and the median CPU time of the finder in milliseconds, and its last result."""
    taken = []
    for _ in range(RUNS):
        began, cpu = time.perf_counter(), time.process_time()
        found = find(traffic, interfaces, GBPS)
        taken.append((1e3 * (time.perf_counter() - began), 1e3 * (time.process_time() - cpu)))
    wall, busy = (median(each) for each in zip(*taken, strict=True))
    return wall, busy, found
