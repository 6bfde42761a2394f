"""Lease tokens of the jobs that this user has registered with ``signalbox jobs register``.

Owns one file per job and address of a controller that only its owner can read, in
``$XDG_STATE_HOME/signalbox/leases`` (XDG Base Directory Specification; ``~/.local/state`` by default). A token is never
printed, and no option takes one: ``ps`` shows those.
"""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from urllib.parse import quote

from signalbox.errors import InvalidInput
from signalbox.secret_files import open_to_others


def path_of(address: str, job_id: str) -> Path:
    """Where the token is kept of the job at the controller with this address."""
    state = Path(os.environ.get("XDG_STATE_HOME", ""))
    home = state if state.is_absolute() else Path.home() / ".local" / "state"
    return home / "signalbox" / "leases" / _name(address) / f"{_name(job_id)}.token"


def kept(address: str, job_id: str) -> str:
    """The job's token; empty when there is none. Raises ``OSError``, and ``InvalidInput`` when others can read it."""
    path = path_of(address, job_id)
    try:
        token, problem = path.read_text(encoding="utf-8", errors="replace").strip(), open_to_others(path)
    except FileNotFoundError:
        return ""
    if problem:
        raise InvalidInput.of(str(path), problem)
    return token


def keep(address: str, job_id: str, token: str) -> None:
    """Whole or not at all. Raises ``OSError``."""
    path = path_of(address, job_id)
    path.parent.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.parent.mkdir(mode=0o700, exist_ok=True)
    made = path.with_name(f"{path.name}.{os.getpid()}")
    made.unlink(missing_ok=True)
    with os.fdopen(os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(f"{token}\n")
    made.replace(path)


def forget(address: str, job_id: str) -> None:
    """Raises ``OSError``."""
    path_of(address, job_id).unlink(missing_ok=True)


class LeaseFiles:
    """Those of the jobs at one controller, for a ``Keeper``."""

    def __init__(self, address: str) -> None:
        self.kept = partial(kept, address)
        self.keep = partial(keep, address)
        self.forget = partial(forget, address)


def _name(text: str) -> str:
    """Of a file or folder: no other text has it."""
    return quote(text, safe=":[]")
