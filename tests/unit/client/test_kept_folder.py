"""Files that say which jobs to register: files that are added, change or are removed, and invalid files."""

import logging
import os
import shutil
from pathlib import Path

import pytest

from signalbox.errors import InvalidInput
from signalbox.jobs.spec import JobSpec
from signalbox.kept_folder import AGAIN_S, KeptFolder


class Jobs:
    """Stand-in for a ``Keeper``."""

    def __init__(self) -> None:
        self.wanted: dict[str, tuple[str, ...]] = {}
        self.calls = 0

    def keep(self, spec: JobSpec) -> None:
        self.calls += 1
        self.wanted[spec.job_id] = spec.endpoints

    def release(self, job_id: str) -> None:
        self.calls += 1
        del self.wanted[job_id]


@pytest.fixture
def jobs() -> Jobs:
    return Jobs()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "jobs").mkdir()
    return tmp_path / "jobs"


def write(folder: Path, name: str, text: str) -> Path:
    """Write a file as launchers should: whole or not at all."""
    (folder / ".new").write_text(text)
    return (folder / ".new").replace(folder / name)


def spec(job_id: str, last: int = 1) -> str:
    return f"job_id: {job_id}\nendpoints: [10.0.1.1, 10.0.2.{last}]\n"


def test_files_come_change_and_go(jobs: Jobs, folder: Path) -> None:
    write(folder, "a.yaml", spec("a"))
    kept = KeptFolder(folder, jobs)
    for _ in range(3):
        kept.look()
    assert jobs.wanted == {"a": ("10.0.1.1", "10.0.2.1")}
    assert jobs.calls == 1, "a file that stays is not read again"
    write(folder, "b.json", '{"job_id": "b", "endpoints": ["10.0.1.1", "10.0.3.1"]}')
    write(folder, "a.yaml", spec("a", 2))
    kept.look()
    assert jobs.wanted == {"a": ("10.0.1.1", "10.0.2.2"), "b": ("10.0.1.1", "10.0.3.1")}
    (folder / "a.yaml").write_text(spec("a", 3))  # in place
    os.utime(folder / "a.yaml", ns=(1, 2))
    kept.look()
    assert jobs.wanted["a"] == ("10.0.1.1", "10.0.2.3")
    (folder / "a.yaml").unlink()
    kept.look()
    assert set(jobs.wanted) == kept.jobs == {"b"}


def test_other_files_are_left_alone(jobs: Jobs, folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    for name in (".a.yaml", "a.yaml~", "a.yaml.1234", "README", ".swept"):
        (folder / name).write_text(spec("a"))
    (folder / "b.yaml").mkdir()
    KeptFolder(folder, jobs).look()
    assert jobs.calls == 0
    assert not caplog.records


def test_a_file_may_have_several_jobs(jobs: Jobs, folder: Path) -> None:
    write(folder, "a.yaml", f"{spec('a')}---\n{spec('b')}")
    kept = KeptFolder(folder, jobs)
    kept.look()
    assert set(jobs.wanted) == {"a", "b"}
    write(folder, "a.yaml", f"{spec('b')}---\n{spec('c')}")
    kept.look()
    assert set(jobs.wanted) == {"b", "c"}


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    caplog.clear()
    return found


def test_a_wrong_file_has_one_line_and_the_others_go_on(
    jobs: Jobs, folder: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wrong files include a link to itself and a file that does not fit into memory."""
    monkeypatch.setattr("signalbox.spec_files.MAX_SPEC_BYTES", 1 << 20)
    write(folder, "a.yaml", "job_id: a\nendpoints: [10.0.1.1, 10.0.2.300]\n")
    write(folder, "b.yaml", spec("b"))
    (folder / "loop.yaml").symlink_to("loop.yaml")
    os.truncate(write(folder, "huge.yaml", ""), 1 << 40)
    now = 0.0
    kept = KeptFolder(folder, jobs, clock=lambda: now)
    for _ in range(10):
        kept.look()
        now += AGAIN_S
    assert set(jobs.wanted) == {"b"}
    assert sorted(lines(caplog)) == [
        f"{folder}/a.yaml:2:23: endpoints[1]: must be an IPv4 address such as 10.0.1.2 (given: '10.0.2.300')",
        f"{folder}/huge.yaml: has more than 1 MiB",
        f"{folder}/loop.yaml: Too many levels of symbolic links",
    ]
    for name in ("huge", "loop"):
        (folder / f"{name}.yaml").unlink()
    assert kept.problems
    write(folder, "a.yaml", spec("a"))
    kept.look()
    assert set(jobs.wanted) == {"a", "b"}
    assert not kept.problems
    write(folder, "a.yaml", "job_id: [")
    kept.look()
    assert set(jobs.wanted) == {"a", "b"}, "the job stays as it was"
    (folder / "a.yaml").unlink()
    kept.look()
    assert set(jobs.wanted) == {"b"}


def test_a_job_of_two_files_is_that_of_the_first_until_it_goes(
    jobs: Jobs, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(folder, "a.yaml", spec("same", 1))
    write(folder, "b.yaml", spec("same", 2))
    now = 0.0
    kept = KeptFolder(folder, jobs, clock=lambda: now)
    kept.look()
    assert jobs.wanted == {"same": ("10.0.1.1", "10.0.2.1")}
    assert lines(caplog) == [f"{folder}/b.yaml: job 'same' is left out: {folder}/a.yaml also has it"]
    (folder / "a.yaml").unlink()
    kept.look()
    now += AGAIN_S
    kept.look()
    assert jobs.wanted == {"same": ("10.0.1.1", "10.0.2.2")}


def test_a_folder_that_goes_away_releases_nothing(
    jobs: Jobs, folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(folder, "a.yaml", spec("a"))
    kept = KeptFolder(folder, jobs)
    kept.look()
    folder.rename(tmp_path / "elsewhere")
    kept.look()
    kept.look()
    assert set(jobs.wanted) == {"a"}
    assert lines(caplog) == [f"{folder}: No such file or directory; its jobs stay as they are"]
    folder.mkdir()
    kept.look()
    assert not jobs.wanted
    with pytest.raises(InvalidInput, match="missing: is not a folder"):
        KeptFolder(tmp_path / "missing", jobs)


# ---- names


def test_names_have_the_addresses_of_a_file_that_may_change(
    jobs: Jobs, folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    addresses = tmp_path / "addresses.yaml"
    addresses.write_text("n[1-2]: 10.0.1-2.1\n")
    write(folder, "a.yaml", "job_id: a\nhosts: n[1-2]\n")
    kept = KeptFolder(folder, jobs, addresses)
    kept.look()
    assert jobs.wanted == {"a": ("10.0.1.1", "10.0.2.1")}
    addresses.write_text("n[1-2]: 10.0.\n")
    kept.look()
    assert jobs.wanted == {"a": ("10.0.1.1", "10.0.2.1")}
    (line,) = lines(caplog)
    assert line.startswith(f"{addresses}:1:")
    assert line.endswith("; the previous addresses stay in use")
    addresses.write_text("n[1-2]: 10.0.3-4.1\n")
    kept.look()
    assert jobs.wanted == {"a": ("10.0.3.1", "10.0.4.1")}
    shutil.move(addresses, tmp_path / "elsewhere")
    kept.look()
    assert jobs.wanted == {"a": ("10.0.3.1", "10.0.4.1")}


def test_names_without_an_address_are_looked_up_again_but_not_at_every_look(
    jobs: Jobs, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def resolved(host: str, *_: object) -> list[tuple[object, ...]]:
        asked.append(host)
        if len(asked) < 3:
            raise OSError("Temporary failure in name resolution")
        return [(2, 1, 6, "", ("10.0.1.9", 0))]

    monkeypatch.setattr("socket.getaddrinfo", resolved)
    write(folder, "a.yaml", "job_id: a\nendpoints: [n1, 10.0.2.1]\n")
    now = 0.0
    kept = KeptFolder(folder, jobs, clock=lambda: now)
    for _ in range(int(2 * AGAIN_S) + 1):
        kept.look()
        now += 1.0
    assert len(asked) == 3
    assert jobs.wanted == {"a": ("10.0.1.9", "10.0.2.1")}
