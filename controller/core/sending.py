"""Changes to send to switches, the routes that switches have confirmed, and replies that wait for confirmation.

In: the wanted rules, and the rules that switches hold. Out: stages of changes, requests to probe the ports of switches
that have become ready, and replies. Jobs whose confirmed routes change begin a new epoch (``jobs.job``). Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from controller.core.messages import Command, Reply
from controller.core.phases import Input, LinkLosses, Phases
from controller.fabric.messages import ProbePorts, SendArpReply
from controller.fabric.topology import Dpid
from controller.fabric.topology_state import TopologyState
from controller.histogram import Histogram
from controller.jobs.job import Job
from controller.planning.messages import ModeSet
from controller.planning.problem import FlowId, Route
from controller.shared_map import differing, updated
from controller.tables.confirmed_routes import NO_ROUTES, Confirmed
from controller.tables.messages import StageDone
from controller.tables.rules import RuleSet
from controller.tables.switch_sync import SwitchSync
from signalbox.errors import SignalboxError, Superseded
from signalbox.jobs.spec import JobId
from signalbox.jobs.subflows import Dividing
from signalbox.words import Mode

ARP_ANSWER_AFTER_S = 0.5
"""Longest delay in seconds of the answer to an ARP request.

The controller normally answers as soon as the switches have confirmed all rules. After this delay, it answers even if a
switch has not confirmed its rules."""


@dataclass(frozen=True, slots=True)
class _ModeWaiter:
    """Request to set the mode.

    It waits until more than ``cycles_done`` planning cycles have ended and the switches have confirmed all rules."""

    future: Future[Any]
    mode: Mode
    since: float
    cycles_done: int


class Sending:
    """Changes under way and confirmed routes; ``now`` is monotonic seconds."""

    def __init__(self, sync: SwitchSync, topology: TopologyState, phases: Phases) -> None:
        self.pins = 0
        """Number of confirmed pins that lead a flow along a path."""
        self.routes: Mapping[str, Mapping[FlowId, Route]] = {}
        """Confirmed routes by job: routes whose pins the switches hold (``Confirmed``)."""
        self.generation: Mapping[JobId, int] = {}
        """Generation of the confirmed routes, by job; a job whose routes have never changed has no entry.

        The generation of a job grows when its routes change, or when the way to distinguish its subflows changes. Each
        change makes a new mapping."""
        self.install_times = Histogram()
        """Distribution of the seconds from sending a stage until all of its switches have confirmed it."""
        self._sent_at: dict[int, float] = {}
        self._sync = sync
        self._topology = topology
        self._phases = phases
        self._jobs: Mapping[JobId, Job] = {}
        self._dividing: dict[JobId, Dividing] = {}
        self._changes = 0
        self._for_mode: _ModeWaiter | None = None
        self._arp_answers: list[tuple[float, SendArpReply]] = []

    def next_stage(self, wanted: Mapping[Dpid, RuleSet], now: float) -> list[Command]:
        """Return the commands that send the first stage of the difference between wanted and installed rules."""
        stage = self._sync.next_stage(wanted)
        if stage:
            self._sent_at[stage.change_id] = now
        ready = frozenset(dpid for dpid in self._sync.settled if self._topology.switch_ready(dpid))
        return [*([stage] if stage else []), *([ProbePorts(ready)] if ready else [])]

    def stage_done(self, message: StageDone, now: float) -> None:
        """Record the results of a stage. Only stages that all switches answered count in ``install_times``."""
        self._sync.stage_done(message, now)
        done = {change: self._sent_at.pop(change) for change in self._sent_at.keys() - self._sync.under_way}
        answered = not any(result.timed_out for result in message.results.values())
        if answered and message.change_id in done:
            self.install_times = self.install_times.observed(now - done[message.change_id])

    def is_confirmed(self, now: float) -> bool:
        """Return whether the controller is neither adopting rules nor answering lost links.

        Only then can the rules on switches be compared with the wanted rules. If the removal of next hops is confirmed,
        the call first ends the phase that waited for this confirmation."""
        if self._phases.awaits_confirmation and not self._sync.busy:
            self._phases.take(Input.ALL_CONFIRMED, now)
        return not (self._phases.adopting or self._phases.urgent)

    def take_confirmed(self, confirmed: Confirmed, jobs: Mapping[JobId, Job], at: float) -> None:
        """Keep the confirmed routes, and begin an epoch (``jobs.job.Reported``) of each job whose routes have changed.

        ``jobs``: jobs with the virtual links that they are planned with. ``at``: now in monotonic seconds."""
        self.pins = confirmed.pins
        before, self.routes = self.routes, confirmed.routes
        touched = dict.fromkeys(JobId(name) for name, *_ in differing(before, self.routes))
        touched.update(dict.fromkeys(job_id for job_id, *_ in differing(self._jobs, jobs)))
        self._jobs = jobs
        generation: dict[JobId, int | None] = {}
        for job_id in touched:
            job = jobs.get(job_id)
            was, now = before.get(job_id, NO_ROUTES), self.routes.get(job_id, NO_ROUTES)
            divided = self._dividing.pop(job_id, None)
            if job is None:
                generation[job_id] = None
                continue
            if job_id in self.routes:
                self._dividing[job_id] = job.dividing
            rerouted = was != now
            if rerouted:
                job.vitals.begin_epoch(at)
            if rerouted or divided != self._dividing.get(job_id):
                self._changes += 1
                generation[job_id] = self._changes
        self.generation = updated(self.generation, generation)

    # ---- replies

    def add_arp_answers(self, answers: list[SendArpReply], now: float) -> None:
        self._arp_answers += [(now, answer) for answer in answers]

    def wait_for_mode(self, reply: Future[Any], mode: Mode, cycles_done: int, now: float) -> list[Reply]:
        """Keep the request until the mode is confirmed; return the refusal of an earlier request that still waits."""
        before, self._for_mode = self._for_mode, _ModeWaiter(reply, mode, now, cycles_done)
        return [Reply(before.future, Superseded(f"superseded: {mode} was set"))] if before else []

    def due_replies(
        self, rules_due: bool, saved: bool, cycles_done: int, losses: LinkLosses, now: float
    ) -> list[Command]:
        """Return the replies that are due now.

        ``rules_due``: whether the wanted rules are about to be derived again, so that nothing counts as confirmed.
        ``saved``: whether a mode that was set is on disk."""
        all_confirmed = not (rules_due or self._sync.busy or self._sync.unsettled)
        if all_confirmed:
            losses.all_confirmed(now)
        due: list[Command] = [
            answer for since, answer in self._arp_answers if all_confirmed or now >= since + ARP_ANSWER_AFTER_S
        ]
        if due:
            self._arp_answers = [(since, answer) for since, answer in self._arp_answers if answer not in due]
        waiter = self._for_mode
        if waiter and saved and all_confirmed and cycles_done > waiter.cycles_done:
            self._for_mode = None
            due.append(Reply(waiter.future, ModeSet(waiter.mode, now - waiter.since, self.pins)))
        return due

    def refuse_mode(self, error: SignalboxError) -> list[Reply]:
        """Return the refusal of the request that waits for its mode, if any. The former mode has been restored."""
        waiter, self._for_mode = self._for_mode, None
        return [Reply(waiter.future, error)] if waiter else []
