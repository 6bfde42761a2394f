"""Observation of the controller while jobs train, second by second, and its evaluation.

``Watch`` reports the jobs' iterations and, where requested, their connections, and notes routes and alarms. After the
round ``judged`` compares the routes and alarms with the bytes that the ranks' sockets have counted. ``slowdowns`` and
``least_slowdown`` compute slowdowns for these bytes independently of the planner. docs/explanation/planning.md defines
the slowdown. All links have one rate, and there is no other traffic.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ortools.sat.python import cp_model

from benchmarks.joining.mixes import Announced, spec_of
from mininet_topos.joining.connections import read_connections
from mininet_topos.joining.jobs import LibraryJob, RunningJobs
from signalbox.client import Client
from signalbox.jobs.collectives import virtual_links
from signalbox.jobs.reports import Connected, IterationTime
from signalbox.mapping import seconds, word_in

Pair = tuple[str, str]
Link = tuple[str, str, str]
Traffic = Mapping[str, Mapping[int, Mapping[Pair, float]]]
"""Bytes by job, phase and pair."""

UNITS = 10_000
"""Integer units of a link's capacity, in which CP-SAT counts."""
SOLVE_S = 20.0


def shares(traffic: Traffic) -> Iterator[tuple[str, int, Pair, float]]:
    """Yield (job, phase, pair, share of a link's capacity), if each phase takes the time that its busiest NIC needs."""
    for job, phases in traffic.items():
        for phase, sent in phases.items():
            nics: defaultdict[tuple[str, str], float] = defaultdict(float)
            for (src, dst), count in sent.items():
                nics["out", src] += count
                nics["in", dst] += count
            for pair, count in sent.items():
                yield job, phase, pair, count / max(nics.values())


def links_of(pair: Pair, leaf_of: Mapping[str, str], spine: str) -> Iterator[Link]:
    """Yield the NICs of a pair and, between leaves, the cables to and from the spine."""
    src, dst = pair
    yield "out", src, ""
    yield "in", dst, ""
    if leaf_of[src] != leaf_of[dst]:
        yield "up", leaf_of[src], spine
        yield "down", leaf_of[dst], spine


def slowdowns(traffic: Traffic, leaf_of: Mapping[str, str], spine_of: Mapping[Pair, str]) -> dict[str, float]:
    """Return the slowdown of each job. ``spine_of``: spine of every pair between leaves."""
    loads: defaultdict[Link, defaultdict[tuple[str, int], float]] = defaultdict(lambda: defaultdict(float))
    for job, phase, pair, share in shares(traffic):
        for link in links_of(pair, leaf_of, spine_of.get(pair, "")):
            loads[link][job, phase] += share
    found = dict.fromkeys(traffic, 1.0)
    for on_link in loads.values():
        peaks: defaultdict[str, float] = defaultdict(float)
        for (job, _), load in on_link.items():
            peaks[job] = max(peaks[job], load)
        for job in peaks:
            found[job] = max(found[job], sum(peaks.values()))
    return found


def least_slowdown(traffic: Traffic, leaf_of: Mapping[str, str], spines: Sequence[str]) -> tuple[float, bool]:
    """Return the smallest worst slowdown over all choices of spines, and whether it is proven."""
    model = cp_model.CpModel()
    worst = model.new_int_var(UNITS, 100 * UNITS, "worst")
    loads: defaultdict[Link, defaultdict[tuple[str, int], list[cp_model.LinearExprT]]] = defaultdict(
        lambda: defaultdict(list)
    )
    chosen: dict[Pair, dict[str, cp_model.IntVar]] = {}
    for job, phase, pair, share in shares(traffic):
        units = round(share * UNITS)
        if pair not in chosen:
            chosen[pair] = {spine: model.new_bool_var(f"{pair} {spine}") for spine in spines}
            model.add_exactly_one(chosen[pair].values())
        for spine, taken in chosen[pair].items():
            for link in links_of(pair, leaf_of, spine):
                loads[link][job, phase].append(units * taken)
    for link, on_link in loads.items():
        peaks: dict[str, cp_model.IntVar] = {}
        for (job, _), terms in on_link.items():
            if job not in peaks:
                peaks[job] = model.new_int_var(0, 100 * UNITS, f"{link} {job}")
            model.add(cp_model.LinearExpr.sum(terms) <= peaks[job])
        model.add(cp_model.LinearExpr.sum(list(peaks.values())) <= worst)
    model.minimize(worst)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = SOLVE_S
    solver.parameters.num_workers = 1
    status = solver.solve(model)
    return solver.objective_value / UNITS, status == cp_model.OPTIMAL


EVERY_S = 1.0
SMALL = 0.02
"""Share of the busiest pair's bytes up to which a pair carries only headers and control messages."""
RIGHT = 1.02
"""Largest ratio of worst slowdown to smallest possible worst slowdown at which routes count as right."""


@dataclass(frozen=True, slots=True)
class Look:
    """State of the jobs at one time.

    ``spines``: spine of each planned pair of a job; "" inside a leaf, None for a hashed pair."""

    after_s: float
    spines: Mapping[str, Mapping[Pair, str | None]]
    differing: frozenset[str]


@dataclass(slots=True)
class Watch:
    """Observation of one round. ``start``: monotonic seconds. ``connections``: whether jobs report connections."""

    client: Client
    jobs: RunningJobs
    number: int
    connections: bool = False
    start: float = field(default_factory=time.monotonic)
    looks: list[Look] = field(default_factory=list)
    _reported: dict[str, int] = field(default_factory=dict)
    _connected: dict[str, set[Connected]] = field(default_factory=dict)

    def look(self) -> None:
        """Wait for the next second, report new iterations and connections, and note routes and alarms."""
        time.sleep(EVERY_S - (time.monotonic() - self.start) % EVERY_S)
        for job in self.jobs.jobs:
            done = self.jobs.iterations_of(job, self.number)
            new = done[self._reported.get(job.job_id, 0) :]
            if new:
                times = [IterationTime(i.index, i.duration_s, i.communication_s) for i in new]
                self.client.report_iterations(job.job_id, times)
                self._reported[job.job_id] = len(done)
            if self.connections:
                self._report_connections(job)
        differing = frozenset(job.spec.job_id for job in self.client.list_jobs() if job.demand.difference)
        spines = {job.job_id: self._spines(job) for job in self.jobs.jobs}
        self.looks.append(Look(round(time.monotonic() - self.start, 1), spines, differing))

    def _report_connections(self, job: LibraryJob) -> None:
        """Report the connections of each host whose connections have changed."""
        for host in job.hosts:
            ends = read_connections(self.jobs.lab.namespace(host))
            others = set(job.peers) - {host.ip}
            now = {Connected(end.ip, end.port, end.peer_ip, end.peer_port) for end in ends if end.peer_ip in others}
            if now != self._connected.get(host.ip, set()):
                self.client.report_connections(job.job_id, host.ip, now)
                self._connected[host.ip] = now

    def _spines(self, job: LibraryJob) -> dict[Pair, str | None]:
        with closing(self.client.watch_routes(job.job_id)) as stream:
            routes = next(stream).routes
        leaf_of = {host.ip: host.leaf for host in job.hosts}
        found: dict[Pair, str | None] = {}
        for route in routes:
            inside = leaf_of[route.src] == leaf_of[route.dst]
            found[route.src, route.dst] = "" if inside else route.switches[1] if route.pinned else None
        return found

    def since(self, holds: Callable[[Look], bool]) -> float | None:
        """Return the time from which a condition held until the end; None if it does not hold at the end."""
        found = None
        for look in reversed(self.looks):
            if not holds(look):
                break
            found = look.after_s
        return found

    def first(self, holds: Callable[[Look], bool]) -> float | None:
        return next((look.after_s for look in self.looks if holds(look)), None)


def truth(jobs: RunningJobs, number: int) -> dict[str, dict[int, dict[Pair, float]]]:
    """Return the bytes that the sockets counted, by job, phase of the job's algorithm, and pair."""
    found: dict[str, dict[int, dict[Pair, float]]] = {}
    for job in jobs.jobs:
        sent = jobs.carried(job, number)
        least = SMALL * max(sent.values())
        told = virtual_links(spec_of(job, Announced.RIGHT))
        whole = {pair: sum(link.bytes for link in told if (link.src_ip, link.dst_ip) == pair) for pair in sent}
        phases: dict[int, dict[Pair, float]] = {}
        for pair, count in sent.items():
            if count > least:
                parts = [(link.phase, link.bytes) for link in told if (link.src_ip, link.dst_ip) == pair]
                for phase, size in parts or [(-1, 1)]:  # -1: the algorithm does not contain the pair
                    phases.setdefault(phase, {})[pair] = count * size / (whole[pair] or 1)
        found[job.job_id] = phases
    return found


def judged(jobs: RunningJobs, number: int, watch: Watch, ends: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield for each job the fields of ``Row`` that judge the controller. ``ends``: jobs of the API at the end."""
    traffic = truth(jobs, number)
    leaf_of = {host.ip: host.leaf for job in jobs.jobs for host in job.hosts}
    sent = {job: {pair for phase in phases.values() for pair in phase} for job, phases in traffic.items()}
    spines = [switch.name for switch in jobs.lab.switches if switch.name.startswith("spine")]
    least, proven = least_slowdown(traffic, leaf_of, spines)

    def slowdowns_at(look: Look) -> dict[str, float] | None:
        """Return the slowdowns of all jobs, or None when a flow is hashed."""
        spine_of = {pair: spine for of_job in look.spines.values() for pair, spine in of_job.items()}
        between = [(a, b) for pairs in sent.values() for a, b in pairs if leaf_of[a] != leaf_of[b]]
        if not all(spine_of.get(pair) for pair in between):
            return None
        return slowdowns(traffic, leaf_of, {pair: spine_of[pair] or "" for pair in between})

    def right(look: Look) -> bool:
        found = slowdowns_at(look)
        return found is not None and max(found.values()) <= RIGHT * least

    right_s = watch.since(right)
    own = slowdowns_at(watch.looks[-1])
    for job in jobs.jobs:
        end, mine = ends[job.job_id], sent[job.job_id]
        yield {
            "right_s": right_s,
            "alarm_s": watch.first(partial(differs, job.job_id)),
            "found_s": watch.since(partial(plans, job.job_id, mine)),
            "slowdown": round(end.slowdown, 3),
            "own_slowdown": own and round(own[job.job_id], 3),
            "worst_slowdown": own and round(max(own.values()), 3),
            "least_slowdown": round(least, 3),
            "proven": proven,
            "source": word_in(end.demand, "source"),
            "pairs": len(mine),
            "found": len(mine & watch.looks[-1].spines[job.job_id].keys()),
            "false": len(watch.looks[-1].spines[job.job_id].keys() - mine),
            "bytes_error": bytes_error(end.demand.pairs, traffic[job.job_id]),
            "predicted": round(end.efficiency_predicted, 3),
            "measured": round(end.efficiency_measured, 3),
            "withheld": end.prediction_withheld,
            "ideal_s": round(seconds(end.ideal_communication), 4),
        }


def differs(job: str, look: Look) -> bool:
    return job in look.differing


def plans(job: str, pairs: set[Pair], look: Look) -> bool:
    return look.spines[job].keys() == pairs


def bytes_error(pairs: Sequence[Any], phases: Mapping[int, Mapping[Pair, float]]) -> float | None:
    """Return the largest relative error of a pair's bytes per iteration, or None when some are unknown."""
    known = {(pair.src, pair.dst): pair.measured_bytes for pair in pairs if pair.HasField("measured_bytes")}
    whole: dict[Pair, float] = {}
    for phase in phases.values():
        for pair, count in phase.items():
            whole[pair] = whole.get(pair, 0.0) + count
    errors = [abs(known[pair] / count - 1) for pair, count in whole.items() if pair in known]
    return round(max(errors), 4) if len(errors) == len(whole) else None
