"""What a restarted controller has to know, on disk: jobs, strategy, shares of split flows, measured traffic.

Owns the state directory: one JSON file, and a lock that keeps a second controller out. In: ``SavedState``. Out: the
same after a restart. A file that cannot be read back is set aside, not fatal: its jobs register again with their next
heartbeat.
"""

from __future__ import annotations

import fcntl
import json
import os
from dataclasses import astuple
from pathlib import Path
from typing import Any

import structlog

from controller.config import Strategy
from controller.errors import InvalidInput
from controller.jobs.collectives import VirtualLink
from controller.jobs.messages import Connected, SavedState
from controller.jobs.spec import JobId, JobSpec

log = structlog.get_logger(__name__)

FORMAT = 1
ROUNDING = 1e-9


class StateStore:
    """``state_dir`` None keeps nothing."""

    def __init__(self, state_dir: Path | None) -> None:
        self.directory = state_dir
        self._path = state_dir / "state.json" if state_dir else None
        self._lock: int | None = None

    def load(self) -> SavedState:
        """What was saved last; nothing when there is no file or it is set aside as ``state.json.corrupt``. Claims the
        directory, if that was not done before.

        Raises ``InvalidInput`` when the directory cannot be written or another controller uses it, and ``OSError`` when
        the file is there and cannot be opened."""
        if self._path is None:
            return SavedState()
        if not self.claim():
            who = f"another controller uses {self.directory} (process {self.owner()})"
            raise InvalidInput.of("state_dir", f"{who}; stop it, or start with --standby to take over when it ends")
        try:
            content = self._path.read_bytes()
        except FileNotFoundError:
            return SavedState()
        try:
            return _decode(content)
        except (ValueError, KeyError, TypeError, RecursionError, InvalidInput) as error:
            aside = self._path.with_suffix(".json.corrupt")
            self._path.replace(aside)
            log.error(
                "the saved state cannot be read, set aside", file=str(self._path), aside=str(aside), why=str(error)
            )
            return SavedState()

    def claim(self, wait: bool = False) -> bool:
        """Keep every other controller from the directory, which is made when it is missing, until ``close`` or the
        process's end. False when another has it; ``wait`` for it instead. Raises ``InvalidInput`` when the directory
        cannot be written."""
        if self._lock is None and self.directory is not None:
            self._lock = _lock(self.directory, wait)
        return self._lock is not None or self.directory is None

    def owner(self) -> str:
        """The process id of the controller that claimed the directory last."""
        try:
            return (self.directory / "lock").read_text(errors="replace")[:20] or "unknown" if self.directory else "none"
        except OSError:
            return "unknown"

    def close(self) -> None:
        """Let another controller have the directory."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def save(self, state: SavedState) -> None:
        """Replace the file in one step (write, fsync, rename, fsync of the directory). Raises ``OSError``."""
        if self._path is None:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        jobs = [spec.model_dump(mode="json") for spec in state.specs]
        temporary = self._path.with_suffix(".json.new")
        with temporary.open("w", encoding="utf-8") as file:
            shares = [[*pair, *of_subflows] for pair, of_subflows in state.shares.items()]
            measured = {job_id: [astuple(link) for link in links] for job_id, links in state.measured.items()}
            connections = {job_id: sorted(of_job) for job_id, of_job in state.connections.items()}
            saved: dict[str, Any] = {"strategy": state.strategy, "jobs": jobs, "shares": shares}
            saved |= {"measured": measured, "connections": connections}
            json.dump({"format": FORMAT, **saved}, file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self._path)
        _sync_directory(self._path.parent)


def _lock(state_dir: Path, wait: bool) -> int | None:
    """The descriptor of a lock, which ends with the process; None when another process holds it."""
    try:
        state_dir.mkdir(parents=True, exist_ok=True)
        lock = os.open(state_dir / "lock", os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise InvalidInput.of("state_dir", f"cannot write in {state_dir}: {error.strerror or error}") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        os.close(lock)
        return None
    except BaseException:
        os.close(lock)
        raise
    os.truncate(lock, 0)
    os.write(lock, str(os.getpid()).encode())
    return lock


def _decode(content: bytes) -> SavedState:
    data = json.loads(content)
    if data["format"] != FORMAT:
        raise ValueError(f"format {data['format']} is not {FORMAT}")
    strategy = data["strategy"]
    specs = tuple(JobSpec.parse(job) for job in data["jobs"])
    shares = {(src, dst): _shares(of_subflows) for src, dst, *of_subflows in data.get("shares", ())}
    links_of = data.get("measured", {})
    measured = {JobId(job_id): tuple(_link(*link) for link in links) for job_id, links in links_of.items()}
    known = {spec.job_id for spec in specs if spec.reports_connections}
    connections = {
        JobId(job_id): frozenset(
            Connected(str(src), int(src_port), str(dst), int(dst_port)) for src, src_port, dst, dst_port in of_job
        )
        for job_id, of_job in data.get("connections", {}).items()
        if job_id in known
    }
    return SavedState(specs, Strategy(strategy) if strategy is not None else None, shares, measured, connections)


def _link(src_ip: str, dst_ip: str, phase: int, size: int) -> VirtualLink:
    """Raises ``ValueError`` for bytes that are no amount, and ``TypeError`` for what are no numbers."""
    if size <= 0 or phase < 0:
        raise ValueError(f"{size} bytes in phase {phase} are no virtual link")
    return VirtualLink(str(src_ip), str(dst_ip), int(phase), int(size))


def _shares(of_subflows: list[float]) -> tuple[float, ...]:
    """Raises ``ValueError`` for what are no shares of one flow, and ``TypeError`` for what are no numbers."""
    if not all(share > 0 for share in of_subflows) or abs(sum(of_subflows) - 1) > ROUNDING:
        raise ValueError(f"{of_subflows} are no shares")
    return tuple(of_subflows)


def _sync_directory(directory: Path) -> None:
    """A rename survives a power failure only when its directory was synced (rename(2), fsync(2))."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
