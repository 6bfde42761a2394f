"""Training in a lab as long as the lab runs, with a fault now and then: ``signalbox lab --train``.

The controller at the given address may start later and restart. Ring jobs with one host per leaf train. Each job ends
after some iterations and starts again, so that the ranks' files stay small. In turns a cable is cut and plugged in
again, idle hosts send unannounced traffic, and a switch is drained. The program prints a line for each step.
"""

import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import typer

from mininet_topos import ending
from mininet_topos.demo.parts import DemoError, Training, TrainingJob, rings_and_idle
from mininet_topos.lab.lab import Lab
from mininet_topos.lab.record import LabError
from offline.scenarios.topologies import Host
from signalbox.client import Client
from signalbox.errors import SignalboxError

TICK_S = 1.0
STALL_S = 30.0
AGAIN_S = 10.0
"""Seconds before a failed job starts again."""
ITERATIONS = 200
"""Iterations of the first ring. Each further ring has 20 % of this number more, so no two rings restart together."""
IDEAL_S = 1.0
"""Seconds of an iteration of a job that shares its links with no other."""
PAUSE_S = 45.0
FAULT_S = 75.0
"""Seconds that a fault lasts, longer than the alert ``SignalboxLinkDown`` waits (deploy/prometheus/alerts.yml)."""
TRAFFIC_S = 40.0


class Step(NamedTuple):
    """Step of the training.

    - ``after_s``: seconds after the previous step.
    - ``what``: text that is printed when the step is done.
    - ``act``: function that runs the step; after a ``SignalboxError`` it is called again."""

    after_s: float
    what: str
    act: Callable[[], object]


class Ring:
    """Job that is kept in training. ``iterations``: number after which it ends and starts again."""

    def __init__(self, lab: Lab, job: TrainingJob, elements: int, api: str, iterations: int) -> None:
        self._lab = lab
        self._job = job
        self._elements = elements
        self._api = api
        self._iterations = iterations
        self._running: tuple[Training, TemporaryDirectory[str]] | None = None
        self._not_before = 0.0

    def keep(self) -> None:
        """Start the job again when it has ended.

        When one rank is lost, the others end by themselves after ``STALL_S`` seconds."""
        if self._running is None and time.monotonic() >= self._not_before:
            folder = TemporaryDirectory(prefix=f"signalbox-{self._job.job_id}-")
            path = Path(folder.name)
            training = Training(
                self._lab, [self._job], self._elements, self._api, path, path, STALL_S, iterations=self._iterations
            )
            self._running = training, folder
            training.launch()
        elif self._running is not None and None not in (statuses := self._running[0].statuses()):
            if any(statuses):
                typer.echo(f"{self._job.job_id} starts again in {AGAIN_S:g} s: its ranks ended with {statuses}")
                self._not_before = time.monotonic() + AGAIN_S
            self._clear()

    def stop(self) -> None:
        """Stop the job and deregister it. Raises ``DemoError`` when a rank has failed or does not end."""
        if self._running is not None:
            self._running[0].stop()
            self._clear()

    def _clear(self) -> None:
        if self._running is not None:
            self._running[1].cleanup()
            self._running = None


@dataclass
class Unannounced:
    """Traffic from each idle host to the next one, for ``TRAFFIC_S`` seconds."""

    lab: Lab
    idle: Sequence[Host]
    _programs: Sequence[subprocess.Popen[Any]] = ()
    _folder: TemporaryDirectory[str] | None = None

    def begin(self) -> None:
        """Start the traffic; earlier traffic that still runs is ended first."""
        self.end()
        self._folder = TemporaryDirectory(prefix="signalbox-unannounced-")
        pairs = zip(self.idle, [*self.idle[1:], *self.idle[:1]], strict=True)
        self._programs = [
            self._start(on, source, words)
            for source, sink in pairs
            for on, words in ((sink, ("sink", "--bind", sink.ip)), (source, ("source", "--seconds", str(TRAFFIC_S))))
        ]

    def end(self) -> None:
        for program in self._programs:
            program.kill()
            program.wait()
        self._programs = ()
        if self._folder:
            self._folder.cleanup()

    def _start(self, on: Host, source: Host, words: Sequence[str]) -> subprocess.Popen[Any]:
        assert self._folder
        common = ["--rendezvous", self._folder.name, "--name", source.name]
        argv = [sys.executable, "-m", "mininet_topos.demo.traffic", words[0], *common, *words[1:]]
        return self.lab.popen(on.name, argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def steps(lab: Lab, client: Client, unannounced: Unannounced) -> Iterator[Step]:
    """Yield the steps for ever: each round has another cable and another switch of the highest tier."""
    cables = lab.topo.fabric.cables
    top = sorted({cable.b for cable in cables} - {cable.a for cable in cables})
    # An earlier lab may have ended with a drained switch, which the controller remembers.
    yield Step(TICK_S, "nothing is drained", partial(_undrain_all, client))
    in_some_order = random.Random(1).sample(cables, len(cables))
    for cable, switch in zip(cycle(in_some_order), cycle(top), strict=False):
        ends = (cable.a, cable.b, cable.number)
        yield Step(PAUSE_S, f"the cable {cable.a}-{cable.b} is cut", partial(lab.cut, *ends))
        yield Step(FAULT_S, "it is plugged in again", partial(lab.plug, *ends))
        if unannounced.idle:
            yield Step(PAUSE_S, "idle hosts send unannounced traffic", unannounced.begin)
        yield Step(TRAFFIC_S + PAUSE_S, f"{switch} is drained", partial(client.drain, [switch]))
        yield Step(FAULT_S, f"{switch} is undrained", partial(client.undrain, [switch]))


def _undrain_all(client: Client) -> None:
    if drained := [drain.name for drain in client.get_status().drains]:
        client.undrain(drained)


def train(lab: Lab, api: str) -> None:
    """Train until a signal arrives.

    The signal is raised as ``ending.Interrupted`` after the jobs have been deregistered."""
    rings, idle = rings_and_idle(lab.hosts)
    slowest_bps = min(cable.bps for cable in lab.links)
    unannounced = Unannounced(lab, idle)
    with Client(api) as client:
        jobs = [
            Ring(
                lab, TrainingJob(f"ring{n}", hosts), _elements(len(hosts), slowest_bps), api, ITERATIONS * (4 + n) // 5
            )
            for n, hosts in enumerate(rings, start=1)
        ]
        try:
            _keep(jobs, client, steps(lab, client, unannounced))
        finally:
            unannounced.end()
            with suppress(DemoError):  # the lab kills ranks that do not end
                for job in jobs:
                    job.stop()


def _keep(jobs: Sequence[Ring], client: Client, todo: Iterator[Step]) -> None:
    step, since, waiting = next(todo), time.monotonic(), False
    while True:
        ending.sleep(TICK_S)
        try:
            client.get_status()
            for job in jobs:
                job.keep()
            if time.monotonic() >= since + step.after_s:
                step.act()
                typer.echo(step.what)
                step, since = next(todo), time.monotonic()
            waiting = False
        except LabError:
            raise
        except SignalboxError as error:  # usually the controller is missing: the fabric stays as it is until it is back
            if not waiting:
                waiting = True
                typer.echo(f"retrying until it succeeds: {error}")


def _elements(size: int, bps: float) -> int:
    """Return the float32 values of a vector whose ring all-reduce takes about ``IDEAL_S`` seconds on free links."""
    return max(1, round(IDEAL_S * bps / 8 / 4 * size / (2 * (size - 1))))
