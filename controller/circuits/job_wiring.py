"""How a job runs on a fabric with optical switches: on which circuits, in which of its strategies, in which rings."""

from __future__ import annotations

from dataclasses import dataclass, replace

from controller.fabric.topology import PortRef
from signalbox.jobs.spec import NOT_TRAFFIC, JobSpec, same_traffic


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

    def with_spec(self, before: JobSpec, after: JobSpec) -> JobWiring | None:
        """The wiring of the job when its spec is another one; None when it sends something else."""
        if not same_traffic(before, after):
            return None
        changed = {name: getattr(after, name) for name in NOT_TRAFFIC}
        return replace(self, runs=self.runs.model_copy(update=changed))
