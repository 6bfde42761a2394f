"""The files through which three changes pass, traced at run time on the fake fabric.

    python -m tests.support.walks [--json]

The fabric has 4 leaves, 4 spines and 3 hosts per leaf; a message and all that follows from it are carried out at once.
The first walk registers a ring of 8 by ``RegisterJob``, until it is planned and its rules are confirmed. The second
walk sends counters with background traffic, until there is a new plan. The third walk cuts a cable that a route uses,
until there is a new plan.

*passed*: files of ``controller/`` in which a function was called. *beside_the_loop*: files of ``controller/`` that
called a function in the file of the control loop, or in which the control loop called a function.
Functions without a file, such as the methods of dataclasses, do not count."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import FrameType

import controller
from controller.fabric.topology import Dpid, PortNo, PortRef
from controller.jobs.messages import RegisterJob
from tests.support.fake_fabric import FakeFabric, ring_job
from tests.support.three_rings import CONFIG

ROOT = Path(controller.__file__).parent
LOOP, PLANNER = "control_loop.py", "planning/planner.py"
RING = [f"10.0.{leaf}.{host}" for host in (1, 2) for leaf in (1, 2, 3, 4)]


class Trace:
    """Files of ``controller/`` whose functions are called, and pairs (calling file, called file)."""

    def __init__(self) -> None:
        self.passed: set[str] = set()
        self.calls: set[tuple[str, str]] = set()

    def __call__(self, frame: FrameType, event: str, _argument: object) -> None:
        if event == "call" and (called := _file(frame)):
            self.passed.add(called)
            if caller := _file(frame.f_back):
                self.calls.add((caller, called))

    def report(self) -> dict[str, list[str]]:
        beside = {file for call in self.calls if LOOP in call for file in call} - {LOOP}
        return {"passed": sorted(self.passed), "beside_the_loop": sorted(beside)}


def _file(frame: FrameType | None) -> str | None:
    return _in_controller(frame.f_code.co_filename) if frame else None


@cache
def _in_controller(name: str) -> str | None:
    path = Path(name)
    return path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else None


@contextmanager
def tracing() -> Iterator[Trace]:
    trace = Trace()
    sys.setprofile(trace)
    try:
        yield trace
    finally:
        sys.setprofile(None)


def walks() -> dict[str, dict[str, list[str]]]:
    fabric = FakeFabric(4, 4, 3)
    fabric.start(CONFIG)
    fabric.run(5)
    spec = ring_job("ring", RING, lease_s=600)
    with tracing() as registered:
        fabric.send(RegisterJob(spec))
        while PLANNER not in registered.passed:
            fabric.run(0.1)
    fabric.run(15)
    sent_bytes = 0
    with tracing() as counted:
        while PLANNER not in counted.passed:
            sent_bytes += 500_000
            fabric.count({PortRef(Dpid(1), PortNo(1)): sent_bytes}, {})
            fabric.run(1)
    fabric.run(15)
    used = next(link for route in fabric.loop.state.routes.routes.values() for path, _ in route for link in path or ())
    with tracing() as cut:
        plans = fabric.loop.state.cycle.plans_total
        fabric.cut(used.dpid, used.port)
        while fabric.loop.state.cycle.plans_total == plans:
            fabric.run(0.1)
    return {
        "RegisterJob to flow-mods": registered.report(),
        "counters to re-plan": counted.report(),
        "cable cut to re-plan": cut.report(),
    }


def main() -> None:
    found = walks()
    if "--json" in sys.argv[1:]:
        print(json.dumps(found, indent=2))  # noqa: T201
        return
    for name, files in found.items():
        for what, listed in files.items():
            print(f"{name}: {len(listed)} {what.replace('_', ' ')}: {', '.join(listed)}")  # noqa: T201


if __name__ == "__main__":
    main()
