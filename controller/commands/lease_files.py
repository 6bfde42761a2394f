"""Lease tokens of the jobs that this user has registered with ``signalbox jobs register``.

Owns one file per job that only its owner can read, in ``$XDG_STATE_HOME/signalbox/leases`` (XDG Base Directory
Specification; ``~/.local/state`` by default). A token is never printed, and no option takes one: ``ps`` shows those.
"""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote

from controller.errors import InvalidInput
from controller.secret_files import open_to_others


def path_of(job_id: str) -> Path:
    """Where the job's token is kept."""
    state = Path(os.environ.get("XDG_STATE_HOME", ""))
    home = state if state.is_absolute() else Path.home() / ".local" / "state"
    return home / "signalbox" / "leases" / f"{quote(job_id, safe='')}.token"


def kept(job_id: str) -> str:
    """The job's token; empty when there is none. Raises ``OSError``, and ``InvalidInput`` when others can read it."""
    path = path_of(job_id)
    try:
        token, problem = path.read_text(encoding="utf-8", errors="replace").strip(), open_to_others(path)
    except FileNotFoundError:
        return ""
    if problem:
        raise InvalidInput.of(str(path), problem)
    return token


def keep(job_id: str, token: str) -> None:
    """Whole or not at all. Raises ``OSError``."""
    path = path_of(job_id)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    made = path.with_name(f"{path.name}.{os.getpid()}")
    made.unlink(missing_ok=True)
    with os.fdopen(os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(f"{token}\n")
    made.replace(path)


def forget(job_id: str) -> None:
    """Raises ``OSError``."""
    path_of(job_id).unlink(missing_ok=True)
