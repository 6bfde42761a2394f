"""What the load benchmark concludes from jobs that are there after a kill, and the state that it starts with."""

from __future__ import annotations

from pathlib import Path

from benchmarks.api_load.load import pending_jobs
from benchmarks.api_load.restarts import Kills, _compare, _medians, filled
from controller.api.lease_tokens import LeaseTokens
from controller.store.sqlite_store import SqliteStore
from signalbox.spec_messages import spec_message
from signalbox.v1 import signalbox_pb2 as pb


def test_a_state_that_was_filled_has_the_jobs_that_the_tokens_are_of(tmp_path: Path) -> None:
    tokens, specs = filled(tmp_path, pending_jobs(1), 3)
    store = SqliteStore(tmp_path)
    jobs = store.load().jobs
    store.close()
    of = LeaseTokens.of(tmp_path)
    assert {job.job_id: job.uid for job in jobs.values()} == {job_id: of.uid(token) for job_id, token in tokens.items()}
    assert {job.job_id: spec_message(job.spec) for job in jobs.values()} == specs
    assert len(jobs) == 3


def found(job_id: str, uid: str, lease_s: int = 60) -> pb.Job:
    return pb.Job(spec={"job_id": job_id, "lease": {"seconds": lease_s}}, uid=uid)


def test_what_is_missing_too_much_or_altered_after_a_kill_is_counted() -> None:
    result = Kills(seed=1, kills=1, jobs=3)
    tokens = {job_id: f"{job_id}-uid.mac" for job_id in ("there", "other", "missing")}
    specs = {job_id: found(job_id, "").spec for job_id in (*tokens, "perhaps", "perhaps not")}
    jobs = [found("there", "there-uid"), found("other", "new-uid"), found("perhaps", "x"), *[found("nobody", "y")] * 2]
    _compare(result, tokens, {"perhaps", "perhaps not"}, specs, jobs)
    assert (result.lost, result.risen, result.twice, result.altered) == (2, 1, 1, 0)
    _compare(
        result, tokens, set(specs), specs, [found("there", "there-uid", 61), found("perhaps", "x", 59), *jobs[1:2]]
    )
    assert result.altered == 2


def test_stages_are_told_by_what_each_took() -> None:
    starts = [{"imports": 2.0, "read": 3.0}, {"imports": 1.0, "read": 1.5}, {"imports": 3.0, "read": 3.25}]
    assert _medians(starts) == {"imports": 2.0, "read": 0.5}
