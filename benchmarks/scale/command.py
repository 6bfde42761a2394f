"""Benchmark ``scale``: times and cost of several controllers that divide a large fabric of fake switches.

    .venv/bin/python -m benchmarks scale [--leaves L --spines S --hosts-per-leaf H --jobs J --members M]

Everything runs on this machine, with the state in etcd and without TLS. With ``--members 0`` a single controller has
its state in SQLite, and controls all switches. The steps are

1. All switches connect to all members. 2. Nothing happens. 3. All jobs register, each at one of the members. 4. Nothing
happens. 5. Cables are cut, one after the other. 6. With ``--take-over``, the leader is killed.

A row has the times of a step in seconds, and the number of confirmed changes by kind. Another table has the CPU time
and memory of each process in each step.
"""

import multiprocessing
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from ipaddress import IPv4Address
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.fabric.blueprint import Blueprint, Cable
from benchmarks.measures import Row, Spread, Usage, report, usage_by_part
from benchmarks.scale.switches import serve
from mininet_topos.controller_process import ControllerProcess, Settings
from mininet_topos.lab.record import wait_for
from mininet_topos.trainer.training import announcement
from offline.scenarios.fabrics import leaf_spine
from signalbox.client import Client
from signalbox.commands.output import waiting
from signalbox.errors import SignalboxError
from signalbox.jobs.spec import MAX_LEASE_S, Algorithm, JobSpec
from tests.support.wire.etcd import running_etcd

RESULTS = Path("out/bench/scale.json")
LINK_BPS = 100e9
RING = 16
"""Number of hosts of a job, at most."""
QUIET_S = 2.0
"""Seconds without a confirmed change, after which a step is complete."""
POLL_S, PATIENCE_S = 0.25, 1800.0
CALLERS = 8


@dataclass
class Run:
    """Running members, the first of which leads, and the figures so far.

    ``tell``: function that shows the current step."""

    blueprint: Blueprint
    tell: Callable[[str], None]
    members: list[ControllerProcess] = field(default_factory=list)
    clients: list[Client] = field(default_factory=list)
    others: dict[str, int] = field(default_factory=dict)
    """Process ids of etcd and of the switches, by name."""
    steps: list[dict[str, Any]] = field(default_factory=list)
    processes: list[Row] = field(default_factory=list)
    cut: int = 0
    """Number of cables that were cut so far."""
    stop_switches: Callable[[], None] = lambda: None

    def start_switches(self) -> None:
        processes = multiprocessing.get_context("spawn")
        self._pipe, theirs = processes.Pipe()
        ports = [member.openflow_port for member in self.members]
        process = processes.Process(target=serve, args=(self.blueprint, ports, theirs), daemon=True)
        process.start()
        self.others["switches"] = process.pid or 0
        self.stop_switches = process.kill

    def ask(self, *call: object) -> Any:
        """Return the result of a method of ``switches.Site``, given by its name and arguments."""
        self._pipe.send(call)
        return self._pipe.recv()

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        self.tell(f"waiting for {what}")

        def holds() -> bool:
            for member in self.members:
                member.check()
            with suppress(SignalboxError):
                return condition()
            return False

        wait_for(holds, what, PATIENCE_S, POLL_S)

    def is_settled(self) -> bool:
        """Return whether the leader knows all switches and links, and the members together control all switches."""
        now, fabric = self.clients[0].get_status(), self.blueprint.fabric
        members = self.clients[0].list_members()
        number, links = len(fabric.switches), len(fabric.links) - 2 * self.cut
        known = (now.links, now.switches, now.switches_in_sync, now.adopting) == (links, number, number, False)
        held = [member.switches for member in members if member.switches] if members else [number]
        return known and len(held) == len(self.clients) and sum(held) == self.ask("held") == number

    def wait_quiet(self, kind: str = "") -> Mapping[str, float]:
        """Wait until no change was confirmed for ``QUIET_S``. Returns the time of the latest change of each kind.

        If ``kind`` is given, the wait begins with the first confirmed change of this kind."""
        found: dict[str, float] = {}

        def is_quiet() -> bool:
            found.update(self.ask("changes")[1])
            return max(found.values(), default=0.0) < time.monotonic() - QUIET_S and kind in ("", *found)

        self.wait(is_quiet, f"the last {kind or 'change'}")
        return found

    def step(self, name: str, body: Callable[[], Mapping[str, object] | None]) -> None:
        """Run a step: add a row with the figures that ``body`` returns, and a row for each process."""
        self.tell(name)
        if "switches" in self.others:
            self.ask("begin")
        before, since = self._usage(), time.monotonic()
        found, passed_s = body() or {}, time.monotonic() - since
        self.steps.append({"step": name, **found, "changes": self.ask("changes")[0]})
        for process, now in self._usage().items():
            cpu_s = now.cpu_s - before.get(process, Usage()).cpu_s
            cost = {"CPU s": cpu_s, "CPU %": 100 * cpu_s / passed_s}
            self.processes.append({"step": name, "process": process, **cost, "peak MiB": now.peak_bytes >> 20})

    def _usage(self) -> Mapping[str, Usage]:
        parts = {name: usage_by_part(pid)["loop"] for name, pid in self.others.items()}
        for member in self.members:
            found = usage_by_part(member.process.pid) if member.process else {}
            parts |= {f"{member.folder.name} {part}": used for part, used in found.items()}
        return parts


# ---- steps


def measure(
    run: Run,
    jobs: Sequence[JobSpec],
    idle_s: float,
    cuts: int,
    seed: int,
    take_over: bool = False,
    callers: int = CALLERS,
) -> None:
    run.step("discovery", lambda: _discover(run))
    run.step("idle", lambda: time.sleep(idle_s))
    run.step("registration", lambda: _register(run, jobs, callers))
    run.step("idle with jobs", lambda: time.sleep(idle_s))
    run.step("repair", lambda: _repair(run, random.Random(seed).sample(run.blueprint.cables, cuts)))
    if take_over:
        began = run.ask("begin")
        run.members.pop(0).kill()
        run.clients.pop(0)
        run.step("take-over", lambda: _settle(run, began))


def _discover(run: Run) -> Mapping[str, object]:
    run.start_switches()
    return _settle(run, run.ask("begin"))


def _settle(run: Run, began: float) -> Mapping[str, object]:
    run.wait(run.is_settled, "the whole fabric")
    settled_s = time.monotonic() - began
    run.wait_quiet()
    return {"settled_s": settled_s}


def _register(run: Run, jobs: Sequence[JobSpec], callers: int) -> Mapping[str, object]:
    """Register the jobs, and return the number of flows and the times in seconds.

    ``answered_s``, ``all_pinned_s``: time from the first call until all calls were answered, and until all pins were
    confirmed. ``answer_s``, ``pinned_s``: time from a job's call until it was answered, and until the job's pins were
    confirmed. ``without_pin``: flows without a pin."""
    flows = [_flows(run.blueprint, job) for job in jobs]

    def register(numbered: tuple[int, JobSpec]) -> tuple[float, float]:
        number, job = numbered
        began = time.monotonic()
        run.clients[number % len(run.clients)].register_job(job)
        return began, time.monotonic() - began

    first = run.ask("begin")
    with ThreadPoolExecutor(callers) as pool:
        calls = list(pool.map(register, enumerate(jobs)))
    answered_s = time.monotonic() - first
    run.wait(lambda: run.clients[0].get_status().jobs_unplanned == 0, "plans of all jobs")
    run.wait_quiet("pin")
    at = {(match[14:18], match[22:26]): when for match, when in run.ask("pins").items()}
    lasts = [max((at.get(flow, 0.0) for flow in of), default=0.0) for of in flows]
    spreads = {
        "answer_s": Spread.of([took for _, took in calls]),
        "pinned_s": Spread.of([max(last - began, 0.0) for last, (began, _) in zip(lasts, calls, strict=True)]),
    }
    missing = sum(flow not in at for of_job in flows for flow in of_job)
    times = {"answered_s": answered_s, "all_pinned_s": max(lasts) - first}
    of_calls = {name: asdict(spread) for name, spread in spreads.items() if spread}
    return {"flows": sum(map(len, flows)), "without_pin": missing, **times, **of_calls}


def _repair(run: Run, cables: Sequence[Cable]) -> Mapping[str, object]:
    """Cut cables one after the other, and return the times in seconds.

    ``narrowed group_s``: time from a cut until no group uses the cable. ``pin_s``: time until the last pin has
    moved, for cuts after which a pin moved."""
    spreads: dict[str, list[float]] = {"narrowed group": [], "pin": []}
    for cable in cables:
        run.ask("begin")
        began, run.cut = run.ask("cut", cable), run.cut + 1
        last = run.wait_quiet("narrowed group")
        for kind in last.keys() & spreads:
            spreads[kind].append(last[kind] - began)
    return {f"{kind}_s": asdict(found) for kind, times in spreads.items() if (found := Spread.of(times))}


def _flows(blueprint: Blueprint, job: JobSpec) -> list[tuple[bytes, bytes]]:
    """Return the addresses (source, destination) in bytes of the flows of a ring that cross leaves."""
    ring, hosts = job.endpoints, blueprint.fabric.hosts
    pairs = [(a, b) for a, b in zip(ring, ring[1:] + ring[:1], strict=True) if hosts[a].at.dpid != hosts[b].at.dpid]
    return [(IPv4Address(a).packed, IPv4Address(b).packed) for a, b in pairs]


# ---- command


def ring_jobs(blueprint: Blueprint, count: int, seed: int) -> list[JobSpec]:
    """Return ``count`` jobs, each a ring of random hosts. No host is in two jobs."""
    size = min(RING, len(blueprint.fabric.hosts) // count)
    drawn = random.Random(seed).sample(list(blueprint.fabric.hosts), size * count)
    rings = [drawn[first : first + size] for first in range(0, len(drawn), size)]
    return [
        announcement(f"scale-{number}", ring, Algorithm.RING_ALL_REDUCE, 1 << 30, MAX_LEASE_S)
        for number, ring in enumerate(rings)
    ]


@contextmanager
def running(
    blueprint: Blueprint, members: int, interval_s: float, folder: Path, tell: Callable[[str], None]
) -> Iterator[Run]:
    """Run etcd and the members while the block runs. The switches are not started.

    ``members``: 0 for a single controller with SQLite. ``interval_s``: seconds between two reads of counters; rates
    are averaged over three intervals."""
    (inventory := folder / "inventory.toml").write_text(blueprint.inventory())
    ports = sum(len(switch.ports) + 1 for switch in blueprint.fabric.switches.values())
    run = Run(blueprint, tell)
    with ExitStack() as stack:
        etcd = stack.enter_context(running_etcd(folder / "etcd")) if members else None
        if etcd:
            run.others["etcd"] = etcd.pid
        for number in range(max(1, members)):
            settings: Settings = {
                **blueprint.settings(inventory),
                "openflow": {"max_ports": ports, "max_address_connections": 4096},
                "counters": {"interval_s": interval_s, "window_s": 3 * interval_s},
            }
            if etcd:
                member = ControllerProcess.member(folder / f"member{number}", etcd.endpoint, settings)
            else:
                (folder / "alone").mkdir()
                member = ControllerProcess(folder / "alone", settings=settings)
            stack.callback(member.kill)
            member.start(*(("--standby",) if number else ()))
            run.members.append(member)
            run.clients.append(stack.enter_context(Client(member.address)))
            run.wait(lambda: len(run.clients[-1].list_members()) == min(members, len(run.clients)), member.folder.name)
        try:
            yield run
        finally:
            run.stop_switches()


def main(
    leaves: Annotated[int, typer.Option(min=2, help="Number of leaves.")] = 32,
    spines: Annotated[int, typer.Option(min=2, help="Number of spines.")] = 16,
    hosts_per_leaf: Annotated[int, typer.Option(min=1, help="Number of hosts on every leaf.")] = 16,
    jobs: Annotated[int, typer.Option(min=1, help="Number of jobs, each with a ring of up to 16 hosts.")] = 32,
    members: Annotated[int, typer.Option(min=0, help="Number of members; 0: a single controller with SQLite.")] = 4,
    interval_s: Annotated[float, typer.Option(min=0.1, metavar="S", help="Seconds between reads of counters.")] = 2.0,
    idle_s: Annotated[float, typer.Option(min=1, metavar="S", help="Seconds of each of the two idle steps.")] = 20.0,
    cuts: Annotated[int, typer.Option(min=1, help="Number of cables to cut, one after the other.")] = 10,
    callers: Annotated[int, typer.Option(min=1, help="Number of jobs that register at the same time.")] = CALLERS,
    take_over: Annotated[bool, typer.Option("--take-over", help="Kill the leader at the end.")] = False,
    seed: Annotated[int, typer.Option(help="Random seed of jobs and cuts.")] = 1,
    out: Annotated[Path, typer.Option(metavar="FILE", help="File for the figures, in JSON.")] = RESULTS,
) -> None:
    """Divide a large fabric of fake switches among several controllers: discovery, pins, repair, cost."""
    if take_over and members < 2:
        raise typer.BadParameter("needs two members or more", param_hint="--take-over")
    blueprint = Blueprint(leaf_spine(leaves, spines, hosts_per_leaf, LINK_BPS, LINK_BPS), "")
    with (
        tempfile.TemporaryDirectory(prefix="signalbox-scale-") as name,
        waiting("") as status,
        running(blueprint, members, interval_s, Path(name), status.update) as run,
    ):
        measure(run, ring_jobs(blueprint, jobs, seed), idle_s, cuts, seed, take_over, callers)
    tables: Mapping[str, Sequence[Row]] = {"steps": run.steps, "processes": run.processes}
    report(tables, out, tables)
