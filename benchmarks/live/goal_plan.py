"""Benchmark ``goal-plan``: planning cycles until routes are good again after a spine has failed, and after its return.

The number of moves per cycle is limited to the default. The goal plan is the plan that the cycles approach. A change
may take ceil(moves to the goal plan / limit) + 1 cycles. Jobs run on the controller's own loop, with switches in
memory. They are a mix with experts and pipelines on oversubscribed leaves (2:1), with whole and with split flows.
Generated jobs, the jobs of a folder, or both are planned as well.

The output is a table, and ``out/bench/goal.json``; ``--json`` prints the JSON instead. The exit status is 1 when a
cycle made the slowdowns worse, or the bound was not reached within the allowed cycles.
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
from controller.fabric.topology import Dpid, Fabric, PortRef
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
from signalbox.commands.output import AsJson
from signalbox.file_forms import job_in
from signalbox.jobs.spec import MAX_LEASE_S, JobSpec

LINK_BPS = 100e9


class Switches:
    """Switches in memory that carry out every command at once. They also answer requests to plan."""

    def __init__(self, fabric: Fabric) -> None:
        self.fabric = fabric
        self.planning = Answers()

    def answers(self, commands: Iterable[Command]) -> Iterator[Message]:
        for command in commands:
            match command:
                case ReadRules(dpid):
                    yield SwitchRules(dpid, RuleSet(), 0)
                case InstallStage(change_id, stage):
                    yield StageDone(change_id, dict.fromkeys(stage.mods, SwitchResult()))
                case SolvePlan():
                    repaired, problem = self.planning.repair(command)
                    if repaired:
                        yield repaired
                    limits = replace(command.limits, ecmp_draws=0)
                    yield self.planning.plan(replace(command, limits=limits), problem)


def declared_hosts(fabric: Fabric) -> Declared:
    """Return the hosts of the fabric, as if an inventory declared them."""
    hosts = (
        DeclaredHost(h.ip, f"02:00:00:00:{n >> 8:02x}:{n & 255:02x}", fabric.name(h.at.dpid), _port_name(fabric, h.at))
        for n, h in enumerate(fabric.hosts.values())
    )
    return Declared(tuple(hosts))


def connections(fabric: Fabric) -> list[Message]:
    """Return the messages that connect all switches, and let a probe pass every link."""
    connected = [SwitchConnected(s.dpid, s.name, tuple(s.ports.values())) for s in fabric.switches.values()]
    return [*connected, *(LinkSeen(link.src, link.dst) for link in fabric.links.values())]


def _port_name(fabric: Fabric, at: PortRef) -> str:
    return fabric.switches[at.dpid].ports[at.port].name


LEAVES, SPINES, HOSTS_PER_LEAF = 64, 32, 32
RING_SIZE = 8
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


class Network(Switches):
    """Control loop with switches in memory, which records the plans."""

    def __init__(self, fabric: Fabric, config: Config) -> None:
        super().__init__(fabric)
        self.planned: list[Planned] = []
        self.running: Sequence[float] = ()
        """Slowdowns under the routes in force, largest first."""
        self.goals: dict[int, GoalPlan] = {}
        self.problem_flows = 0
        self._loop = ControlLoop(config, SavedState(), declared_hosts(fabric), 0.0)
        self._now = 0.0
        self.send(*connections(fabric))
        self.run(START_S)

    def send(self, *messages: Message) -> None:
        left = list(messages)
        while left:
            commands = list(self._loop.handle(left, self._now))
            self.problem_flows = max([self.problem_flows, *map(_flows, commands)])
            left = list(self.answers(commands))
            for answer in left:
                if isinstance(answer, Planned):
                    self.planned.append(answer)
                    self.running = answer.plan.sorted_slowdowns if answer.adopted else self.running
            self.goals |= self.planning.goals

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
    generated: Annotated[
        int, typer.Option(min=0, help="Number of jobs of the generated workload; 0 leaves it out.")
    ] = 5,
    placement: Annotated[
        Placement, typer.Option(help="How generated jobs are placed on hosts.")
    ] = Placement.WHOLE_LEAF,
    max_subflows: Annotated[int, typer.Option(min=1, help="Largest number of subflows of a flow.")] = 2,
    seed: Annotated[int, typer.Option(help="Random seed of the generated workload.")] = 1,
    busy: Annotated[
        bool, typer.Option("--busy", help="Limit the planner's processor time, because other programs use the machine.")
    ] = False,
    out: Annotated[Path, typer.Option(metavar="FILE", help="File for the results.")] = RESULTS,
    as_json: AsJson = False,
) -> None:
    """Let a spine fail and return, and count the planning cycles until the bound is reached."""
    fabric = leaf_spine(LEAVES, SPINES, HOSTS_PER_LEAF, LINK_BPS, LINK_BPS)
    oversubscribed = leaf_spine(16, 8, 16, LINK_BPS, LINK_BPS)
    workloads = [("experts and pipelines", oversubscribed, mix(subflows)) for subflows in (1, max_subflows)]
    if folder:
        jobs = read_workload(folder, fabric, max_subflows)
        workloads.append(("published", fabric, list(map(job_spec, jobs))))
    if generated:
        made = jobs_of(generate(fabric, generated, RING_SIZE, placement, seed), fabric, max_subflows)
        workloads.append((f"generated, seed {seed}", fabric, list(map(job_spec, made))))
    with patch("time.perf_counter", process_time) if busy else nullcontext():
        changes = [change for name, of, jobs in workloads for change in measured(of, name, jobs, Config())]
    data = [
        {**asdict(of), **{name: getattr(of, name) for name in ("cycles", "allowed", "never_worse", "reached")}}
        for of in changes
    ]
    worst = [{**row, "slowdowns": [slowdowns[0] for slowdowns in row["slowdowns"]]} for row in data]
    report(data, out, as_json, {"cycles that a change takes, and worst slowdown after each": worst})
    if not all(of.never_worse and of.reached for of in changes):
        raise typer.Exit(1)
