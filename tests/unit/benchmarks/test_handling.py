"""The benchmark of the control loop: jobs are pinned, and every step leads to messages for switches."""

from __future__ import annotations

import pytest

from benchmarks.handling import measured
from controller.planning import target
from signalbox.errors import SignalboxError


def test_each_step_is_measured_and_the_planner_set_back() -> None:
    planner = vars(target)["plan"]
    flows, results = measured("8x4x8", jobs=5, changes=6, seed=1)
    assert flows > 5 * 8
    mods = {result.step: result.mods for result in results}
    assert mods.pop("nothing for 20 s") == 0
    assert list(mods) == ["6 changes of jobs", "a cable is lost", "it comes back", "a spine leaves"]
    assert all(mods.values())
    assert vars(target)["plan"] is planner
    assert all(result.calls and result.total_ms >= result.max_ms > 0 for result in results)


def test_a_fabric_with_fewer_hosts_than_a_job_may_have_is_refused() -> None:
    with pytest.raises(SignalboxError, match="64 hosts"):
        measured("4x2x4", jobs=1, changes=1, seed=1)
