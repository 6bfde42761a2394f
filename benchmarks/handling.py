"""What the control loop pays, in CPU time of its thread, for changes of jobs and of the network among many pinned jobs.

    .venv/bin/python -m benchmarks handling [--jobs 1000] [--size 32x16x32] [--changes 200] [--json]

A real control loop on switches in memory that do at once what they are told, time is a number, and a planner keeps
every route and deals new flows out over their paths (``api_load.controller``): nothing but ``ControlLoop.handle`` is
measured. First jobs come and go, 20 changes a second among renewals; then a cable is lost and comes back, and a spine
leaves. Out: per step the calls, their CPU time, and the longest, which should stay below 100 ms: everything else waits.
"""

from __future__ import annotations

import gc
import random
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated
from unittest.mock import patch

import typer

from benchmarks.api_load.controller import dealt_plan, fabric_of
from benchmarks.api_load.load import placed_jobs
from benchmarks.measures import Spread, report, table_of
from controller.config import Config
from controller.control_loop import ControlLoop
from controller.core.messages import Command, Message, Tick
from controller.fabric.messages import LinkSeen, PortChanged, SwitchConnected, SwitchLeft
from controller.fabric.parts import Declared
from controller.fabric.topology import Dpid, Fabric, Link, Port, PortRef
from controller.fabric.topology_state import DeclaredHost
from controller.jobs.messages import DeregisterJob, RegisterJob, RenewLease, SavedState, SaveState, StateSaved
from controller.planning import answers, target
from controller.planning.messages import SolvePlan, WorkOutLevels
from controller.tables.messages import InstallStage, ReadRules, StageDone, SwitchResult, SwitchRules
from controller.tables.rules import RuleSet, applied
from signalbox.commands.output import AsJson
from signalbox.errors import SignalboxError
from signalbox.jobs.spec import JobId

CHANGE_EVERY_S = 0.05
RENEWALS = 14
"""Between two changes."""
MOST_HOSTS = 64
"""Of a job."""
BATCH = 50
"""Jobs that are registered together, before anything is measured."""
RESULTS = Path("out/bench/handling.json")


@dataclass(frozen=True, slots=True)
class Result:
    """Milliseconds of CPU. ``mods``: that were sent to switches."""

    step: str
    calls: int
    total_ms: float
    p50_ms: float
    p99_ms: float
    max_ms: float
    mods: int


@dataclass
class Site:
    """A control loop and everything around it. ``took_ms``: of each call of ``handle`` since it was emptied."""

    fabric: Fabric
    now: float = 1000.0
    took_ms: list[float] = field(default_factory=list)
    mods: int = 0

    def __post_init__(self) -> None:
        hosts = (
            DeclaredHost(host.ip, f"02:00:00:00:{n >> 8:02x}:{n & 255:02x}", *self._place(host.at))
            for n, host in enumerate(self.fabric.hosts.values())
        )
        config = Config()
        config = config.model_copy(
            update={"discovery": config.discovery.model_copy(update={"adoption_patience_s": 2.0})}
        )
        self.loop = ControlLoop(config, SavedState(), Declared(hosts=tuple(hosts)), self.now)
        self._rules: dict[Dpid, RuleSet] = dict.fromkeys(self.fabric.switches, RuleSet())
        self._answers = answers.Answers()
        self._commits = 0
        self.put(*(SwitchConnected(s.dpid, s.name, tuple(s.ports.values())) for s in self.fabric.switches.values()))
        self.put(*(LinkSeen(link.src, link.dst) for link in self.fabric.links.values()))
        self.run(5)

    def _place(self, at: PortRef) -> tuple[str, str]:
        return self.fabric.name(at.dpid), self.fabric.switches[at.dpid].ports[at.port].name

    def put(self, *messages: Message) -> None:
        """Messages that come together, and everything that follows from them."""
        inbox, first = deque(messages), True
        while first or inbox or self.loop.unfinished:
            first, batch = False, list(inbox)
            inbox.clear()
            began = time.thread_time()
            commands = self.loop.handle(batch, self.now)
            self.took_ms.append(1000 * (time.thread_time() - began))
            for command in commands:
                inbox.extend(self._carried_out(command))

    def run(self, seconds: float) -> None:
        for _ in range(round(10 * seconds)):
            self.now += 0.1
            self.put(Tick())

    def _carried_out(self, command: Command) -> Iterable[Message]:
        match command:
            case ReadRules(dpid):
                yield SwitchRules(dpid, self._rules[dpid], 0)
            case InstallStage(change_id, stage):
                self._rules |= {dpid: applied(self._rules[dpid], mods) for dpid, mods in stage.mods.items()}
                self.mods += sum(map(len, stage.mods.values()))
                yield StageDone(change_id, dict.fromkeys(stage.mods, SwitchResult()))
            case SaveState():
                self._commits += 1
                yield StateSaved(self._commits)
            case SolvePlan():
                repaired, problem = self._answers.repair(command)
                planned = self._answers.plan(command, problem)
                levels = self._answers.running(command, problem, planned)
                yield from (answer for answer in (repaired, planned, levels) if answer)
            case WorkOutLevels():
                levels = answers.levels_of(self._answers.repair(command)[1], command.draws)
                yield from (levels,) if levels else ()

    # ---- what happens

    def lose_cable(self, link: Link) -> None:
        """Both of its ends lose their carrier."""
        for at in (link.src, link.dst):
            self.put(PortChanged(at.dpid, self._port(at, up=False)))
        self.run(5)

    def get_back(self, link: Link) -> None:
        for at in (link.src, link.dst):
            self.put(PortChanged(at.dpid, self._port(at, up=True)))
        self.put(LinkSeen(link.src, link.dst), LinkSeen(link.dst, link.src))
        self.run(15)

    def lose_switch(self, dpid: Dpid) -> None:
        """Its neighbours' ports lose their carrier."""
        beside = [link.src for link in self.fabric.links.values() if link.dst.dpid == dpid]
        self.put(SwitchLeft(dpid), *(PortChanged(at.dpid, self._port(at, up=False)) for at in beside))
        self.run(5)

    def _port(self, at: PortRef, up: bool) -> Port:
        return replace(self.fabric.switches[at.dpid].ports[at.port], up=up)

    @property
    def pinned(self) -> int:
        return sum(map(len, self.loop.state.sending.routes.values()))


def measured(size: str, jobs: int, changes: int, seed: int) -> tuple[int, list[Result]]:
    """How many flows are pinned, and each step. Raises ``SignalboxError`` when not all jobs get pinned."""
    fabric = fabric_of(size)
    if len(fabric.hosts) < MOST_HOSTS:
        raise SignalboxError(f"--size: jobs have up to {MOST_HOSTS} hosts, a fabric needs as many (given: {size})")
    with patch.object(target, "plan", dealt_plan), patch.object(answers, "baseline_levels", lambda *_: {}):
        return _measured(Site(fabric), jobs, changes, seed)


def _measured(site: Site, jobs: int, changes: int, seed: int) -> tuple[int, list[Result]]:
    specs, draw = placed_jobs(seed, list(site.fabric.hosts)), random.Random(seed)
    names: list[JobId] = []
    while len(names) < jobs:
        some = [specs() for _ in range(min(BATCH, jobs - len(names)))]
        site.put(*(RegisterJob(spec) for spec in some))
        names += [JobId(spec.job_id) for spec in some]
        site.run(1)
    site.run(30)
    flows, owners = site.pinned, {job.id: job.uid for job in site.loop.state.jobs.jobs.values()}
    if len(site.loop.state.sending.routes) != jobs:
        raise SignalboxError(f"only {len(site.loop.state.sending.routes)} of {jobs} jobs were pinned")

    def come_and_go() -> None:
        for n in range(changes):
            site.now += CHANGE_EVERY_S
            site.put(*(RenewLease(job, owner=owners.get(job)) for job in draw.choices(names, k=RENEWALS)))
            if n % 2:
                leaving = names.pop(draw.randrange(len(names)))
                site.put(DeregisterJob(leaving, owner=site.loop.state.jobs.jobs[leaving].uid), Tick())
            else:
                spec = specs()
                site.put(RegisterJob(spec))
                names.append(JobId(spec.job_id))
        site.run(5)

    cable = next(link for link in site.fabric.links.values() if link.src.dpid < link.dst.dpid)
    steps: dict[str, Callable[[], None]] = {
        f"{changes} changes of jobs": come_and_go,
        "nothing for 20 s": lambda: site.run(20),
        "a cable is lost": lambda: site.lose_cable(cable),
        "it comes back": lambda: site.get_back(cable),
        "a spine leaves": lambda: site.lose_switch(cable.dst.dpid),
    }
    gc.collect()
    gc.freeze()
    gc.disable()  # the controller looks through garbage when it is quiet (serving.garbage)
    results = []
    for step, do in steps.items():
        site.took_ms.clear()
        site.mods = 0
        do()
        spread = Spread.of(site.took_ms)
        assert spread
        times = (sum(site.took_ms), spread.p50, spread.p99, spread.max)
        results.append(Result(step, len(site.took_ms), *times, site.mods))
    gc.enable()
    return flows, results


def main(
    jobs: Annotated[int, typer.Option(help="Pinned ones, rings over 8 to 64 hosts.")] = 1000,
    size: Annotated[str, typer.Option(help="LEAVESxSPINESxHOSTS per leaf.")] = "32x16x32",
    changes: Annotated[int, typer.Option(help="Jobs that come or go.")] = 200,
    seed: Annotated[int, typer.Option(help="Of the jobs.")] = 1,
    as_json: AsJson = False,
) -> None:
    """CPU time of the control loop for what happens among many pinned jobs."""
    flows, results = measured(size, jobs, changes, seed)
    rows = [{name: getattr(result, name) for name in Result.__slots__} for result in results]
    title = f"handling: {jobs:,} jobs, {flows:,} flows pinned on {size}, CPU in milliseconds"
    data = {"jobs": jobs, "flows": flows, "size": size, "steps": rows}
    report(data, RESULTS, lambda: table_of(title, rows), as_json)
