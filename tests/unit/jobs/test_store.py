import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from controller.config import Strategy
from controller.errors import InvalidInput
from controller.jobs.messages import SavedState
from controller.jobs.spec import JobSpec
from controller.jobs.store import StateStore


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


def test_saved_state_comes_back_equal(tmp_path: Path) -> None:
    transfers = JobSpec.parse(
        {
            "job_id": "c",
            "endpoints": ["10.0.0.1", "10.0.0.2"],
            "rails": [{"endpoints": ["10.1.0.1", "10.1.0.2"]}],
            "transfers": [{"src": 0, "dst": 1, "bytes_per_iteration": 5, "phase": 1, "step": 2}],
            "library": "gloo",
            "dealing": "even",
            "reports_connections": True,
        }
    )
    state = SavedState((spec("a"), spec("b"), transfers), Strategy.SHADOW)
    StateStore(tmp_path / "new" / "state").save(state)
    assert StateStore(tmp_path / "new" / "state").load() == state


def test_shares_of_split_flows_come_back_to_the_last_bit(tmp_path: Path) -> None:
    shares = {("10.0.0.1", "10.0.0.2"): (0.1, 0.2, 0.7), ("10.0.0.2", "10.0.0.1"): (1 / 3, 2 / 3)}
    StateStore(tmp_path).save(SavedState((), None, shares))
    assert StateStore(tmp_path).load().shares == shares


def test_a_state_from_before_there_were_transfers_is_read(tmp_path: Path) -> None:
    """As the version before wrote it."""
    (tmp_path / "state.json").write_text(
        '{"format": 1, "strategy": "planned", "jobs": [{"job_id": "a", "endpoints": ["10.0.0.1", "10.0.0.2"], '
        '"groups": [{"name": "dp", "ranks": [0, 1]}], "collectives": [{"algorithm": "all_to_all", "groups": ["dp"], '
        '"bytes_per_iteration": 1125899906842624, "phase": 2}], "max_subflows": 1, "transport": "tcp", '
        '"lease_s": 7.5}], "shares": []}'
    )
    assert StateStore(tmp_path).load() == SavedState((spec("a"),), Strategy.PLANNED)


def test_a_state_from_before_there_were_shares_is_read(tmp_path: Path) -> None:
    job = spec("a").model_dump(mode="json", exclude={"max_subflows", "transport"})
    (tmp_path / "state.json").write_text(json.dumps({"format": 1, "strategy": "ecmp", "jobs": [job]}))
    assert StateStore(tmp_path).load() == SavedState((spec("a"),), Strategy.ECMP)


def test_the_newest_save_wins_and_leaves_no_other_file(tmp_path: Path) -> None:
    store = StateStore(tmp_path)
    store.save(SavedState((spec("a"), spec("b"))))
    store.save(SavedState((spec("b"),)))
    assert store.load() == SavedState((spec("b"),))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lock", "state.json"]


def test_nothing_saved_is_no_jobs(tmp_path: Path) -> None:
    assert StateStore(tmp_path / "missing").load() == SavedState()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[]",
        b"3",
        b'{"format": 2, "jobs": []}',
        b'{"format": 1, "jobs": []}',
        b'{"format": 1, "strategy": null, "jobs": [{}]}',
        b'{"format": 1, "strategy": null, "jobs": [], "shares": [["10.0.0.1", "10.0.0.2", 0.5, 0.4]]}',
        b'{"format": 1, "strategy": null, "jobs": [], "shares": [["10.0.0.1", "10.0.0.2", 1.5, -0.5]]}',
        b'{"format": 1, "strategy": null, "jobs": [], "shares": [["10.0.0.1", "10.0.0.2", "1", "0"]]}',
        b'{"format": 1, "strategy": null, "jobs": [], "shares": [["10.0.0.1"]]}',
    ],
)
def test_a_corrupt_file_is_set_aside_and_the_next_save_works(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "state.json").write_bytes(content)
    store = StateStore(tmp_path)
    assert store.load() == SavedState()
    assert (tmp_path / "state.json.corrupt").read_bytes() == content
    store.save(SavedState((spec("a"),)))
    assert store.load() == SavedState((spec("a"),))


def test_two_controllers_do_not_share_a_directory(tmp_path: Path) -> None:
    first = StateStore(tmp_path)
    first.load()
    second = StateStore(tmp_path)
    said = rf"state_dir: another controller uses .* \(process {os.getpid()}\); stop it, or start with --standby"
    with pytest.raises(InvalidInput, match=said):
        second.load()
    assert not second.claim()
    assert first.load() == SavedState()
    first.close()
    assert StateStore(tmp_path).load() == SavedState()


def test_who_waits_has_the_directory_as_soon_as_it_is_free(tmp_path: Path) -> None:
    first, second = StateStore(tmp_path), StateStore(tmp_path)
    assert first.claim()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(second.claim, wait=True)
        with pytest.raises(TimeoutError):
            waiting.result(0.05)
        first.close()
        assert waiting.result(5)
    assert not first.claim()
    second.close()


@pytest.mark.parametrize("where", ["file", "file/below", "/proc/signalbox"])
def test_a_directory_that_cannot_be_written_is_refused(tmp_path: Path, where: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InvalidInput, match="state_dir: cannot write in "):
        StateStore(tmp_path / where).load()


def test_without_a_state_directory_nothing_is_kept() -> None:
    store = StateStore(None)
    store.save(SavedState((spec("a"),)))
    assert store.load() == SavedState()


def test_the_owner_is_the_process_that_claimed_the_directory_last(tmp_path: Path) -> None:
    (tmp_path / "lock").write_text("12345678901234")
    store = StateStore(tmp_path)
    assert store.claim()
    assert store.owner() == str(os.getpid())
    store.close()
