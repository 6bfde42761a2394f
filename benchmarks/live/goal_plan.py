"""Benchmark ``goal-plan``: planning cycles until routes are good again after a spine has failed, and after its return.

The number of moves per cycle is limited to the default. The goal plan is the plan that the cycles approach. A change
may take ceil(moves to the goal plan / limit) + 1 cycles. Jobs run on the controller's own loop, with switches in
memory. They are a mix with experts and pipelines on oversubscribed leaves (2:1), with whole and with split flows.
Generated jobs and those of a folder, if given, are planned as well.

The output is a table, and ``out/bench/goal.json``. The exit status is 1 when a cycle made the slowdowns worse, or the
bound was not reached within the allowed cycles.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from time import process_time
from typing import Annotated
from unittest.mock import patch

import typer

from benchmarks.fabric.blueprint import job_spec
from benchmarks.measures import report
from controller.config import Config
from controller.control_loop import ControlLoop
from controller.core.messages import Command, Message, Tick
from controller.fabric.messages import LinkSeen, PortChanged, SwitchConnected
from controller.fabric.parts import Declared
from controller.fabric.topology import Dpid, Fabric
from controller.fabric.topology_state import DeclaredHost
from controller.jobs.messages import RegisterJob, SavedState
from controller.planning.answers import Answers
from controller.planning.efficiency import SLOWDOWN_TOLERANCE, first_difference
from controller.planning.messages import SolvePlan
from controller.planning.plan import GoalPlan, Plan, Planned
from controller.tables.messages import InstallStage, ReadRules, StageDone, SwitchResult, SwitchRules
from controller.tables.rules import RuleSet
from offline.scenarios.fabric_options import Placement
from offline.scenarios.fabrics import leaf_spine
from offline.scenarios.generator import generate, jobs_of
from offline.scenarios.workloads import read_workload
from signalbox.file_forms import job_in
from signalbox.jobs.spec import MAX_LEASE_S, JobSpec

LINK_BPS = 100e9
LEAVES, SPINES, HOSTS_PER_LEAF = 64, 32, 32
JOBS, RING_SIZE, MAX_SUBFLOWS = 5, 8, 2
STEP_S = 0.5
START_S = 60.0
MOST_CYCLES = 40
RESULTS = Path("out/bench/goal.json")


@dataclass(frozen=True, slots=True)
class Change:
    """Return or failure of a spine, and the plans that follow."""

    jobs: str
    flows: int
    max_subflows: int
    what: str
    slowdowns: Sequence[Sequence[float]]
    """Slowdowns of all jobs, largest first: after the repair, and after each cycle that moved flows."""
    moves: Sequence[int]
    """Number of flows moved by each cycle that moved any."""
    goal_moves: int
    """Number of moves to the goal plan, when the planner chose it."""
    bound: float
    max_moves: int

    @property
    def cycles(self) -> int:
        return len(self.moves)

    @property
    def allowed(self) -> int:
        return math.ceil(self.goal_moves / self.max_moves) + 1

    @property
    def never_worse(self) -> bool:
        pairs = zip(self.slowdowns, self.slowdowns[1:], strict=False)
        return all((at := first_difference(a, b)) is None or b[at] < a[at] for a, b in pairs)

    @property
    def reached(self) -> bool:
        """Whether the worst slowdown reached its bound within the allowed cycles."""
        return self.slowdowns[-1][0] <= self.bound * (1 + SLOWDOWN_TOLERANCE) and self.cycles <= self.allowed


class Network:
    """Control loop with switches in memory, which carry out every command at once. It records the plans."""

    def __init__(self, fabric: Fabric, config: Config) -> None:
        self.fabric = fabric
        self.planned: list[Planned] = []
        self.running: Sequence[float] = ()
        """Slowdowns under the routes in force, largest first."""
        self.goals: dict[int, GoalPlan] = {}
        self.problem_flows = 0
        self._planning = Answers()
        self._loop = ControlLoop(config, SavedState(), _declared(fabric), 0.0)
        self._now = 0.0
        self.send(
            *(SwitchConnected(s.dpid, s.name, tuple(s.ports.values())) for s in fabric.switches.values()),
            *(LinkSeen(link.src, link.dst) for link in fabric.links.values()),
        )
        self.run(START_S)

    def send(self, *messages: Message) -> None:
        left = list(messages)
        while left:
            commands = list(self._loop.handle(left, self._now))
            self.problem_flows = max([self.problem_flows, *map(_flows, commands)])
            left = list(self._answers(commands))
            for answer in left:
                if isinstance(answer, Planned):
                    self.planned.append(answer)
                    self.running = answer.plan.sorted_slowdowns if answer.adopted else self.running
            self.goals |= self._planning.goals

    def _answers(self, commands: Iterable[Command]) -> Iterator[Message]:
        for command in commands:
            match command:
                case ReadRules(dpid):
                    yield SwitchRules(dpid, RuleSet(), 0)
                case InstallStage(change_id, stage):
                    yield StageDone(change_id, dict.fromkeys(stage.mods, SwitchResult()))
                case SolvePlan():
                    repaired, problem = self._planning.repair(command)
                    if repaired:
                        yield repaired
                    limits = replace(command.limits, ecmp_draws=0)
                    yield self._planning.plan(replace(command, limits=limits), problem)

    def run(self, seconds: float) -> None:
        for _ in range(round(seconds / STEP_S)):
            self._now += STEP_S
            self.send(Tick())

    def set_spine(self, spine: Dpid, up: bool) -> None:
        """Report all ports at the cables of a spine as down, or as up again."""
        messages: list[Message] = []
        for link in self.fabric.links.values():
            if spine in (link.src.dpid, link.dst.dpid):
                port = self.fabric.switches[link.src.dpid].ports[link.src.port]
                messages.append(PortChanged(link.src.dpid, replace(port, up=up)))
        self.send(*messages)
        if up:
            seen = [link for link in self.fabric.links.values() if spine in (link.src.dpid, link.dst.dpid)]
            self.send(*(LinkSeen(link.src, link.dst) for link in seen))


def _declared(fabric: Fabric) -> Declared:
    """Return the hosts of the fabric, as if an inventory declared them."""
    return Declared(
        tuple(
            DeclaredHost(host.ip, f"02:00:00:00:{number >> 8:02x}:{number & 255:02x}", fabric.name(host.at.dpid), port)
            for number, host in enumerate(fabric.hosts.values())
            for port in [fabric.switches[host.at.dpid].ports[host.at.port].name]
        )
    )


def _flows(command: Command) -> int:
    return sum(map(len, command.snapshot.flows.values())) if isinstance(command, SolvePlan) else 0


def mix(max_subflows: int) -> list[JobSpec]:
    """Return two jobs for 16 leaves with 16 hosts: a model with experts, and one with a longer pipeline.

    Each host has one rank. Both jobs have several phases with unequal bytes."""
    experts = {
        "job_id": "experts",
        "hosts": "10.0.0-15.1-8",
        "model": {"preset": "mixtral-8x7b", "global_batch": 512},
        "parallelism": {"pipeline": 4, "data": 32, "expert": 8},
    }
    dense = {
        "job_id": "dense",
        "hosts": "10.0.0-15.9-16",
        "model": "gpt3-175b",
        "parallelism": {"tensor": 2, "pipeline": 8, "data": 8},
    }
    common = {"max_subflows": max_subflows, "lease_s": MAX_LEASE_S}
    return [job_in({**job, **common}) for job in (experts, dense)]


def measured(fabric: Fabric, name: str, jobs: Sequence[JobSpec], config: Config) -> list[Change]:
    """Return the changes that follow when a spine fails, and when it returns."""
    network = Network(fabric, config)
    network.send(*map(RegisterJob, jobs))
    network.run(config.planning.interval_s + 5)
    spine = max(fabric.switches)
    return [
        _changed(network, name, jobs[0].max_subflows, what, spine, up, config)
        for what, up in (("a spine dies", False), ("it returns", True))
    ]


def _changed(
    network: Network, name: str, max_subflows: int, what: str, spine: Dpid, up: bool, config: Config
) -> Change:
    earlier, before = len(network.planned), network.running
    network.set_spine(spine, up)
    for _ in range(MOST_CYCLES):
        network.run(config.planning.interval_s)
        if network.planned[earlier:] and not _moves(network.planned[-1]):
            break
    made = [planned for planned in network.planned[earlier:] if planned.repair or _moves(planned)]
    slowdowns = [_plan(planned).sorted_slowdowns for planned in made]
    first = next((planned for planned in made if not planned.repair), None)
    last = _plan(network.planned[-1])
    goal_moves = (
        0 if first is None else network.goals[first.goal.generation].plan.moves if first.goal else _moves(first)
    )
    return Change(
        jobs=name,
        flows=network.problem_flows,
        max_subflows=max_subflows,
        what=what,
        slowdowns=slowdowns if made and made[0].repair else [before, *slowdowns],
        moves=[_moves(planned) for planned in made if not planned.repair],
        goal_moves=goal_moves,
        bound=last.bound,
        max_moves=config.planning.max_moves,
    )


def _plan(planned: Planned) -> Plan:
    if not isinstance(planned.answer, Plan):
        raise RuntimeError(f"no plan: {planned.answer.reason}")
    return planned.answer


def _moves(planned: Planned) -> int:
    return _plan(planned).moves if planned.adopted and not planned.repair else 0


def main(
    folder: Annotated[
        Path | None, typer.Option("--workloads", metavar="DIR", help="Job files of one published workload.")
    ] = None,
    busy: Annotated[
        bool, typer.Option("--busy", help="Limit the planner's processor time, because other programs use the machine.")
    ] = False,
) -> None:
    """Let a spine fail and return, and count the planning cycles until the bound is reached."""
    fabric = leaf_spine(LEAVES, SPINES, HOSTS_PER_LEAF, LINK_BPS, LINK_BPS)
    oversubscribed = leaf_spine(16, 8, 16, LINK_BPS, LINK_BPS)
    workloads = [("experts and pipelines", oversubscribed, mix(subflows)) for subflows in (1, MAX_SUBFLOWS)]
    if folder:
        jobs = read_workload(folder, fabric, MAX_SUBFLOWS)
        workloads.append(("published", fabric, list(map(job_spec, jobs))))
    made = jobs_of(generate(fabric, JOBS, RING_SIZE, Placement.WHOLE_LEAF, seed=1), fabric, MAX_SUBFLOWS)
    workloads.append(("generated", fabric, list(map(job_spec, made))))
    with patch("time.perf_counter", process_time) if busy else nullcontext():
        changes = [change for name, of, jobs in workloads for change in measured(of, name, jobs, Config())]
    data = [
        {**asdict(of), **{name: getattr(of, name) for name in ("cycles", "allowed", "never_worse", "reached")}}
        for of in changes
    ]
    worst = [{**row, "slowdowns": [slowdowns[0] for slowdowns in row["slowdowns"]]} for row in data]
    report(data, RESULTS, {"cycles that a change takes, and worst slowdown after each": worst})
    if not all(of.never_worse and of.reached for of in changes):
        raise typer.Exit(1)
