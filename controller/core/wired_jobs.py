"""Which job gets which circuits, on a fabric whose servers are connected to optical switches.

In: jobs, where their hosts are, which interfaces work, wirings that were found. Out: why jobs wait, questions for
wirings, one at a time, and the wiring of a job, which becomes a part of its registration. A server is of one job at a
time: a job waits until all of its servers are free. Jobs are served in the order in which they came. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import NamedTuple

from controller.fabric.cabling import Cabling
from controller.fabric.topology import Dpid, Host, Port, PortRef, Switch
from controller.jobs.job import Job
from controller.jobs.wiring import JobWiring
from controller.planning.problem import PlanLimits
from controller.wiring.messages import FindWiring, FoundWiring, WiringFound
from signalbox.jobs.spec import JobId, JobSpec

FINDING = "circuits are being worked out"
MOST_NAMED = 4
"""Jobs in a reason."""


class Refused(NamedTuple):
    """``why``: the figure and the alternative."""

    uid: str
    spec: JobSpec
    why: str


class Unwired(NamedTuple):
    """``why``: of each job that has no circuits though its servers have interfaces. ``next``: whose circuits are to be
    worked out now."""

    why: Mapping[JobId, str]
    next: FindWiring | None


class Wirings:
    """``refused``: jobs that should not be on this fabric. ``asked``: what is being worked out."""

    def __init__(self) -> None:
        self.refused: Mapping[JobId, Refused] = {}
        self.asked: FindWiring | None = None

    def ask(self, question: FindWiring | None) -> list[FindWiring]:
        """The question, unless one is open."""
        if question is None or self.asked is not None:
            return []
        self.asked = question
        return [question]

    def take(self, message: WiringFound, jobs: Mapping[JobId, Job], cabling: Cabling) -> JobWiring | None:
        """The wiring that the job gets; None when it gets none, or is not there any more, or is another one."""
        asked, found = message.asked, message.found
        self.asked = None
        job = jobs.get(asked.job_id)
        known = {job_id: one for job_id, one in self.refused.items() if _is_of(one, jobs.get(job_id))}
        if job is None or (job.uid, job.spec) != (asked.uid, asked.spec) or job.registration.wiring:
            self.refused = known
            return None
        why = found if isinstance(found, str) else found.refused
        self.refused = known
        if why or isinstance(found, str):
            self.refuse(job, why)
            return None
        return _wiring(asked, found, cabling)

    def refuse(self, job: Job, why: str) -> None:
        self.refused = {**self.refused, job.id: Refused(job.uid, job.spec, why)}


def unwired(
    jobs: Mapping[JobId, Job],
    hosts: Mapping[str, Host],
    interface_bps: Mapping[PortRef, float],
    cabling: Cabling,
    refused: Mapping[JobId, Refused],
    limits: PlanLimits,
) -> Unwired:
    """``interface_bps``: of the interfaces that work, on both sides of their fibres."""
    if not cabling.optical:
        return Unwired({}, None)
    why: dict[JobId, str] = {}
    question: FindWiring | None = None
    taken: dict[Dpid, JobId] = {}
    for job in jobs.values():
        if job.registration.wiring:
            taken |= {at.dpid: job.id for circuit in job.registration.wiring.circuits for at in circuit}
    for job in sorted(jobs.values(), key=lambda job: (job.registered_at, job.id)):
        servers = () if job.registration.wiring else _servers(job, hosts, cabling)
        if not servers:
            continue
        if job.id in refused and _is_of(refused[job.id], job):
            why[job.id] = refused[job.id].why
        elif others := {taken[dpid]: dpid for dpid in servers if dpid in taken}:
            why[job.id] = f"waits for servers of {', '.join(list(others)[:MOST_NAMED])}"
            taken = dict.fromkeys(servers, job.id) | taken
        elif not (optical := _common(servers, interface_bps, cabling)):
            why[job.id] = "no optical switch has a working interface of each of its servers"
            taken |= dict.fromkeys(servers, job.id)
        else:
            why[job.id] = FINDING
            taken |= dict.fromkeys(servers, job.id)
            if question is None:
                rate_bps = min(interface_bps[at] for at in _interfaces(servers, optical, cabling))
                question = FindWiring(job.id, job.uid, job.spec, servers, optical, rate_bps, limits)
    return Unwired(why, question)


def working_interfaces(
    switches: Mapping[Dpid, Switch],
    dark: Collection[PortRef],
    cabling: Cabling,
    capacity_bps: Callable[[Switch, Port, bool], float],
) -> Mapping[PortRef, float]:
    """Bit/s of the interfaces that are up, but for those that are ``dark`` at their optical switch. ``capacity_bps``:
    as in ``TopologySettings``."""
    found = {}
    for at in cabling.fibre_of:
        switch = switches.get(at.dpid)
        port = switch.ports.get(at.port) if switch else None
        if switch and port and port.up and at not in dark:
            found[at] = capacity_bps(switch, port, False)
    return found


def _is_of(refused: Refused, job: Job | None) -> bool:
    return job is not None and (job.uid, job.spec) == (refused.uid, refused.spec)


def _servers(job: Job, hosts: Mapping[str, Host], cabling: Cabling) -> tuple[Dpid, ...]:
    """Of its addresses, in the order in which ranks name them; none when one is not known, when two are at one server,
    or when one of the servers has no interfaces."""
    found: list[Dpid] = []
    for ip in dict.fromkeys(job.spec.endpoints):
        host = hosts.get(ip)
        if host is None or host.at.dpid in found or host.at.dpid not in cabling.interfaces:
            return ()
        found.append(host.at.dpid)
    return tuple(found) if len(found) > 1 else ()


def _common(servers: Collection[Dpid], interface_bps: Mapping[PortRef, float], cabling: Cabling) -> tuple[Dpid, ...]:
    """The optical switches at which each of the servers has a working interface."""
    return tuple(
        optical
        for optical in sorted(cabling.optical)
        if all(cabling.interface(server, optical) in interface_bps for server in servers)
    )


def _interfaces(servers: Collection[Dpid], optical: Collection[Dpid], cabling: Cabling) -> Iterator[PortRef]:
    for server in servers:
        for dpid in optical:
            if at := cabling.interface(server, dpid):
                yield at


def _wiring(asked: FindWiring, found: FoundWiring, cabling: Cabling) -> JobWiring:
    circuits = []
    for optical, peers in zip(asked.optical, found.peers, strict=True):
        at = [cabling.interface(server, optical) for server in asked.servers]
        for src, peer in zip(at, peers, strict=True):
            dst = at[peer] if peer is not None else None
            if src and dst:
                circuits.append((src, dst))
    times_s = found.planned_s, found.bound_s, found.other_s
    return JobWiring(found.strategy, found.runs, tuple(circuits), *times_s)
