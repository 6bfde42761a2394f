"""Wiring of a job on a fabric with optical switches: its circuits, its parallelization and its rings."""

from __future__ import annotations

from dataclasses import dataclass

from controller.fabric.topology import Dpid, PortNo, PortRef
from controller.jobs.messages import Arrangement, Registration
from signalbox.jobs.spec import JobSpec


@dataclass(frozen=True, slots=True)
class JobWiring:
    """Circuits of a job, and its parallelization on them. Times are predicted seconds of one iteration."""

    parallelization: str
    """Name of the parallelization; empty for a job without parallelizations."""
    runs: JobSpec
    """Spec of the job as it runs on the circuits, with the rings of its all-reduces."""
    circuits: tuple[tuple[PortRef, PortRef], ...]
    """Circuits, each as (sending interface, receiving interface)."""
    planned_s: float
    """Time on the routes that were found."""
    bound_s: float
    """Lower bound of the time over all routes on these circuits."""
    other_s: float
    """Time on the alternative, one switch of the same cost."""

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
