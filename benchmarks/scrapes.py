"""Benchmark ``scrapes``: CPU time and size of one scrape of the metrics of a large network.

The network is a leaf-spine with 1,000 small jobs, all of them planned, pinned and measured. It is given as the status
that a control loop publishes. The metrics are read over HTTP. To compare machines, the CPU time is also given relative
to that of a plain loop in Python. The output is a table, and ``out/bench/scrapes.json``.
"""

import os
import time
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from urllib.request import Request, urlopen

import numpy as np
from rich.console import Console

from benchmarks.measures import report
from controller.config import MetricsConfig
from controller.demand.job_demand import DemandSource, JobDemand, Measurement
from controller.fabric.link_load import LinkLoad
from controller.fabric.topology import Fabric
from controller.jobs.job import Reported, Vitals
from controller.jobs.messages import Registration
from controller.observability.metrics import MetricsServer
from controller.planning.problem import FlowId, whole
from controller.shared_map import FEW_SECONDS, Histogram
from controller.status import JobStatus, Status, StatusBoard, SwitchStatus
from controller.tables.counters import CountersRead
from offline.scenarios.fabrics import leaf_spine
from signalbox.jobs.collectives import VirtualLinks
from signalbox.jobs.spec import JobId, JobSpec
from signalbox.jobs.subflows import Dividing

LEAVES, SPINES, HOSTS_PER_LEAF, JOBS = 64, 32, 32, 1000
LINK_BPS = 100e9
BACKGROUND_EVERY = 10
"""Period of the links with unannounced traffic: every tenth link has some."""
SCRAPES = 20
LOOP = 1_000_000
RESULTS = Path("out/bench/scrapes.json")

Row = dict[str, str | float]


def network(leaves: int, spines: int, hosts_per_leaf: int, jobs: int) -> Status:
    """Return the status of a leaf-spine in which every metric of switches, links and jobs has a value."""
    return status_of(leaf_spine(leaves, spines, hosts_per_leaf, LINK_BPS, LINK_BPS), jobs)


def status_of(fabric: Fabric, jobs: int) -> Status:
    """Return the status of a fabric as a control loop publishes it, with ``jobs`` jobs of two hosts each."""
    load = LinkLoad(window_s=6, noise_fraction=0.1)
    links = [*fabric.links, *(link for host in fabric.hosts.values() for link in (host.uplink, host.downlink))]
    totals = np.random.default_rng(1).integers(1 << 40, 1 << 44, len(links))
    for now in range(0, 10, 2):
        load.count_links(now, dict(zip(links, (totals + int(1.1e10) * now).tolist(), strict=True)))
    load.update(8, dict.fromkeys(links, LINK_BPS))
    background = dict.fromkeys(links[::BACKGROUND_EVERY], 0.2 * LINK_BPS)
    of_jobs = {JobId(f"job-{number:04}"): _pair(fabric, number, jobs) for number in range(jobs)}
    return Status(
        fabric=fabric,
        switches={dpid: SwitchStatus(True, 3000, 0) for dpid in fabric.switches},
        links=load.figures(fabric, background),
        jobs={job_id: _job(fabric, job_id, pair) for job_id, pair in of_jobs.items()},
        demands={job_id: _demand(pair) for job_id, pair in of_jobs.items()},
        counters_read={dpid: CountersRead(0.0, 0.0) for dpid in fabric.switches},
    )


def _pair(fabric: Fabric, number: int, jobs: int) -> tuple[str, str]:
    """Return the two hosts of a job: one from the start of the list of hosts, one from its end."""
    ips = list(fabric.hosts)
    return ips[number % jobs], ips[-1 - number % jobs]


def _job(fabric: Fabric, job_id: JobId, pair: tuple[str, str]) -> JobStatus:
    spec = JobSpec(job_id=job_id, endpoints=pair)
    src = fabric.hosts[pair[0]].at.dpid
    path = (next(link for link in fabric.links if link.dpid == src),)
    return JobStatus(
        registration=Registration(spec, uid=job_id, registered_at=1e9),
        state="pinned",
        missing_hosts=(),
        vitals=Vitals(60.0, Reported(1234, 2.6, (2.4, 2.6))),
        slowdown=1.25,
        ideal_communication_s=2.0,
        prediction_withheld="",
        routes={FlowId(*pair): whole(path), FlowId(*pair[::-1]): whole(path)},
        routes_generation=1,
        dividing=Dividing.of(spec),
    )


def _demand(pair: tuple[str, str]) -> JobDemand:
    measurement = Measurement((pair,), np.array([3.3e9]), 6.0, 2.5)
    return JobDemand(DemandSource.CONFIRMED, VirtualLinks(), {pair: 10**9}, measurement=measurement)


@dataclass(frozen=True, slots=True)
class Scrape:
    """Size and cost of one scrape.

    ``cpu_s``: CPU time of this process, which is server and client; it includes the reading of the answer."""

    bytes: int
    series: int
    cpu_s: float


def scrape(port: int, encoding: str) -> Scrape:
    request = Request(f"http://127.0.0.1:{port}/metrics", headers={"Accept-Encoding": encoding})
    began = time.process_time()
    with urlopen(request) as answer:
        body: bytes = answer.read()
    spent = time.process_time() - began
    return Scrape(len(body), 0 if encoding == "gzip" else sum(b[:1] != b"#" for b in body.splitlines()), spent)


def plain_loop_s() -> float:
    """Return the CPU time of a plain loop in seconds, as a measure of the machine's speed."""
    began, total = time.process_time(), 0
    for number in range(LOOP):
        total += number & 7
    return time.process_time() - began


def measured(leaves: int, spines: int, hosts_per_leaf: int, jobs: int, scrapes: int) -> list[Row]:
    """Return, for each content encoding, the size and the median CPU time of a scrape."""
    board = StatusBoard()
    status = network(leaves, spines, hosts_per_leaf, jobs)
    board.publish(status)
    board.call_times = {(f"method{n}", "OK"): Histogram(FEW_SECONDS).observed(0.01) for n in range(20)}
    server = MetricsServer(MetricsConfig(host="127.0.0.1", port=0), board)
    port = server.start()
    try:
        series = scrape(port, "identity").series
        rows: list[Row] = []
        for encoding in ("identity", "gzip"):
            found, loops = [], []
            for number in range(scrapes):
                board.publish(replace(status, pins=number))
                found.append(scrape(port, encoding))
                loops.append(plain_loop_s())
            cpu_s = median(one.cpu_s for one in found)
            rows.append(
                {
                    "encoding": encoding,
                    "series": series,
                    "MB": found[-1].bytes / 1e6,
                    "CPU ms": 1000 * cpu_s,
                    "CPU / plain loop": cpu_s / median(loops),
                }
            )
        return rows
    finally:
        server.stop()


def main() -> None:
    """Time scrapes of a large network."""
    Console(stderr=True).print(f"{SCRAPES} scrapes of each kind on {os.cpu_count()} processors")
    rows = measured(LEAVES, SPINES, HOSTS_PER_LEAF, JOBS, SCRAPES)
    title = f"{2 * LEAVES * SPINES} links, {LEAVES * HOSTS_PER_LEAF} hosts, {JOBS} jobs"
    report({"network": title, "scrapes": rows}, RESULTS, {title: rows})
