"""What follows from parts of the fabric that are missing: which are saved, which raise no alarm, and which flows of
jobs have no path: whatever is planned or hashed, their packets do not arrive.

After a start, what may only be found later is not reported.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

from controller.fabric.drains import Drain
from controller.fabric.islands import Islands, connected
from controller.fabric.parts import Part, PartKey, PartKind, host_key, switch_key, told_apart
from controller.fabric.topology import Dpid, Fabric, Host, Switch
from controller.jobs.job import Job
from controller.shared_map import updated
from signalbox.jobs.spec import JobId


def addresses(job: Job) -> frozenset[str]:
    """Return the hosts that a job must have, by address."""
    return job.addresses


def addresses_of_flows(job: Job) -> frozenset[str]:
    """Return the hosts between which the job is planned for, by address."""
    return job.virtual_links.addresses


def named_parts(job: Job) -> Iterable[PartKey]:
    """Return the hosts that a job names, as parts of the fabric."""
    return map(host_key, job.addresses)


def count_without_path(job: Job, hosts: Mapping[str, Host], islands: Islands) -> int | None:
    """Return how many virtual links of a job have no path, between hosts that are known; None where all have one."""
    pairs = job.pairs if islands else ()
    unconnected = (src in hosts and dst in hosts and not connected(islands, src, dst) for src, dst in pairs)
    return sum(unconnected) or None


def if_down(_: PartKey, part: Part) -> Part | None:
    return part if part.down_since is not None else None


def if_switch(_: PartKey, part: Part) -> Part | None:
    return part if part.kind is PartKind.SWITCH else None


def saved_part(_: PartKey, part: Part, named: frozenset[JobId] | None) -> Part | None:
    """What a restart should know of the part. Of hosts only those that are down and named: the others are found again,
    and a host that invents others must not fill the state."""
    if part.kind is PartKind.HOST:
        return part if named is not None and part.down_since is not None else None
    return part if part.seen or part.down_since is not None else None


def drained_keys(drains: Mapping[str, Drain], down: Mapping[PartKey, Part]) -> frozenset[PartKey]:
    """The drained switches, and the cables that are down and drained. ``drains``: by name."""
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
    """The parts of those that are ``down`` that raise no alarm, each with True. ``explained``: by another part that is
    down. ``taken``: switches that another controller is the master of, which is another alarm. ``drained``: taken out
    of use, which explains no host: such a switch raises no alarm, and should have none."""
    silent = {down[key].name for key in drained & down.keys() if key.kind is PartKind.SWITCH}
    hosts = (key for key in explained if key.kind is PartKind.HOST) if silent else ()
    changes: dict[PartKey, bool | None] = {key: None for key in hosts if down[key].ends[0].switch in silent}
    return updated(explained, {**changes, **dict.fromkeys((*map(switch_key, taken), *drained), True)})


def shared_names(known: Mapping[PartKey, Part], switches: Mapping[Dpid, Switch]) -> frozenset[str]:
    """The names that several switches have, of those that are known and those that are connected."""
    names = {part.ends[0].at.dpid: part.name for part in known.values() if part.seen}
    names |= {dpid: switch.name for dpid, switch in switches.items()}
    return frozenset(name for name, count in Counter(names.values()).items() if count > 1)


def switches_told_apart(fabric: Fabric, shared_names: frozenset[str]) -> Fabric:
    """With other names for switches that share theirs."""
    if not shared_names:
        return fabric
    switches = {
        dpid: replace(switch, name=told_apart(switch.name, dpid, shared_names))
        for dpid, switch in fabric.switches.items()
    }
    return replace(fabric, switches=switches)


def not_awaited(
    missing: Mapping[JobId, tuple[str, ...]], awaited: frozenset[PartKey]
) -> Mapping[JobId, tuple[str, ...]]:
    """Of the addresses that jobs miss those that are not ``awaited`` (``KnownParts``)."""
    if not awaited:
        return missing
    left = {job_id: tuple(ip for ip in ips if host_key(ip) not in awaited) for job_id, ips in missing.items()}
    return {job_id: ips for job_id, ips in left.items() if ips}


def unless_awaited(without_path: Mapping[JobId, int], awaited: frozenset[PartKey]) -> Mapping[JobId, int]:
    """None while switches or cables are ``awaited``, which may be what is missing on the paths."""
    return {} if any(key.kind is not PartKind.HOST for key in awaited) else without_path
