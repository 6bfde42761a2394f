"""How an extension makes a job run (``core.extension``): a part of the job's registration, which is saved with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from signalbox.jobs.spec import NOT_TRAFFIC, JobSpec, same_traffic


@dataclass(frozen=True, slots=True)
class Arrangement:
    """``runs``: the spec of what the job sends. ``details``: what the extension has decided besides, as JSON; nothing
    else reads it."""

    runs: JobSpec
    details: Mapping[str, Any]

    def with_spec(self, before: JobSpec, after: JobSpec) -> Arrangement | None:
        """The arrangement of the job when its spec is another one; None when it sends something else."""
        if not same_traffic(before, after):
            return None
        changed = {name: getattr(after, name) for name in NOT_TRAFFIC}
        return replace(self, runs=self.runs.model_copy(update=changed))
