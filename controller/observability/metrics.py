"""What Prometheus reads: every metric, computed from the published ``Status`` at scrape time.

In: the ``StatusBoard``. Out: ``/metrics`` over HTTP. ``FAMILIES`` is the whole list; nothing else in the controller
counts or times anything for Prometheus, so a switch, link or job that leaves takes its series with it. Names follow
the Prometheus rules: base units (bytes, seconds, ratios), ``_total`` for counters, names as labels rather than ids.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib.metadata import version
from threading import Thread
from typing import Literal, NamedTuple, get_args
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, ProcessCollector, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from controller.config import MetricsConfig
from controller.errors import FieldProblem, InvalidInput
from controller.fabric.topology import Fabric, LinkId
from controller.messages import Strategy
from controller.planning.plan import Plan
from controller.status import JobState, JobStatus, LinkStatus, Status, StatusBoard

BITS_PER_BYTE = 8
VERSION = version("signalbox")


class LinkLabels(NamedTuple):
    """``kind``: ``fabric`` between two switches, ``edge`` between a switch and a host."""

    link: str
    src: str
    dst: str
    kind: Literal["fabric", "edge"]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One scrape: the status, the monotonic time, and the labels and capacity (bit/s) of every link that exists."""

    status: Status
    now: float
    links: Mapping[LinkId, tuple[LinkLabels, float]]


Sample = tuple[tuple[str, ...], float]


@dataclass(frozen=True, slots=True)
class Family:
    """One metric. ``samples`` gives label values, in the order of ``labels``, and the value. A counter's ``name`` ends
    in ``_total``. A label must not be called ``job``: Prometheus puts its own on every series."""

    name: str
    kind: Literal["gauge", "counter"]
    help: str
    samples: Callable[[Snapshot], Iterable[Sample]]
    labels: tuple[str, ...] = ()


def _one(value: Callable[[Status], float]) -> Callable[[Snapshot], Iterable[Sample]]:
    return lambda snapshot: [((), value(snapshot.status))]


def _plan(value: Callable[[Plan], float | None]) -> Callable[[Snapshot], Iterable[Sample]]:
    """Nothing before the first plan, or where it has no such value."""

    def samples(snapshot: Snapshot) -> Iterator[Sample]:
        plan = snapshot.status.plan
        if plan and (known := value(plan)) is not None:
            yield (), known

    return samples


def _per_job(value: Callable[[JobStatus], float]) -> Callable[[Snapshot], Iterable[Sample]]:
    return lambda snapshot: [((job_id,), value(job)) for job_id, job in snapshot.status.jobs.items()]


def _per_known_job(value: Callable[[JobStatus], float]) -> Callable[[Snapshot], Iterable[Sample]]:
    """Only jobs for which the value is not 0: the status says 0 for unknown."""
    return lambda snapshot: [(labels, known) for labels, known in _per_job(value)(snapshot) if known]


def _per_link(value: Callable[[LinkStatus], float]) -> Callable[[Snapshot], Iterable[Sample]]:
    return lambda snapshot: [
        (snapshot.links[link_id][0], value(link))
        for link_id, link in snapshot.status.links.items()
        if link_id in snapshot.links
    ]


def _link_capacity(snapshot: Snapshot) -> Iterator[Sample]:
    for labels, capacity_bps in snapshot.links.values():
        yield labels, capacity_bps / BITS_PER_BYTE


def _in_sync(snapshot: Snapshot) -> Iterator[Sample]:
    for dpid, switch in snapshot.status.switches.items():
        yield (snapshot.status.fabric.name(dpid),), switch.in_sync


def _rules(snapshot: Snapshot) -> Iterator[Sample]:
    for dpid, switch in snapshot.status.switches.items():
        yield (snapshot.status.fabric.name(dpid),), switch.rules


def _foreign_rules(snapshot: Snapshot) -> Iterator[Sample]:
    for dpid, switch in snapshot.status.switches.items():
        yield (snapshot.status.fabric.name(dpid),), switch.foreign_rules


def _jobs(snapshot: Snapshot) -> Iterator[Sample]:
    """Every state has a series, also without jobs: a rule on ``pending`` needs the 0."""
    states = Counter(job.state for job in snapshot.status.jobs.values())
    for state in get_args(JobState):
        yield (state,), states[state]


def _strategy(snapshot: Snapshot) -> Iterator[Sample]:
    for strategy in Strategy:
        yield (strategy.value,), strategy == snapshot.status.strategy


def _plan_duration(snapshot: Snapshot) -> Iterator[Sample]:
    if snapshot.status.plan:
        times = snapshot.status.plan.times
        for stage, milliseconds in (("build", times.build_ms), ("solve", times.solve_ms), ("check", times.check_ms)):
            yield (stage,), milliseconds / 1000


def _plan_info(snapshot: Snapshot) -> Iterator[Sample]:
    if snapshot.status.plan:
        yield (snapshot.status.plan.solver, snapshot.status.plan.certificate), 1


def _counters_age(snapshot: Snapshot) -> Iterator[Sample]:
    if snapshot.status.counters_at is not None:
        yield (), snapshot.now - snapshot.status.counters_at


def _build_info(_: Snapshot) -> Iterator[Sample]:
    yield (VERSION,), 1


_LINK = LinkLabels._fields

FAMILIES: tuple[Family, ...] = (
    Family("signalbox_build_info", "gauge", "Always 1; the version is a label.", _build_info, ("version",)),
    Family("signalbox_strategy", "gauge", "1 for the strategy in force, 0 for the others.", _strategy, ("strategy",)),
    Family(
        "signalbox_adopting",
        "gauge",
        "1 while a restarted controller adopts the rules it finds and removes none.",
        _one(lambda s: s.adopting),
    ),
    Family(
        "signalbox_alarms", "gauge", "Alarms that are up; signalbox status words them.", _one(lambda s: len(s.alarms))
    ),
    Family(
        "signalbox_network_efficiency_ratio",
        "gauge",
        "Predicted efficiency of the worst job; 1 without jobs.",
        _one(lambda s: s.network_efficiency),
    ),
    # switches
    Family("signalbox_switches", "gauge", "Switches that are connected.", _one(lambda s: len(s.fabric.switches))),
    Family("signalbox_switch_in_sync", "gauge", "1 when the switch holds exactly its rules.", _in_sync, ("switch",)),
    Family("signalbox_switch_rules", "gauge", "Flows, groups and meters of ours on the switch.", _rules, ("switch",)),
    Family(
        "signalbox_switch_foreign_rules",
        "gauge",
        "Flows that somebody else put on the switch; never touched.",
        _foreign_rules,
        ("switch",),
    ),
    Family(
        "signalbox_counters_age_seconds",
        "gauge",
        "Age of the latest counters of the switch that answered least recently.",
        _counters_age,
    ),
    # links
    Family("signalbox_hosts", "gauge", "Hosts that are known.", _one(lambda s: len(s.fabric.hosts))),
    Family("signalbox_links", "gauge", "Directed links between switches in use.", _one(lambda s: len(s.fabric.links))),
    Family("signalbox_link_capacity_bytes_per_second", "gauge", "Capacity of the link.", _link_capacity, _LINK),
    Family(
        "signalbox_link_bytes_total",
        "counter",
        "Bytes that went over the link, from the switch's port counter.",
        _per_link(lambda link: link.bytes_total),
        _LINK,
    ),
    Family(
        "signalbox_link_background_bytes_per_second",
        "gauge",
        "Measured traffic on the link that no job announced.",
        _per_link(lambda link: link.background_bps / BITS_PER_BYTE),
        _LINK,
    ),
    # jobs
    Family("signalbox_jobs", "gauge", "Jobs by state.", _jobs, ("state",)),
    Family("signalbox_job_flows", "gauge", "Virtual links of the job.", _per_job(lambda j: len(j.routes)), ("job_id",)),
    Family(
        "signalbox_job_pinned_flows",
        "gauge",
        "Virtual links of the job that are pinned to a path.",
        _per_job(lambda j: j.pinned),
        ("job_id",),
    ),
    Family(
        "signalbox_job_missing_hosts",
        "gauge",
        "Endpoints of the job that are not found yet.",
        _per_job(lambda j: len(j.missing_hosts)),
        ("job_id",),
    ),
    Family(
        "signalbox_job_level",
        "gauge",
        "Predicted slow-down of the job's communication against an idle fabric; 1 is ideal.",
        _per_known_job(lambda j: j.level),
        ("job_id",),
    ),
    Family(
        "signalbox_job_efficiency_predicted_ratio",
        "gauge",
        "1 / level of the job.",
        _per_known_job(lambda j: j.efficiency_predicted),
        ("job_id",),
    ),
    Family(
        "signalbox_job_efficiency_measured_ratio",
        "gauge",
        "Ideal over reported communication time of the job.",
        _per_known_job(lambda j: j.efficiency_measured),
        ("job_id",),
    ),
    Family(
        "signalbox_job_ideal_communication_seconds",
        "gauge",
        "Communication time of one iteration, alone on an idle fabric.",
        _per_known_job(lambda j: j.ideal_communication_s),
        ("job_id",),
    ),
    Family(
        "signalbox_job_communication_seconds",
        "gauge",
        "Communication time of the latest reported iteration.",
        _per_known_job(lambda j: j.last_communication_s),
        ("job_id",),
    ),
    Family(
        "signalbox_job_iterations_total",
        "counter",
        "Iterations reported.",
        _per_job(lambda j: j.iterations),
        ("job_id",),
    ),
    # the planner
    Family("signalbox_plans_total", "counter", "Plans made.", _one(lambda s: s.plans_total)),
    Family(
        "signalbox_plan_info",
        "gauge",
        "Always 1; where the latest plan comes from and what is proven of it.",
        _plan_info,
        ("solver", "certificate"),
    ),
    Family("signalbox_plan_level", "gauge", "Worst job level of the latest plan.", _plan(lambda p: p.max_level)),
    Family("signalbox_plan_bound", "gauge", "No routing has a smaller worst level.", _plan(lambda p: p.bound)),
    Family("signalbox_plan_gap_ratio", "gauge", "Level of the plan over its bound, less 1.", _plan(lambda p: p.gap)),
    Family(
        "signalbox_plan_levels_proven",
        "gauge",
        "How many job levels, from the worst, are proven optimal.",
        _plan(lambda p: p.levels_proven),
    ),
    Family(
        "signalbox_plan_unrouted_flows",
        "gauge",
        "Virtual links that the latest plan has no path for.",
        _plan(lambda p: len(p.unrouted)),
    ),
    Family(
        "signalbox_plan_installed",
        "gauge",
        "1 when the switches do what the latest plan says.",
        _one(lambda s: s.plan_installed),
    ),
    Family("signalbox_plan_duration_seconds", "gauge", "Time spent on the latest plan.", _plan_duration, ("stage",)),
    Family(
        "signalbox_ecmp_level_mean",
        "gauge",
        "Worst job level under ECMP on the same snapshot, mean over hash draws.",
        _plan(lambda p: p.ecmp.mean if p.ecmp else None),
    ),
    Family(
        "signalbox_ecmp_level_p95",
        "gauge",
        "Worst job level under ECMP on the same snapshot, 95th percentile over hash draws.",
        _plan(lambda p: p.ecmp.p95 if p.ecmp else None),
    ),
    Family(
        "signalbox_pins",
        "gauge",
        "Pins on the switches: of virtual links and of their acknowledgements.",
        _one(lambda s: s.pins),
    ),
    Family("signalbox_moved_flows_total", "counter", "Pinned flows moved.", _one(lambda s: s.moved_flows_total)),
)


class StatusCollector(Collector):
    """Renders ``FAMILIES`` from the newest status, in the thread of the scrape. ``clock``: monotonic seconds."""

    def __init__(self, board: StatusBoard, clock: Callable[[], float] = time.monotonic) -> None:
        self._board = board
        self._clock = clock

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        status = self._board.status
        status = replace(status, fabric=_with_unique_names(status.fabric))
        snapshot = Snapshot(status, self._clock(), _links(status.fabric))
        for family in FAMILIES:
            metric = (CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily)(
                family.name, family.help, labels=family.labels
            )
            for labels, value in family.samples(snapshot):
                metric.add_metric(labels, value)
            yield metric


def _with_unique_names(fabric: Fabric) -> Fabric:
    """Two switches of one name would make two series one: theirs get the dpid behind."""
    count = Counter(switch.name for switch in fabric.switches.values())
    if max(count.values(), default=0) <= 1:
        return fabric
    switches = {
        dpid: replace(switch, name=f"{switch.name}({dpid:#x})") if count[switch.name] > 1 else switch
        for dpid, switch in fabric.switches.items()
    }
    return replace(fabric, switches=switches)


def _links(fabric: Fabric) -> dict[LinkId, tuple[LinkLabels, float]]:
    """Named like ``Fabric.link_name``, in one pass. Several addresses behind one port share the first one's link."""
    links: dict[LinkId, tuple[LinkLabels, float]] = {}
    for link_id, link in fabric.links.items():
        labels = LinkLabels(fabric.link_name(link_id), fabric.name(link.src.dpid), fabric.name(link.dst.dpid), "fabric")
        links[link_id] = labels, link.capacity_bps
    for host in fabric.hosts.values():
        switch = fabric.name(host.at.dpid)
        port = f"{switch}:{host.at.port}"
        links.setdefault(host.uplink, (LinkLabels(f"{host.ip}>{port}", host.ip, switch, "edge"), host.nic_bps))
        links.setdefault(host.downlink, (LinkLabels(f"{port}>{host.ip}", switch, host.ip, "edge"), host.nic_bps))
    return links


class MetricsServer:
    """Serves ``/metrics`` from threads of its own: ours, and the process's memory and CPU time."""

    def __init__(self, config: MetricsConfig, board: StatusBoard) -> None:
        self._config = config
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self._registry.register(StatusCollector(board))
        self._running: tuple[WSGIServer, Thread] | None = None

    def start(self) -> int:
        """Returns the port that is listened on. Raises ``InvalidInput`` when the address cannot be had."""
        host, port = self._config.host, self._config.port
        try:
            server, thread = start_http_server(port, addr=host, registry=self._registry)
        except OSError as error:
            problem = FieldProblem("metrics", f"cannot listen on {host}:{port}: {error.strerror or error}")
            raise InvalidInput((problem,)) from None
        self._running = server, thread
        return server.server_port

    def stop(self) -> None:
        """Returns when the port is free again; does nothing when not started."""
        if self._running:
            server, thread = self._running
            self._running = None
            server.shutdown()
            server.server_close()
            thread.join()
