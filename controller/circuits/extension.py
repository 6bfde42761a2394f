"""Circuits of optical switches as an extension of the control loop (``core.messages``).

This module connects the other modules of the package, and raises alarms. The docstring of the package has the inputs
and outputs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from itertools import chain

from controller.alarms import Alarm
from controller.circuits import questions
from controller.circuits.analysis import no_parts
from controller.circuits.fibres import Circuits, FibreState, cabling_of
from controller.circuits.job_wiring import JobWiring, damaged, wiring_of, working_interfaces
from controller.circuits.optical_switches import OpticalSwitches
from controller.circuits.questions import FindWiring
from controller.circuits.wired_jobs import RETRY_S, Wirings, published_unwired, unwired
from controller.config import Config
from controller.core.messages import NO_EFFECTS, Arrange, Command, Effects, Extension, WorkedOut, WorkOut, commands
from controller.core.state import State
from controller.fabric.messages import MastershipLost, PortChanged, ProbeAnew, SwitchConnected, SwitchLeft, SwitchMoved
from controller.fabric.parts import End, Part, WhyNot, switch_key
from controller.fabric.topology import Dpid, Fabric, PortNo, PortRef
from controller.jobs.job import Job
from controller.planning.problem import PlanLimits, Routes
from controller.shared_map import Row, per_key
from controller.status import ExtensionStatus
from controller.tables.messages import StageDone, SwitchRules
from signalbox.errors import InvalidInput, SignalboxError, cut
from signalbox.jobs.reports import IterationTime
from signalbox.jobs.spec import JobId
from signalbox.words import AlarmKind


class CircuitExtension(Extension):
    """State of optical switches, fibres and wired jobs.

    - ``optical``: cross-connects of optical switches.
    - ``fibres``: fibres that are not connected as configured.
    - ``wirings``: search for wirings of jobs.

    Cached results (``shared_map.Row``), which are computed again when their inputs change:

    - ``interfaces``: working interfaces.
    - ``unwired``: reasons why jobs wait.
    - ``job_wirings``: wiring of each job that has one.
    - ``owned``: circuits of all jobs.
    - ``damaged``: broken interfaces and circuits of each job's wiring."""

    answer = staticmethod(questions.answer)
    prepare = staticmethod(questions.prepare)

    def __init__(self, config: Config, s: State, now: float) -> None:
        """Start without knowledge of the optical switches.

        Raises ``InvalidInput`` for a saved job with an unreadable wiring."""
        _refuse_unreadable(s.jobs.jobs, config.saved_in)
        self._s = s
        of = config.circuits
        cabling = self.cabling = cabling_of(of.fibres)
        away_since = dict.fromkeys(cabling.optical, now)
        self.optical = OpticalSwitches(cabling, of.dark_s, of.drain_s, config.openflow.audit_interval_s, away_since)
        self.fibres = FibreState(cabling)
        self.wirings = Wirings(cabling)
        limits = PlanLimits(time_limit_s=config.planning.time_limit_s, ecmp_draws=0)
        capacity_bps = s.topology.settings.capacity_bps
        # fmt: off
        self.interfaces = Row( working_interfaces, lambda: (s.fabric.switches, self.optical.dark, cabling,
                                                            capacity_bps))
        self.unwired = Row(    unwired,            lambda: (s.jobs.jobs, s.fabric.hosts, self.interfaces(), cabling,
                                                            self.wirings.refused, self.wirings.new,
                                                            self.optical.away, limits, s.commits.restorable_jobs))
        self.job_wirings = Row(per_key(_wiring),   lambda: (s.jobs.jobs,))
        self.owned = Row(      _together,          lambda: (self.job_wirings(),))
        self.damaged = Row(    damaged,            lambda: (self.job_wirings(), s.fabric.switches, self.interfaces(),
                                                            self.optical.missing, of.fixed))
        # fmt: on

    # ---- input

    def handle(self, message: object, arrange: Arrange, now: float) -> Effects | None:
        optical, ours = self.optical, self.cabling.optical
        match message:
            case WorkedOut():
                return self._worked_out(message, arrange, now)
            case SwitchConnected(dpid, name, ports) | SwitchMoved(dpid, name, ports) if dpid in ours:
                return commands(optical.switch_connected(dpid, name, ports))
            case SwitchLeft(dpid) | MastershipLost(dpid) if dpid in ours:
                optical.switch_left(dpid, now)
            case PortChanged(dpid, port, removed) if dpid in ours:
                optical.port_changed(dpid, port, removed)
            case SwitchRules(dpid) if dpid in ours:
                return self._connected_anew(optical.rules_read(message, now), now)
            case StageDone(change_id) if change_id < 0:
                return self._connected_anew(optical.stage_done(message, now), now)
            case _:
                return None
        return NO_EFFECTS

    def _connected_anew(self, moved: frozenset[PortRef], now: float) -> Effects:
        """Forget where the probes of these interfaces arrived, and request new probes.

        The topology and the discovery must both forget: discovery reports a known link again only after forgetting or
        losing the link."""
        if not moved:
            return NO_EFFECTS
        # Probes that arrive elsewhere than configured may have been redirected by a change of another port.
        topology, expected = self._s.topology, self.optical.expected
        moved |= {src for src, dst in topology.heard_one_way.items() if expected.get(src) != dst}
        topology.connected_anew(moved, now)
        return commands(ProbeAnew(moved))

    def _worked_out(self, message: WorkedOut, arrange: Arrange, now: float) -> Effects:
        s, asked = self._s, message.question
        wiring = self.wirings.accept(asked, message.answer, s.jobs.jobs, s.fabric.hosts, now)
        if wiring is None:
            return NO_EFFECTS
        assert isinstance(asked, FindWiring)
        try:
            return arrange(s.jobs.jobs[asked.job_id], wiring.arrangement, now)
        except SignalboxError as error:
            self.wirings.refuse(asked, str(error), now + RETRY_S)
            return NO_EFFECTS

    def tick(self, arrange: Arrange, now: float) -> Effects:
        s, optical = self._s, self.optical
        effects = commands(*optical.tick(now))
        optical.follow_links(s.fabric.links, s.fabric.switches, now)
        fibre_of, away = self.cabling.fibre_of, optical.away_since
        heard = {src: dst for src, dst in s.topology.heard_one_way.items() if fibre_of[src].dpid not in away}
        missing = frozenset(each for each in optical.missing if fibre_of[each[0]].dpid not in away)
        is_changing = optical.change is not None
        working = self.interfaces()
        optical.read_again(self.fibres.follow(optical.expected, missing, heard, working, is_changing, now), now)
        self.wirings.pass_time(now)
        return effects | self._rewire(None, arrange, now)

    def iterations_ended(self, job_id: JobId, _new: Sequence[IterationTime], arrange: Arrange, now: float) -> Effects:
        return self._rewire(job_id, arrange, now)

    def _rewire(self, between: JobId | None, arrange: Arrange, now: float) -> Effects:
        """Give new circuits to jobs that have lost some circuits.

        ``between``: job whose iteration has just ended; its circuits can change now, before the next iteration."""
        effects = NO_EFFECTS
        for job, wiring in self.wirings.others_due(self._s.jobs.jobs, self.damaged, now, between):
            effects |= arrange(job, wiring.arrangement, now)
        return effects

    def take_settings(self, config: Config) -> None:
        self.optical.sync.take_audit_interval(config.openflow.audit_interval_s)

    # ---- output

    def work(self) -> Sequence[Command]:
        """Begin a change of circuits, if one is due, and return the next question about a wiring.

        Circuits that the change removes are no longer in ``links``, so that new rules lead around them."""
        s, optical = self._s, self.optical
        optical.set_owned(self.owned())
        if s.phases.adopting:
            return ()
        optical.begin(s.fabric.links)
        asked = self.wirings.next_question(
            self.unwired().next,
            self.damaged(),
            s.jobs.jobs,
            s.fabric.hosts,
            self.interfaces(),
            optical.unable,
        )
        return [WorkOut(question) for question in asked]

    def change(self, now: float) -> Sequence[Command]:
        return self.optical.send(now)

    def begin(self, now: float) -> Mapping[JobId, Routes | None]:
        """Return the jobs whose new circuits have all become links, and the jobs that stop waiting for them.

        The value of a job is the routes that were found with its wiring. The value is None for a job that keeps its
        routes until the next plan, because only some of its circuits were replaced."""
        if not self.wirings.new or self.optical.change:
            return {}
        return self.wirings.ready(self._s.jobs.jobs, self._s.fabric.links, now)

    @property
    def links(self) -> Circuits:
        return self.optical.active

    def waiting(self) -> Mapping[JobId, str]:
        return self.unwired().why

    def waiting_as_published(self, jobs: Mapping[JobId, Job]) -> Mapping[JobId, str]:
        return published_unwired(self.unwired().why, jobs, self.job_wirings())

    def alarms(self, fabric: Fabric) -> Iterator[Alarm]:
        return raised_alarms(self.optical, self.fibres, fabric, self._s.refusals.other_masters.keys())

    def status(self) -> ExtensionStatus:
        optical = self.optical
        return ExtensionStatus(optical.optical, optical.change_times, optical.latest_change)

    def no_parts(self, names: Sequence[str]) -> WhyNot:
        """Return the reason why a part cannot be drained, for each name that ``analysis.no_parts`` recognizes."""
        called = {dpid: self.optical.name(dpid) for dpid in self.cabling.optical}
        return no_parts(names, self.cabling, called, self._s.fabric)


def _refuse_unreadable(jobs: Mapping[JobId, Job], setting: str) -> None:
    for job_id, job in jobs.items():
        try:
            wiring_of(job.registration)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            why = f"the wiring of job '{cut(job_id)}' cannot be read ({type(error).__name__}: {error})"
            raise InvalidInput.of(setting, f"{why}; forget the job: signalbox state drop") from None


def _wiring(_: JobId, job: Job) -> JobWiring | None:
    return wiring_of(job.registration)


def _together(of_jobs: Mapping[JobId, JobWiring]) -> Circuits:
    return dict(chain.from_iterable(wiring.circuits for wiring in of_jobs.values()))


MOST_NAMED = 4
"""Largest number of interfaces that one sentence names."""


def raised_alarms(circuits: OpticalSwitches, fibres: FibreState, fabric: Fabric, taken: Set[Dpid]) -> Iterator[Alarm]:
    """Yield the alarms, each kind at most once per subject. ``fabric``: see ``Extension.alarms``.

    ``taken``: switches whose master is another controller; they have an alarm of their own."""
    yield from _dark_interfaces(circuits, fibres, fabric)
    for dpid in sorted(circuits.away - taken):  # the configuration lists optical switches, so each should be connected
        end = End(PortRef(dpid, PortNo(0)), circuits.name(dpid))
        yield Alarm(AlarmKind.SWITCH_DOWN, end.name, {"part": Part(switch_key(dpid), (end,))})


def _dark_interfaces(circuits: OpticalSwitches, fibres: FibreState, fabric: Fabric) -> Iterator[Alarm]:
    """Yield an alarm for each interface of a connected server that does not work.

    An interface does not work in each of these cases:

    - its port is down at either end;
    - it sends into a circuit, and no probes arrive at the end of the circuit;
    - it sent into a circuit that was replaced before any probes had arrived at its end;
    - its fibres may be swapped;
    - its probes arrive at an interface to which no circuit leads."""
    for at in sorted(circuits.cabling.fibre_of):
        switch = fabric.switches.get(at.dpid)
        port = switch.ports.get(at.port) if switch else None
        if switch and not (port and port.up and at not in circuits.dark):
            no_light = f"has no light on its fibre to {_optical_port_name(circuits, at)}"
            yield Alarm(AlarmKind.INTERFACE_DARK, f"{switch.name}:{at.port}", {"why": no_light})
    why = {}
    for src, dst in sorted(fibres.silent):
        there = fabric.port_name(dst)
        why[src] = (
            f"sends into a circuit to {there}, where no probes arrive"
            if (src, dst) in circuits.missing
            else f"sent into a circuit to {there}, where no probes arrived"
        )
    for src, dst in fibres.misrouted.items():
        there = fabric.port_name(dst)
        why[src] = f"sends probes that arrive at {there}, to which it has no circuit: fibres are not as configured"
    for src, others in fibres.partners().items():
        why[src] = _may_be_swapped(circuits, fabric, src, others)
    for src in sorted(why):
        yield Alarm(AlarmKind.INTERFACE_DARK, fabric.port_name(src), {"why": why[src]})


def _may_be_swapped(circuits: OpticalSwitches, fabric: Fabric, at: PortRef, others: Sequence[PortRef]) -> str:
    names = list(map(fabric.port_name, others))
    if len(others) > 1:
        named = ", ".join(names[:MOST_NAMED]) + (", or others" if len(names) > MOST_NAMED else "")
        return f"may have its fibres swapped with those of one of {named}: probes arrive as if they were swapped"
    return (
        f"may be connected to {_optical_port_name(circuits, others[0])}, and {names[0]} to "
        f"{_optical_port_name(circuits, at)}: probes arrive as if their fibres were swapped"
    )


def _optical_port_name(circuits: OpticalSwitches, at: PortRef) -> str:
    optical = circuits.cabling.fibre_of[at]
    return f"port {optical.port} of {circuits.name(optical.dpid)}"
