"""Consequences of missing parts: which parts are saved, which raise no alarm, and which flows have no path.

A flow without a path is not delivered, whatever the planner or ECMP does. After a start, parts that may still appear
are not reported.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

from controller.fabric.drains import Drain
from controller.fabric.islands import Islands, connected
from controller.fabric.parts import Part, PartKey, PartKind, host_key, switch_key, unique_name
from controller.fabric.topology import Dpid, Fabric, Host, Switch
from controller.jobs.job import Job
from controller.shared_map import updated
from signalbox.jobs.spec import JobId


def addresses(job: Job) -> frozenset[str]:
    """Return the addresses of the hosts that a job must have."""
    return job.addresses


def addresses_of_flows(job: Job) -> frozenset[str]:
    """Return the addresses of the hosts that the planned flows of a job connect."""
    return job.virtual_links.addresses


def named_parts(job: Job) -> Iterable[PartKey]:
    """Return the keys of the hosts that a job names."""
    return map(host_key, job.addresses)


def count_without_path(job: Job, hosts: Mapping[str, Host], islands: Islands) -> int | None:
    """Return the number of virtual links of a job between known hosts that have no path; None if it is zero."""
    pairs = job.pairs if islands else ()
    unconnected = (src in hosts and dst in hosts and not connected(islands, src, dst) for src, dst in pairs)
    return sum(unconnected) or None


def if_down(_: PartKey, part: Part) -> Part | None:
    return part if part.down_since is not None else None


def if_switch(_: PartKey, part: Part) -> Part | None:
    return part if part.kind is PartKind.SWITCH else None


def saved_part(_: PartKey, part: Part, named: frozenset[JobId] | None) -> Part | None:
    """Return the part if it must be saved for a restart, else None.

    Hosts are saved only while they are down and named. The controller discovers all other hosts again after a restart,
    and a host that invents addresses must not fill the state."""
    if part.kind is PartKind.HOST:
        return part if named is not None and part.down_since is not None else None
    return part if part.seen or part.down_since is not None else None


def drained_keys(drains: Mapping[str, Drain], down: Mapping[PartKey, Part]) -> frozenset[PartKey]:
    """Return the keys of the drained switches, and of the drained cables that are down. ``drains``: by name."""
    cables = {drain.key for drain in drains.values() if isinstance(drain.part, frozenset)} & down.keys()
    switches = [drain for drain in drains.values() if isinstance(drain.part, int)]
    of_switches = (key for key, part in down.items() if any(drain.covers(part) for drain in switches))
    return frozenset((*cables, *of_switches, *(drain.key for drain in switches)))


def excepted(
    explained: Mapping[PartKey, bool],
    taken: tuple[Dpid, ...],
    drained: frozenset[PartKey],
    down: Mapping[PartKey, Part],
) -> Mapping[PartKey, bool]:
    """Return the parts of ``down`` that raise no alarm, each with the value True.

    ``explained``: parts that are down because of another part.
    ``taken``: switches with another controller as master, for which there is a separate alarm.
    ``drained``: drained switches and cables. A host that is down at a drained switch still raises its alarm, because a
    drained switch should have no hosts."""
    silent = {down[key].name for key in drained & down.keys() if key.kind is PartKind.SWITCH}
    hosts = (key for key in explained if key.kind is PartKind.HOST) if silent else ()
    changes: dict[PartKey, bool | None] = {key: None for key in hosts if down[key].ends[0].switch in silent}
    return updated(explained, {**changes, **dict.fromkeys((*map(switch_key, taken), *drained), True)})


def shared_names(known: Mapping[PartKey, Part], switches: Mapping[Dpid, Switch]) -> frozenset[str]:
    """Return the names that several of the known and connected switches have."""
    names = {part.ends[0].at.dpid: part.name for part in known.values() if part.seen}
    names |= {dpid: switch.name for dpid, switch in switches.items()}
    return frozenset(name for name, count in Counter(names.values()).items() if count > 1)


def switches_with_unique_names(fabric: Fabric, shared_names: frozenset[str]) -> Fabric:
    """Return the fabric with a unique name for each switch."""
    if not shared_names:
        return fabric
    switches = {
        dpid: replace(switch, name=unique_name(switch.name, dpid, shared_names))
        for dpid, switch in fabric.switches.items()
    }
    return replace(fabric, switches=switches)


def not_awaited(
    missing: Mapping[JobId, tuple[str, ...]], awaited: frozenset[PartKey]
) -> Mapping[JobId, tuple[str, ...]]:
    """Return the missing addresses of each job without the ``awaited`` ones (see ``KnownParts``)."""
    if not awaited:
        return missing
    left = {job_id: tuple(ip for ip in ips if host_key(ip) not in awaited) for job_id, ips in missing.items()}
    return {job_id: ips for job_id, ips in left.items() if ips}


def unless_awaited(without_path: Mapping[JobId, int], awaited: frozenset[PartKey]) -> Mapping[JobId, int]:
    """Return ``without_path``, or nothing while switches or cables are ``awaited`` that may complete the paths."""
    return {} if any(key.kind is not PartKind.HOST for key in awaited) else without_path
