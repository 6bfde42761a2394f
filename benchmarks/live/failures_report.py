"""Report of ``failures``: pure functions that make figures from events, probes and the trainers' logs."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Literal

from mininet_topos.demo.report import longest_silence_s, lost_iterations
from mininet_topos.probe.probing import Outcome, Pair, Stream
from mininet_topos.probe.queues import Drops
from mininet_topos.trainer.log import RankLog

Role = Literal["close 1", "close 2", "uses it", "elsewhere", "hashed"]
"""Role of a pair in a failure.

- "close 1", "close 2": selected pairs that use the failed element, probed every millisecond. If it is a cable, pair 1
  sends up through it, and pair 2 sends down through it.
- "uses it": other pairs that use the element. "elsewhere": pinned pairs that do not use it. "hashed": pairs without a
  pin. Pairs of these three roles are probed every 10 ms.
"""

ROLES: tuple[Role, ...] = ("close 1", "close 2", "uses it", "elsewhere", "hashed")
COUNTS = ("sent", "lost", "duplicated", "overtaken")


@dataclass(frozen=True, slots=True)
class Event:
    """Change of the network, which was made from ``start`` to ``done``.

    ``dealt_with``: time at which the controller had everything in order again. ``end``: end of the measurement.
    ``drops``: packets that queues and buffers dropped from ``start`` to ``end``."""

    what: str
    element: str
    start: float
    done: float
    dealt_with: float
    end: float
    roles: Mapping[Pair, Role]
    drops: Drops


def build_report(
    events: Sequence[Event], streams: Mapping[Pair, Stream], overflows: int, logs: Sequence[RankLog]
) -> dict[str, Any]:
    """Return the content of ``failures.json``: every event with all pairs, a summary, and the figures of the jobs."""
    described = [_event(event, streams, logs) for event in events]
    return {"summary": _summary(described), "jobs": _jobs(logs), "late_probes": overflows, "events": described}


def _event(event: Event, streams: Mapping[Pair, Stream], logs: Sequence[RankLog]) -> dict[str, Any]:
    outcomes = {pair: streams[pair].outcome(event.start, event.end) for pair in event.roles if pair in streams}
    by_role = {
        role: _figures(*(outcome for pair, outcome in outcomes.items() if event.roles[pair] == role)) for role in ROLES
    }
    receivers = {pair[1] for pair, role in event.roles.items() if role in ("close 1", "close 2", "uses it")}
    return {
        "what": event.what,
        "element": event.element,
        "took_s": round(event.done - event.start, 4),
        "dealt_with_s": round(event.dealt_with - event.start, 3),
        "drops": event.drops._asdict(),
        "training_silence_s": _silence(logs, receivers, event),
        "training_silence_elsewhere_s": _silence(logs, {log.ip for log in logs} - receivers, event),
        "iterations_lost": lost_iterations(logs, event.start, event.end),
        "roles": by_role,
        "pairs": [
            {
                "pair": pair,
                "role": event.roles[pair],
                **_figures(outcome),
                "stops_ms": [
                    (round((at - event.start) * 1e3, 1), round(length * 1e3, 1))
                    for at, length in streams[pair].stops(event.start, event.end)
                ][:50],
            }
            for pair, outcome in sorted(outcomes.items())
        ],
    }


def _figures(*outcomes: Outcome) -> dict[str, Any]:
    """Return the sums of the counts, and the longest times, of all outcomes."""
    return {
        **{name: sum(getattr(one, name) for one in outcomes) for name in COUNTS},
        "stopped_ms": round(max((one.stopped_s for one in outcomes), default=0.0) * 1e3, 1),
        "silence_ms": round(max((one.silence_s for one in outcomes), default=0.0) * 1e3, 1),
    }


def _silence(logs: Iterable[RankLog], receivers: set[str], event: Event) -> float:
    return round(
        max((longest_silence_s(log, event.start, event.end) for log in logs if log.ip in receivers), default=0.0), 3
    )


def _summary(described: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return a row for each kind of event, in the order in which they first occurred."""
    kinds = dict.fromkeys(event["what"] for event in described)
    rows = []
    for kind in kinds:
        same = [event for event in described if event["what"] == kind]
        rows.append(
            {
                "what": kind,
                "times": len(same),
                "drops": {lane: sum(event["drops"][lane] for event in same) for lane in Drops._fields},
                "training_silence_s": max(event["training_silence_s"] for event in same),
                "training_silence_elsewhere_s": max(event["training_silence_elsewhere_s"] for event in same),
                "dealt_with_s": median(event["dealt_with_s"] for event in same),
                **dict[str, Any]({role: _over(same, role) for role in ROLES}),
            }
        )
    return rows


def _over(events: Sequence[Mapping[str, Any]], role: Role) -> dict[str, Any]:
    of_role = [event["roles"][role] for event in events]
    return {
        **{name: sum(one[name] for one in of_role) for name in COUNTS},
        "stopped_ms_median": median(one["stopped_ms"] for one in of_role),
        "stopped_ms_max": max(one["stopped_ms"] for one in of_role),
        "silence_ms_max": max(one["silence_ms"] for one in of_role),
    }


def _jobs(logs: Sequence[RankLog]) -> dict[str, Any]:
    """Return the figures of the jobs.

    ``restarts``: number of ranks with a log that has no end, or whose iterations are not numbered 0, 1, 2 and so on."""
    iterations = [[i.index for i in log.iterations] for log in logs]
    return {
        "ranks": len(logs),
        "iterations": sum(len(log.iterations) for log in logs if log.rank == 0),
        "longest_iteration_s": round(max((i.duration_s for log in logs for i in log.iterations), default=0.0), 3),
        "arithmetic_errors": sum(not i.ok for log in logs for i in log.iterations),
        "iterations_lost": lost_iterations(logs, 0.0, float("inf")),
        "restarts": sum(
            log.ended is None or indices != list(range(len(indices)))
            for log, indices in zip(logs, iterations, strict=True)
        ),
    }
