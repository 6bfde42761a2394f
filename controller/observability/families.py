"""Every metric that Prometheus reads, and how it follows from the published ``Status``.

``FAMILIES`` is the whole list. The controller keeps no other state for Prometheus, so the series of a switch, link or
job end when it leaves. Names follow the rules of Prometheus: base units (bytes, seconds, ratios), ``_total`` for
counters, names as labels rather than ids.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Literal, NamedTuple, get_args

from controller.config import Strategy
from controller.fabric.messages import RefusalReason
from controller.fabric.topology import LinkId, PortRef
from controller.planning.plan import Plan
from controller.status import JobState, JobStatus, LinkStatus, Status, SwitchStatus

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
Samples = Callable[[Snapshot], Iterable[Sample]]


@dataclass(frozen=True, slots=True)
class Family:
    """One metric. ``samples`` gives label values, in the order of ``labels``, and the value. A counter's ``name`` ends
    in ``_total``. A label must not be called ``job``: Prometheus adds its own to every series."""

    name: str
    help: str
    samples: Samples
    labels: tuple[str, ...] = ()

    @property
    def kind(self) -> Literal["gauge", "counter"]:
        return "counter" if self.name.endswith("_total") else "gauge"


def _one(value: Callable[[Status], float]) -> Samples:
    return lambda snapshot: [((), value(snapshot.status))]


def _plan(value: Callable[[Plan], float | None]) -> Samples:
    """No sample before the first plan, or when the plan has no such value."""

    def samples(snapshot: Snapshot) -> Iterator[Sample]:
        plan = snapshot.status.plan
        if plan and (known := value(plan)) is not None:
            yield (), known

    return samples


def _per_switch(value: Callable[[SwitchStatus], float]) -> Samples:
    return lambda snapshot: [
        ((snapshot.status.fabric.name(dpid),), value(switch)) for dpid, switch in snapshot.status.switches.items()
    ]


def _per_port(counts: Callable[[Status], Iterable[tuple[PortRef, tuple[str, ...], int]]]) -> Samples:
    """Only of switches that are connected. ``counts``: the values of further labels, and the count."""

    def samples(snapshot: Snapshot) -> Iterator[Sample]:
        fabric = snapshot.status.fabric
        for at, labels, count in counts(snapshot.status):
            if at.dpid in fabric.switches:
                yield (fabric.name(at.dpid), str(at.port), *labels), count

    return samples


def _per_job(value: Callable[[JobStatus], float]) -> Samples:
    return lambda snapshot: [((job_id,), value(job)) for job_id, job in snapshot.status.jobs.items()]


def _per_known_job(value: Callable[[JobStatus], float]) -> Samples:
    """Only jobs whose value is not 0, which stands for unknown in the status."""
    return lambda snapshot: [(labels, known) for labels, known in _per_job(value)(snapshot) if known]


def _per_link(value: Callable[[LinkStatus], float]) -> Samples:
    return lambda snapshot: [
        (snapshot.links[link_id][0], value(link))
        for link_id, link in snapshot.status.links.items()
        if link_id in snapshot.links
    ]


def _link_capacity(snapshot: Snapshot) -> Iterator[Sample]:
    for labels, capacity_bps in snapshot.links.values():
        yield labels, capacity_bps / BITS_PER_BYTE


def _refused_connections(snapshot: Snapshot) -> Iterator[Sample]:
    """Every reason has a series, also without refusals: ``increase`` needs the 0 before the first."""
    for reason in get_args(RefusalReason):
        yield (reason,), snapshot.status.refused_connections.get(reason, 0)


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


def _repair_duration(snapshot: Snapshot) -> Iterator[Sample]:
    if snapshot.status.repair:
        yield ("plan",), snapshot.status.repair.plan_ms / 1000
    if snapshot.status.repair_s is not None:
        yield ("total",), snapshot.status.repair_s


def _plan_info(snapshot: Snapshot) -> Iterator[Sample]:
    if snapshot.status.plan:
        yield (snapshot.status.plan.solver, snapshot.status.plan.certificate), 1


def _counters_age(snapshot: Snapshot) -> Iterator[Sample]:
    if snapshot.status.counters_at is not None:
        yield (), snapshot.now - snapshot.status.counters_at


_SWITCH, _PORT, _LINK, _JOB = ("switch",), ("switch", "port"), LinkLabels._fields, ("job_id",)

FAMILIES: tuple[Family, ...] = (
    Family("signalbox_build_info", "Always 1; the version is a label.", lambda _: [((VERSION,), 1)], ("version",)),
    Family("signalbox_strategy", "1 for the strategy in force, 0 for the others.", _strategy, ("strategy",)),
    Family(
        "signalbox_adopting",
        "1 while a restarted controller adopts the rules it finds and removes none.",
        _one(lambda s: s.adopting),
    ),
    Family("signalbox_alarms", "Active alarms; signalbox status lists them.", _one(lambda s: len(s.alarms))),
    Family(
        "signalbox_network_efficiency_ratio",
        "Predicted efficiency of the worst job; 1 without jobs.",
        _one(lambda s: s.network_efficiency),
    ),
    # switches
    Family("signalbox_switches", "Connected switches.", _one(lambda s: len(s.fabric.switches))),
    Family(
        "signalbox_switch_in_sync",
        "1 when the switch holds exactly its rules.",
        _per_switch(lambda s: s.in_sync),
        _SWITCH,
    ),
    Family(
        "signalbox_switch_rules",
        "Flows, groups and meters of Signalbox on the switch.",
        _per_switch(lambda s: s.rules),
        _SWITCH,
    ),
    Family(
        "signalbox_switch_foreign_rules",
        "Foreign flows, groups and meters on the switch; Signalbox never changes them.",
        _per_switch(lambda s: s.foreign_rules),
        _SWITCH,
    ),
    Family(
        "signalbox_healed_rules_total",
        "Rules of Signalbox that others removed, changed or added and that were restored.",
        _per_switch(lambda s: s.healed_rules),
        _SWITCH,
    ),
    Family(
        "signalbox_refused_connections_total",
        "OpenFlow connections that the controller ended because of the peer.",
        _refused_connections,
        ("reason",),
    ),
    Family(
        "signalbox_refused_packets_total",
        "LLDP and ARP packets from the port that were rejected.",
        _per_port(lambda s: ((at, (reason,), count) for (at, reason), count in s.refused_packets.items())),
        (*_PORT, "reason"),
    ),
    Family(
        "signalbox_refused_host_claims_total",
        "ARP packets from the port that claimed the address of a host at another port.",
        _per_port(lambda s: ((at, (), count) for at, count in s.refused_claims.items())),
        _PORT,
    ),
    Family(
        "signalbox_punt_drops_total",
        "Packets of the port to the controller that exceeded the limit; only ports with drops.",
        _per_port(lambda s: ((at, (), packets) for at, packets in s.punt_drops.items())),
        _PORT,
    ),
    Family(
        "signalbox_counters_age_seconds",
        "Age of the latest counters of the switch that answered least recently.",
        _counters_age,
    ),
    # links
    Family("signalbox_hosts", "Known hosts.", _one(lambda s: len(s.fabric.hosts))),
    Family("signalbox_links", "Directed links between switches in use.", _one(lambda s: len(s.fabric.links))),
    Family("signalbox_link_capacity_bytes_per_second", "Capacity of the link.", _link_capacity, _LINK),
    Family(
        "signalbox_link_bytes_total",
        "Bytes sent over the link, from the port counter of the switch.",
        _per_link(lambda link: link.bytes_total),
        _LINK,
    ),
    Family(
        "signalbox_link_background_bytes_per_second",
        "Measured traffic on the link that no job announced.",
        _per_link(lambda link: link.background_bps / BITS_PER_BYTE),
        _LINK,
    ),
    # jobs
    Family("signalbox_jobs", "Jobs by state.", _jobs, ("state",)),
    Family("signalbox_job_flows", "Virtual links of the job.", _per_job(lambda j: len(j.routes)), _JOB),
    Family(
        "signalbox_job_pinned_flows",
        "Virtual links of the job that are pinned to a path.",
        _per_job(lambda j: j.pinned),
        _JOB,
    ),
    Family(
        "signalbox_job_subflows",
        "Subflows of the pinned virtual links of the job; a whole one counts as one.",
        _per_job(lambda j: j.subflows),
        _JOB,
    ),
    Family(
        "signalbox_job_missing_hosts",
        "Endpoints of the job that are not found yet.",
        _per_job(lambda j: len(j.missing_hosts)),
        _JOB,
    ),
    Family(
        "signalbox_job_level",
        "Predicted slow-down of the job's communication against an idle fabric; 1 is ideal.",
        _per_known_job(lambda j: j.level),
        _JOB,
    ),
    Family(
        "signalbox_job_efficiency_predicted_ratio",
        "1 / level of the job.",
        _per_known_job(lambda j: j.efficiency_predicted),
        _JOB,
    ),
    Family(
        "signalbox_job_efficiency_measured_ratio",
        "Ideal over reported communication time of the job.",
        _per_known_job(lambda j: j.efficiency_measured),
        _JOB,
    ),
    Family(
        "signalbox_job_ideal_communication_seconds",
        "Communication time of one iteration, alone on an idle fabric.",
        _per_known_job(lambda j: j.ideal_communication_s),
        _JOB,
    ),
    Family(
        "signalbox_job_communication_seconds",
        "Communication time of the latest reported iteration.",
        _per_known_job(lambda j: j.last_communication_s),
        _JOB,
    ),
    Family("signalbox_job_iterations_total", "Iterations reported.", _per_job(lambda j: j.iterations), _JOB),
    # the planner
    Family("signalbox_plans_total", "Plans made.", _one(lambda s: s.plans_total)),
    Family(
        "signalbox_plan_info",
        "Always 1; the stage that found the latest plan, and what is proven about it.",
        _plan_info,
        ("solver", "certificate"),
    ),
    Family("signalbox_plan_level", "Worst job level of the latest plan.", _plan(lambda p: p.max_level)),
    Family("signalbox_plan_bound", "No routing has a smaller worst level.", _plan(lambda p: p.bound)),
    Family("signalbox_plan_gap_ratio", "Level of the plan / its bound, minus 1.", _plan(lambda p: p.gap)),
    Family(
        "signalbox_plan_levels_proven",
        "How many job levels, from the worst, are proven optimal.",
        _plan(lambda p: p.levels_proven),
    ),
    Family(
        "signalbox_plan_unrouted_flows",
        "Virtual links that the latest plan has no path for.",
        _plan(lambda p: len(p.unrouted)),
    ),
    Family("signalbox_plan_subflows", "Subflows of all flows in the latest plan.", _plan(lambda p: p.subflows)),
    Family(
        "signalbox_plan_installed",
        "1 when the latest plan is the one on the switches.",
        _one(lambda s: s.plan_installed),
    ),
    Family("signalbox_plan_duration_seconds", "Time spent on the latest plan.", _plan_duration, ("stage",)),
    Family("signalbox_repairs_total", "Repairs made.", _one(lambda s: s.repairs_total)),
    Family(
        "signalbox_repaired_flows_total",
        "Virtual links that got new paths from a repair because links of theirs were lost.",
        _one(lambda s: s.repaired_flows_total),
    ),
    Family(
        "signalbox_repair_duration_seconds",
        "The latest repair: time to find new paths, and total time until the switches confirmed them.",
        _repair_duration,
        ("stage",),
    ),
    Family(
        "signalbox_ecmp_level_mean",
        "Worst job level under ECMP for the same input, mean over hash draws.",
        _plan(lambda p: p.ecmp.mean if p.ecmp else None),
    ),
    Family(
        "signalbox_ecmp_level_p95",
        "Worst job level under ECMP for the same input, 95th percentile over hash draws.",
        _plan(lambda p: p.ecmp.p95 if p.ecmp else None),
    ),
    Family(
        "signalbox_baseline_level",
        "Worst job level under published schemes for the input of the latest plan.",
        lambda snapshot: [((name,), level) for name, level in snapshot.status.baseline_levels.items()],
        ("strategy",),
    ),
    Family(
        "signalbox_pins",
        "Pins on the switches: of virtual links and of their acknowledgements.",
        _one(lambda s: s.pins),
    ),
    Family("signalbox_moved_flows_total", "Pinned flows moved.", _one(lambda s: s.moved_flows_total)),
)
