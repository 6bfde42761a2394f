"""Random events on a fabric of optical switches: invariants after every single rule change, and when all is quiet."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from dataclasses import replace
from itertools import permutations
from typing import NamedTuple

import networkx as nx
import pytest
from msgspec import structs

from controller.api.convert import job_message
from controller.api.convert_fabric import fabric_message
from controller.circuits.job_wiring import JobWiring, wiring_of
from controller.circuits.optical_switches import PRIORITY, connected_by
from controller.circuits.questions import FindWiring, MendWiring
from controller.circuits.wired_jobs import NOT_KNOWN
from controller.core.messages import Command, Message, Tick, WorkedOut
from controller.fabric.messages import LinkLost, LinkSeen, ProbeAnew
from controller.fabric.topology import Dpid, PortNo, PortRef
from controller.jobs.messages import (
    DeregisterJob,
    RegisterJob,
    ReportIterations,
    SavedState,
    SaveState,
    StateNotSaved,
    UpdateJob,
)
from controller.tables.messages import InstallStage
from controller.tables.rules import FlowKey, Match, Stage, Table
from signalbox.jobs.reports import IterationTime
from signalbox.jobs.spec import JobId, JobSpec
from signalbox.words import AlarmKind
from tests.support.fake_switch import FakeSwitch
from tests.support.optical_fabric import FIRST_OPTICAL, OpticalFabric, all_reduce, answered, config

MOST_STAGES = 100
"""Limit on the stages (groups of rule changes) that the controller sends in one instant of the test's clock."""

SETTLED_S = 100.0
"""Seconds; longer than the wait of a job for the end of an iteration, the pause after a refusal, and a hold-down."""


class Killed(BaseException):
    """End of the controller as by SIGKILL."""


class Before(NamedTuple):
    """State of a job that must not lose packets: its wiring, and the pairs of its servers that its circuits connect."""

    uid: str
    wiring: JobWiring
    pairs: frozenset[tuple[int, int]]


class Fabric(OpticalFabric):
    """Fabric with probes once a second, slow disks, slow optical switches, and broken fibres.

    ``saves_wait``, ``optical_waits``: whether disks and optical switches answer late.
    ``broken``: interfaces whose sending fibre is dark."""

    def __init__(self, servers: int, interfaces: int) -> None:
        super().__init__(servers, interfaces)
        self.saves_wait = self.optical_waits = False
        self.unsaved: list[SaveState] = []
        self.unsent: list[InstallStage] = []
        self.broken: set[PortRef] = set()
        self.heard: dict[PortRef, PortRef] = {}
        self.answered = 0
        self.away: set[Dpid] = set()
        self.stages_at = Counter[float]()

    @property
    def interfaces(self) -> Iterator[PortRef]:
        for dpid in range(1, self.sizes[0] + 1):
            for k in range(self.sizes[1]):
                yield PortRef(Dpid(dpid), PortNo(2 + k))

    def arrives(self, at: PortRef) -> PortRef | None:
        return None if at in self.broken else super().arrives(at)

    def discover(self) -> None:
        for src in self.interfaces:
            dst = self.arrives(src)
            seen = dst if dst and {src.dpid, dst.dpid} <= self._connected else None
            before = self.heard.get(src)
            if before == seen:
                continue
            if before:
                self.heard.pop(src)
                self.send(LinkLost(src, before))
            if seen:
                self.heard[src] = seen
                self.send(LinkSeen(src, seen))

    def forget(self, gone: Callable[[PortRef], bool]) -> None:
        """Forget the links that are gone, as discovery does without ``LinkLost``."""
        self.heard = {src: dst for src, dst in self.heard.items() if not (gone(src) or gone(dst))}

    def probe(self, switch: FakeSwitch) -> None:
        self.forget(lambda at: at.dpid == switch.dpid)
        self.discover()

    def _carry_out(self, command: Command) -> list[Message]:
        match command:
            case ProbeAnew(ports):
                self.heard = {src: dst for src, dst in self.heard.items() if src not in ports}
                found = [seen for at in sorted(ports) for seen in self._seen_from(at)]
                self.heard |= {seen.src: seen.dst for seen in found if isinstance(seen, LinkSeen)}
                return found
            case SaveState() if self.saves_wait:
                self.unsaved.append(command)
                return []
            case InstallStage(change_id) if change_id < 0 and self.optical_waits:
                self.unsent.append(command)
                return []
            case FindWiring() | MendWiring() if not self.wirings_wait:
                self.answered = len(self.asked) + 1
        if isinstance(command, InstallStage):
            assert not command.stage.mods.keys() & self.away, "a message to a switch that is not connected"
            self.stages_at[self.now] += 1
            assert self.stages_at[self.now] < MOST_STAGES, "the controller sends stages without a pause"
        return super()._carry_out(command)

    def deliver_saves(self, error: str = "") -> None:
        waiting, self.unsaved = self.unsaved, []
        for command in waiting:
            for message in [StateNotSaved(error)] if error else super()._carry_out(command):
                self.send(message)

    def deliver_optical(self) -> None:
        waiting, self.unsent = self.unsent, []
        for command in waiting:
            self.send(self._install(command))

    def deliver_wirings(self, why: str = "") -> None:
        waiting, self.answered = self.asked[self.answered :], len(self.asked)
        for asked in waiting:
            self.send(WorkedOut(asked, why) if why else answered(asked))

    def leave(self, dpid: Dpid) -> None:
        self._connected.discard(dpid)
        self.away.add(dpid)
        self.forget(lambda at: at.dpid == dpid)
        kept = [(one, {at: mods for at, mods in one.stage.mods.items() if at != dpid}) for one in self.unsent]
        self.unsent = [replace(one, stage=Stage(one.stage.name, mods)) for one, mods in kept if mods]
        self.lose(dpid)

    def come_back(self, dpid: Dpid, with_rules: bool) -> None:
        if not with_rules:
            self.switches[dpid].forget_rules()
        self.away.discard(dpid)
        self.connect(dpid) if dpid < FIRST_OPTICAL else self.reconnect(dpid)

    def carrier(self, at: PortRef, up: bool) -> None:
        self.set_carrier(at.dpid, at.port, up)
        self.forget(lambda end: end == at)
        self.discover()

    def begin(self) -> None:
        self.unsaved, self.unsent, self.heard, self.answered = [], [], {}, len(self.asked)
        settings = config(*self.sizes)
        discovery = settings.discovery.model_copy(update={"adoption_patience_s": 2.0})
        self.start(settings.model_copy(update={"discovery": discovery}), late=self.away)

    def run(self, seconds: float, step: float = 0.1) -> None:
        for n in range(round(seconds / step)):
            self.now += step
            self.send(Tick())
            if not round(n * step * 10) % 10:
                self.discover()


class Run:
    """Random sequence of events.

    ``stained``: optical switches that may have wrong rules. Another program has changed them, or they refuse rules. The
    set is emptied when the fabric has settled."""

    def __init__(self, seed: int, servers: int = 7, interfaces: int = 3) -> None:
        self.draw = random.Random(seed)
        self.servers = list(range(1, servers + 1))
        self.fabric = Fabric(servers, interfaces)
        self.optical = [Dpid(FIRST_OPTICAL + k) for k in range(interfaces)]
        self.told: list[str] = []
        self.stained: set[Dpid] = set()
        self.before: dict[JobId, Before] = {}
        self.kill_after: int | None = None
        self.jobs = 0
        self.iterations = Counter[JobId]()
        self.fabric.after_each_mod = self.after_each_mod
        self.fabric.order = random.Random(seed)
        self.fabric.begin()
        self.fabric.run(3)

    # ---- invariants

    def after_each_mod(self) -> None:
        for dpid in set(self.optical) - self.stained:
            out = Counter(connected_by(self.fabric.switches[dpid].rules()).values())
            assert max(out.values(), default=1) == 1, f"two circuits end at one port of {dpid:#x}"
        self.check_pairs()
        if self.kill_after is not None:
            self.kill_after -= 1
            if self.kill_after < 0:
                raise Killed

    def check_pairs(self) -> None:
        jobs = self.fabric.loop.state.jobs.jobs
        for job_id, before in self.before.items():
            job = jobs.get(job_id)
            if job is None or job.uid != before.uid or wiring_of(job.registration) != before.wiring:
                continue
            for src, dst in before.pairs:
                for entropy in range(2):
                    path = self.fabric.trace(ip(src), ip(dst), entropy)
                    assert path is not None, f"{job_id}: {src} does not reach {dst}"

    def note(self) -> None:
        """Record the jobs that must not lose packets because of the next event."""
        self.before = {}
        if not self.fabric.away.isdisjoint(map(Dpid, self.servers)):
            return  # the controller gives up a disconnected server, so packets may be lost
        made = {
            PortRef(Dpid(s), PortNo(p)): PortRef(Dpid(d), PortNo(q)) for (s, p), (d, q) in self.fabric.circuits.items()
        }
        for job in self.fabric.loop.state.jobs.jobs.values():
            wiring = wiring_of(job.registration)
            if wiring:
                edges = [(int(src.dpid), int(dst.dpid)) for src, dst in wiring.circuits if made.get(src) == dst]
                connected = nx.transitive_closure(nx.DiGraph(edges)).edges
                pairs = frozenset(pair for pair in connected if pair[0] != pair[1] and self.reaches(*pair))
                self.before[job.id] = Before(job.uid, wiring, pairs)

    def reaches(self, src: int, dst: int) -> bool:
        """Return whether packets from ``src`` arrive at ``dst``; circuits of other programs may make packets loop."""
        with suppress(AssertionError) if self.stained else nullcontext():
            return all(self.fabric.trace(ip(src), ip(dst), entropy) is not None for entropy in range(2))
        return False

    def messages(self) -> None:
        status = self.fabric.status
        fabric_message(status)
        for job_id, job in status.jobs.items():
            job_message(job, self.fabric.now, status.demands.get(job_id), with_pairs=True)

    # ---- events

    def step(self) -> None:
        steps: list[tuple[int, Callable[[], str | None]]] = [
            (12, self.register),
            (6, self.deregister),
            (4, self.update),
            (12, self.wait),
            (4, self.cut),
            (4, self.plug),
            (3, self.break_fibre),
            (3, self.leave),
            (4, self.come_back),
            (2, self.foreign),
            (2, self.refuse),
            (4, self.report),
            (4, self.late),
            (10, self.deliver),
            (2, self.restart),
            (2, self.kill),
            (1, self.lose_state),
        ]
        what = self.draw.choices([step for _, step in steps], [weight for weight, _ in steps])[0]
        self.attempt(what)
        if self.draw.random() < 0.5:
            self.attempt(self.short_wait)
        self.check_pairs()
        self.messages()

    def attempt(self, what: Callable[[], str | None]) -> None:
        self.note()
        self.told.append(what.__name__)
        try:
            self.told[-1] += f" {what()}"
        except Killed:
            self.kill_after, self.before = None, {}
            self.told.append("killed")
            self.fabric.begin()

    def spec(self, job_id: str) -> JobSpec:
        servers = self.draw.sample(self.servers, self.draw.randint(2, len(self.servers) - 1))
        more: dict[str, object] = {"lease_s": self.draw.choice([15.0, 3600.0, 3600.0, 3600.0])}
        kind = self.draw.random()
        if kind < 0.1:
            ends = [ip(server) for server in servers]
            return JobSpec.parse({"job_id": job_id, "endpoints": ends, "groups": [], **more})
        sent = self.draw.choice([0, 0, 100_000, 2_000_000])
        spec = all_reduce(job_id, servers, sent, **more)
        if kind < 0.3:
            other = all_reduce(job_id, servers, 500_000)
            given = spec.model_dump(mode="json", exclude_unset=True)
            whole = {key: given.pop(key) for key in ("groups", "collectives")}
            second = {key: other.model_dump(mode="json", exclude_unset=True)[key] for key in whole}
            parallelizations = [{"name": "first", **whole}, {"name": "second", **second}]
            return JobSpec.parse({**given, "parallelizations": parallelizations})
        return spec

    def register(self) -> str:
        self.jobs += 1
        spec = self.spec(f"job{self.jobs}")
        message = RegisterJob(spec, registered_at=float(self.jobs))
        self.fabric.send(message)
        return f"{spec.job_id} {spec.endpoints}"

    def some_job(self) -> JobId | None:
        jobs = sorted(self.fabric.loop.state.jobs.jobs)
        return self.draw.choice(jobs) if jobs else None

    def deregister(self) -> str | None:
        if job_id := self.some_job():
            self.fabric.send(DeregisterJob(job_id))
        return job_id

    def update(self) -> str | None:
        if job_id := self.some_job():
            spec = self.fabric.loop.state.jobs.jobs[job_id].spec
            if self.draw.random() < 0.5:
                changed = spec.model_copy(update={"lease_s": self.draw.choice([30.0, 3600.0])})
            else:
                changed = self.spec(job_id)
            self.before.pop(job_id, None)
            self.fabric.send(UpdateJob(changed))
            return f"{job_id} {changed.endpoints}"
        return None

    def short_wait(self) -> None:
        self.fabric.run(0.3)

    def wait(self) -> str:
        seconds = self.draw.choice([0.1, 0.3, 1.0, 3.0, 7.0])
        self.fabric.run(seconds)
        return str(seconds)

    def cut(self) -> str:
        self.before = {}
        at = self.draw.choice(list(self.fabric.interfaces))
        self.fabric.carrier(at, up=False)
        return str(at)

    def plug(self) -> str | None:
        down = [at for at in self.fabric.interfaces if not self.fabric.switches[at.dpid].up[at.port]]
        if down:
            at = self.draw.choice(down)
            self.fabric.carrier(at, up=True)
            return str(at)
        self.fabric.broken.clear()
        return None

    def break_fibre(self) -> str:
        self.before = {}
        at = self.draw.choice(list(self.fabric.interfaces))
        self.fabric.broken.add(at)
        self.fabric.discover()
        return str(at)

    def leave(self) -> str | None:
        self.before = {}
        there = sorted({*self.optical, *map(Dpid, self.servers)} - self.fabric.away)
        dpid = self.draw.choice(there)
        self.fabric.leave(dpid)
        return f"{dpid:#x}"

    def come_back(self) -> str | None:
        if not self.fabric.away:
            return None
        dpid, with_rules = self.draw.choice(sorted(self.fabric.away)), self.draw.random() < 0.5
        if not with_rules:
            self.before = {}
        self.fabric.come_back(dpid, with_rules)
        return f"{dpid:#x} {with_rules}"

    def foreign(self) -> str | None:
        dpid = self.draw.choice(self.optical)
        switch = self.fabric.switches[dpid]
        keys = sorted(switch.flows, key=str)
        if not keys:
            return None
        self.stained.add(dpid)
        self.before = {}
        flows = dict(switch.flows)
        if len(keys) > 1 and self.draw.random() < 0.5:
            one, two = self.draw.sample(keys, 2)
            for here, there in ((one, two), (two, one)):
                flows[here] = structs.replace(flows[here], actions=switch.flows[there].actions)
        else:
            del flows[self.draw.choice(keys)]
        switch.flows = flows
        switch._possible.clear()
        self.fabric.discover()
        return f"{dpid:#x}"

    def refuse(self) -> str:
        dpid = self.draw.choice(self.optical)
        refuses = self.fabric.switches[dpid].refuses
        if refuses:
            refuses.clear()
        else:
            at = PortNo(self.draw.choice(self.servers))
            refuses.add(FlowKey(Table.CONTROL, PRIORITY, Match(in_port=at)))
            self.stained.add(dpid)  # a deletion may be refused, too
        return f"{dpid:#x}"

    def report(self) -> str | None:
        if job_id := self.some_job():
            self.iterations[job_id] += 1
            self.fabric.send(ReportIterations(job_id, (IterationTime(self.iterations[job_id], 1.0, 1.0),)))
        return job_id

    def late(self) -> str:
        self.fabric.saves_wait = self.draw.random() < 0.2
        self.fabric.wirings_wait = self.draw.random() < 0.2
        self.fabric.optical_waits = self.draw.random() < 0.2
        return f"{self.fabric.saves_wait} {self.fabric.wirings_wait} {self.fabric.optical_waits}"

    def deliver(self) -> str:
        what = self.draw.choice(["saves", "no saves", "wirings", "no wirings", "optical"])
        match what:
            case "saves":
                self.fabric.deliver_saves()
            case "no saves":
                self.before = {}
                self.fabric.deliver_saves("full")
            case "wirings":
                self.fabric.deliver_wirings()
            case "no wirings":
                self.fabric.deliver_wirings("the process has ended")
            case "optical":
                self.fabric.deliver_optical()
        return what

    def restart(self) -> None:
        self.fabric.begin()

    def kill(self) -> str:
        self.kill_after = self.draw.randint(0, 30)
        return str(self.kill_after)

    def lose_state(self) -> None:
        self.before = {}
        self.fabric.saved = SavedState()
        self.fabric.begin()

    # ---- when all is quiet

    def settle(self) -> None:
        """Repair everything, and let nothing fail any more."""
        self.kill_after, self.before = None, {}
        fabric = self.fabric
        fabric.saves_wait = fabric.wirings_wait = fabric.optical_waits = False
        for _ in range(5):
            fabric.deliver_saves()
            fabric.deliver_wirings()
            fabric.deliver_optical()
        for dpid in self.optical:
            fabric.switches[dpid].refuses.clear()
        fabric.broken.clear()
        for dpid in sorted(fabric.away):
            fabric.come_back(dpid, with_rules=True)
        for at in fabric.interfaces:
            if not fabric.switches[at.dpid].up[at.port]:
                fabric.carrier(at, up=True)
        fabric.run(SETTLED_S, step=0.5)
        self.stained.clear()
        self.check_quiet()

    def check_quiet(self) -> None:
        fabric, state = self.fabric, self.fabric.loop.state
        extension = fabric.extension
        assert extension.optical.change is None
        assert extension.wirings.asked is None
        assert not extension.optical.missing
        self.after_each_mod()
        status = fabric.status
        jobs = state.jobs.jobs
        circuits = fabric.circuits
        of_server: dict[int, str] = {}
        for job in jobs.values():
            wiring = wiring_of(job.registration)
            for src, dst in wiring.circuits if wiring else ():
                made = circuits.get((src.dpid, src.port))
                assert made == (dst.dpid, dst.port), f"{job.id}: {src} > {dst} is not made"
                of_server |= {src.dpid: job.id, dst.dpid: job.id}
        waits = dict(of_server)
        for job_id, told in sorted(status.jobs.items(), key=lambda each: each[1].registration.registered_at):
            servers = [int(end.split(".")[2]) for end in told.registration.spec.endpoints]
            if wiring_of(told.registration):
                assert (told.state, told.waiting) == ("pinned", ""), f"{job_id}: {told.state} {told.waiting}"
                assert all(self.reaches(*pair) for pair in permutations(servers, 2)), f"{job_id} is not connected"
            elif told.waiting.startswith("waits for servers that other jobs use: "):
                others = told.waiting.removeprefix("waits for servers that other jobs use: ").split(", ")
                assert {waits.get(server) for server in servers} >= set(others), f"{job_id}: {told.waiting}"
                waits = dict.fromkeys(servers, job_id) | waits
            else:
                expected = ("one switch with", NOT_KNOWN, "cannot announce")
                assert any(each in told.waiting for each in expected), f"{job_id}: {told.state} {told.waiting!r}"
        for src, dst in extension.fibres.silent:
            there = (src.dpid, src.port) in circuits, (dst.dpid, dst.port) in circuits.values()
            assert not all(there), f"{src} > {dst} was silent, and nothing says that of it now"
        silent = {(AlarmKind.INTERFACE_DARK, f"server{src.dpid}:{src.port}") for src, _ in extension.fibres.silent}
        idle = {AlarmKind.COUNTERS_STALE}
        alarms = [alarm for key, alarm in status.alarms.items() if alarm.kind not in idle and key not in silent]
        assert not alarms, [str(alarm) for alarm in alarms]


def ip(server: int) -> str:
    return f"10.0.{server}.1"


SEEDS = [0, 12, 132, 145, 958]
"""Seeds of every run.

In seed 12, an optical switch refuses both the deletion and the addition of a cross-connect. In seeds 132 and 145,
probes arrive by a circuit of no job before its optical switch is read. In seed 958, two interfaces fail one after the
other."""

LONG_SEEDS = [pytest.param(n, marks=pytest.mark.long) for n in range(31) if n not in SEEDS]


@pytest.mark.parametrize("seed", [*SEEDS, *LONG_SEEDS])
def test_whatever_happens(seed: int) -> None:
    run = Run(seed)
    try:
        for _ in range(2):
            for _ in range(25):
                run.step()
            run.told.append("settle")
            run.settle()
    except BaseException as error:
        error.add_note(f"seed {seed}: " + "\n".join(run.told))
        raise
