"""Files with secrets: can others than those who are meant to read or change them?

In: a path. Out: None, or what is wrong and what would be right. Only modes and owners are looked at; an access control
list shows in the mode as what the group may do.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

_NOBODY = stat.S_IRWXO | stat.S_IWGRP | stat.S_IXGRP


def open_to_others(path: Path) -> str | None:
    """A file of this process's user is for that user only, as ssh wants it. One of root or of another user may be read
    by its group: so keys of the group ``ssl-cert`` are shared, and so PostgreSQL reads its key (be-secure-common.c,
    ``check_ssl_key_file_permissions``). Raises ``OSError``."""
    found = path.stat()
    ours = found.st_uid == os.geteuid()
    shared = not ours or found.st_uid == 0
    if not found.st_mode & (_NOBODY if shared else _NOBODY | stat.S_IRGRP):
        return None
    return f"others than its owner have access to it (mode {_mode(found)}): chmod {600 if ours else 640} {path}"


def of_another_user(path: Path) -> str | None:
    """Neither of this process's user nor of root: it is in somebody else's hands. Raises ``OSError``."""
    if path.stat().st_uid in (0, os.geteuid()):
        return None
    return f"belongs to another user: chown {os.geteuid()} {path}"


def replaceable(directory: Path) -> str | None:
    """Who can write in a directory can put another file in the place of one that he can neither read nor change. Raises
    ``OSError``."""
    found = directory.stat()
    if not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return None
    return f"others than its owner can write in {directory} (mode {_mode(found)}): chmod go-w {directory}"


def _mode(found: os.stat_result) -> str:
    return f"{stat.S_IMODE(found.st_mode):04o}"
