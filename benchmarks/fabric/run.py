"""Run of the benchmark ``fabric``: the bridges, the controller, the capture, and methods that wait for conditions.

``running`` yields a ``Run``, on which the steps work. The fabric is removed even after an error.
"""

import os
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from benchmarks.fabric import openvswitch
from benchmarks.fabric.blueprint import Blueprint
from benchmarks.fabric.capture import Recorder
from benchmarks.fabric.figures import Figures, missing_hops
from benchmarks.fabric.observed import Observed
from benchmarks.fabric.openvswitch import Bridges, bridges
from controller.fabric.topology import Dpid, PortNo
from mininet_topos.controller_process import ControllerProcess
from signalbox.client import Client, Unreachable
from signalbox.errors import SignalboxError
from signalbox.jobs.spec import JobSpec

POLL_S = 0.05
DEADLINE_S = 180.0
"""Seconds after which a step fails whose condition does not hold."""


class StepFailed(SignalboxError):
    """Condition of a step that did not hold in time."""


@dataclass(frozen=True, slots=True)
class Settings:
    quiet_s: float = 120.0
    """Seconds for which plans are requested, while false link-downs are counted."""
    idle_s: float = 60.0
    """Seconds for which CPU time is measured."""
    settled_s: float = 25.0
    """Seconds for which rules must not change after a restart."""
    cuts: int = 100
    seed: int = 1


class Run:
    """State that the steps share. ``tell``: function that shows the name of the current step."""

    def __init__(
        self,
        blueprint: Blueprint,
        jobs: Sequence[JobSpec],
        settings: Settings,
        switches: Bridges,
        controller: ControllerProcess,
        tell: Callable[[str], None],
    ) -> None:
        self.blueprint = blueprint
        self.jobs = jobs
        self.settings = settings
        self.switches = switches
        self.controller = controller
        self.tell = tell
        self.observed = Observed(blueprint.dpids)
        self.hops = blueprint.next_hops()
        self.figures = Figures(switches=len(blueprint.dpids), links_expected=len(blueprint.fabric.links))
        self._file = controller.folder / "observed"
        self._recorder: Recorder | None = None

    def client(self) -> Client:
        return Client(self.controller.address)

    def observe(self) -> None:
        """Start the capture, and return once it captures."""
        self._recorder = Recorder.start(self._file, self.controller.openflow_port)

    def read(self) -> None:
        """Process the messages captured since the last call."""
        if self._recorder is not None:
            self._recorder.read(self.observed)

    @property
    def packets_lost(self) -> int:
        return self._recorder.lost if self._recorder is not None else 0

    def stop(self) -> None:
        self.controller.kill()
        if self._recorder is not None:
            self._recorder.stop()
            self._recorder = None

    def wait(self, done: Callable[[], bool], what: str, deadline_s: float = DEADLINE_S, poll_s: float = POLL_S) -> None:
        """Wait until ``done`` returns True, reading captured messages every ``poll_s``.

        Raises ``StepFailed`` after ``deadline_s``. ``what``: what is awaited, for the message."""
        ends = time.monotonic() + deadline_s
        while True:
            self.read()
            if done():
                return
            self.controller.check()
            if time.monotonic() > ends:
                raise StepFailed(f"waited {deadline_s:.0f} s for {what}")
            time.sleep(poll_s)

    def wait_quiet(self, quiet_s: float, what: str) -> None:
        """Wait until all changes are confirmed, and no new one was sent for ``quiet_s``."""
        state = {"changes": len(self.observed.changes), "since": time.monotonic()}

        def quiet() -> bool:
            now = time.monotonic()
            if len(self.observed.changes) != state["changes"] or any(s.open for s in self.observed.switches.values()):
                state.update(changes=len(self.observed.changes), since=now)
            return now - state["since"] >= quiet_s

        self.wait(quiet, what)

    def wait_settled(self, client: Client, what: str) -> None:
        """Wait until the API reports all links, and all switches in sync."""
        said = "no answer"

        def settled() -> bool:
            nonlocal said
            try:
                now = client.get_status()
            except Unreachable:
                return False
            said = f"{now.links} links, {now.switches_in_sync} of {now.switches} switches in sync"
            wanted = (self.figures.links_expected, self.figures.switches, self.figures.switches)
            return (now.links, now.switches, now.switches_in_sync) == wanted

        try:
            self.wait(settled, what, poll_s=2 * POLL_S)
        except StepFailed as error:
            raise StepFailed(f"{error}: {said}") from None

    def missing(self) -> dict[tuple[Dpid, Dpid], list[PortNo]]:
        """Return the next hops that no rule uses, by (switch, destination); keys without any are left out."""
        return missing_hops(self.observed, self.hops, self.blueprint.switch_of_address)

    def wait_complete(self, what: str) -> None:
        try:
            self.wait(lambda: not self.missing(), what, poll_s=2 * POLL_S)
        except StepFailed as error:
            (dpid, destination), ports = next(iter(self.missing().items()))
            example = f"{self.blueprint.bridge(dpid)} does not send to {self.blueprint.bridge(destination)} by {ports}"
            raise StepFailed(f"{error}: {example}") from None


@contextmanager
def running(
    blueprint: Blueprint,
    jobs: Sequence[JobSpec],
    settings: Settings,
    folder: Path,
    tell: Callable[[str], None],
) -> Iterator[Run]:
    """Build the fabric, start the capture, and yield the run; the steps start the controller.

    Removes the fabric at the end."""
    inventory = folder / "inventory.toml"
    inventory.write_text(blueprint.inventory())
    controller = ControllerProcess(folder, settings=blueprint.settings(inventory))
    with ExitStack() as stack:
        switches = stack.enter_context(bridges(blueprint, f"127.0.0.1:{controller.openflow_port}"))
        stack.callback(tell, "removing the fabric")
        run = Run(blueprint, jobs, settings, switches, controller, tell)
        stack.callback(run.stop)
        started = time.monotonic()
        tell("making bridges")
        for done in switches.build():
            tell(f"making bridges: {done} ports")
        run.figures.build_s = time.monotonic() - started
        run.figures.machine = machine()
        run.observe()
        yield run


def machine() -> dict[str, str | int]:
    return {
        "cores": os.cpu_count() or 0,
        "python": platform.python_version(),
        "openvswitch": openvswitch.version(),
        "datapath": "userspace",
        "framework": _framework(),
    }


def _framework() -> str:
    for package in ("ryu", "os-ken"):
        try:
            return f"{package} {version(package)}"
        except PackageNotFoundError:
            continue
    return "unknown"
