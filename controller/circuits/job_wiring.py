"""How a job runs on a fabric with optical switches: on which circuits, in which of its strategies, in which rings."""

from __future__ import annotations

from dataclasses import dataclass

from controller.fabric.topology import Dpid, PortNo, PortRef
from controller.jobs.messages import Arrangement, Registration
from signalbox.jobs.spec import JobSpec


@dataclass(frozen=True, slots=True)
class JobWiring:
    """``strategy``: its name; empty for a job that has none. ``runs``: the spec of what it sends, with the rings that
    its all-reduces run in. ``circuits``: interface that sends, interface that receives. Seconds of an iteration:
    ``planned_s`` by the model on the routes that were found, ``bound_s`` that no routes on these circuits are below,
    and ``other_s`` on the alternative, one switch of the same cost."""

    strategy: str
    runs: JobSpec
    circuits: tuple[tuple[PortRef, PortRef], ...]
    planned_s: float
    bound_s: float
    other_s: float

    @classmethod
    def of(cls, arrangement: Arrangement) -> JobWiring:
        """Raises ``KeyError``, ``TypeError`` or ``ValueError`` for the arrangement of something else."""
        details = arrangement.details
        circuits = tuple(
            (PortRef(Dpid(int(a)), PortNo(int(b))), PortRef(Dpid(int(c)), PortNo(int(d))))
            for a, b, c, d in details["circuits"]
        )
        planned_s, bound_s, other_s = map(float, details["times_s"])
        return cls(str(details["strategy"]), arrangement.runs, circuits, planned_s, bound_s, other_s)

    @property
    def arrangement(self) -> Arrangement:
        """The same, as a part of the job's registration."""
        details = {
            "strategy": self.strategy,
            "circuits": [[*src, *dst] for src, dst in self.circuits],
            "times_s": [self.planned_s, self.bound_s, self.other_s],
        }
        return Arrangement(self.runs, details)


def wiring_of(registration: Registration) -> JobWiring | None:
    arrangement = registration.arrangement
    return JobWiring.of(arrangement) if arrangement else None
