"""Where lease tokens are kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from signalbox.commands.lease_files import LeaseFiles
from signalbox.errors import InvalidInput


def test_a_user_without_a_home_is_told_what_to_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As a container's user may be, whom its system does not know."""

    def unknown() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", unknown)
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    with pytest.raises(InvalidInput, match="XDG_STATE_HOME: is needed for lease tokens"):
        LeaseFiles("127.0.0.1:50051")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert LeaseFiles("127.0.0.1:50051").job_ids() == set()
