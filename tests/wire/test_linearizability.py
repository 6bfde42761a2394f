"""A history of ``benchmarks linearizability`` with real controllers and a real etcd, which faults strike."""

from pathlib import Path

import pytest

from benchmarks.linearizability.command import JOBS, recorded, refused_parts
from benchmarks.linearizability.recorder import running
from tests.support.wire.etcd import running_etcd


@pytest.mark.long
def test_calls_about_jobs_are_linearizable_while_members_are_killed_and_paused(tmp_path: Path) -> None:
    with running_etcd(tmp_path / "etcd") as etcd, running(tmp_path / "history", etcd) as members:
        history, faults = recorded(members, 400, 3)
    assert set(faults) == {"pause", "short pause"}
    assert {each.call.job for each in history} == set(range(JOBS))
    assert refused_parts(history) == {}
