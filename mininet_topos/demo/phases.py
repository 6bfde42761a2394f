"""Phases of the demo, on a running lab with a running controller.

Three rings train under ECMP, then on planned paths without a restart. Each ring has four ranks, one on every leaf. A
cable that carries traffic of the rings is cut under load and plugged in again. Then the idle hosts send unannounced
traffic. The result is the start of each phase, and the controller's reports.
"""

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.table import Table

from mininet_topos import ending
from mininet_topos.demo.parts import (
    POLL_S,
    START_TIMEOUT_S,
    DemoError,
    RouteWatch,
    Training,
    TrainingJob,
    rings_and_idle,
)
from mininet_topos.demo.report import (
    Moments,
    Observed,
    PlanFacts,
    ideal_ring_iteration_s,
)
from mininet_topos.lab.lab import Lab
from mininet_topos.lab.record import LabError, wait_for
from offline.scenarios.topologies import Host
from signalbox.client import Client
from signalbox.commands.programs import of_client
from signalbox.errors import SignalboxError
from signalbox.files import write
from signalbox.mapping import seconds, word_in
from signalbox.words import Mode

REPORT = "report.html"
"""Name of the file, in the folder of the results, with the report of ``signalbox report``."""

LEAVES = SPINES = HOSTS_PER_LEAF = 4
RATE_BPS = 5e6
JOBS = 3
ELEMENTS = 120_000
"""Elements of a vector of M = 480 kB, for an ideal iteration of 1.23 s."""

DISCOVERY_TIMEOUT_S = 30.0
ECMP_S = PLANNED_S = 40.0
CUT_S = REPLUG_S = 20.0
UNANNOUNCED_S = 35.0
"""Seconds of unannounced traffic, extended until the routes have not changed for ``SETTLED_S``, up to
``MAX_UNANNOUNCED_S``."""
SETTLED_S = 12.0
MAX_UNANNOUNCED_S = 60.0
PLAIN_PROGRESS_S = 10.0
TICK_S = 0.5


class Progress:
    """Output during the demo: a line per event, with a live table below.

    Without a terminal there is a line every ``PLAIN_PROGRESS_S`` seconds instead of the table."""

    def __init__(self, console: Console, training: Training, client: Client, ideal_s: float) -> None:
        self._console = console
        self._training = training
        self._client = client
        self._ideal_s = ideal_s
        self._live: Live | None = None
        self._plain_phase = ""
        self._plain_at = 0.0

    @contextmanager
    def shown(self) -> Iterator[None]:
        if not self._console.is_terminal:
            yield
            return
        with Live(console=self._console, auto_refresh=False, transient=True) as self._live:
            yield

    def say(self, text: str) -> None:
        self._console.print(text, soft_wrap=True, highlight=False)

    def tick(self, phase: str, elapsed_s: float, length_s: float) -> None:
        """Read the trainers' files and show the iterations. Raises ``DemoError`` when a trainer has ended."""
        self._training.read_new_lines()
        if self._live:
            self._live.update(self._table(phase, elapsed_s, length_s), refresh=True)
        elif phase != self._plain_phase:  # the latest iterations still belong to the previous phase
            self._plain_phase, self._plain_at = phase, time.monotonic()
        elif time.monotonic() - self._plain_at >= PLAIN_PROGRESS_S:
            self._plain_at = time.monotonic()
            jobs = ", ".join(f"{job} {took:.2f} s" for job, (_, took) in self._training.latest().items())
            self._console.print(f"  {phase}, {elapsed_s:.0f} of {length_s:.0f} s: {jobs}", highlight=False)

    def _table(self, phase: str, elapsed_s: float, length_s: float) -> Table:
        table = Table(
            "job", "iterations", "latest, s", "x ideal", title=f"{phase}: {elapsed_s:.0f} of {length_s:.0f} s"
        )
        for job_id, (count, took) in self._training.latest().items():
            table.add_row(job_id, str(count), f"{took:.2f}", f"{took / self._ideal_s:.2f}")
        try:
            status = self._client.get_status()
            table.caption = f"{status.links} links, {status.pins} pins, {status.rules} rules"
        except SignalboxError as error:
            table.caption = str(error)
        return table


def cable_under_load(paths: Mapping[tuple[str, str], Sequence[str]]) -> tuple[str, str]:
    """Return the (leaf, spine) cable with the most pinned flows, preferring cables with flows in both directions.

    Raises ``DemoError`` when nothing is pinned."""
    flows = Counter(hop for path in paths.values() for hop in pairwise(path))
    cables = {(a, b) if a.startswith("leaf") else (b, a) for a, b in flows}
    if not cables:
        raise DemoError("no flow is pinned, so there is no cable to cut")
    return max(
        sorted(cables),
        key=lambda c: (flows[c] > 0 and flows[c[::-1]] > 0, flows[c] + flows[c[::-1]]),
    )


def ring_jobs(lab: Lab) -> list[TrainingJob]:
    """Return the jobs: job k is a ring of the k-th host of every leaf; the last host of each leaf stays idle."""
    rings, _ = rings_and_idle(lab.hosts)
    return [TrainingJob(f"ring{number}", hosts) for number, hosts in enumerate(rings, start=1)]


class Demo:
    """Single run of the demo on a running lab. ``api``: address of the running controller."""

    def __init__(self, lab: Lab, client: Client, api: str, scratch: Path, out: Path, console: Console) -> None:
        self.lab = lab
        self.client = client
        self.scratch = scratch
        self.out = out
        self.ideal_s = ideal_ring_iteration_s(LEAVES, ELEMENTS, RATE_BPS)
        self.api = api
        self.jobs = ring_jobs(lab)
        self.training = Training(lab, self.jobs, ELEMENTS, self.api, scratch / "ports", out / "raw")
        self.progress = Progress(console, self.training, client, self.ideal_s)

    def run(self) -> tuple[Moments, Observed]:
        """Run all phases.

        Raises ``DemoError`` when a part fails, ``SignalboxError`` when a call of the controller fails."""
        links = self.discover()
        with RouteWatch(self.api, [job.job_id for job in self.jobs]) as watch, self.progress.shown():
            moments, observed = self._phases(watch, links)
        write(self.out / REPORT, of_client(self.client).encode())  # while the jobs are registered
        self.training.stop()
        return moments, observed

    def discover(self) -> int:
        """Wait for every link, and return how many were found.

        With fewer than expected the demo continues and says so."""
        expected = 2 * LEAVES * SPINES
        self.lab.wait_connected()
        try:
            wait_for(lambda: self.client.get_status().links >= expected, "all links", DISCOVERY_TIMEOUT_S, POLL_S)
        except LabError:
            self.progress.say("[yellow]not all links were discovered in time[/yellow]")
        links = self.client.get_status().links
        self.progress.say(f"fabric: {self.lab.datapath} datapath, {links} of {expected} links discovered over LLDP")
        return links

    def _phases(self, watch: RouteWatch, links: int) -> tuple[Moments, Observed]:
        training = self._start_training()
        self._wait("ECMP", ECMP_S)
        planning, planned, plan = self._switch_to_planned()
        self._wait("planned", PLANNED_S)

        cable = cable_under_load({ends: p for c in watch.in_force().values() for ends, p in c.paths.items()})
        cut = self._do(f"{cable[0]}-{cable[1]} is cut", lambda: self.lab.cut(*cable))
        self._wait("cable cut", CUT_S)
        replug = self._do("plugged in again", lambda: self.lab.plug(*cable))
        self._wait("plugged in again", REPLUG_S)
        unannounced = self._do("the idle hosts send unannounced traffic", self._start_sources)
        self._wait("unannounced traffic", UNANNOUNCED_S, lambda: self._settled(watch, unannounced))

        return Moments(training, planning, planned, cut, replug, unannounced, time.monotonic()), Observed(
            datapath=self.lab.datapath,
            ideal_iteration_s=self.ideal_s,
            links_discovered=links,
            links_expected=2 * LEAVES * SPINES,
            plan=plan,
            cable=cable,
            leaf_of={host.ip: host.leaf for host in self.lab.hosts},
            routes=tuple(watch.changes),
            alarms=tuple(alarm.text for alarm in self.client.get_status().alarms),
        )

    def _switch_to_planned(self) -> tuple[float, float, PlanFacts]:
        """Set the mode planned; return the times of the request and of the last barrier, and the plan."""
        planning = time.monotonic()
        installed = self.client.set_mode(Mode.PLANNED)
        planned = time.monotonic()
        plan = self.client.get_plan()
        if plan is None or not installed.pins:
            raise DemoError("the controller installed no plan; see controller.log")
        facts = PlanFacts(
            plan_ms=1e3 * seconds(plan.plan_time),
            slowdown=plan.max_slowdown,
            certificate=word_in(plan, "certificate"),
            ecmp_mean=plan.ecmp_slowdown.mean,
            ecmp_p95=plan.ecmp_slowdown.p95,
            pins=installed.pins,
            install_s=seconds(installed.install_time),
        )
        self.progress.say(
            f"planned in {facts.plan_ms:.0f} ms ({facts.certificate}, worst slowdown {facts.slowdown:.2f}; by the "
            f"model {facts.ecmp_mean:.2f} under ECMP), {facts.pins} pins installed in {facts.install_s:.2f} s"
        )
        return planning, planned, facts

    def _start_training(self) -> float:
        self.progress.say(f"starting {JOBS} jobs; an ideal iteration takes {self.ideal_s:.2f} s")
        self._start_sinks()  # before the training: starting a program takes processor time from the switches
        self.training.start()
        wait_for(self._all_known, "the controller to know every job's hosts", START_TIMEOUT_S, POLL_S)
        return time.monotonic()

    def _all_known(self) -> bool:
        status = self.client.get_status()
        return status.jobs == JOBS and status.jobs_pending == 0

    def _start_sinks(self) -> None:
        for source, sink in self._idle_pairs():
            self._traffic(sink, source, sink, "sink", "--bind", sink.ip)
        wait_for(self._sinks_listen, "the sinks of the unannounced traffic", START_TIMEOUT_S, POLL_S)

    def _start_sources(self) -> None:
        seconds = str(MAX_UNANNOUNCED_S + SETTLED_S)
        for source, sink in self._idle_pairs():
            self._traffic(source, source, sink, "source", "--seconds", seconds)

    def _idle_pairs(self) -> list[tuple[Host, Host]]:
        idle = [host for host in self.lab.hosts if host.name.endswith(f"_{HOSTS_PER_LEAF}")]
        return list(zip(idle, [*idle[1:], idle[0]], strict=True))

    def _traffic(self, on: Host, source: Host, sink: Host, *words: str) -> None:
        common = ["--rendezvous", str(self.scratch / "sinks"), "--name", f"{source.name}-{sink.name}"]
        argv = [sys.executable, "-m", "mininet_topos.demo.traffic", words[0], *common, *words[1:]]
        with (self.out / "raw" / f"unannounced-{words[0]}-{on.name}.log").open("w") as log:
            self.lab.popen(on.name, argv, stdout=log, stderr=log)

    def _sinks_listen(self) -> bool:
        return len(list((self.scratch / "sinks").glob("h*"))) == len(self._idle_pairs())

    def _settled(self, watch: RouteWatch, since: float) -> bool:
        last = max([since, *(change.at for change in watch.changes)])
        return time.monotonic() > min(last + SETTLED_S, since + MAX_UNANNOUNCED_S)

    def _do(self, what: str, action: Callable[[], None]) -> float:
        """Carry out ``action``, and return the time just before it."""
        at = time.monotonic()
        action()
        self.progress.say(what)
        return at

    def _wait(self, phase: str, seconds: float, done: Callable[[], bool] = lambda: True) -> None:
        start = time.monotonic()
        while (elapsed := time.monotonic() - start) < seconds or not done():
            self.progress.tick(phase, elapsed, seconds)
            ending.sleep(TICK_S)
