"""Which interfaces of servers work, and which interfaces and circuits of each job are broken. Pure functions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from controller.circuits.cabling import Cabling
from controller.circuits.job_wiring import JobWiring
from controller.fabric.topology import Dpid, Port, PortRef, Switch
from signalbox.jobs.spec import JobId


class Damage(NamedTuple):
    """The broken part of a job's wiring. ``circuits``: broken although both of their interfaces work."""

    wiring: JobWiring
    interfaces: frozenset[PortRef]
    circuits: frozenset[tuple[PortRef, PortRef]]


def damaged(
    wirings: Mapping[JobId, JobWiring],
    switches: Mapping[Dpid, Switch],
    interface_bps: Mapping[PortRef, float],
    missing: Collection[tuple[PortRef, PortRef]],
    fixed: bool,
) -> Mapping[JobId, Damage]:
    """``missing``: circuits by which no probes come. ``fixed``: what a job has stays as it is. Of a server that is not
    connected nothing is known: it has its circuits when it is back."""
    found = {}
    for job_id, wiring in wirings.items() if not fixed else ():
        ends = (at for circuit in wiring.circuits for at in circuit)
        dead = frozenset(at for at in ends if at.dpid in switches and at not in interface_bps)
        lost = frozenset(each for each in wiring.circuits if each in missing and dead.isdisjoint(each))
        if dead or lost:
            found[job_id] = Damage(wiring, dead, lost)
    return found


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
