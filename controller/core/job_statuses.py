"""Published status of every job. If its communication time cannot be predicted, the status has the reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from controller.fabric.topology import Host
from controller.jobs.job import Job
from controller.planning.plan import Slowdowns
from controller.planning.problem import FlowId, Route, route_of
from controller.planning.snapshot import ideal_communication_s
from controller.shared_map import ChangedKeys, SharedMap, differing, updated
from controller.status import JobState, JobStatus
from controller.tables.running_routes import NO_ROUTES
from signalbox.jobs.collectives import formulas_of
from signalbox.jobs.formulas import (
    ALL_TO_ALL,
    BINOMIAL_TREE,
    HALVING_DOUBLING_ALL_REDUCE,
    QUATERNARY_TREE,
    RECURSIVE_HALVING_REDUCE_SCATTER,
)
from signalbox.jobs.spec import JobId, Library, Striping


class JobStatuses:
    """Derivation of the status of every job.

    A call examines only jobs that have changed, and jobs whose hosts or confirmed routes have changed. The published
    generation of a job's routes also grows when the job's pairs of hosts change."""

    def __init__(self) -> None:
        self._changed = ChangedKeys[JobId]()
        self._other_slowdowns = ChangedKeys[JobId]()
        self._hosts: Mapping[str, Host] = {}
        self._changes: dict[JobId, int] = {}
        """Number of changes of the pairs of hosts, by job."""
        self._statuses: Mapping[JobId, JobStatus] = SharedMap()

    def __call__(
        self,
        jobs: Mapping[JobId, Job],
        missing: Mapping[JobId, tuple[str, ...]],
        without_path: Mapping[JobId, int],
        hosts: Mapping[str, Host],
        confirmed: Mapping[str, Mapping[FlowId, Route]],
        generation: Mapping[JobId, int],
        slowdowns: Slowdowns,
        waiting: Mapping[JobId, str] = MappingProxyType({}),
        undiscovered: Mapping[JobId, int] = MappingProxyType({}),
    ) -> Mapping[JobId, JobStatus]:
        """Return the status of each job.

        ``slowdowns``: slowdowns of the jobs that have any. ``waiting``: reasons why jobs wait for the extension,
        such as for circuits of optical switches. ``undiscovered``: jobs with ``JobStatus.is_undiscovered``."""
        changed, gone = self._changed(jobs, missing, generation, waiting, dict.fromkeys(slowdowns.outweighed, True))
        moved = {ip for ip, *_ in differing(self._hosts, hosts)}
        self._hosts = hosts
        referring = [
            job_id for job_id, job in jobs.items() if moved and not moved.isdisjoint(job.virtual_links.addresses)
        ]
        statuses: dict[JobId, JobStatus] = {}
        for job_id in {*changed, *referring}:
            job, known = jobs[job_id], self._statuses.get(job_id)
            routes = _routes(job, confirmed.get(job_id, NO_ROUTES))
            changes = self._changes.get(job_id, 0) + (known is not None and known.routes.keys() != routes.keys())
            self._changes[job_id] = changes
            split = any(route is not None and len(route) > 1 for route in routes.values())
            pending = job_id in missing or job_id in waiting
            statuses[job_id] = JobStatus(
                registration=job.registration,
                state="pending" if pending else _routed_state(hosts, routes),
                missing_hosts=missing.get(job_id, ()),
                vitals=job.vitals,
                ideal_communication_s=_ideal_s(job, hosts) if job.per_iteration and job_id not in missing else 0.0,
                prediction_withheld=prediction_withheld(job, split, job_id in slowdowns.outweighed),
                routes=routes,
                routes_generation=generation.get(job_id, 0) + changes,
                dividing=job.dividing,
                routes_known=generation.get(job_id, 0) > 0,
                waiting=waiting.get(job_id, ""),
                planned=job.sending,
            )
        others = self._other_slowdowns(jobs, without_path, undiscovered, slowdowns.of_job).changed
        for job_id in {*statuses, *others}:
            status = statuses.get(job_id) or self._statuses[job_id]
            statuses[job_id] = replace(
                status,
                slowdown=0.0 if status.state == "pending" else slowdowns.of_job.get(job_id, 0.0),
                flows_without_path=without_path.get(job_id, 0),
                is_undiscovered=job_id in undiscovered,
            )
        for job_id in gone:
            self._changes.pop(job_id, None)
        self._statuses = updated(self._statuses, {**dict.fromkeys(gone), **statuses})
        return self._statuses


def _routes(job: Job, confirmed: Mapping[FlowId, Route]) -> Mapping[FlowId, Route | None]:
    owner, pairs = job.dividing.owner, job.virtual_links.in_phases
    if not confirmed:
        return dict.fromkeys([FlowId(src, dst, owner) for src, dst in pairs])
    return {FlowId(*pair, owner): route_of(job.dividing, pair, confirmed) for pair in pairs}


def _ideal_s(job: Job, hosts: Mapping[str, Host]) -> float:
    nic_bps = {ip: hosts[ip].nic_bps for pair in job.pairs for ip in pair}
    return ideal_communication_s(job.sending, nic_bps, job.overhead)


def _routed_state(hosts: Mapping[str, Host], routes: Mapping[FlowId, Route | None]) -> JobState:
    crossing = [route for flow, route in routes.items() if hosts[flow.src_ip].at.dpid != hosts[flow.dst_ip].at.dpid]
    pinned = sum(route is not None for route in crossing)
    if pinned == 0 and (crossing or not routes):  # flows inside a leaf have no choice of paths, so none is hashed
        return "ecmp"
    return "pinned" if pinned == len(crossing) else "partly_pinned"


STEPS_WAIT = (HALVING_DOUBLING_ALL_REDUCE, RECURSIVE_HALVING_REDUCE_SCATTER)

ONE_WAY_EACH = (Library.GLOO, Library.NCCL)
"""Libraries with which two hosts send to each other at the same time, so that neither direction waits for the other."""

TREES = (BINOMIAL_TREE, QUATERNARY_TREE)

MOST_AT_ONCE = 2
"""Largest number of senders per receiver, and of receivers per sender, for which a prediction is published.

With two rings that overlap in time, each host has two receivers."""


def prediction_withheld(job: Job, split: bool = False, outweighed: bool = False) -> str:
    """Return why the slowdown does not predict the efficiency of the job; empty if there is no reason.

    A prediction needs hosts that send as fast as the links permit. The prediction fails

    - if steps wait for each other,
    - if a port or a library decides which sender waits (measured on one flat switch, docs/joining.md),
    - if connections do not share a full link as planned (docs/explanation/simulator.md, "What a sender gets").

    ``split``: whether some flows of the job have several subflows. ``outweighed``: whether other jobs have more
    connections per flow on a full link (``planning.efficiency``)."""
    found = formulas_of(job.registration.runs) if job.phases_known else frozenset()
    if found & {*STEPS_WAIT}:
        return "the steps of its recursive halving wait for each other, for a time that the planner cannot predict"
    if found & {*TREES} and len(job.pairs) > 1:
        return "ranks of a tree send to several others at once, in an order that the library chooses"
    links = job.sending
    if (most := links.most_to_one) > (1 if ALL_TO_ALL in found else MOST_AT_ONCE):
        return f"up to {most} hosts send to one host at once; how they share its port is not known"
    if (most := links.most_from_one) > MOST_AT_ONCE:
        return f"one host sends to up to {most} hosts at once; how they share its port is not known"
    if job.spec.library not in ONE_WAY_EACH and links.exchanges:
        return "some pairs of hosts send in both directions, and whether at once or in turns depends on the library"
    if split and job.spec.striping is Striping.BY_SHARE:
        return (
            "its flows are split, and its connections are not paced, so they may not get their planned shares of a link"
        )
    if outweighed:
        return (
            "other jobs on its links have more connections per flow, and each connection gets an equal share of a link"
        )
    return ""
