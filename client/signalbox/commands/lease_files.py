"""Files with the lease tokens of jobs that this user has registered with ``signalbox jobs``.

There is one file per job and controller address, readable by its owner only, in ``$XDG_STATE_HOME/signalbox/leases``
(XDG Base Directory Specification; default ``~/.local/state``). A token is never printed, and no option takes one,
because ``ps`` shows options."""

from __future__ import annotations

import glob
import os
from hashlib import sha256
from pathlib import Path
from urllib.parse import quote, unquote

from signalbox.addresses import listed
from signalbox.errors import InvalidInput
from signalbox.files import open_to_others, replace_file

_ENDING = ".token"
MAX_NAME = 180
"""Largest length of a name that a file name contains in full; a longer one is cut.

File systems allow 255 characters. The rest is for the hash, the ending, and the process id in the name of a temporary
file."""


class LeaseFiles:
    """Files with the lease tokens of the jobs at one controller, or at controllers that share one state.

    - ``address``: address of the controller, or list of the controllers' addresses, in any order
    - ``folder``: folder whose jobs ``signalbox jobs keep`` registers, or None. The tokens of these jobs are in separate
      files.

    Raises ``InvalidInput`` when the user has no home folder. The methods raise ``OSError``."""

    def __init__(self, address: str, folder: Path | None = None) -> None:
        state = Path(os.environ.get("XDG_STATE_HOME", ""))
        home = state if state.is_absolute() else _home() / ".local" / "state"
        leases = home / "signalbox" / "leases"
        address = ",".join(sorted(listed(address)))
        self._path = (
            leases / _file_name(address) if folder is None else leases / "kept" / _file_name(f"{address} {folder}")
        )

    def path_of(self, job_id: str) -> Path:
        """Return the path of the job's token file."""
        return self._path / f"{_file_name(job_id)}{_ENDING}"

    def elsewhere(self, job_id: str) -> list[str]:
        """Return the other controllers for which a token of a job with this id is saved.

        Each text is the address, or list of addresses, with which the job was registered."""
        path = self.path_of(job_id)
        found = path.parent.parent.glob(f"*/{glob.escape(path.name)}")
        return sorted(unquote(other.parent.name) for other in found if other != path)

    def job_ids(self) -> set[str]:
        """Return the ids of the jobs that have a token."""
        return {unquote(path.name.removesuffix(_ENDING)) for path in self._path.glob(f"*{_ENDING}")}

    def kept(self, job_id: str) -> str:
        """Return the job's token; empty if there is none.

        Raises ``InvalidInput`` when other users can read the file."""
        path = self.path_of(job_id)
        try:
            token, problem = path.read_text(encoding="utf-8", errors="replace").strip(), open_to_others(path)
        except FileNotFoundError:
            return ""
        if problem:
            raise InvalidInput.of(str(path), problem)
        return token

    def keep(self, job_id: str, token: str) -> None:
        """Save a token in full, or leave the file unchanged."""
        path = self.path_of(job_id)
        path.parent.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        replace_file(path, f"{token}\n".encode())

    def forget(self, job_id: str) -> None:
        self.path_of(job_id).unlink(missing_ok=True)


def _home() -> Path:
    try:
        return Path.home()
    except RuntimeError:
        text = "is needed for lease tokens, because this user has no home folder; set it to a folder's absolute path"
        raise InvalidInput.of("XDG_STATE_HOME", text) from None


def _file_name(text: str) -> str:
    """Return a file name for a text; different texts have different names.

    A name longer than ``MAX_NAME`` is cut, and the text's hash is appended."""
    found = quote(text, safe=":[]")
    return found if len(found) <= MAX_NAME else f"{found[:MAX_NAME]}-{sha256(text.encode()).hexdigest()}"
