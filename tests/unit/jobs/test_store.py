from pathlib import Path

import pytest

from controller.jobs.spec import JobSpec
from controller.jobs.store import JobStore


def spec(job_id: str) -> JobSpec:
    return JobSpec.parse(
        {
            "job_id": job_id,
            "endpoints": ["10.0.0.1", "10.0.0.2"],
            "groups": [{"name": "dp", "ranks": [0, 1]}],
            "collectives": [{"algorithm": "all_to_all", "groups": ["dp"], "bytes_per_iteration": 1 << 50, "phase": 2}],
            "lease_s": 7.5,
        }
    )


def test_saved_specs_come_back_equal(tmp_path: Path) -> None:
    specs = (spec("a"), spec("b"))
    JobStore(tmp_path / "new" / "state").save(specs)
    assert JobStore(tmp_path / "new" / "state").load() == specs


def test_the_newest_save_wins_and_leaves_no_other_file(tmp_path: Path) -> None:
    store = JobStore(tmp_path)
    store.save([spec("a"), spec("b")])
    store.save([spec("b")])
    assert store.load() == (spec("b"),)
    assert [path.name for path in tmp_path.iterdir()] == ["jobs.json"]


def test_nothing_saved_is_no_jobs(tmp_path: Path) -> None:
    assert JobStore(tmp_path / "missing").load() == ()


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"\xff\xfe", b"[]", b"3", b'{"format": 2, "jobs": []}', b'{"format": 1, "jobs": [{"job_id": "A!"}]}'],
)
def test_a_corrupt_file_is_set_aside_and_the_next_save_works(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "jobs.json").write_bytes(content)
    store = JobStore(tmp_path)
    assert store.load() == ()
    assert (tmp_path / "jobs.json.corrupt").read_bytes() == content
    store.save([spec("a")])
    assert store.load() == (spec("a"),)


def test_without_a_state_directory_nothing_is_kept() -> None:
    store = JobStore(None)
    store.save([spec("a")])
    assert store.load() == ()
