"""Observation of the controller while jobs train, and its evaluation against the bytes that were really sent.

Every second, ``Watch`` reports the jobs' iterations and, if requested, their connections. It records the routes, and
the jobs whose traffic differs from their announcement. After the round ``judged`` compares these records with the bytes
that the ranks' sockets have counted. ``slowdowns`` and ``least_slowdown`` compute slowdowns for these bytes without the
planner's code, on links of one rate without other traffic. docs/explanation/planning.md defines the slowdown.
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
"""Bytes by job, phase and pair of hosts."""

UNITS = 10_000
"""Number of units into which a link's capacity is divided, because CP-SAT computes with integers."""
SOLVE_S = 20.0


def shares(traffic: Traffic) -> Iterator[tuple[str, int, Pair, float]]:
    """Yield (job, phase, pair, share): the share of a link's capacity that the pair needs in the phase.

    A phase is assumed to take as long as its busiest NIC needs."""
    for job, phases in traffic.items():
        for phase, sent in phases.items():
            nics: defaultdict[tuple[str, str], float] = defaultdict(float)
            for (src, dst), count in sent.items():
                nics["out", src] += count
                nics["in", dst] += count
            for pair, count in sent.items():
                yield job, phase, pair, count / max(nics.values())


def links_of(pair: Pair, leaf_of: Mapping[str, str], spine: str) -> Iterator[Link]:
    """Yield the two NICs of a pair and, if it is between leaves, its links to and from the spine."""
    src, dst = pair
    yield "out", src, ""
    yield "in", dst, ""
    if leaf_of[src] != leaf_of[dst]:
        yield "up", leaf_of[src], spine
        yield "down", leaf_of[dst], spine


def slowdowns(traffic: Traffic, leaf_of: Mapping[str, str], spine_of: Mapping[Pair, str]) -> dict[str, float]:
    """Return the slowdown of each job. ``spine_of``: spine that each pair between leaves uses."""
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
"""Share of the busiest pair's bytes; pairs with at most this share carry only headers and control messages."""
RIGHT = 1.02
"""Largest slowdown with which routes count as right, relative to the smallest possible one."""


@dataclass(frozen=True, slots=True)
class Look:
    """State of the jobs at one time.

    ``spines``: for each job, the spine of each planned pair; "" for a pair inside a leaf, None for a hashed pair.
    ``differing``: jobs whose counted traffic differs from the announced."""

    after_s: float
    spines: Mapping[str, Mapping[Pair, str | None]]
    differing: frozenset[str]


@dataclass(slots=True)
class Watch:
    """Observation of one round. ``connections``: whether to report the jobs' connections."""

    client: Client
    jobs: RunningJobs
    number: int
    connections: bool = False
    start: float = field(default_factory=time.monotonic)
    looks: list[Look] = field(default_factory=list)
    _reported: dict[str, int] = field(default_factory=dict)
    _connected: dict[str, set[Connected]] = field(default_factory=dict)

    def look(self) -> None:
        """Wait for the next full second; then report iterations and connections, and record routes and differences."""
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
        """Report the connections of each host of the job if they have changed."""
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
        """Return the time from which the condition held until the end; None if it does not hold at the end."""
        found = None
        for look in reversed(self.looks):
            if not holds(look):
                break
            found = look.after_s
        return found

    def first(self, holds: Callable[[Look], bool]) -> float | None:
        return next((look.after_s for look in self.looks if holds(look)), None)


def truth(jobs: RunningJobs, number: int) -> dict[str, dict[int, dict[Pair, float]]]:
    """Return the bytes counted by the sockets, by job, phase and pair; the phase is -1 for unexpected pairs."""
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
    """Yield, for each job, the fields of ``Row`` that judge the controller.

    ``ends``: the jobs as the API shows them at the end."""
    traffic = truth(jobs, number)
    leaf_of = {host.ip: host.leaf for job in jobs.jobs for host in job.hosts}
    sent = {job: {pair for phase in phases.values() for pair in phase} for job, phases in traffic.items()}
    spines = [switch.name for switch in jobs.lab.switches if switch.name.startswith("spine")]
    least, proven = least_slowdown(traffic, leaf_of, spines)

    def slowdowns_at(look: Look) -> dict[str, float] | None:
        """Return the slowdown of each job; None while a flow between leaves is hashed."""
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
    """Return the largest relative error of a pair's counted bytes per iteration; None if one was not counted."""
    known = {(pair.src, pair.dst): pair.measured_bytes for pair in pairs if pair.HasField("measured_bytes")}
    whole: dict[Pair, float] = {}
    for phase in phases.values():
        for pair, count in phase.items():
            whole[pair] = whole.get(pair, 0.0) + count
    errors = [abs(known[pair] / count - 1) for pair, count in whole.items() if pair in known]
    return round(max(errors), 4) if len(errors) == len(whole) else None
