"""Files that keep lease tokens."""

import resource
from pathlib import Path

import pytest

from signalbox.commands.lease_files import LeaseFiles
from signalbox.errors import InvalidInput


def test_a_user_without_a_home_is_told_what_to_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A container may run as a user that its system does not know."""

    def unknown() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", unknown)
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    with pytest.raises(InvalidInput, match="XDG_STATE_HOME: is needed for lease tokens"):
        LeaseFiles("127.0.0.1:50051")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert LeaseFiles("127.0.0.1:50051").job_ids() == set()


def test_folders_with_long_names_have_files_apart(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    long = Path("/", *["folder"] * 60)
    one, other = LeaseFiles("127.0.0.1:50051", long / "one"), LeaseFiles("127.0.0.1:50051", long / "other")
    one.keep("job", "token")
    assert (one.kept("job"), one.job_ids()) == ("token", {"job"})
    assert (other.kept("job"), other.job_ids()) == ("", set())


def test_a_token_that_cannot_be_written_leaves_the_one_before_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The disk may be full."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    leases = LeaseFiles("127.0.0.1:50051")
    leases.keep("job", "first")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        with pytest.raises(OSError):
            leases.keep("job", "second")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert leases.kept("job") == "first"
    assert [path.name for path in leases.path_of("job").parent.iterdir()] == ["job.token"]
