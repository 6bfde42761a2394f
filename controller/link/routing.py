"""Routing between the control loop and several southbounds, each of which is the holder of some switches.

In: commands of the control loop, and messages of southbounds. Out: each command to the holder of its switch, and
messages as if there were only one southbound.

A southbound becomes the holder of a switch with a ``SwitchConnected`` that has the generation id of an assignment. When
a southbound is lost, or stops being the holder, the control loop gets no message for ``grace_s`` seconds. If another
southbound becomes the holder meanwhile, the loop receives ``SwitchMoved``. No route then changes, the rules are read
again, and changes under way count as timed out. When a switch disconnects from its holder, the loop gets the message at
once.

Each southbound gets the changes of a stage for its switches, divided into parts of limited size, and reports each part.
The loop does not wait for switches that are missing in the first report on a stage. So the router makes the first
report only when every part has been reported.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Protocol

from controller.fabric.messages import (
    ArpSeen,
    ConnectionRefused,
    ExpectLinks,
    GenerationRaised,
    LinkLost,
    LinkSeen,
    MastershipLost,
    PacketsRefused,
    PortChanged,
    ProbeAnew,
    ProbesHeard,
    SendArpReply,
    SwitchConnected,
    SwitchesInReach,
    SwitchLeft,
    SwitchMoved,
)
from controller.fabric.topology import Dpid, PortRef
from controller.link.codec import Refused
from controller.tables.messages import (
    FromSwitches,
    InstallStage,
    PollLearning,
    ReadRules,
    StageDone,
    SwitchResult,
    ToSwitches,
)
from controller.tables.rules import GroupRule, RuleMod, Stage

HANDED_OVER_S = 3.0
"""Seconds, in addition to ``grace_s``, for which the loss of a switch is kept from the control loop.

In this time another southbound can claim the switch."""
ANSWER_S = 2.0
"""Seconds, in addition to the barrier time-out, after which a stage that a southbound has not answered times out."""
MOST_CHANGES = 50_000
"""Largest number of changes in a part of a stage, counting buckets: 4 MB, or two seconds of work at the southbound.

A part has at least one switch."""
PART_BITS = 40
"""Number of low bits of a part's ``change_id`` that contain the id of the stage; the higher bits count the parts."""
TIMED_OUT = SwitchResult(timed_out=True)


class End(Protocol):
    """The control loop's view of a southbound. ``member``: member that runs the southbound, as NAME/ID."""

    member: str

    def send(self, commands: Iterable[ToSwitches]) -> None:
        """Queue the commands, in order, without waiting."""


@dataclass(slots=True)
class _Stage:
    """State of a stage that not all switches have answered."""

    change_id: int
    until: float
    """Monotonic time in seconds at which the remaining switches count as timed out.

    Each report of a southbound makes the time later."""
    parts: dict[End, set[Dpid]]
    silent: set[tuple[End, int]] = field(default_factory=set)
    """Parts that no report has mentioned yet, as (southbound, number of the part)."""
    is_reported: bool = False
    results: dict[Dpid, SwitchResult] = field(default_factory=dict)


def _size(mod: RuleMod) -> int:
    return 1 + len(mod.rule.buckets) if isinstance(mod.rule, GroupRule) else 1


class _Mark:
    """Stand-in for the counter of queued messages: it calls ``done`` when the control loop takes the message."""

    def __init__(self, done: Callable[[], None]) -> None:
        self.take = done

    def add(self) -> None: ...


class Router:
    """Router between the control loop and its southbounds. Any thread may call any method.

    ``put``: queues a message for the control loop. The optional second argument is an object whose ``take`` is called
    when the loop takes the message. ``is_assigned``: returns whether a member may have claimed a switch with a
    generation id. ``clock``: returns monotonic seconds."""

    def __init__(
        self,
        put: Callable[..., None],
        grace_s: float,
        barrier_timeout_s: float,
        clock: Callable[[], float] = time.monotonic,
        is_assigned: Callable[[str, Dpid, int], bool] = lambda *_: True,
    ) -> None:
        self._put = put
        self._is_assigned = is_assigned
        self._grace_s = grace_s
        self._answer_s = barrier_timeout_s + ANSWER_S
        self._clock = clock
        self._lock = threading.RLock()
        self._ends: dict[End, None] = {}
        self._holders: dict[Dpid, End] = {}
        self._generations: dict[Dpid, int] = {}
        self._leaving: dict[Dpid, tuple[float, SwitchLeft | MastershipLost]] = {}
        """Message about the loss of each switch without a holder, and the time at which the control loop gets it."""
        self._links: dict[PortRef, PortRef] = {}
        self._stages: dict[int, _Stage] = {}
        self._learning = PollLearning(frozenset())
        self._in_reach: dict[End, SwitchesInReach] = {}
        self._taken: dict[tuple[Dpid, str], int] = {}
        self.refused: Counter[str] = Counter()
        """Number of claims and writes that switches have refused because of another master, by ``End.member``."""
        self.changed: Callable[[], None] = lambda: None
        """Function, which must not wait, that a thread calls when ``in_reach`` or ``taken`` has changed."""

    @property
    def holders(self) -> dict[Dpid, str]:
        """Name of the cluster member that each switch has confirmed as its OpenFlow master (``End.member``)."""
        with self._lock:
            return {dpid: end.member for dpid, end in self._holders.items()}

    @property
    def in_reach(self) -> dict[str, SwitchesInReach]:
        """Latest report of each linked member about its connections, by ``End.member``."""
        with self._lock:
            return {end.member: report for end, report in self._in_reach.items()}

    @property
    def taken(self) -> dict[tuple[Dpid, str], int]:
        """Generation id, or 0 while it is unknown, of each switch that another controller has claimed.

        The keys are the switch and the linked member that has reported it, as in ``End.member``."""
        with self._lock:
            return dict(self._taken)

    # ---- commands

    def send(self, commands: Iterable[ToSwitches]) -> None:
        """Send each command to the holder of its switch, or to all southbounds.

        The control loop calls this every turn."""
        with self._lock:
            self._expire()
            groups: defaultdict[End, list[ToSwitches]] = defaultdict(list)
            for command in commands:
                for end, part in self._routed(command):
                    groups[end].append(part)
            for end, parts in groups.items():
                end.send(parts)

    def _routed(self, command: ToSwitches) -> Iterator[tuple[End, ToSwitches]]:
        match command:
            case InstallStage():
                yield from self._divided(command)
                return
            case ReadRules(dpid) | SendArpReply(PortRef(dpid)):
                if end := self._holders.get(dpid):
                    yield end, command
                return
            case PollLearning():
                self._learning = command
        yield from ((end, command) for end in self._ends)

    def _divided(self, command: InstallStage) -> Iterator[tuple[End, ToSwitches]]:
        dpids: defaultdict[End, set[Dpid]] = defaultdict(set)
        stage = _Stage(command.change_id, self._clock() + self._answer_s, dpids)
        parts: dict[tuple[End, int], dict[Dpid, tuple[RuleMod, ...]]] = {}
        newest: dict[End, tuple[int, int]] = {}
        for dpid, mods in command.stage.mods.items():
            if end := self._holders.get(dpid):
                size = sum(map(_size, mods))
                number, sent = newest.get(end, (0, 0))
                if sent and sent + size > MOST_CHANGES:
                    number, sent = number + 1, 0
                newest[end] = number, sent + size
                part = command.change_id | number << PART_BITS
                parts.setdefault((end, part), {})[dpid] = mods
                dpids[end].add(dpid)
            else:
                stage.results[dpid] = TIMED_OUT
        stage.silent.update(parts)
        self._stages[command.change_id] = stage
        self._report(stage)
        for (end, part), of_part in parts.items():
            yield end, InstallStage(part, Stage(command.stage.name, of_part), command.pause_s)

    # ---- southbounds

    def add(self, end: End) -> None:
        """Use a newly linked southbound, which announces its switches next."""
        with self._lock:
            self._ends[end] = None
            end.send([self._learning])

    def remove(self, end: End) -> None:
        """Stop using a southbound whose link is broken."""
        with self._lock:
            self._ends.pop(end, None)
            self._in_reach.pop(end, None)
            self._taken = {key: newer for key, newer in self._taken.items() if key[1] != end.member}
            self.changed()
            for dpid in [dpid for dpid, holder in self._holders.items() if holder is end]:
                self._release(dpid, SwitchLeft(dpid))

    def received(self, end: End, messages: Collection[FromSwitches], taken: Callable[[], None]) -> None:
        """Handle messages of a southbound. Messages about switches of other holders are dropped.

        ``taken``: called by a thread when the control loop has taken the messages. Raises ``Refused`` if this
        process knows no assignment with the generation id; the southbound may announce its switches again over a new
        link."""
        for message in messages:
            if isinstance(message, SwitchConnected | SwitchMoved):
                self._refuse_invented(end, message)
        with self._lock:
            if end in self._ends:
                self._remove_earlier(end)
            shown = (
                [each for message in messages for each in self._translated(end, message)] if end in self._ends else []
            )
            for message in shown[:-1]:
                self._put(message)
            for message in shown[-1:]:
                self._put(message, _Mark(taken))
        if not shown:
            taken()

    def _remove_earlier(self, end: End) -> None:
        """Stop using earlier links of the same process: their late packets would assign switches to a dead link."""
        for other in list(takewhile(lambda one: one is not end, self._ends)):
            if other.member == end.member:
                self.remove(other)

    def _refuse_invented(self, end: End, message: SwitchConnected | SwitchMoved) -> None:
        if not self._is_assigned(end.member, message.dpid, message.generation):
            switch = f"switch {message.dpid:#x} with generation id {message.generation}"
            raise Refused(f"{end.member!a} has announced {switch}, but this switch is not assigned to it with this id")

    def _translated(self, end: End, message: FromSwitches) -> Iterator[FromSwitches]:
        """Yield the messages to pass to the control loop in place of this one."""
        if isinstance(message, MastershipLost) and message.refused:
            self.refused[end.member] += 1
        self._note_taken(end, message)
        match message:
            case SwitchConnected(dpid, name, ports, generation) | SwitchMoved(dpid, name, ports, generation):
                if generation < self._generations.get(dpid, 0):
                    return  # the southbound was paused, and does not know the new holder yet
                self._generations[dpid] = generation
                before, left = self._holders.get(dpid), self._leaving.pop(dpid, None)
                if before not in (None, end):
                    self._time_out_changes(dpid)
                self._holders[dpid] = end
                if left or before not in (None, end):
                    self._expect_links(dpid, self._ends)
                    yield SwitchMoved(dpid, name, ports)
                elif before and isinstance(message, SwitchMoved):
                    yield message
                else:
                    self._forget_links(dpid)
                    yield SwitchConnected(dpid, name, ports)
            case SwitchesInReach():
                self._in_reach[end] = message
                self.changed()
            case ProbesHeard():
                self._pass_on(end, message)
            case ConnectionRefused() | PacketsRefused():
                yield message
            case StageDone():
                self._stage_done(end, message)
            case LinkSeen(src, dst) if self._holders.get(src.dpid) is end:
                self._links[src] = dst
                yield message
            case LinkLost(src) if self._holders.get(src.dpid) is end:
                self._links.pop(src, None)
                yield message
            case ArpSeen(at) if self._holders.get(at.dpid) is end:
                yield message
            case LinkSeen() | LinkLost() | ArpSeen():
                pass
            case MastershipLost(dpid, _, ahead) if dpid in self._leaving:
                if ahead:
                    self._leaving[dpid] = self._leaving[dpid][0], message
            case MastershipLost(dpid) if dpid not in self._holders:
                yield message
            case SwitchLeft(dpid) | MastershipLost(dpid) if self._holders.get(dpid, end) is not end:
                # The former holder releases the switch after the next one has claimed it. It has just forgotten the
                # links to the switch, and with them the request to watch these links.
                self._expect_links(dpid, [end])
            case _ if self._holders.get(message.dpid) is not end:
                pass
            case SwitchLeft(dpid, released) if not released:
                self._forget_links(dpid)
                del self._holders[dpid]
                self._time_out_changes(dpid)
                yield message
            case SwitchLeft(dpid) | MastershipLost(dpid):
                self._release(dpid, message)
            case PortChanged(dpid, port, removed):
                if removed or not port.up:
                    self._forget_links(dpid, PortRef(dpid, port.number))
                yield message
            case _:
                yield message

    def _note_taken(self, end: End, message: FromSwitches) -> None:
        match message:
            case MastershipLost(dpid, newer=newer) | GenerationRaised(dpid, _, newer):
                self._taken[dpid, end.member] = newer
                self.changed()
            case SwitchConnected(dpid) | SwitchMoved(dpid) | SwitchLeft(dpid):
                self._taken.pop((dpid, end.member), None)

    def _release(self, dpid: Dpid, message: SwitchLeft | MastershipLost) -> None:
        """Delay the message about the loss of a switch, so that another southbound can become its holder first."""
        del self._holders[dpid]
        self._leaving[dpid] = self._clock() + self._grace_s + HANDED_OVER_S, message
        self._time_out_changes(dpid)

    def _expire(self) -> None:
        now = self._clock()
        for dpid, (at, message) in list(self._leaving.items()):
            if at <= now:
                del self._leaving[dpid]
                self._forget_links(dpid)
                self._put(message)
        for stage in [stage for stage in self._stages.values() if stage.until <= now]:
            for dpids in list(stage.parts.values()):
                stage.results |= dict.fromkeys(dpids, TIMED_OUT)
            stage.parts.clear()
            self._report(stage)

    # ---- results of stages

    def _stage_done(self, end: End, message: StageDone) -> None:
        stage = self._stages.get(message.change_id & ((1 << PART_BITS) - 1))
        if stage is None or end not in stage.parts:
            return
        stage.until = self._clock() + self._answer_s
        stage.silent.discard((end, message.change_id))
        stage.results |= {dpid: result for dpid, result in message.results.items() if dpid in stage.parts[end]}
        stage.parts[end].difference_update(message.results)
        self._report(stage)

    def _time_out_changes(self, dpid: Dpid) -> None:
        for stage in list(self._stages.values()):
            for dpids in stage.parts.values():
                if dpid in dpids:
                    dpids.discard(dpid)
                    stage.results[dpid] = TIMED_OUT
            self._report(stage)

    def _report(self, stage: _Stage) -> None:
        """Report results to the control loop, unless some part of the stage has not been reported yet."""
        stage.parts = {end: dpids for end, dpids in stage.parts.items() if dpids}
        stage.silent = {(end, part) for end, part in stage.silent if end in stage.parts}
        if stage.silent:
            return
        if stage.results or not stage.is_reported:
            results, stage.results, stage.is_reported = stage.results, {}, True
            self._put(StageDone(stage.change_id, results))
        if not stage.parts:
            self._stages.pop(stage.change_id, None)

    # ---- links between switches of several southbounds

    def _pass_on(self, end: End, message: ProbesHeard) -> None:
        """Forward each reported probe to the holder of the switch that sent it, which may be ``end`` itself.

        ``end``: the reporting southbound. All other southbounds also get the switches of ``end`` that are alive."""
        heard = [probe for probe in message.probes if self._holders.get(probe.dst.dpid) is end]
        alive = frozenset(dpid for dpid in message.alive if self._holders.get(dpid) is end)
        for other in self._ends:
            probes = tuple(probe for probe in heard if self._holders.get(probe.src.dpid) is other)
            if probes or (alive and other is not end):
                other.send([ProbesHeard(probes, alive)])

    def _expect_links(self, dpid: Dpid, ends: Iterable[End]) -> None:
        """Make these southbounds watch the links of a moved switch again: probes were not reported during the move."""
        links = [link for link in self._links.items() if dpid in (link[0].dpid, link[1].dpid)]
        for end in ends:
            own = tuple(link for link in links if self._holders.get(link[0].dpid) is end)
            known = frozenset({dpid} if self._holders[dpid] is end else ())
            if own or known:
                end.send([ExpectLinks(own, known)])

    def _forget_links(self, dpid: Dpid, at: PortRef | None = None) -> None:
        """Forget the links at a switch, or only at its port ``at``, and let other southbounds probe them again.

        The holder of the switch forgets the links by itself."""
        own, again = self._holders.get(dpid), defaultdict[End, set[PortRef]](set)
        for src, dst in list(self._links.items()):
            if at in (src, dst) or (at is None and dpid in (src.dpid, dst.dpid)):
                del self._links[src]
                holder = self._holders.get(src.dpid)
                if holder and src.dpid != dpid and holder is not own:
                    again[holder].add(src)
        for end, ports in again.items():
            end.send([ProbeAnew(frozenset(ports))])
