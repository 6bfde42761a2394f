"""How a job runs on a fabric with optical switches: on which circuits, in which of its strategies, in which rings."""

from __future__ import annotations

from dataclasses import dataclass

from controller.fabric.topology import PortRef
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
