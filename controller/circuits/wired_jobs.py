"""Assignment of circuits to jobs, on a fabric whose servers are connected to optical switches. Pure.

In: jobs, the switches of their hosts, working interfaces and circuits, answers with wirings. Out: the reasons why jobs
wait; questions about wirings, one at a time; the wirings of jobs, which become parts of their registrations. ``now`` is
monotonic seconds.

A server belongs to one job at a time: a job waits until all of its servers are free. Jobs whose circuits no longer
connect their servers are served first, then jobs without circuits, each in the order of their registration. A job that
has lost circuits gets other circuits between two of its iterations.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import NamedTuple

from controller.circuits.fibres import Cabling
from controller.circuits.job_wiring import Damage, JobWiring, wiring_of
from controller.circuits.questions import (
    FindWiring,
    FoundWiring,
    MendedWiring,
    MendWiring,
    circuits_of,
    mended_wiring,
    mending,
    routes_of,
)
from controller.fabric.topology import Dpid, Host, Link, LinkId, PortRef
from controller.jobs.job import Job
from controller.planning.problem import PlanLimits, Routes
from signalbox.jobs.spec import JobId

FINDING = "the controller is choosing its circuits"
MAKING = "optical switches are making its circuits"
RAILS = "it has rails, but circuits connect only one NIC of each server"
NOT_KNOWN = "its traffic is not known, so the controller cannot choose circuits for it"
MOST_NAMED = 4
"""Largest number of jobs that one reason names."""
RETRY_S = 30.0
"""Seconds after a failure until the next attempt."""
MAKING_S = 5.0
"""Seconds for which jobs wait until their new circuits become links.

The time begins when the optical switches have finished the change of circuits."""
BOUNDARY_S = 60.0
"""Largest number of seconds for which a job's new circuits wait for the end of an iteration, if the job reports
iterations."""


class Refused(NamedTuple):
    """Reason why a job has no wiring."""

    asked: FindWiring
    why: str
    """Reason in words: the better alternative, with both times, or an error message."""
    again_at: float = math.inf
    """Time of the next attempt after an error; infinity without an error."""


class Unwired(NamedTuple):
    """Jobs that lack circuits."""

    why: Mapping[JobId, str]
    """Reason why a job lacks circuits, by job. Only jobs whose servers have interfaces at optical switches have an
    entry."""
    next: FindWiring | None
    """Question about the job that gets circuits next; None if no job can get circuits."""


class _AskedDamage(NamedTuple):
    damage: Damage
    again_at: float = math.inf
    """Time of the next question about the damage after an error; infinity without an error."""


class _Replacement(NamedTuple):
    """Wiring that will replace the wiring ``before`` of a job, at ``at`` or earlier."""

    before: JobWiring
    wiring: JobWiring
    at: float


class _WaitingWiring(NamedTuple):
    """Wiring whose circuits have not all become links yet."""

    wiring: JobWiring
    routes: Routes | None
    """Routes that were found with the wiring; None for a job that had circuits before and keeps running."""
    until: float | None = None
    """Time until which the job waits for its circuits; None until the optical switches have finished the change."""


class Wirings:
    """State of the search for wirings."""

    def __init__(self, cabling: Cabling) -> None:
        self._cabling = cabling
        self.refused: Mapping[JobId, Refused] = {}
        """Reason why a job gets no wiring, by job."""
        self.asked: FindWiring | MendWiring | None = None
        """Question that is being answered."""
        self.new: Mapping[JobId, _WaitingWiring] = {}
        """Wiring of each job whose circuits are being made."""
        self._mended: dict[JobId, _AskedDamage] = {}
        self._others: dict[JobId, _Replacement] = {}

    def next_question(
        self,
        question: FindWiring | None,
        damaged: Mapping[JobId, Damage],
        jobs: Mapping[JobId, Job],
        hosts: Mapping[str, Host],
        interface_bps: Mapping[PortRef, float],
        unable: Collection[Dpid],
    ) -> list[FindWiring | MendWiring]:
        """Return the next question; none while another question is open.

        ``question``: ``Unwired.next``, which takes precedence over jobs that have lost some circuits.
        ``interface_bps``: rates of working interfaces. ``unable``: see ``OpticalSwitches``."""
        self._mended = {job_id: of for job_id, of in self._mended.items() if job_id in damaged}
        if self.asked is not None:
            return []
        self.asked = question
        for job_id, damage in damaged.items() if question is None else ():
            servers = _servers(jobs[job_id], hosts, self._cabling)
            is_asked = job_id in self._mended and self._mended[job_id].damage == damage
            if servers and not is_asked and _fits(damage.wiring, servers, self._cabling):
                self._mended[job_id] = _AskedDamage(damage)
                self.asked = mending(jobs[job_id], damage, servers, interface_bps, self._cabling, unable)
                break
        return [self.asked] if self.asked else []

    def accept(
        self,
        asked: FindWiring | MendWiring,
        found: FoundWiring | MendedWiring | str,
        jobs: Mapping[JobId, Job],
        hosts: Mapping[str, Host],
        now: float,
    ) -> JobWiring | None:
        """Record the answer to a question, and return the wiring that the job gets at once.

        The result is None if the job has ended, if another registration has replaced it, or if there is no wiring. For
        an answer to a ``MendWiring``, the result is always None: ``others_due`` returns the wiring later. ``found``:
        the answer, or an error message."""
        self.asked = None
        job = jobs.get(asked.job_id)
        self.refused = {job_id: one for job_id, one in self.refused.items() if _is_of(one.asked, jobs.get(job_id))}
        if job is None or job.uid != asked.uid:
            return None
        if isinstance(asked, MendWiring):
            if isinstance(found, str) and job.id in self._mended:
                self._mended[job.id] = self._mended[job.id]._replace(again_at=now + RETRY_S)
            elif isinstance(found, MendedWiring) and wiring_of(job.registration) == asked.wiring:
                wiring = mended_wiring(asked, found, self._cabling)
                waits_s = BOUNDARY_S if job.vitals.reported.iterations else 0.0
                if not (asked.dead or _fits(wiring, asked.servers, self._cabling)):
                    waits_s = RETRY_S  # the job will be wired anew, with the same circuits if there are no others
                self._others[job.id] = _Replacement(asked.wiring, wiring, now + waits_s)
            return None
        if not _is_of(asked, job) or _servers_to_wire(job, hosts, self._cabling) != asked.servers:
            return None
        if not isinstance(found, FoundWiring):
            self.refuse(asked, str(found), now + RETRY_S)
        elif found.refused:
            self.refuse(asked, found.refused)
        else:
            times_s = found.planned_s, found.bound_s, found.other_s
            wiring = JobWiring(
                found.parallelization, found.runs, circuits_of(asked, found.peers, self._cabling), *times_s
            )
            self.new = {**self.new, job.id: _WaitingWiring(wiring, routes_of(asked, found, self._cabling))}
            return wiring
        return None

    def ready(self, jobs: Mapping[JobId, Job], links: Mapping[LinkId, Link], now: float) -> dict[JobId, Routes | None]:
        """Return the jobs whose circuits have all become links, and the jobs that stop waiting for them.

        The value of a job is the routes that were found with its wiring; empty if the job stops waiting; None if the
        job had circuits before. Call this only while no change of circuits is under way."""
        new = dict(self.new)
        found: dict[JobId, Routes | None] = {}
        for job_id, (wiring, routes, until) in self.new.items():
            job = jobs.get(job_id)
            held = wiring_of(job.registration) if job else None
            if held is None or held.circuits != wiring.circuits:
                del new[job_id]
            elif all(LinkId(*src) in links for src, _ in wiring.circuits):
                found[job_id] = new.pop(job_id).routes
            elif until is None:
                new[job_id] = _WaitingWiring(wiring, routes, now + MAKING_S)
            elif now >= until:
                del new[job_id]
                found[job_id] = None if routes is None else {}
        if new != self.new:
            self.new = new
        return found

    def refuse(self, asked: FindWiring, why: str, again_at: float = math.inf) -> None:
        self.refused = {**self.refused, asked.job_id: Refused(asked, why, again_at)}

    def pass_time(self, now: float) -> None:
        """Forget failures whose next attempt is due."""
        if any(one.again_at <= now for one in self.refused.values()):
            self.refused = {job_id: one for job_id, one in self.refused.items() if one.again_at > now}
        if any(one.again_at <= now for one in self._mended.values()):
            self._mended = {job_id: one for job_id, one in self._mended.items() if one.again_at > now}

    def others_due(
        self,
        jobs: Mapping[JobId, Job],
        damaged: Callable[[], Mapping[JobId, Damage]],
        now: float,
        between: JobId | None = None,
    ) -> list[tuple[Job, JobWiring]]:
        """Return the jobs that get other circuits now, each with its new wiring.

        A job whose present circuits work again keeps them. ``between``: job whose iteration has just ended."""
        found = []
        for job_id, other in list(self._others.items()):
            job = jobs.get(job_id)
            if job is None or wiring_of(job.registration) != other.before or job_id not in damaged():
                del self._others[job_id]
            elif job_id == between or now >= other.at:
                del self._others[job_id]
                self.new = {**self.new, job_id: _WaitingWiring(other.wiring, None)}
                found.append((job, other.wiring))
        return found


def unwired(
    jobs: Mapping[JobId, Job],
    hosts: Mapping[str, Host],
    interface_bps: Mapping[PortRef, float],
    cabling: Cabling,
    refused: Mapping[JobId, Refused],
    new: Mapping[JobId, _WaitingWiring],
    away: Collection[Dpid],
    limits: PlanLimits,
    may_return: Collection[Job] = (),
) -> Unwired:
    """Return the reasons why jobs wait, and the next question.

    ``interface_bps``: rates of interfaces that work on both sides of their fibres. ``new``: jobs whose circuits are
    being made. ``away``: optical switches that are disconnected. ``may_return``: jobs with their wirings before changes
    that are not on disk yet. A failed commit would restore these jobs, so the servers of these jobs are not free."""
    if not cabling.optical:
        return Unwired({}, None)
    why: dict[JobId, str] = {}
    question: FindWiring | None = None
    taken: dict[Dpid, JobId] = {}
    for job in (*may_return, *jobs.values()):
        if wiring := wiring_of(job.registration):
            taken |= {at.dpid: job.id for circuit in wiring.circuits for at in circuit}
    for job in sorted(jobs.values(), key=lambda job: (not job.registration.arrangement, job.registered_at, job.id)):
        servers = _servers_to_wire(job, hosts, cabling)
        if not servers:
            continue
        if job.spec.observed or job.spec.rails:
            why[job.id] = RAILS if job.spec.rails else NOT_KNOWN
            continue
        optical = _common_optical_switches(servers, interface_bps, cabling, away)
        rate_bps = min((interface_bps[at] for at in _interfaces(servers, optical, cabling)), default=0.0)
        asked = FindWiring(job.id, job.uid, job.spec, servers, optical, rate_bps, limits)
        if job.id in refused and refused[job.id].asked == asked:
            why[job.id] = refused[job.id].why
            continue
        others = [taken[dpid] for dpid in servers if taken.get(dpid, job.id) != job.id]
        taken = dict.fromkeys(servers, job.id) | taken
        if others:
            why[job.id] = (
                f"waits for servers that other jobs use: {', '.join(list(dict.fromkeys(others))[:MOST_NAMED])}"
            )
        elif not optical:
            why[job.id] = "no optical switch is connected to all of its servers by working interfaces"
        else:
            why[job.id] = FINDING
            question = question or asked
    being_made = [job_id for job_id, of in new.items() if job_id in jobs and of.routes is not None]
    return Unwired(dict.fromkeys(being_made, MAKING) | why, question)


def published_unwired(
    why: Mapping[JobId, str], jobs: Mapping[JobId, Job], wirings: Mapping[JobId, JobWiring]
) -> Mapping[JobId, str]:
    """Return the reasons to publish. A job whose wiring is not saved yet counts as a job without a wiring."""
    unsaved = [job_id for job_id in wirings if job_id in jobs and not jobs[job_id].registration.arrangement]
    return {**why, **dict.fromkeys(unsaved, FINDING)} if unsaved else why


def _is_of(asked: FindWiring, job: Job | None) -> bool:
    return job is not None and (job.uid, job.spec) == (asked.uid, asked.spec)


def _servers_to_wire(job: Job, hosts: Mapping[str, Host], cabling: Cabling) -> tuple[Dpid, ...]:
    """Return the servers of a job that needs a wiring; empty if its present wiring fits."""
    wiring, servers = wiring_of(job.registration), _servers(job, hosts, cabling)
    return () if wiring and _fits(wiring, servers, cabling) else servers


def _fits(wiring: JobWiring, servers: Collection[Dpid], cabling: Cabling) -> bool:
    """Return whether all circuits of the wiring can be made, and exactly these servers send and receive over them."""
    fibres = cabling.fibre_of
    if any(
        src not in fibres or dst not in fibres or fibres[src].dpid != fibres[dst].dpid for src, dst in wiring.circuits
    ):
        return False
    senders, receivers = {src.dpid for src, _ in wiring.circuits}, {dst.dpid for _, dst in wiring.circuits}
    return senders == receivers == set(servers)


def _servers(job: Job, hosts: Mapping[str, Host], cabling: Cabling) -> tuple[Dpid, ...]:
    """Return the servers of the job, ordered by the lowest rank on each server.

    The result is empty if a host is unknown, if two addresses belong to one server, if a server has no interfaces, or
    if there is only one server."""
    found: list[Dpid] = []
    for ip in dict.fromkeys(job.spec.endpoints):
        host = hosts.get(ip)
        if host is None or host.at.dpid in found or host.at.dpid not in cabling.interfaces:
            return ()
        found.append(host.at.dpid)
    return tuple(found) if len(found) > 1 else ()


def _common_optical_switches(
    servers: Collection[Dpid], interface_bps: Mapping[PortRef, float], cabling: Cabling, away: Collection[Dpid]
) -> tuple[Dpid, ...]:
    """Return the connected optical switches at which all of the servers have a working interface."""
    return tuple(
        optical
        for optical in sorted(cabling.optical.difference(away))
        if all(cabling.interface(server, optical) in interface_bps for server in servers)
    )


def _interfaces(servers: Collection[Dpid], optical: Collection[Dpid], cabling: Cabling) -> Iterator[PortRef]:
    for server in servers:
        for dpid in optical:
            if at := cabling.interface(server, dpid):
                yield at
