"""Figures of the demo, from raw timestamps to ``report.json``. Pure.

In: the ranks' logs, the times of the demo's actions, and the reports of the controller. Out: a dictionary for JSON, and
each target with its figure. All times are seconds on CLOCK_MONOTONIC.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean
from typing import Any, NamedTuple

from mininet_topos.trainer.log import RankLog

EVENT_WINDOW_S = 10.0
BEFORE_WINDOW_S = 12.0

SEGMENT_BYTES = 1448
FRAME_BYTES = 1514
ACK_FRAME_BYTES = 66
SEGMENTS_PER_ACK = 2


def ideal_goodput_bps(rate_bps: float) -> float:
    """Return the payload rate of a rank that sends and receives over a link of ``rate_bps`` in each direction.

    The rate is ``rate_bps`` · 1448 / (1514 + 66/2). With MTU 1500 and TCP timestamps, 1500 - 20 (IP) - 32 (TCP) = 1448
    bytes of payload are in a frame of 14 + 1500 bytes. For every two segments that a rank receives, it sends an
    acknowledgement of 14 + 20 + 32 bytes over the link of its own data."""
    return rate_bps * SEGMENT_BYTES / (FRAME_BYTES + ACK_FRAME_BYTES / SEGMENTS_PER_ACK)


def ideal_ring_iteration_s(size: int, elements: int, rate_bps: float) -> float:
    """Return the ideal time of a ring all-reduce of M = 4 · ``elements`` bytes over n ranks.

    Each rank sends 2(n-1)/n · M bytes."""
    return 2 * (size - 1) / size * 4 * elements * 8 / ideal_goodput_bps(rate_bps)


class RouteChange(NamedTuple):
    """Change of a job's routes at time ``at``.

    ``paths``: switches on each virtual link, by its (source, destination) addresses; () under ECMP."""

    at: float
    job_id: str
    paths: Mapping[tuple[str, str], tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Moments:
    """Times of the demo's events.

    - ``training``: every rank had finished an iteration.
    - ``planning``: the mode planned was requested.
    - ``planned``: the switches had confirmed the last barrier of the plan's installation.
    - ``cut``, ``replug``: the cable was cut, and plugged in again.
    - ``unannounced``: the unannounced traffic began.
    - ``end``: the phases were over."""

    training: float
    planning: float
    planned: float
    cut: float
    replug: float
    unannounced: float
    end: float


@dataclass(frozen=True, slots=True)
class PlanFacts:
    """Facts of the plan that replaced ECMP.

    ``slowdown``: slowdown of the worst job. ``ecmp_mean``, ``ecmp_p95``: modelled slowdown of the worst job under ECMP.
    ``install_s``: seconds from the request to the last barrier."""

    plan_ms: float
    slowdown: float
    certificate: str
    ecmp_mean: float
    ecmp_p95: float
    pins: int
    install_s: float


@dataclass(frozen=True, slots=True)
class Observed:
    """Observations of the demo in addition to the ranks' logs.

    ``cable``: the (leaf, spine) cable that was cut. ``leaf_of``: leaf name by host address. ``alarms``: alarms of the
    controller at the end."""

    datapath: str
    ideal_iteration_s: float
    links_discovered: int
    links_expected: int
    plan: PlanFacts
    cable: tuple[str, str]
    leaf_of: Mapping[str, str]
    routes: Sequence[RouteChange]
    alarms: Sequence[str]


class Target(NamedTuple):
    """Target of the demo. ``figure``: measured value as printed. ``met``: None when nothing was measured."""

    name: str
    figure: str
    target: str
    met: bool | None


def mean_iteration_s(logs: Iterable[RankLog], start: float, end: float) -> float | None:
    """Return the mean iteration time over iterations, then over jobs, as in the publication; None without iterations.

    Only iterations that lie completely between ``start`` and ``end`` count. A mean over all iterations would give more
    weight to jobs without collisions, which finish more iterations."""
    means = [mean for mean in iteration_by_job_s(logs, start, end).values() if mean is not None]
    return fmean(means) if means else None


def iteration_by_job_s(logs: Iterable[RankLog], start: float, end: float) -> dict[str, float | None]:
    """Return the mean iteration time of each job over all of its ranks, in seconds; None without iterations."""
    return {job: pooled_iteration_s(ranks, start, end) for job, ranks in sorted(_by_job(logs).items())}


def _by_job(logs: Iterable[RankLog]) -> dict[str, list[RankLog]]:
    jobs: dict[str, list[RankLog]] = {}
    for log in logs:
        jobs.setdefault(log.job_id, []).append(log)
    return jobs


def pooled_iteration_s(logs: Iterable[RankLog], start: float, end: float) -> float | None:
    """Return the mean time in seconds of all iterations of all jobs and ranks; None without iterations."""
    durations = [i.duration_s for log in logs for i in log.iterations if start <= i.start and i.end <= end]
    return fmean(durations) if durations else None


def lost_iterations(logs: Iterable[RankLog], start: float, end: float) -> int:
    """Return the number of iterations begun in [start, end) that some rank did not finish with the right result.

    A job that ended without its ranks' agreement lost the iteration it was in."""
    return sum(start <= began < end for ranks in _by_job(logs).values() for began in _lost_at(ranks))


def _lost_at(ranks: Sequence[RankLog]) -> list[float]:
    """Return the start of each lost iteration of one job."""
    seen = [i for log in ranks for i in log.iterations]
    began: dict[int, float] = {}
    for iteration in seen:
        began[iteration.index] = min(iteration.start, began.get(iteration.index, iteration.start))
    right = [{i.index for i in log.iterations if i.ok} for log in ranks]
    lost = [at for index, at in began.items() if not all(index in indices for indices in right)]
    if any(log.ended is None for log in ranks):
        lost.append(max((i.end for i in seen), default=0.0))
    return lost


def longest_silence_s(log: RankLog, start: float, end: float) -> float:
    """Return the longest time without data at this receiver that overlaps [start, end].

    A silence that lasts beyond ``end`` counts up to ``end``."""
    arrivals = [at for i in log.iterations for at in i.arrivals]
    before = max((at for at in arrivals if at <= start), default=start)
    after = min((at for at in arrivals if at >= end), default=end)
    marks = [before, *(at for at in arrivals if start < at < end), after]
    return max(later - earlier for earlier, later in pairwise(marks))


def paths_between(routes: Sequence[RouteChange], start: float, end: float) -> list[tuple[str, str, tuple[str, ...]]]:
    """Return (source, destination, path) of every pin that was in force at any time in [start, end]."""
    in_force: dict[str, RouteChange] = {}
    found: list[RouteChange] = []
    for change in sorted(routes, key=lambda c: c.at):
        if change.at <= start:
            in_force[change.job_id] = change
        elif change.at <= end:
            found.append(change)
    return [(*ends, path) for change in (*in_force.values(), *found) for ends, path in change.paths.items() if path]


def receivers_of_cable(
    routes: Sequence[RouteChange],
    cable: tuple[str, str],
    leaf_of: Mapping[str, str],
    start: float,
    end: float,
) -> set[str]:
    """Return the addresses that receive over the cable, in either direction, at any time in [start, end].

    When no pin uses the cable, return the addresses of all hosts at the leaf where the cable ends."""
    used = {
        destination
        for _, destination, path in paths_between(routes, start, end)
        if any({a, b} == set(cable) for a, b in pairwise(path))
    }
    return used or {ip for ip, leaf in leaf_of.items() if leaf in cable}


def reaction(routes: Sequence[RouteChange], start: float, end: float) -> float | None:
    """Return the time of the last change of routes in (start, end); None when no route changed."""
    return max((change.at for change in routes if start < change.at < end), default=None)


def build_report(logs: Sequence[RankLog], moments: Moments, seen: Observed) -> dict[str, Any]:
    """Return the contents of ``report.json``. A figure that could not be measured is None."""
    plan = seen.plan
    ecmp = mean_iteration_s(logs, moments.training, moments.planning)
    planned = mean_iteration_s(logs, moments.planned, moments.cut)
    return {
        "datapath": seen.datapath,
        "ideal_iteration_s": _rounded(seen.ideal_iteration_s),
        "ecmp_iteration_s": _rounded(ecmp),
        "planned_iteration_s": _rounded(planned),
        "ecmp_iteration_by_job_s": _all_rounded(iteration_by_job_s(logs, moments.training, moments.planning)),
        "planned_iteration_by_job_s": _all_rounded(iteration_by_job_s(logs, moments.planned, moments.cut)),
        "ecmp_over_planned": _ratio(ecmp, planned),
        "planned_over_ideal": _ratio(planned, seen.ideal_iteration_s),
        "ecmp_modelled": {"mean": _rounded(plan.ecmp_mean), "p95": _rounded(plan.ecmp_p95)},
        "links_discovered": seen.links_discovered,
        "links_expected": seen.links_expected,
        "plan_ms": _rounded(plan.plan_ms),
        "plan_slowdown": _rounded(plan.slowdown),
        "plan_certificate": plan.certificate,
        "pins_installed": plan.pins,
        "install_s": _rounded(plan.install_s),
        "cut": {
            "cable": "-".join(seen.cable),
            **_event(logs, seen, moments.cut, moments.replug),
        },
        "replug": _event(logs, seen, moments.replug, moments.unannounced),
        "unannounced": _unannounced(logs, moments, seen),
        "arithmetic_errors": sum(not i.ok for log in logs for i in log.iterations),
        "alarms": list(seen.alarms),
        "iterations": sum(len(log.iterations) for log in logs if log.rank == 0),
        "iterations_lost": lost_iterations(logs, 0.0, float("inf")),
        "moments": {name: _rounded(getattr(moments, name) - moments.training) for name in Moments.__slots__},
    }


def _all_rounded(figures: Mapping[str, float | None]) -> dict[str, float | None]:
    return {name: _rounded(figure) for name, figure in figures.items()}


def _event(logs: Sequence[RankLog], seen: Observed, at: float, phase_end: float) -> dict[str, Any]:
    end = at + EVENT_WINDOW_S
    receivers = receivers_of_cable(seen.routes, seen.cable, seen.leaf_of, at, end)
    silences = [longest_silence_s(log, at, end) for log in logs if log.ip in receivers]
    return {
        "recovery_s": _rounded(max(silences, default=None)),
        "iterations_lost": lost_iterations(logs, at, phase_end),
        "receivers": len(silences),
    }


def _unannounced(logs: Sequence[RankLog], moments: Moments, seen: Observed) -> dict[str, Any]:
    start, end = moments.unannounced, moments.end
    reacted = reaction(seen.routes, start, end)
    changes = sorted({round(c.at - start, 1) for c in seen.routes if start < c.at < end})
    return {
        "before_s": _rounded(mean_iteration_s(logs, max(moments.replug, start - BEFORE_WINDOW_S), start)),
        "during_s": _rounded(mean_iteration_s(logs, start, reacted)) if reacted else None,
        "after_replan_s": _rounded(mean_iteration_s(logs, reacted or start, end)),
        "reacted_after_s": _rounded(reacted - start) if reacted else None,
        "route_changes_after_s": changes,
        "iterations_lost": lost_iterations(logs, start, end),
    }


def targets(report: Mapping[str, Any]) -> list[Target]:
    """Return each target of the demo with its figure."""
    unannounced = report["unannounced"]
    after = _ratio(unannounced["after_replan_s"], unannounced["before_s"])
    links = f"{report['links_discovered']} of {report['links_expected']}"
    return [
        _at_most("planned / ideal iteration", report["planned_over_ideal"], 1.07),
        _at_least("ECMP / planned iteration", report["ecmp_over_planned"], 1.5),
        _at_most("cut: longest silence, s", report["cut"]["recovery_s"], 1.0),
        _at_most("replug: longest silence, s", report["replug"]["recovery_s"], 1.0),
        _at_most("iteration after re-plan / before unannounced traffic", after, 1.05),
        _at_most("arithmetic errors", report["arithmetic_errors"], 0),
        _at_most("iterations lost", report["iterations_lost"], 0),
        Target("links discovered", links, "all", report["links_discovered"] == report["links_expected"]),
    ]


def _at_most(name: str, value: float | None, limit: float) -> Target:
    return Target(name, _shown(value), f"≤ {limit:g}", None if value is None else value <= limit)


def _at_least(name: str, value: float | None, limit: float) -> Target:
    return Target(name, _shown(value), f"≥ {limit:g}", None if value is None else value >= limit)


def _shown(value: float | None) -> str:
    return "not measured" if value is None else f"{value:.3f}" if isinstance(value, float) else str(value)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def _ratio(value: float | None, base: float | None) -> float | None:
    return round(value / base, 4) if value is not None and base else None
