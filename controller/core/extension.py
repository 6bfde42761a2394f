"""All that the core knows of an extension: what it takes, and what it gives.

An extension owns switches that forward nothing by themselves, such as optical switches. It decides where one-way ports
of the other switches lead, and which jobs wait for that. ``controller.extensions`` loads the one that is configured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from controller.alarms import Alarm
from controller.config import Config
from controller.core.effects import NOTHING, Effects
from controller.core.messages import Command
from controller.fabric.parts import NO_REASONS, WhyNot
from controller.fabric.topology import Fabric, PortRef
from controller.jobs.job import Job
from controller.jobs.messages import Arrangement
from controller.planning.problem import Routes
from controller.status import NO_EXTENSION, ExtensionStatus
from signalbox.jobs.spec import JobId

Arrange = Callable[[Job, Arrangement, float], Effects]
"""Makes a job run as arranged, from now on. Raises ``SignalboxError``, and then nothing has
changed."""


class Extension:
    """The interface of extensions, and the one that does nothing. ``now`` is monotonic seconds."""

    answer: Callable[[Any], object] | None = None
    """Answers the question of a ``WorkOut`` in a process of its own, as ``prepare`` is called there before."""
    prepare: Callable[[], object] | None = None

    # ---- what it takes

    def take(self, message: object, arrange: Arrange, now: float) -> Effects | None:
        """Return what follows from a message of switches or a ``WorkedOut``, None when it is not for the extension."""
        return None

    def tick(self, arrange: Arrange, now: float) -> Effects:
        """Return what has become due. Called ten times a second."""
        return NOTHING

    def iteration_ended(self, job_id: JobId, arrange: Arrange, now: float) -> Effects:
        """Return what has waited for the end of an iteration of the job."""
        return NOTHING

    def take_settings(self, config: Config) -> None:
        """Take over the settings that may change while the controller runs."""

    # ---- what it gives

    def work(self) -> Sequence[Command]:
        """Begin what is due, before rules are derived. ``links`` is as it should be then."""
        return ()

    def change(self, now: float) -> Sequence[Command]:
        """Change where ports lead. Called while the other switches hold their rules, and none leads elsewhere."""
        return ()

    def begin(self, now: float) -> Mapping[JobId, Routes | None]:
        """Return jobs that have waited and can run now: routes to begin with, None where those of before stay."""
        return {}

    @property
    def links(self) -> Mapping[PortRef, PortRef]:
        """Where one-way ports may lead; the same object while nothing changes. Probes say where they do."""
        return _NO_LINKS

    def waiting(self) -> Mapping[JobId, str]:
        """Why jobs wait: for hosts that another job has taken, or for links."""
        return _NO_JOBS

    def waiting_as_published(self, jobs: Mapping[JobId, Job]) -> Mapping[JobId, str]:
        """``waiting``, of jobs as they are on disk."""
        return _NO_JOBS

    def alarms(self, fabric: Fabric) -> Iterable[Alarm]:
        """``fabric``: with a name of its switches for each."""
        return ()

    def status(self) -> ExtensionStatus:
        """Return what others may see of the extension."""
        return NO_EXTENSION

    def no_parts(self, names: Sequence[str]) -> WhyNot:
        """Return why names that mean something of the extension cannot be drained."""
        return NO_REASONS


_NO_LINKS: Mapping[PortRef, PortRef] = {}
_NO_JOBS: Mapping[JobId, str] = {}
