"""Keep jobs registered while their files are in a folder.

Each scan of the folder calls a ``Keeper``, and writes one log line for each new problem."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Protocol

from signalbox.errors import InvalidInput
from signalbox.host_addresses import Nics, address_map, with_addresses
from signalbox.jobs.spec import JobSpec
from signalbox.spec_files import FORMS, jobs_in

AGAIN_S = 10.0
"""Seconds until a wrong file is read again: the resolver may then know a host name that the file has."""
AGAIN_TIMES = 10.0
"""Smallest pause before wrong files are read again, as a multiple of the time that reading them took.

While the resolver does not answer, reading takes seconds per host name."""

log = logging.getLogger("signalbox")


class Jobs(Protocol):
    """The methods of a ``Keeper`` that ``KeptFolder`` calls."""

    def keep(self, spec: JobSpec) -> None: ...
    def release(self, job_id: str) -> None: ...


Version = tuple[int, int, int]
"""Inode, time of modification in ns, and size of a file. A version changes when the file is written or replaced."""


class KeptFolder:
    """Jobs that the files of a folder describe.

    ``addresses``: file with addresses of hosts that specs name (``address_map``), which is read again when it changes.
    Raises ``InvalidInput`` when the folder does not exist or ``addresses`` is wrong."""

    def __init__(
        self,
        folder: Path,
        jobs: Jobs,
        addresses: Path | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not folder.is_dir():
            raise InvalidInput.of(str(folder), "is not a folder")
        self._folder = folder
        self._jobs = jobs
        self._addresses = addresses
        self._clock = clock
        self._known: dict[str, Nics] = address_map(addresses) if addresses else {}
        self._known_version = self._version_of_addresses()
        self._versions: dict[str, Version] = {}
        self._owners: dict[str, str] = {}  # file by job id
        self._announced: dict[str, set[str]] = {}  # job ids by file
        self._problems: dict[str, tuple[str, ...]] = {}  # problems by file
        self._again_at = 0.0

    @property
    def jobs(self) -> set[str]:
        """Ids of the jobs that the files of the folder described at the last ``look``."""
        return set(self._owners)

    @property
    def problems(self) -> bool:
        """True if a file was wrong, or the folder unreadable, at the last ``look``. Then ``jobs`` may be incomplete."""
        return bool(self._problems)

    def look(self) -> None:
        """Scan the folder, and register, change and release jobs so that they match its files.

        The jobs of a wrong or unreadable file stay unchanged. If the folder is unreadable, all jobs stay unchanged. A
        scan of 1,000 files takes 3 ms."""
        now = self._clock()
        try:
            found = dict(self._files())
        except OSError as error:
            self._log_new_problems(str(self._folder), [f"{self._folder}: {error.strerror}; its jobs stay as they are"])
            return
        self._problems.pop(str(self._folder), None)
        again = set(self._problems) if now >= self._again_at else set()
        if self._reread_addresses():
            again = set(found)
        for name in self._versions.keys() - found.keys():
            self._release(self._announced.pop(name, set()))
            self._problems.pop(name, None)
        changed = [name for name in sorted(found) if name in again or found[name] != self._versions.get(name)]
        self._versions = found
        for name in changed:
            self._read(name)
        if again or changed:
            took_s = self._clock() - now
            self._again_at = now + took_s + max(AGAIN_S, AGAIN_TIMES * took_s)

    def _files(self) -> Iterable[tuple[str, Version]]:
        with os.scandir(self._folder) as entries:
            for entry in entries:
                name = entry.name
                if not name.startswith(".") and os.path.splitext(name)[1].lower() in FORMS:
                    try:
                        if entry.is_file():
                            yield name, _version(entry.stat())
                    except FileNotFoundError:
                        continue
                    except OSError:  # for example, a link to itself: reading it reports why
                        yield name, (0, 0, 0)

    def _read(self, name: str) -> None:
        path = self._folder / name
        try:
            specs = [job.spec for job in jobs_in(path, partial(with_addresses, given=self._known))]
        except InvalidInput as error:
            if os.path.lexists(path):
                self._log_new_problems(name, map(str, error.problems))
            return
        ours = {spec.job_id for spec in specs if self._owners.setdefault(spec.job_id, name) == name}
        self._log_new_problems(
            name,
            [
                f"{path}: job '{spec.job_id}' is left out: {self._folder / self._owners[spec.job_id]} also has it"
                for spec in specs
                if spec.job_id not in ours
            ],
        )
        self._release(self._announced.get(name, set()) - ours)
        self._announced[name] = ours
        for spec in specs:
            if spec.job_id in ours:
                self._jobs.keep(spec)

    def _release(self, job_ids: set[str]) -> None:
        for job_id in sorted(job_ids):
            del self._owners[job_id]
            self._jobs.release(job_id)

    def _log_new_problems(self, name: str, problems: Iterable[str]) -> None:
        found = tuple(problems)
        if found and found != self._problems.get(name):
            for problem in found:
                log.warning("%s", problem)
        if found:
            self._problems[name] = found
        else:
            self._problems.pop(name, None)

    def _version_of_addresses(self) -> Version | None:
        try:
            return _version(os.stat(self._addresses)) if self._addresses else None
        except OSError:
            return None

    def _reread_addresses(self) -> bool:
        assert self._addresses or self._known_version is None
        version = self._version_of_addresses()
        if not self._addresses or version is None or version == self._known_version:
            return False
        self._known_version = version
        try:
            self._known = address_map(self._addresses)
        except InvalidInput as error:
            for problem in error.problems:
                log.warning("%s; the previous addresses stay in use", problem)
            return False
        return True


def _version(found: os.stat_result) -> Version:
    return found.st_ino, found.st_mtime_ns, found.st_size
