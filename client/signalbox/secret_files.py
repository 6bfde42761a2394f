"""Check whether others can read or change files with secrets.

The functions return None, or what is wrong and how to correct it. They check only modes and owners; an access control
list appears in the mode as the permissions of the group."""

from __future__ import annotations

import os
import stat
from pathlib import Path

_NOBODY = stat.S_IRWXO | stat.S_IWGRP | stat.S_IXGRP


def open_to_others(path: Path) -> str | None:
    """Return what is wrong when others have access to the file, else None. Raises ``OSError``.

    A file of this process's user must be accessible to that user only, as ssh requires. The group may read a file of
    root or of another user. This allows keys that are shared with the group ``ssl-cert``. PostgreSQL checks its key by
    the same rule (be-secure-common.c, ``check_ssl_key_file_permissions``)."""
    found = path.stat()
    ours = found.st_uid == os.geteuid()
    shared = not ours or found.st_uid == 0
    if not found.st_mode & (_NOBODY if shared else _NOBODY | stat.S_IRGRP):
        return None
    return f"others than its owner have access to it (mode {_mode(found)}): chmod {600 if ours else 640} {path}"


def of_another_user(path: Path) -> str | None:
    """Return what is wrong when the owner is neither root nor this process's user, else None. Raises ``OSError``."""
    if path.stat().st_uid in (0, os.geteuid()):
        return None
    return f"belongs to another user: chown {os.geteuid()} {path}"


def replaceable(directory: Path) -> str | None:
    """Return what is wrong when others can write in the directory, else None. Raises ``OSError``.

    Whoever can write in a directory can replace a file there, even one that they can neither read nor change."""
    found = directory.stat()
    if not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return None
    return f"others than its owner can write in {directory} (mode {_mode(found)}): chmod go-w {directory}"


def _mode(found: os.stat_result) -> str:
    return f"{stat.S_IMODE(found.st_mode):04o}"
