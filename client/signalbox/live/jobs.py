"""Jobs in words: state, awaited hosts and circuits, announced and counted traffic, and all facts of a job.

The module also finds the flows that cross a link or a switch, from the routes on the switches, in time linear in the
number of routes. The links of flows that ECMP hashes are unknown.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from signalbox.jobs.reports import MOST_EFFICIENT
from signalbox.live.shown import counted, natural, optional, percent, rate, route_words, slowdown, some, word
from signalbox.mapping import seconds, word_in, word_of
from signalbox.v1 import signalbox_pb2 as pb

ListedRoute = pb.ListedRoute
"""Type of a route. Modules that import no generated code use this name."""
LinkAt = tuple[int, int]
"""Dpid and port of the switch where a directed link begins."""


class CrossingSubflow(NamedTuple):
    """A flow, or one of its subflows, that crosses a link. ``share``: fraction of the flow's bytes."""

    job_id: str
    src: str
    dst: str
    share: float


def links_of(routes: Iterable[ListedRoute]) -> frozenset[LinkAt]:
    """Return the links that these routes take."""
    return frozenset((link.dpid, link.port) for route in routes for path in route.held for link in path.links)


def circuits_of(job: pb.Job | None) -> frozenset[LinkAt]:
    """Return the switch ports where the circuits of the job begin, as pairs of dpid and port."""
    return frozenset((each.src.dpid, each.src.port) for each in job.wiring.circuits) if job else frozenset()


def subflows_by_link(routes: Iterable[ListedRoute]) -> Mapping[LinkAt, list[CrossingSubflow]]:
    """Return the flows and subflows that cross each link. Links that no route takes are left out."""
    found: defaultdict[LinkAt, list[CrossingSubflow]] = defaultdict(list)
    for route in routes:
        for path in route.held:
            subflow = CrossingSubflow(route.job_id, route.src, route.dst, path.share)
            for link in path.links:
                found[link.dpid, link.port].append(subflow)
    return found


def flows_over(routes: Iterable[ListedRoute], links: Collection[LinkAt | None]) -> list[ListedRoute]:
    """Return the flows whose routes take one of these links."""
    return [route for route in routes if not links_of([route]).isdisjoint(links)]


def flows_at_switch(dpid: int, fabric: pb.GetFabricResponse, routes: Iterable[ListedRoute]) -> list[ListedRoute]:
    """Return the flows that begin or end at the switch, or cross it on their way."""
    ends = {host.ip for host in fabric.hosts if host.at.dpid == dpid}
    touching = {(link.src.dpid, link.src.port) for link in fabric.links if dpid in (link.src.dpid, link.dst.dpid)}
    return [
        route
        for route in routes
        if not ends.isdisjoint((route.src, route.dst)) or not touching.isdisjoint(links_of([route]))
    ]


def jobs_of(flows: Iterable[CrossingSubflow | ListedRoute]) -> dict[str, int]:
    """Return the number of flows of each job, largest number first. Subflows of one flow count as one."""
    pairs = {(flow.job_id, flow.src, flow.dst) for flow in flows}
    number = Counter(job_id for job_id, *_ in pairs)
    return dict(sorted(number.items(), key=lambda of_job: (-of_job[1], of_job[0])))


def jobs_in_words(flows: Iterable[CrossingSubflow | ListedRoute], most: int = 3) -> str:
    """Return jobs in words, with their numbers of flows: ``ring (4), bert (2)``. At most ``most`` jobs are named."""
    jobs = jobs_of(flows)
    named = [f"{job_id} ({count})" for job_id, count in [*jobs.items()][:most]]
    return ", ".join(named + [counted(len(jobs) - most, "more job")] * (len(jobs) > most))


def hashed(fabric: pb.GetFabricResponse, routes: Iterable[ListedRoute]) -> int:
    """Return the number of flows that have no route although the controller has found both of their hosts."""
    known = {host.ip for host in fabric.hosts}
    return sum(not route.held and known >= {route.src, route.dst} for route in routes)


Job = pb.Job
PairDemand = pb.PairDemand
"""Type of a message. Modules use this name, and ``Job``, without importing generated code."""


# ---- state


def job_state(job: Job) -> str:
    """Return the state of a job's flows in words, with the hosts or circuits for which the job waits."""
    waits = f", waits for {', '.join(job.missing_hosts)}" if job.missing_hosts else ""
    unwired = f", {job.wiring.unwired}" if job.wiring.unwired else ""
    return f"{word(word_in(job, 'state'))}{waits}{unwired}"


def state_in_row(job: Job) -> str:
    """Return a job's state for a row of a table, with its ``traffic_mark`` and its number of flows without a path."""
    return job_state(job) + traffic_mark(job) + _lost(job)


def state_without_mark(job: Job) -> str:
    """Return a job's state for a row of a table whose column ``planned for`` replaces the job's ``traffic_mark``."""
    return job_state(job) + _lost(job)


def _lost(job: Job) -> str:
    return f", {counted(job.flows_without_path, 'flow')} without a path" if job.flows_without_path else ""


def job_slowdown(job: Job) -> str:
    return slowdown(optional(job, "slowdown"))


def without_route(job: Job, src: str, dst: str) -> str:
    """Return why a flow of the job has no route: the reason in words, or ``ecmp`` when no reason is known."""
    if not {src, dst}.isdisjoint(job.missing_hosts):
        return "host not found"
    return "no circuits" if job.wiring.unwired else "ecmp"


def route_cells(job: Job, route: ListedRoute, planned: bool = False) -> tuple[str, ...]:
    """Return source, destination and path of a flow. With ``planned``, add its path in the newest plan."""
    held = route_words(route.held, without_route(job, route.src, route.dst))
    return route.src, route.dst, held, *([route_words(route.planned, "same")] if planned else [])


def wiring_line(job: Job, none: str = "no circuits") -> str:
    """Return a line on the circuits of a job, or why it has none; empty in a fabric without optical switches."""
    if not job.HasField("wiring"):
        return ""
    wiring = job.wiring
    if wiring.unwired:
        return f"{none}: {wiring.unwired}"
    chosen = f" for parallelization {wiring.parallelization}" if wiring.parallelization else ""
    return (
        f"{counted(len(wiring.circuits), 'circuit')}{chosen}; an iteration takes {seconds(wiring.iteration):.4g} s "
        f"by the model (at least {seconds(wiring.iteration_bound):.4g} s with any routes; "
        f"{seconds(wiring.iteration_alternative):.4g} s on one switch of the same cost)"
    )


# ---- efficiency


def too_efficient(measured: float | None) -> bool:
    """Return whether a measured efficiency is higher than any real one."""
    return measured is not None and measured > MOST_EFFICIENT


def efficiency_mark(job: Job) -> str:
    """Return the mark of a job's measured efficiency, or an empty text.

    ``!``: the efficiency is impossible. ``?``: counters have not confirmed the bytes from which it was computed."""
    measured = optional(job, "efficiency_measured")
    if too_efficient(measured):
        return " !"
    return " ?" if measured is not None and _unconfirmed(job) else ""


def efficiencies(job: Job) -> tuple[float | None, float | None]:
    """Return the predicted and the measured efficiency, each None while it is unknown.

    Efficiency is the ideal communication time divided by the predicted or measured time. A job that waits for hosts has
    no prediction; the API reports 0."""
    predicted = None if job.state == pb.JOB_STATE_PENDING else optional(job, "efficiency_predicted")
    return predicted, optional(job, "efficiency_measured")


def efficiency(job: Job) -> float | None:
    """Return the measured efficiency, or the predicted one if no measured one is usable; None while neither is known.

    An impossible measured value is not used. A measured value without a prediction of the controller is not used
    either, because it says nothing about the network: an all-to-all reaches half of its ideal even on an idle
    fabric."""
    possible = job.HasField("efficiency_measured") and not too_efficient(job.efficiency_measured)
    if possible and not job.prediction_withheld:
        return job.efficiency_measured
    if job.HasField("efficiency_predicted"):
        return job.efficiency_predicted
    return 1 / job.slowdown if job.HasField("slowdown") and job.slowdown > 0 else None


def urgency(job: Job) -> tuple[int, bool, float, str]:
    """Return a sort key that puts the most urgent jobs first.

    Jobs with flows without a path come first, then jobs that wait for hosts, then all other jobs, lowest efficiency
    first."""
    share = efficiency(job)
    waits = job.state == pb.JOB_STATE_PENDING
    return -job.flows_without_path, not waits, 2.0 if share is None else share, job.spec.job_id


def _measured_in_words(job: Job) -> str:
    measured = efficiencies(job)[1]
    if measured is None:
        return "not measured yet with these routes and bytes" if job.iterations else "not measured"
    said = f"{percent(measured, 1)} measured"
    if too_efficient(measured):
        return f"{said}, which is not possible: {IMPOSSIBLE}"
    return f"{said}, for bytes that counters have not yet confirmed" if _unconfirmed(job) else said


def _communication(job: Job) -> str:
    ideal = "ideal time not known yet"
    if job.HasField("ideal_communication"):
        ideal = f"{seconds(job.ideal_communication):.3f} s ideal"
    if not job.iterations:
        return f"{ideal}; no iteration reported"
    last = f"{seconds(job.last_communication):.3f} s" if job.HasField("last_communication") else "not known"
    return f"{ideal}, {last} in the last of {job.iterations} iterations"


# ---- traffic

SOURCES = {
    "declared": "what it announced, which counters have not yet confirmed",
    "confirmed": "what it announced, confirmed by counters",
    "measured": "what switches count",
    "provisional": "pairs that send, with bytes that counters have not yet confirmed",
    "learning": "nothing yet: counters have not yet confirmed any of its traffic",
}
"""Descriptions of the bytes that the planner uses for a job, by their source (the API's word, ``DemandSource``)."""
STATES = {"silent": "it sends nothing now", "slower": "its iteration takes longer than those before"}
"""Explanations of findings about a job's traffic, by the API's word for a finding (``DemandFinding``).

The other findings mean that the announcement is wrong."""
IMPOSSIBLE = "it announced too much, or reports its iterations as too short"


def planned_for(source: str) -> str:
    """Return the source of a job's planned bytes in words: ``unconfirmed`` for ``declared``, else the API's word."""
    return "unconfirmed" if source == "declared" else word(source)


def planned(job: Job) -> str:
    """Return a job's cell in the column ``planned for``: the source of its planned bytes.

    The cell also says when the controller is learning more pairs of addresses."""
    if not job.HasField("demand"):
        return "-"
    return planned_for(word_in(job.demand, "source")) + (", learning" if _looks_for_more_pairs(job.demand) else "")


def _planned_in_words(demand: pb.Demand) -> str:
    source = word_in(demand, "source")
    more = "; the controller looks for other pairs" if _looks_for_more_pairs(demand) else ""
    said = f"{word(source)}: {SOURCES[source]}{more}" if source in SOURCES else word(source)
    return f"{said}; {demand.patterns} traffic patterns, now {_pattern(demand)}" if demand.patterns > 1 else said


def _looks_for_more_pairs(demand: pb.Demand) -> bool:
    return demand.learning and word_in(demand, "source") not in ("learning", "provisional")


def _pattern(demand: pb.Demand) -> str:
    return f"pattern {demand.pattern}" if demand.pattern else "another pattern"


def findings(job: Job) -> list[str]:
    """Return the findings about a job's traffic that are keys of ``STATES``, such as ``silent``."""
    words = (word_of(pb.DemandFinding.DESCRIPTOR, finding) for finding in job.demand.findings)
    return [found for found in words if found in STATES]


def _unconfirmed(job: Job) -> bool:
    return word_in(job.demand, "source") in ("declared", "provisional", "learning")


def traffic_mark(job: Job) -> str:
    """Return the mark of a job's traffic: ``!`` for a wrong announcement, ``?`` for bytes not confirmed by counters."""
    if job.demand.difference or too_efficient(job.efficiency_measured):
        return " !"
    return " ?" if _unconfirmed(job) else ""


def traffic_lines(job: Job) -> list[str]:
    """Return sentences that explain a job's marks, and other notable facts about its traffic."""
    demand, source = job.demand, word_in(job.demand, "source")
    lines = [f"{STATES[found].capitalize()}." for found in findings(job)]
    if demand.difference:
        lines.append(f"Its announcement is wrong: {demand.difference}.")
    if demand.patterns > 1:
        lines.append(f"It changes between {demand.patterns} traffic patterns, and sends {_pattern(demand)} now.")
    if too_efficient(job.efficiency_measured):
        lines.append(f"Its measured efficiency, {job.efficiency_measured:.0%}, is not possible: {IMPOSSIBLE}.")
    if source and source != "confirmed":
        lines.append(f"It is planned for {SOURCES.get(source, word(source))}.")
    return lines


def _traffic(job: Job) -> str:
    demand, spec = job.demand, job.spec
    if not demand.HasField("window"):
        return "not counted now"
    said = f"{rate(demand.measured_bps)} of payload"
    if spec.collectives or spec.transfers or spec.parallelizations:
        said += f", {percent(demand.undeclared_fraction, 1)} of it not announced"
    return "; ".join([said, *map(STATES.__getitem__, findings(job)), *filter(None, [demand.difference])])


def busiest_pairs(job: Job, most: int) -> list[PairDemand]:
    """Return at most ``most`` pairs of addresses.

    Pairs with the most announced or counted bytes per iteration come first."""

    def sent(pair: PairDemand) -> tuple[float, float]:
        return max(pair.declared_bytes, pair.measured_bytes), pair.measured_bps

    return sorted(job.demand.pairs, key=sent, reverse=True)[:most]


# ---- all facts of a job


def announced(spec: Any, library: str) -> str:
    """Return words for the traffic that a job spec announces.

    ``spec``: message of the API, or a ``JobSpec``. ``library``: word for the spec's library."""
    by_library = f" (library: {word(library)})"
    parts = []
    if ways := spec.parallelizations:
        several = counted(len(ways), "parallelization", "parallelizations")
        parts.append(several + (by_library if any(way.collectives for way in ways) else ""))
    if spec.collectives:
        parts.append(counted(len(spec.collectives), "collective") + by_library)
    if spec.transfers:
        parts.append(counted(len(spec.transfers), "transfer"))
    nics = f", over {1 + len(spec.rails)} NICs per rank" if spec.rails else ""
    return (" and ".join(parts) or "nothing, the job is observed") + nics


def of_which_parallelization(job: Job) -> str:
    """Return words for the parallelization of the job's flows: the one chosen with its circuits, or the first."""
    ways = job.spec.parallelizations
    if chosen := job.wiring.parallelization:
        return f"those of parallelization {chosen}, chosen from {len(ways)}"
    return f"those of parallelization {ways[0].name}" + (f", the first of {len(ways)}" if len(ways) > 1 else "")


def hosts_not_found(job: Job) -> str:
    return some(sorted(job.missing_hosts, key=natural))


def job_facts(job: Job) -> dict[str, object]:
    """Return names and values of a job's facts, except its pairs of addresses, collectives and routes."""
    spec, wiring = job.spec, wiring_line(job, none="none")
    predicted = efficiencies(job)[0]
    split = f"into {spec.max_subflows} subflows over {word(word_in(spec, 'transport'))}"
    return {
        "job": spec.job_id,
        "state": word(word_in(job, "state")),
        "hosts not found": hosts_not_found(job) or "none",
        **({"circuits": wiring} if wiring else {}),
        "lease left": f"{seconds(job.lease_left):.0f} s of {seconds(spec.lease):.0f} s",
        "announced": announced(spec, word_in(spec, "library")),
        "revision": job.revision,
        "flows": f"{job.virtual_links}, {job.pinned} pinned, in {job.subflows} subflows"
        + (f"; {job.flows_without_path} without a path" if job.flows_without_path else "")
        + (f"; {of_which_parallelization(job)}" if spec.parallelizations else ""),
        "may be split": f"{split}, striped {word(word_in(spec, 'striping'))}" if spec.max_subflows > 1 else "no",
        "connections": "reported by the job" if spec.reports_connections else "not reported",
        "planned for": _planned_in_words(job.demand),
        "traffic": _traffic(job),
        "slowdown": slowdown(optional(job, "slowdown"), "not known yet"),
        "efficiency": f"{'not' if predicted is None else percent(predicted, 1)} predicted, {_measured_in_words(job)}",
        **({"not predicted": job.prediction_withheld} if job.prediction_withheld else {}),
        "communication": _communication(job),
        **({"slot": timing_line(job)} if job.HasField("timing") else {}),
    }


def timing_line(job: Job) -> str:
    """Return a sentence on the slot of a job that may share links in time."""
    timing = job.timing
    of_class = f"; class {timing.traffic_class}" if timing.traffic_class > 1 else ""
    waited = f"waited {seconds(timing.waited):.3g} s in all"
    if not timing.slots:
        return f"{word(word_in(timing, 'state'))}: {timing.reason}; {waited}{of_class}"
    at = ", ".join(f"{percent(part.start)} to {percent(part.start + part.length)}" for part in timing.slots)
    times = f"iteration at most {seconds(timing.guaranteed):.3g} s, without slots {seconds(timing.promised):.3g} s"
    early = f"{seconds(timing.drift):.3g} s too early, jitter {percent(optional(timing, 'jitter'), 1)}"
    return f"{word(word_in(timing, 'state'))}, {at} of the circle; {times}; {early}; {waited}{of_class}"


def job_cells(job: Job, state: str) -> Sequence[str]:
    """Return the cells of a job's row, in the order of ``JOB_COLUMNS``. ``state``: the job's state in words."""
    predicted, measured = efficiencies(job)
    return (
        job.spec.job_id,
        state,
        str(len(job.spec.endpoints)),
        str(job.virtual_links),
        str(job.pinned),
        planned(job),
        job_slowdown(job),
        percent(predicted, 1),
        percent(measured, 1) + efficiency_mark(job),
        str(job.iterations),
    )


JOB_COLUMNS = (
    *("job", "state", "ranks", "flows", "pinned", "planned for", "slowdown", "predicted", "measured", "iterations"),
)
"""Columns of a table of jobs; ``job_cells`` makes the rows."""
