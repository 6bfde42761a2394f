"""Files that the client writes whole or not at all, and files with secrets: their modes, owners and names."""

import os
import pwd
import resource
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from signalbox.commands.lease_files import LeaseFiles
from signalbox.errors import InvalidInput
from signalbox.files import of_another_user, open_to_others, replaceable, write

ENDED_BEFORE_IT_IS_THERE = """
import os, signal, sys
from pathlib import Path
from signalbox.files import write

Path.replace = lambda *_: os.kill(os.getpid(), signal.SIGTERM)
write(Path(sys.argv[1]), b"new")
"""


def test_sigterm_while_it_is_written_leaves_what_was_there(tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    write(file, b"old")
    ended = subprocess.run([sys.executable, "-c", ENDED_BEFORE_IT_IS_THERE, file], timeout=60)
    assert ended.returncode == 143
    assert [each.name for each in tmp_path.iterdir()] == ["report.html"]
    assert file.read_bytes() == b"old"


OURS, ROOT, ANOTHER = 1000, 0, 1001


def owned(monkeypatch: pytest.MonkeyPatch, uid: int, mode: int, by: int = OURS) -> Path:
    """Return a file as a process of the user ``by`` sees it."""
    path = Path("/file")
    monkeypatch.setattr(Path, "stat", lambda _: SimpleNamespace(st_uid=uid, st_mode=0o100000 | mode))
    monkeypatch.setattr(os, "geteuid", lambda: by)
    return path


@pytest.mark.parametrize(
    ("uid", "by", "right", "wrong"),
    [
        (OURS, OURS, (0o600, 0o400, 0o700), (0o640, 0o660, 0o604, 0o644, 0o602, 0o610)),
        (ROOT, OURS, (0o600, 0o640, 0o440), (0o644, 0o660, 0o604, 0o650)),
        (ANOTHER, OURS, (0o640, 0o440), (0o644, 0o660)),
        (ROOT, ROOT, (0o600, 0o640), (0o644, 0o660)),
    ],
)
def test_only_files_of_others_may_be_read_by_their_group(
    monkeypatch: pytest.MonkeyPatch, uid: int, by: int, right: tuple[int, ...], wrong: tuple[int, ...]
) -> None:
    for mode in right:
        assert open_to_others(owned(monkeypatch, uid, mode, by)) is None
    for mode in wrong:
        better = 600 if uid == by else 640
        expected = f"other users have access to it (mode {mode:04o}): chmod {better} /file"
        assert open_to_others(owned(monkeypatch, uid, mode, by)) == expected


def test_files_of_others_and_directories_in_which_others_write_are_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for mode, open_ in ((0o700, False), (0o755, False), (0o775, True), (0o757, True), (0o1777, True)):
        tmp_path.chmod(mode)
        assert bool(replaceable(tmp_path)) is open_
    assert of_another_user(owned(monkeypatch, ROOT, 0o600)) is None
    assert of_another_user(owned(monkeypatch, OURS, 0o600)) is None
    assert of_another_user(owned(monkeypatch, ANOTHER, 0o600)) == "belongs to another user: chown 1000 /file"
    by_root = of_another_user(owned(monkeypatch, pwd.getpwnam("daemon").pw_uid, 0o600, by=ROOT))
    assert by_root == "belongs to the user daemon: run this as that user, for example with runuser -u daemon"


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


def test_the_tokens_of_several_controllers_are_the_same_in_any_order(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    LeaseFiles("one:1,two:1").keep("job", "token")
    assert LeaseFiles("two:1,one:1").kept("job") == "token"
    assert LeaseFiles("one:1").kept("job") == ""


def test_folders_with_long_names_have_files_apart_and_a_full_disk_leaves_the_token_before(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    long = Path("/", *["folder"] * 60)
    one, other = LeaseFiles("127.0.0.1:50051", long / "one"), LeaseFiles("127.0.0.1:50051", long / "other")
    one.keep("job", "token")
    assert (one.kept("job"), one.job_ids()) == ("token", {"job"})
    assert (other.kept("job"), other.job_ids()) == ("", set())
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
