"""Working interfaces of servers, and the broken interfaces and circuits of each job. Pure functions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from controller.circuits.cabling import Cabling
from controller.circuits.job_wiring import JobWiring
from controller.fabric.topology import Dpid, Port, PortRef, Switch
from signalbox.jobs.spec import JobId


class Damage(NamedTuple):
    """Wiring of a job, with its broken interfaces and circuits."""

    wiring: JobWiring
    interfaces: frozenset[PortRef]
    """Interfaces that do not work."""
    circuits: frozenset[tuple[PortRef, PortRef]]
    """Circuits that are broken although both of their interfaces work."""


def damaged(
    wirings: Mapping[JobId, JobWiring],
    switches: Mapping[Dpid, Switch],
    interface_bps: Mapping[PortRef, float],
    missing: Collection[tuple[PortRef, PortRef]],
    fixed: bool,
) -> Mapping[JobId, Damage]:
    """Return the damage of each job with a broken interface or circuit.

    ``missing``: circuits over which no probes arrive. ``fixed``: whether jobs keep their circuits in any case; the
    result is then empty. The state of a disconnected server is unknown, so its interfaces do not count as broken."""
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
    """Return the rate (bit/s) of each interface that is up and not ``dark`` at its optical switch.

    ``capacity_bps``: see ``TopologySettings``."""
    found = {}
    for at in cabling.fibre_of:
        switch = switches.get(at.dpid)
        port = switch.ports.get(at.port) if switch else None
        if switch and port and port.up and at not in dark:
            found[at] = capacity_bps(switch, port, False)
    return found
