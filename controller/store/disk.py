"""File system: the reason why a write failed, and durable renames.

SQLite often reports an I/O error when the file system is full.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

ROOM_BYTES = 1 << 16
"""Bytes that must be free for the saved state, which is more than most commits need."""


def full(directory: Path, error: Exception, needed: int = ROOM_BYTES) -> str:
    """Return why the file system of ``directory`` cannot store more, in words; empty if it can.

    The text says how much is missing, or that the file system stores no files at all, such as ``/proc``. ``error``:
    error of the failed write. ``needed``: bytes that must be free."""
    try:
        found = os.statvfs(next(path for path in (directory, *directory.absolute().parents) if path.exists()))
    except OSError:
        return ""
    if not found.f_blocks:
        return f"this file system stores no files ({error.strerror if isinstance(error, OSError) else error})"
    free = found.f_frsize * (found.f_bavail if os.geteuid() else found.f_bfree)
    if free < needed:
        return f"the disk is full: {directory} has {free} bytes free, but {needed} are needed ({needed - free} missing)"
    if found.f_files and not found.f_ffree:
        return f"the disk is full: {directory} can have no more files (0 of {found.f_files} inodes are free)"
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"the disk is full, or a quota is used up: {directory} has {free} bytes free, which could not be used"
    return ""


def sync_directory(directory: Path) -> None:
    """Make renames in the directory durable.

    A rename survives a power failure only when its directory was synced (rename(2), fsync(2))."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
