"""The load benchmark kills a real controller, and finds what is wrong after the next start."""

from __future__ import annotations

import math
from typing import Any

import pytest

from benchmarks.api_load import restarts
from benchmarks.api_load.restarts import filled, killed
from signalbox.v1 import signalbox_pb2 as pb


def test_a_controller_that_is_killed_under_load_has_what_it_acknowledged_and_its_lease_tokens_work() -> None:
    result = killed(count=1, jobs=30, seed=3, within_s=math.inf)
    assert (result.kills, len(result.start_s)) == (1, 2)
    assert (result.lost, result.risen, result.twice, result.altered, result.locked_out) == (0, 0, 0, 0, 0)


def test_jobs_that_are_not_as_they_were_announced_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lease tokens that do not work any more, as with another key; a spec that is another one."""

    def otherwise(*args: Any) -> tuple[dict[str, str], dict[str, pb.JobSpec]]:
        tokens, specs = filled(*args)
        next(iter(specs.values())).max_subflows = 16
        ends = {job_id: "AA" if token.endswith("BB") else "BB" for job_id, token in tokens.items()}
        return {job_id: token[:-2] + ends[job_id] for job_id, token in tokens.items()}, specs

    monkeypatch.setattr(restarts, "filled", otherwise)
    result = killed(count=0, jobs=5, seed=1, within_s=math.inf)
    assert (result.lost, result.altered, result.locked_out) == (0, 1, 5)
