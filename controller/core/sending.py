"""Phases of the controller, changes to send to switches, and replies that wait for confirmation by switches. Pure.

In: the wanted rules, and the rules that switches hold. Out: stages of changes, requests to probe the ports of switches
that have become ready, and replies. Jobs whose confirmed routes change begin a new measuring period (``jobs.job``).
The phase (``NEXT`` has the table) decides whether rules are derived and sent:

- *Adopting*: after a start, the rules that switches hold take precedence over the state of the controller
  (docs/explanation/restart-and-repair.md#the-controller-starts).
- *Steady*: rules are derived from the fabric and the routes.
- *Removing next hops*, then *repairing*, after links were lost: no rules are derived until the switches have confirmed
  the removal, then until the planner has answered. Each wait lasts at most ``HURRY_S``.

After many switches have disconnected together, the controller adopts again. The controller continues to use these
switches, because packets still flow if only the control network fails. The controller stops using a single switch
``GRACE_S`` after its connection ended. If several switches have just disconnected, the time is ``TOGETHER_S``: a busy
controller notices the ends of connections one after another.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Any

from controller.core.messages import Command, Reply
from controller.fabric.messages import ProbePorts, SendArpReply
from controller.fabric.topology import Dpid, Fabric, Link, LinkId, PortRef, is_up
from controller.fabric.topology_state import TopologyState
from controller.jobs.job import Job
from controller.planning.messages import ModeSet
from controller.planning.problem import FlowId, Route
from controller.shared_map import Histogram, differing, updated
from controller.tables.messages import StageDone
from controller.tables.rules import RuleSet
from controller.tables.running_routes import NO_ROUTES, Confirmed
from controller.tables.switch_sync import SwitchSync
from signalbox.errors import SignalboxError, Superseded
from signalbox.jobs.spec import JobId
from signalbox.jobs.subflows import Dividing
from signalbox.words import Mode

HURRY_S = 0.1
"""Longest time in seconds for which the derivation of all rules waits for switches to remove lost next hops.

After that, the derivation waits at most as long again for the planner to repair the routes."""
GRACE_S = 0.1
"""Seconds after the end of a switch's connection until the controller stops using the switch, if few have
disconnected."""
TOGETHER_S = 1.0
"""Longest time in seconds between two disconnections that count as one event."""
MANY_FRACTION = 0.25
MANY_AT_LEAST = 3
"""Smallest number, and smallest fraction, of the switches that must disconnect together to start a new adoption."""
MOST_PATIENCES = 8
"""Longest duration of an adoption, in multiples of ``adoption_patience_s``.

Every new switch restarts the wait for further switches. Without this limit, a peer that connects with one dpid after
another could prevent planning for ever."""


class Phase(Enum):
    """Phases of the controller; see the docstring of the module."""

    ADOPTING = auto()
    STEADY = auto()
    REMOVING_NEXT_HOPS = auto()
    REPAIRING = auto()


class Input(Enum):
    """Events that move the controller from phase to phase."""

    ADOPTION_NEEDED = auto()
    ADOPTED = auto()
    NEXT_HOPS_REMOVED = auto()
    REPAIR_ASKED = auto()
    REPAIR_ANSWERED = auto()
    ALL_CONFIRMED = auto()
    TIME_OVER = auto()


_A, _S, _N, _R = Phase.ADOPTING, Phase.STEADY, Phase.REMOVING_NEXT_HOPS, Phase.REPAIRING

NEXT: Mapping[tuple[Phase, Input], Phase] = {
    (_A, Input.ADOPTION_NEEDED): _A,
    (_A, Input.ADOPTED): _S,
    (_S, Input.ADOPTION_NEEDED): _A,
    (_S, Input.NEXT_HOPS_REMOVED): _N,
    (_S, Input.REPAIR_ASKED): _R,
    (_N, Input.ADOPTION_NEEDED): _A,
    (_N, Input.NEXT_HOPS_REMOVED): _N,
    (_N, Input.ALL_CONFIRMED): _S,
    (_N, Input.TIME_OVER): _S,
    (_R, Input.ADOPTION_NEEDED): _A,
    (_R, Input.NEXT_HOPS_REMOVED): _N,
    (_R, Input.REPAIR_ANSWERED): _N,
    (_R, Input.TIME_OVER): _S,
}
"""Next phase, by present phase and event. A missing pair is a bug of the caller."""
_URGENT = (_N, _R)


class IllegalTransition(RuntimeError):
    """The event cannot happen in the current phase of the controller."""


class Phases:
    """Current phase of the controller. ``now`` is monotonic seconds."""

    def __init__(self) -> None:
        self.phase = Phase.ADOPTING
        self._hurry_until = math.inf

    @property
    def adopting(self) -> bool:
        return self.phase is Phase.ADOPTING

    @property
    def urgent(self) -> bool:
        """Whether the controller is reacting to lost links, so that all other work waits."""
        return self.phase in _URGENT

    @property
    def awaits_confirmation(self) -> bool:
        """Whether rules are derived again as soon as the switches confirm the removal of next hops."""
        return self.phase is Phase.REMOVING_NEXT_HOPS

    @property
    def awaits_repair(self) -> bool:
        """Whether rules are derived again as soon as the planner has answered."""
        return self.phase is Phase.REPAIRING

    def transition(self, happened: Input, now: float) -> None:
        """Enter the next phase. Raises ``IllegalTransition`` when the event is not legal in the current phase."""
        if (self.phase, happened) not in NEXT:
            raise IllegalTransition(f"the event {happened.name} is illegal in the phase {self.phase.name}")
        self.phase = NEXT[self.phase, happened]
        if happened in (Input.NEXT_HOPS_REMOVED, Input.REPAIR_ASKED):
            self._hurry_until = now + HURRY_S

    def pass_time(self, now: float) -> None:
        """End an urgent phase that has lasted for ``HURRY_S``."""
        if self.urgent and now >= self._hurry_until:
            self.transition(Input.TIME_OVER, now)


class Adoption:
    """Progress of the adoption of installed rules.

    ``expects_rules``: whether the saved state shows that this is a restart, so that switches should hold rules.
    ``orphan_lease_s``: seconds for which rules to unknown hosts are kept after the first adoption."""

    def __init__(self, patience_s: float, orphan_lease_s: float, expects_rules: bool, now: float) -> None:
        self.unknown_kept_until = math.inf
        """Monotonic seconds until which rules that lead to unknown hosts are kept.

        Plus infinity until the first adoption ends, and minus infinity when the lease that follows is over."""
        self._patience_s = patience_s
        self._orphan_lease_s = orphan_lease_s
        self._expects_rules = expects_rules
        self._begun = self._since = now
        self._connected_since: set[Dpid] = set()
        self._read: set[Dpid] = set()

    @property
    def is_first(self) -> bool:
        """Whether the first adoption, or the lease that follows it, is not over."""
        return self.unknown_kept_until > -math.inf

    def begin(self, now: float) -> None:
        self._begun = self._since = now
        self._connected_since.clear()

    def switch_connected(self, dpid: Dpid, now: float) -> None:
        """Begin the wait for further switches again; repeated connections of one switch count once."""
        if dpid not in self._connected_since:
            self._connected_since.add(dpid)
            self._since = now

    def rules_read(self, dpid: Dpid, rules: RuleSet, now: float) -> bool:
        """Record that the rules of a switch were read, and return whether another adoption must begin.

        Until the lease after the first adoption is over, the result is True if the switch has rules and was not read
        before. Rules of other switches may depend on the rules of this switch."""
        late = dpid not in self._read
        self._read.add(dpid)
        return late and bool(rules.flows) and now < self.unknown_kept_until

    def is_complete(
        self, fabric: Fabric, installed: Mapping[Dpid, RuleSet], all_read: bool, all_here: bool, now: float
    ) -> bool:
        """Return whether rules can be adopted: all links that the rules use have been seen, or the patience is over.

        ``installed``: rules of each switch that was read. ``all_read``: whether every connected switch was read.
        ``all_here``: whether every known switch is connected. After a restart, some switches should hold rules. While
        only switches without rules are connected, and other switches are missing, the adoption is not complete."""
        held = {dpid: rules.group_ports for dpid, rules in installed.items()}
        links_seen = all(
            LinkId(dpid, port) in fabric.links or not is_up(fabric.switches, PortRef(dpid, port))
            for dpid, ports in held.items()
            for port in ports
        )
        complete = all_read and links_seen and (any(held.values()) or all_here or not self._expects_rules)
        return complete or now >= min(self._since + self._patience_s, self._begun + MOST_PATIENCES * self._patience_s)

    def end(self, now: float) -> None:
        if self.unknown_kept_until == math.inf:
            self.unknown_kept_until = now + self._orphan_lease_s

    def lease_over(self, now: float) -> bool:
        """Return True once, when the controller may delete installed rules that no registered job has claimed."""
        over = -math.inf < self.unknown_kept_until <= now
        if over:
            self.unknown_kept_until = -math.inf
        return over


class Departures:
    """Disconnected switches whose links are still in use. ``now`` is monotonic seconds."""

    def __init__(self) -> None:
        self._waiting: dict[Dpid, float] = {}
        self._left_at: dict[Dpid, float] = {}

    def switch_left(self, dpid: Dpid, fabric: Fabric, now: float) -> bool:
        """Record that a switch has disconnected, and return whether many switches have disconnected together.

        ``fabric`` still contains this switch. Switches without links do not count, so that programs that connect as
        switches and disconnect again cannot stop all planning."""
        self._waiting[dpid] = now
        self._left_at = {dpid: at for dpid, at in self._left_at.items() if at > now - TOGETHER_S}
        if not any(link.dpid == dpid for link in fabric.links):
            return False
        self._left_at[dpid] = now
        return len(self._left_at) >= max(MANY_AT_LEAST, MANY_FRACTION * len(fabric.switches))

    @property
    def waiting(self) -> bool:
        """Whether there are disconnected switches whose links are still in use."""
        return bool(self._waiting)

    def switch_returned(self, dpid: Dpid) -> None:
        self._waiting.pop(dpid, None)

    def due(self, now: float) -> list[Dpid]:
        """Return and forget the disconnected switches that the controller must now stop using.

        A switch is used for ``GRACE_S`` after it has disconnected. If several switches with links have disconnected,
        the time is ``TOGETHER_S``, since more may follow. The neighbours of a dead switch report lost links earlier."""
        if not self._waiting:
            return []
        recent = sum(at > now - TOGETHER_S for at in self._left_at.values())
        wait_s = GRACE_S if recent < MANY_AT_LEAST else TOGETHER_S
        due = [dpid for dpid, at in self._waiting.items() if at <= now - wait_s]
        for dpid in due:
            del self._waiting[dpid]
        return due


class LinkLosses:
    """Lost links, and the time until their routes are repaired. ``now`` is monotonic seconds."""

    def __init__(self) -> None:
        self.before: Mapping[LinkId, Link] = {}
        """Links of the fabric before its latest change: the argument of ``lost`` at the call before the last one."""
        self.repair_s: float | None = None
        """Seconds from the latest loss until switches had confirmed the repaired routes; None until then."""
        self.repair_times = Histogram()
        """Distribution of all values that ``repair_s`` has had, in seconds."""
        self._links: Mapping[LinkId, Link] = {}
        self._unrouted: frozenset[LinkId] = frozenset()
        self._broken_since: float | None = None

    def lost(self, links: Mapping[LinkId, Link]) -> list[LinkId]:
        """Return the links that have been lost since the last call."""
        self.before, self._links = self._links, links
        return [] if self.before is links else [link for link in self.before if link not in links]

    @property
    def broken(self) -> bool:
        """Whether routes that use lost links are not yet replaced on the switches."""
        return self._broken_since is not None

    def record_broken(self, unrouted: frozenset[LinkId], now: float) -> bool:
        """Return whether routes use more lost links than at the last call. ``unrouted``: lost links that routes use."""
        more, self._unrouted = unrouted - self._unrouted, unrouted
        if more and self._broken_since is None:
            self.repair_s, self._broken_since = None, now
        return bool(more)

    def all_confirmed(self, now: float) -> None:
        """Record that the switches hold all wanted rules. If no route uses a lost link, the repair is complete."""
        if not self._unrouted and self._broken_since is not None:
            self.repair_s, self._broken_since = now - self._broken_since, None
            self.repair_times = self.repair_times.observed(self.repair_s)


ARP_ANSWER_AFTER_S = 0.5
"""Longest delay in seconds of the answer to an ARP request.

The controller normally answers when the switches have confirmed all rules. After this delay it answers in any case."""


@dataclass(frozen=True, slots=True)
class _ModeWaiter:
    """Request to set the mode.

    The reply waits until the mode is on disk, more than ``cycles_done`` planning cycles have ended, and all rules are
    confirmed."""

    future: Future[Any]
    mode: Mode
    since: float
    cycles_done: int
    is_saved: bool = False


class Sending:
    """Changes under way and confirmed routes; ``now`` is monotonic seconds."""

    def __init__(self, sync: SwitchSync, topology: TopologyState, phases: Phases) -> None:
        self.pins = 0
        """Number of confirmed pins that lead a flow along a path."""
        self.routes: Mapping[str, Mapping[FlowId, Route]] = {}
        """Confirmed routes by job: routes whose pins the switches hold (``Confirmed``)."""
        self.generation: Mapping[JobId, int] = {}
        """Generation of the confirmed routes, by job. A job whose routes have never changed has no entry.

        The generation of a job grows when its routes change. The generation also grows when the division of the job's
        flows into subflows changes. Each such change replaces this mapping by a new object."""
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
        """Record the results of a stage. ``install_times`` counts only stages that all switches have answered."""
        self._sync.stage_done(message, now)
        done = {change: self._sent_at.pop(change) for change in self._sent_at.keys() - self._sync.under_way}
        answered = not any(result.timed_out for result in message.results.values())
        if answered and message.change_id in done:
            self.install_times = self.install_times.observed(now - done[message.change_id])

    def is_confirmed(self, now: float) -> bool:
        """Return whether the controller is in the phase *steady*, so that the confirmed routes can be determined.

        The call first ends the phase *removing next hops* if the switches have confirmed the removal."""
        if self._phases.awaits_confirmation and not self._sync.busy:
            self._phases.transition(Input.ALL_CONFIRMED, now)
        return not (self._phases.adopting or self._phases.urgent)

    def take_confirmed(self, confirmed: Confirmed, jobs: Mapping[JobId, Job], at: float) -> None:
        """Keep the confirmed routes, and begin a measuring period (``jobs.job``) of each job whose routes have changed.

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
                job.vitals.begin_measuring(at)
            if rerouted or divided != self._dividing.get(job_id):
                self._changes += 1
                generation[job_id] = self._changes
        self.generation = updated(self.generation, generation)

    # ---- replies

    def add_arp_answers(self, answers: list[SendArpReply], now: float) -> None:
        self._arp_answers += [(now, answer) for answer in answers]

    def wait_for_mode(self, reply: Future[Any], mode: Mode, cycles_done: int, now: float) -> list[Reply]:
        """Keep the request until the mode is confirmed. If an earlier request still waits, return its refusal."""
        before, self._for_mode = self._for_mode, _ModeWaiter(reply, mode, now, cycles_done)
        return [Reply(before.future, Superseded(f"superseded: another call set the mode {mode}"))] if before else []

    def mode_saved(self, reply: Future[Any]) -> None:
        """Record that the mode of this request is on disk."""
        if self._for_mode and self._for_mode.future is reply:
            self._for_mode = replace(self._for_mode, is_saved=True)

    def due_replies(self, rules_due: bool, cycles_done: int, losses: LinkLosses, now: float) -> list[Command]:
        """Return the replies that are due now.

        ``rules_due``: whether the wanted rules are about to be derived again; until then nothing counts as
        confirmed."""
        all_confirmed = not (rules_due or self._sync.busy or self._sync.unsettled)
        if all_confirmed:
            losses.all_confirmed(now)
        due: list[Command] = [
            answer for since, answer in self._arp_answers if all_confirmed or now >= since + ARP_ANSWER_AFTER_S
        ]
        if due:
            self._arp_answers = [(since, answer) for since, answer in self._arp_answers if answer not in due]
        waiter = self._for_mode
        if waiter and waiter.is_saved and all_confirmed and cycles_done > waiter.cycles_done:
            self._for_mode = None
            due.append(Reply(waiter.future, ModeSet(waiter.mode, now - waiter.since, self.pins)))
        return due

    def refuse_mode(self, error: SignalboxError) -> list[Reply]:
        """Refuse the request to set the mode, if there is one that waits for the disk.

        Returns the reply, if any. The caller must restore the earlier mode before this call."""
        if (waiter := self._for_mode) is None or waiter.is_saved:
            return []
        self._for_mode = None
        return [Reply(waiter.future, error)]
