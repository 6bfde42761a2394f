"""Interface between the core and an extension.

An extension owns switches that do not forward packets by themselves, such as optical switches. It decides where one-way
ports of all other switches lead, and which jobs must wait. ``controller.extensions`` loads the configured
extension.
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
"""Callback that makes a job run with the traffic of an ``Arrangement`` of the extension, from the given time on.

If it raises ``SignalboxError``, nothing has changed."""


class Extension:
    """Interface of extensions; this base class does nothing. ``now`` is monotonic seconds."""

    answer: Callable[[Any], object] | None = None
    """Function that answers the question of a ``WorkOut`` in a separate process, after ``prepare`` ran there once."""
    prepare: Callable[[], object] | None = None

    # ---- input

    def take(self, message: object, arrange: Arrange, now: float) -> Effects | None:
        """Return the effects of a switch message or a ``WorkedOut``, or None for a message that the core handles."""
        return None

    def tick(self, arrange: Arrange, now: float) -> Effects:
        """Return the effects that have become due. The core calls this ten times a second."""
        return NOTHING

    def iteration_ended(self, job_id: JobId, arrange: Arrange, now: float) -> Effects:
        """Return the effects that waited for an iteration of the job to end."""
        return NOTHING

    def take_settings(self, config: Config) -> None:
        """Apply the settings that may change at run time (``controller.config.Reloaded``)."""

    # ---- output

    def work(self) -> Sequence[Command]:
        """Return the commands that have become due. The core calls this before it derives rules.

        After the call, ``links`` contains the links that rules may use."""
        return ()

    def change(self, now: float) -> Sequence[Command]:
        """Return commands that connect one-way ports to other ports.

        The core calls this while all other switches hold the wanted rules, so that no outdated rule sends packets to
        these ports."""
        return ()

    def begin(self, now: float) -> Mapping[JobId, Routes | None]:
        """Return the jobs that need not wait any longer, each with its first routes, or None to keep its routes."""
        return {}

    @property
    def links(self) -> Mapping[PortRef, PortRef]:
        """Port that each one-way port may lead to; the same object while nothing changes.

        Probes confirm the actual links."""
        return _NO_LINKS

    def waiting(self) -> Mapping[JobId, str]:
        """Return the reason, by waiting job, for example links or hosts that another job occupies."""
        return _NO_JOBS

    def waiting_as_published(self, jobs: Mapping[JobId, Job]) -> Mapping[JobId, str]:
        """Return ``waiting`` for jobs as they are on disk."""
        return _NO_JOBS

    def alarms(self, fabric: Fabric) -> Iterable[Alarm]:
        """Return the alarms of the extension. ``fabric``: the topology with a unique name for each switch."""
        return ()

    def status(self) -> ExtensionStatus:
        """Return the published status of the extension."""
        return NO_EXTENSION

    def no_parts(self, names: Sequence[str]) -> WhyNot:
        """Return, for each name that belongs to the extension, the reason why it cannot be drained."""
        return NO_REASONS


_NO_LINKS: Mapping[PortRef, PortRef] = {}
_NO_JOBS: Mapping[JobId, str] = {}
