"""Wiring of a job on a fabric with optical switches: its circuits, parallelization, rings, and damage.

A wiring is damaged when an interface or a circuit does not work. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from controller.circuits.fibres import Cabling
from controller.fabric.topology import Dpid, Port, PortNo, PortRef, Switch
from controller.jobs.messages import Arrangement, Registration
from signalbox.jobs.spec import JobId, JobSpec


@dataclass(frozen=True, slots=True)
class JobWiring:
    """Circuits of a job, and its parallelization on them. Times are predicted seconds of one iteration."""

    parallelization: str
    """Name of the parallelization; empty for a job without parallelizations."""
    runs: JobSpec
    """Spec of the job as it runs on ``circuits``, with the rings of its all-reduces."""
    circuits: tuple[tuple[PortRef, PortRef], ...]
    """Circuits, each as (sending interface, receiving interface)."""
    planned_s: float
    """Time of an iteration on the routes that were found."""
    bound_s: float
    """Lower bound of the time of an iteration over all routes on ``circuits``."""
    other_s: float
    """Time of an iteration on the alternative: one switch of the same cost as the circuits."""

    @classmethod
    def of(cls, arrangement: Arrangement) -> JobWiring:
        """Return the wiring in an arrangement.

        Raises ``KeyError``, ``TypeError`` or ``ValueError`` for the arrangement of another extension."""
        details = arrangement.details
        circuits = tuple(
            (PortRef(Dpid(int(a)), PortNo(int(b))), PortRef(Dpid(int(c)), PortNo(int(d))))
            for a, b, c, d in details["circuits"]
        )
        planned_s, bound_s, other_s = map(float, details["times_s"])
        return cls(str(details["strategy"]), arrangement.runs, circuits, planned_s, bound_s, other_s)

    @property
    def arrangement(self) -> Arrangement:
        """Wiring as an ``Arrangement``, its form in the job's registration."""
        details = {
            "strategy": self.parallelization,
            "circuits": [[*src, *dst] for src, dst in self.circuits],
            "times_s": [self.planned_s, self.bound_s, self.other_s],
        }
        return Arrangement(self.runs, details)


def wiring_of(registration: Registration) -> JobWiring | None:
    arrangement = registration.arrangement
    return JobWiring.of(arrangement) if arrangement else None


class Damage(NamedTuple):
    """Wiring of a job, with its broken interfaces and circuits."""

    wiring: JobWiring
    interfaces: frozenset[PortRef]
    """Interfaces that do not work."""
    circuits: frozenset[tuple[PortRef, PortRef]]
    """Broken circuits both of whose interfaces work."""


def damaged(
    wirings: Mapping[JobId, JobWiring],
    switches: Mapping[Dpid, Switch],
    interface_bps: Mapping[PortRef, float],
    missing: Collection[tuple[PortRef, PortRef]],
    fixed: bool,
) -> Mapping[JobId, Damage]:
    """Return the damage of each job with a broken interface or circuit.

    ``missing``: circuits over which no probes arrive. ``fixed``: whether jobs keep their circuits even if some circuits
    are lost; if True, the result is empty. The state of a disconnected server is unknown, so its interfaces do not
    count as broken."""
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
