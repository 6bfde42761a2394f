"""Published data of a job's circuits: a part of the job's message in the API, and events for the log."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from controller.circuits.job_wiring import wiring_of
from controller.status import ExtensionStatus, JobStatus
from signalbox.mapping import duration, message_of, spec_message
from signalbox.v1 import signalbox_pb2 as pb


def wiring_message(job: JobStatus) -> pb.Wiring:
    """Return the message with the circuits of the job, or the reason why it has none."""
    wiring = wiring_of(job.registration)
    if wiring is None:
        return pb.Wiring(unwired=job.waiting)
    return pb.Wiring(
        parallelization=wiring.parallelization,
        runs=spec_message(wiring.runs),
        circuits=[
            pb.Circuit(src=message_of(pb.PortRef, src), dst=message_of(pb.PortRef, dst))
            for src, dst in sorted(wiring.circuits)
        ],
        iteration=duration(wiring.planned_s),
        iteration_bound=duration(wiring.bound_s),
        iteration_alternative=duration(wiring.other_s),
    )


def job_events(known: JobStatus | None, job: JobStatus) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield an event if the circuits of the job, or the reason why it waits for them, have changed.

    ``known``: previous status of the job; None for a new job."""
    wiring = wiring_of(job.registration)
    if wiring and (known is None or job.registration.arrangement != known.registration.arrangement):
        parallelization = {"parallelization": wiring.parallelization} if wiring.parallelization else {}
        yield "job wired", {"job": job.spec.job_id, "circuits": len(wiring.circuits)} | parallelization
    elif job.waiting and (known is None or job.waiting != known.waiting):
        yield "job has no circuits", {"job": job.spec.job_id, "why": job.waiting}


def changes(before: ExtensionStatus, after: ExtensionStatus) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the events of circuit changes for the event log."""
    change = after.latest_change
    if change and change != before.latest_change:
        _, circuits, took_s = change
        yield "circuits changed", {"count": circuits, "ms": round(1000 * took_s, 1)}
