"""The control loop: the one place where state changes.

``handle(messages, now)`` takes in what happened and returns the commands that follow; the edges carry them out
(``serve`` wires them). One job from gRPC to a switch: ``RegisterJob`` puts it into the registry, the schedule lets
a problem be taken and sent to the planning worker, ``Planned`` brings the plan back, the replan policy adopts it into
the running routes, and ``_advance`` turns those into desired rules and sends the first stage of the difference.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any

from controller.config import Config, Strategy
from controller.core.adopting import Adopting
from controller.core.confirmed import Confirmed
from controller.core.contested import Contested
from controller.core.departures import Departures
from controller.core.link_losses import LinkLosses
from controller.core.messages import Command, Message, Reply, Tick
from controller.core.refused_packets import RefusedPackets
from controller.core.replanning import Replanning
from controller.errors import Conflict, SignalboxError
from controller.fabric.host_discovery import HostDiscovery
from controller.fabric.link_load import LinkLoad
from controller.fabric.messages import (
    ArpSeen,
    ConnectionRefused,
    LinkLost,
    LinkSeen,
    MastershipLost,
    PacketsRefused,
    PortChanged,
    ProbePorts,
    RefusalReason,
    SendArpReply,
    SendArpRequest,
    SwitchConnected,
    SwitchLeft,
)
from controller.fabric.topology import Dpid, Fabric
from controller.fabric.topology_update import DeclaredHost, TopologySettings, TopologyState
from controller.jobs.messages import DeregisterJob, RegisterJob, RenewLease, ReportIterations, SavedState, SaveState
from controller.jobs.registry import JobRegistry
from controller.link_capacity import configured_capacity
from controller.planning.messages import (
    Compared,
    Explain,
    Planned,
    Replan,
    Request,
    SetStrategy,
    SolvePlan,
    StrategySet,
    WhatIf,
)
from controller.planning.schedule import Debounce
from controller.planning.snapshot import missing_hosts
from controller.tables.adoption import installed_hosts, keep_unknown
from controller.tables.control_table import adopting_rules
from controller.tables.counters import CounterIntake
from controller.tables.messages import Counters, StageDone, SwitchRules
from controller.tables.narrowing import narrowed
from controller.tables.pinned_table import Pin
from controller.tables.pipeline import Pipeline, PipelineSettings
from controller.tables.rules import RuleSet
from controller.tables.running_routes import RunningRoutes, Shares, possible_links
from controller.tables.switch_sync import SwitchSync

ANSWER_AFTER_S = 0.5
WIDEN_AFTER_S = 0.2
"""Links that come (not those that go) wait for others to come: thousands do when a fabric is found."""


@dataclass(frozen=True, slots=True)
class _StrategyWaiter:
    """Somebody waits until the switches do what the strategy says, after a planning cycle beyond ``cycles_done``."""

    future: Future[Any]
    strategy: Strategy
    since: float
    cycles_done: int


class ControlLoop:
    """Single-threaded. ``now`` is monotonic seconds and never goes back."""

    def __init__(self, config: Config, saved: SavedState, declared: Iterable[DeclaredHost], now: float) -> None:
        self.config = config
        self.adoption = Adopting(
            config.discovery.adoption_patience_s, config.jobs.orphan_lease_s, saved != SavedState(), now
        )
        self.strategy = saved.strategy or config.planning.strategy
        settings = TopologySettings(
            (config.discovery.hold_down_s, config.discovery.max_hold_down_s),
            config.discovery.edge_after_s,
            partial(configured_capacity, config),
        )
        self.topology = TopologyState(settings, declared)
        self.hosts = HostDiscovery(self.topology)
        self.registry = JobRegistry(config.jobs.max_jobs)
        self.routes = RunningRoutes(saved.shares)
        self.load = LinkLoad(config.counters.window_s, config.counters.noise_fraction)
        self.replanning = Replanning(config, self.routes, self.load, now)
        self.sync = SwitchSync(config.openflow.audit_interval_s)
        self.desired: Mapping[Dpid, RuleSet] = {}
        self.pins: tuple[Pin, ...] = ()
        self.confirmed = Confirmed()
        self.losses = LinkLosses()
        self.departures = Departures()
        self.counters = CounterIntake(self.load)
        self.refused_connections: Counter[RefusalReason] = Counter()
        self.contested = Contested()
        self.refused_packets = RefusedPackets()
        self._pipeline = Pipeline(PipelineSettings(config.discovery.punt_rate_pps, config.fabric.leaf_prefix_length))
        self._saved_shares: Shares = saved.shares
        self._stale = True
        self._noticed = -1
        self._widening = Debounce(WIDEN_AFTER_S)
        self._diff_due = True
        self._waiters: list[_StrategyWaiter] = []
        self._answers: list[tuple[float, SendArpReply]] = []
        for spec in saved.specs:
            self.registry.register(spec, now)

    @property
    def adopting(self) -> bool:
        return self.adoption.now

    @property
    def fabric(self) -> Fabric:
        return self.topology.fabric

    def handle(self, messages: Iterable[Message], now: float) -> list[Command]:
        """Take in what has happened since the last call, in order, and say what follows from all of it together. Errors
        of a request become its reply; anything else that raises is a bug."""
        commands = [command for message in messages for command in self._take(message, now)]
        for dpid in self.departures.due(now):
            self.topology.switch_left(dpid, now)
            self._changed(now)
        self._narrow(now)
        commands += self._ask_repair(now)
        return self._advance(now) + commands + self._ask_repair(now)

    def _take(self, message: Message, now: float) -> list[Command]:
        match message:
            case Planned():
                before, self.losses.awaits_repair = (self.routes.routes, self.replanning.unplanned), False
                replies = self.replanning.answered(message, self.strategy, self.fabric)
                self._stale |= before != (self.routes.routes, self.replanning.unplanned)
                return [self._save(), *replies] if self.routes.shares != self._saved_shares else replies
            case Compared():
                self.replanning.compared(message)
                return []
            case Tick():
                return self._tick(now)
            case _ if isinstance(message, Request):
                try:
                    return self._request(message, now)
                except SignalboxError as error:
                    return [Reply(message.reply, error)]
            case _:
                return self._network(message, now)

    # ---- the network

    def _network(self, message: Message, now: float) -> list[Command]:
        match message:
            case SwitchConnected(dpid, name, ports):
                self.adoption.switch_connected(dpid, now)
                self.departures.returned(dpid)
                self.topology.switch_connected(dpid, name, ports, now)
                self.contested.is_over(dpid)
                self._changed(now)
                return [self.sync.connected(dpid)]
            case SwitchLeft(dpid) | MastershipLost(dpid):
                self.contested.left(message)
                self.sync.left(dpid)
                self.counters.switch_left(dpid)
                if self.departures.left(dpid, self.fabric, now):
                    self.adoption.begin(now)
                    self._stale = True
            case PortChanged(dpid, port, removed):
                if self.topology.port_changed(dpid, port, removed, now):
                    self._changed(now)
            case LinkSeen(src, dst):
                self.topology.link_seen(src, dst, now)
            case LinkLost(src, dst):
                self.topology.link_lost(src, dst, now)
                self._changed(now)
            case SwitchRules(dpid, rules):
                news = self.sync.rules_read(message, self.fabric, now)
                self._stale |= news == "changed"
                if news == "first":
                    self.adoption.rules_read(dpid, rules, now)
                    for ip, at in installed_hosts({dpid: rules}):
                        if ip not in self.fabric.hosts:
                            self.topology.place_host(ip, None, at)
                    self._changed(now)
            case StageDone():
                self.sync.stage_done(message, now)
                self._diff_due = True
            case Counters():
                self.counters.take(self.fabric, message)
            case PacketsRefused():
                self.refused_packets.count(message, self.fabric, now)
            case ConnectionRefused(_, _, reason):
                self.refused_connections[reason] += 1
                self.contested.refused(message, now)
            case ArpSeen():
                return self._arp(message, now)
        return []

    def _changed(self, now: float) -> None:
        """The rules may have to follow, and the plan after them."""
        self._stale = True
        self.replanning.changed(now)

    def _arp(self, message: ArpSeen, now: float) -> list[Command]:
        learned, answers, questions = self.hosts.arp_seen(
            message.at, message.op, (message.sender_ip, message.sender_mac), message.target_ip, now
        )
        if learned in ("new", "moved"):
            self._changed(now)
        self._answers += [(now, SendArpReply(a.asker.at, a.asker.ip, a.asker.mac, a.ip, a.mac)) for a in answers]
        return [SendArpRequest(q.ip, q.ports) for q in questions]

    # ---- requests

    def _request(self, message: Request, now: float) -> list[Command]:
        match message:
            case RegisterJob(spec, reply):
                known = spec.job_id in self.registry.jobs
                job = self.registry.register(spec, now)
                if known:
                    return [Reply(reply, job.id)]
                known_hosts = not missing_hosts(self.fabric, job)
                if self.strategy is Strategy.PLANNED and not self.routes.claim(job) and known_hosts:
                    self.replanning.unplanned |= {job.id}
                self._changed(now)
                return [self._save(), Reply(reply, job.id)]
            case DeregisterJob(job_id, reply):
                self.registry.deregister(job_id)
                self._changed(now)
                return [self._save(), Reply(reply, None)]
            case RenewLease(job_id, reply):
                return [Reply(reply, self.registry.renew(job_id, now))]
            case ReportIterations(job_id, iterations, reply):
                self.registry.report(job_id, iterations)
                return [Reply(reply, None)]
            case Replan(reply):
                self.replanning.at_once(now, reply)
            case SetStrategy(strategy, reply):
                self.strategy = strategy
                superseded = [Reply(w.future, Conflict(f"superseded: {strategy} was set")) for w in self._waiters]
                self._waiters = [_StrategyWaiter(reply, strategy, now, self.replanning.cycles_done)]
                if strategy is not Strategy.PLANNED:
                    self.routes.routes, self.replanning.unplanned = {}, frozenset()
                    self.routes.drop_orphans()
                self._stale = True
                self.replanning.at_once(now)
                return [self._save(), *superseded]
            case Explain() | WhatIf():
                return [self.replanning.foresee(message, self.fabric, self.topology.intact, self.registry.jobs)]
        return []

    def _save(self) -> SaveState:
        specs = tuple(job.spec for job in self.registry.jobs.values())
        self._saved_shares = self.routes.shares
        return SaveState(SavedState(specs, self.strategy, self._saved_shares))

    # ---- time

    def _tick(self, now: float) -> list[Command]:
        commands: list[Command] = [*self.sync.tick(now)]
        self._diff_due |= self.sync.retrying
        self.contested.tick(now)
        self.topology.advance(now)
        self.refused_packets.forget_old(now)
        if self.registry.expire(now):
            commands.append(self._save())
            self._changed(now)
        if self.adopting:
            self._adopt_when_settled(now)
        elif self.adoption.lease_over(now):
            self.routes.drop_orphans()
            self._stale = True
        if self._noticed != self.fabric.generation:
            self._noticed = self.fabric.generation
            self._widening.changed(now)
        if self._widening.due(now):
            self._changed(now)
        missing = [ip for job in self.registry.jobs.values() for ip in missing_hosts(self.fabric, job)]
        commands += [SendArpRequest(q.ip, q.ports) for q in self.hosts.advance(missing, now)]
        self.replanning.take_counters(self.fabric, now)
        if not self.adopting or not self.fabric.switches:
            commands += self._plan_if_due(now)
        return commands

    def _plan_if_due(self, now: float) -> list[Command]:
        runnable = [job for job in self.registry.jobs.values() if not missing_hosts(self.fabric, job)]
        return self.replanning.start_if_due(self.strategy, self.fabric, runnable, now)

    def _narrow(self, now: float) -> None:
        """The first answer to lost links: next hops are taken away, the full computation waits for that, never long."""
        if not self._stale or self.adopting:
            return
        lost = self.losses.lost(self.fabric.links)
        leaves = {host.at.dpid for host in self.fabric.hosts.values()} if lost else set()
        if fewer := narrowed(self.desired, self.losses.before, lost, leaves):
            self.desired = {**self.desired, **fewer}
            self._diff_due = True
            self.losses.hurry(now)

    def _ask_repair(self, now: float) -> list[Command]:
        """The second answer: new routes, neither after a quiet time nor with the next tick. It is waited for too."""
        if not self._stale or self.adopting or self.hurried(now):
            return []
        if not self.losses.broken(self.routes.lost_links(self.fabric), now):
            return []
        self.replanning.at_once(now)
        commands = self._plan_if_due(now)
        if any(isinstance(command, SolvePlan) for command in commands):
            self.losses.hurry(now, awaits_repair=True)
        return commands

    def hurried(self, now: float) -> bool:
        """First aid is under way: whatever can wait should."""
        return self.losses.hurried(now, self._diff_due or self.sync.busy)

    def _adopt_when_settled(self, now: float) -> None:
        """Take what the switches do for the running plan, once the picture is complete."""
        if self.departures.waiting or not self.sync.installed:
            return
        if self.adoption.settle(self.fabric, self.sync.installed, self.sync.all_read, now):
            jobs = self.registry.jobs.values()
            self.replanning.unplanned -= self.routes.adopt(self.fabric, self.sync.installed, jobs)
            if not self.adoption.first:  # the jobs were never forgotten: what is not theirs is nobody's
                self.routes.orphans = ()
            if self.strategy is not Strategy.PLANNED:
                self.routes.routes = {}
            self._changed(now)

    # ---- what follows: desired rules, the next stage, those who wait for it

    def _advance(self, now: float) -> list[Command]:
        if self._stale and not self.hurried(now):
            self._stale, self._noticed = False, self.fabric.generation
            self._widening.begun()
            self._make_desired(now)
            self._diff_due = True
        commands: list[Command] = []
        if self._diff_due:
            self._diff_due = False
            stage = self.sync.next_stage(self.desired)
            commands = [stage] if stage else []
            ready = frozenset(dpid for dpid in self.sync.settled if self.topology.switch_ready(dpid))
            commands += [ProbePorts(ready)] if ready else []
            if not self.hurried(now):
                self._confirm()
        reached = not (self._stale or self.sync.busy or self.sync.unsettled)
        if reached:
            self.losses.confirmed(now)
        return commands + self._due_answers(reached, now) + (self._strategy_reached(now) if reached else [])

    def _due_answers(self, reached: bool, now: float) -> list[Command]:
        """Who asked for a host is told when rules lead to it; a switch that does not confirm them delays nobody."""
        due = [answer for since, answer in self._answers if reached or now >= since + ANSWER_AFTER_S]
        self._answers = [(since, answer) for since, answer in self._answers if answer not in due]
        return [*due]

    def _make_desired(self, now: float) -> None:
        self.replanning.unplanned &= self.registry.jobs.keys()
        jobs = [job for job in self.registry.jobs.values() if job.id not in self.replanning.unplanned]
        if self.adopting:
            rate, switches = self.config.discovery.punt_rate_pps, self.fabric.switches
            self.desired = {d: adopting_rules(switches[d], held, rate) for d, held in self.sync.installed.items()}
            return
        self.routes.release(jobs)
        self.pins = self.routes.pins(self.fabric, jobs)
        self.desired = self._pipeline.desired(self.fabric, self.pins, self.sync.installed)
        if now < self.adoption.unknown_kept_until:
            self.desired = keep_unknown(self.fabric, self.desired, self.sync.installed)
        candidates = self.replanning.snapshots.paths(self.fabric)
        self.load.routes_changed(now, partial(possible_links, self.fabric, self.pins, candidates))

    def _confirm(self) -> None:
        """Which routes the switches have confirmed; jobs whose routes changed by that are measured afresh."""
        if self.adopting:
            return
        self.confirmed.update(self.fabric, self.pins, self.desired, self.sync.installed)
        for job_id in self.confirmed.routes_changed(self.routes.routes, self.registry.jobs.values()):
            self.registry.reset_measured(job_id)

    def _strategy_reached(self, now: float) -> list[Command]:
        """Replies to those who set a strategy that the switches now follow."""
        reached = [w for w in self._waiters if self.replanning.cycles_done > w.cycles_done]
        self._waiters = [w for w in self._waiters if w not in reached]
        return [Reply(w.future, StrategySet(w.strategy, now - w.since, len(self.confirmed.pins))) for w in reached]
