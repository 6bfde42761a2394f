"""Every metric that Prometheus reads, and how it follows from the published ``Status``.

``FAMILIES`` is the whole list; nothing else in the controller counts or times anything for Prometheus, so a switch,
link or job that leaves takes its series with it. Names follow the Prometheus rules: base units (bytes, seconds,
ratios), ``_total`` for counters, names as labels rather than ids.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Literal, NamedTuple, get_args

from controller.config import Strategy
from controller.fabric.messages import RefusalReason
from controller.fabric.topology import LinkId
from controller.planning.plan import Plan
from controller.status import JobState, JobStatus, LinkStatus, Status

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


def _refused_packets(snapshot: Snapshot) -> Iterator[Sample]:
    """Of switches that are connected."""
    fabric = snapshot.status.fabric
    for (at, reason), count in snapshot.status.refused_packets.items():
        if at.dpid in fabric.switches:
            yield (fabric.name(at.dpid), str(at.port), reason), count


def _refused_claims(snapshot: Snapshot) -> Iterator[Sample]:
    """Of switches that are connected."""
    fabric = snapshot.status.fabric
    for at, count in snapshot.status.refused_claims.items():
        if at.dpid in fabric.switches:
            yield (fabric.name(at.dpid), str(at.port)), count


def _punt_drops(snapshot: Snapshot) -> Iterator[Sample]:
    fabric = snapshot.status.fabric
    for at, packets in snapshot.status.punt_drops.items():
        if at.dpid in fabric.switches:
            yield (fabric.name(at.dpid), str(at.port)), packets


def _refused_connections(snapshot: Snapshot) -> Iterator[Sample]:
    """Every reason has a series, also without refusals: an increase needs the 0 before it."""
    for reason in get_args(RefusalReason):
        yield (reason,), snapshot.status.refused_connections.get(reason, 0)


def _healed_rules(snapshot: Snapshot) -> Iterator[Sample]:
    for dpid, switch in snapshot.status.switches.items():
        yield (snapshot.status.fabric.name(dpid),), switch.healed_rules


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
        "signalbox_healed_rules_total",
        "counter",
        "Rules of ours that somebody removed, changed or added, put right again.",
        _healed_rules,
        ("switch",),
    ),
    Family(
        "signalbox_refused_connections_total",
        "counter",
        "OpenFlow connections that were ended for what came by them, or failed to.",
        _refused_connections,
        ("reason",),
    ),
    Family(
        "signalbox_refused_packets_total",
        "counter",
        "LLDP and ARP that came in at the port and was not believed.",
        _refused_packets,
        ("switch", "port", "reason"),
    ),
    Family(
        "signalbox_refused_host_claims_total",
        "counter",
        "ARP from the port for addresses that live at another port.",
        _refused_claims,
        ("switch", "port"),
    ),
    Family(
        "signalbox_punt_drops_total",
        "counter",
        "Packets that the port wanted to hand to the controller beyond its limit; ports without are missing.",
        _punt_drops,
        ("switch", "port"),
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
        "signalbox_job_subflows",
        "gauge",
        "Pieces in which the job's pinned virtual links travel.",
        _per_job(lambda j: j.subflows),
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
        "signalbox_plan_subflows",
        "gauge",
        "Pieces of all virtual links in the latest plan.",
        _plan(lambda p: p.subflows),
    ),
    Family(
        "signalbox_plan_installed",
        "gauge",
        "1 when the switches do what the latest plan says.",
        _one(lambda s: s.plan_installed),
    ),
    Family("signalbox_plan_duration_seconds", "gauge", "Time spent on the latest plan.", _plan_duration, ("stage",)),
    Family("signalbox_repairs_total", "counter", "Repairs made.", _one(lambda s: s.repairs_total)),
    Family(
        "signalbox_repaired_flows_total",
        "counter",
        "Virtual links that a repair gave new paths because theirs had gone.",
        _one(lambda s: s.repaired_flows_total),
    ),
    Family(
        "signalbox_repair_duration_seconds",
        "gauge",
        "The latest repair: time to find new paths, and in all, until the switches confirmed them.",
        _repair_duration,
        ("stage",),
    ),
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
        "signalbox_baseline_level",
        "gauge",
        "Worst job level under published schemes on the snapshot of the latest plan.",
        lambda snapshot: [((name,), level) for name, level in snapshot.status.baseline_levels.items()],
        ("strategy",),
    ),
    Family(
        "signalbox_pins",
        "gauge",
        "Pins on the switches: of virtual links and of their acknowledgements.",
        _one(lambda s: s.pins),
    ),
    Family("signalbox_moved_flows_total", "counter", "Pinned flows moved.", _one(lambda s: s.moved_flows_total)),
)
