"""Modes and owners that files with secrets may have."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from signalbox.secret_files import of_another_user, open_to_others, replaceable

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
        expected = f"others than its owner have access to it (mode {mode:04o}): chmod {better} /file"
        assert open_to_others(owned(monkeypatch, uid, mode, by)) == expected


def test_a_file_of_another_user_is_told_from_ones_own_and_roots(monkeypatch: pytest.MonkeyPatch) -> None:
    assert of_another_user(owned(monkeypatch, ROOT, 0o600)) is None
    assert of_another_user(owned(monkeypatch, OURS, 0o600)) is None
    assert of_another_user(owned(monkeypatch, ANOTHER, 0o600)) == "belongs to another user: chown 1000 /file"


def test_a_directory_in_which_others_write_is_told(tmp_path: Path) -> None:
    for mode, open_ in ((0o700, False), (0o755, False), (0o775, True), (0o757, True), (0o1777, True)):
        tmp_path.chmod(mode)
        assert bool(replaceable(tmp_path)) is open_
