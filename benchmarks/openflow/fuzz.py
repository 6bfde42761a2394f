"""One switch sends broken OpenFlow messages; meanwhile another one must be served as usual.

    .venv/bin/python -m benchmarks fuzz-openflow [--count N] [--seed S] [--first I] [--coverage] [--json]

The real controller runs in a process of its own, on free ports. Message I of seed S is always the same, so that
``--seed S --first I --count 1`` repeats it. Ends with 1 when the controller has died, did not end cleanly, lost the
good switch or left it waiting for seconds.
"""

from __future__ import annotations

import json
import re
import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Annotated

import typer
from rich.table import Table

from benchmarks.openflow.controller import FuzzedController, Reached
from benchmarks.openflow.mutants import mutant
from benchmarks.openflow.switches import GoodSwitch, HostileSwitch
from controller.commands.output import console
from controller.config import Config
from mininet_topos.demo.parts import free_port

STUCK_S = 5.0
"""A good switch that waits longer for an echo is not served."""


@dataclass(frozen=True, slots=True)
class Times:
    p50: float
    p99: float
    max: float

    @classmethod
    def of(cls, samples: Sequence[float]) -> Times | None:
        if not samples:
            return None
        ranked = sorted(samples)
        return cls(statistics.median(ranked), ranked[int(0.99 * (len(ranked) - 1))], ranked[-1])


@dataclass(frozen=True, slots=True)
class Result:
    """``failure``: what went wrong first, empty when nothing did; ``at``: the number of the message after which."""

    seed: int
    first: int
    count: int
    seconds: float
    failure: str
    at: int
    connections: int
    thrown_out: int
    good_echo_ms: Times | None
    good_rules_ms: Times | None
    good_barriers: int
    rss_mb: tuple[float, float]
    tracebacks: int
    reached: Reached


def fuzz(seed: int, count: int, first: int = 0, with_coverage: bool = False) -> Result:
    """Sends messages ``first`` to ``first + count - 1`` of the seed, in order, stopping at the first failure."""
    config = Config.model_validate(
        {
            "openflow": {"port": free_port()},
            "api": {"listen": [f"127.0.0.1:{free_port()}"]},
            "metrics": {"port": 0},
            "counters": {"interval_s": 0.05},
        }
    )
    failure, at = "", first
    with FuzzedController(config, with_coverage) as controller, GoodSwitch(config.openflow.port) as good:
        hostile = HostileSwitch(config.openflow.port)
        before_mb, began = controller.rss_mb, time.monotonic()
        for at in range(first, first + count):
            hostile.send(mutant(seed, at))
            failure = _failure(controller, good)
            if failure:
                break
        hostile.close()
        seconds = time.monotonic() - began
        rss_mb = (before_mb, controller.rss_mb if controller.alive else 0.0)
        served = good.served
    if not failure and controller.exit_status != 0:
        failure = f"the controller ended with {controller.exit_status}"
    return Result(
        seed=seed,
        first=first,
        count=at - first + 1,
        seconds=seconds,
        failure=failure,
        at=at,
        connections=hostile.connections,
        thrown_out=hostile.thrown_out,
        good_echo_ms=Times.of(served.echo_ms),
        good_rules_ms=Times.of(served.rules_ms),
        good_barriers=served.barriers,
        rss_mb=rss_mb,
        tracebacks=len(re.findall("Traceback", controller.log)),
        reached=controller.result,
    )


def _failure(controller: FuzzedController, good: GoodSwitch) -> str:
    if not controller.alive:
        return "the controller died: " + controller.log_so_far()[-2000:]
    if good.served.connection_lost:
        return "the good switch lost its connection"
    since = good.waits_since
    if since is not None and time.monotonic() - since > STUCK_S:
        return f"the good switch waits {STUCK_S:g} s for an echo"
    return ""


def show(result: Result) -> None:
    table = Table("what", "accepted", "refused", title="Messages that reached a reader")
    for name, counts in result.reached["readers"].items():
        table.add_row(name, str(counts.get("accepted", 0)), str(counts.get("refused", 0)))
    console().print(table)
    if result.reached["coverage"]:
        lines = Table("file", "lines", "run", "not run", title="Lines of the readers")
        for name, found in result.reached["coverage"].items():
            lines.add_row(name, str(found["lines"]), str(found["run"]), " ".join(map(str, found["missing"])))
        console().print(lines)
    console().print(
        f"{result.count} messages of seed {result.seed} in {result.seconds:.0f} s, {result.connections} connections, "
        f"{result.thrown_out} thrown out; memory {result.rss_mb[0]:.0f} to {result.rss_mb[1]:.0f} MB, "
        f"{result.tracebacks} tracebacks in the log"
    )
    for what, times in (("echo", result.good_echo_ms), ("rules for a port", result.good_rules_ms)):
        if times:
            console().print(
                f"the good switch, {what}: p50 {times.p50:.1f}, p99 {times.p99:.1f}, max {times.max:.1f} ms"
            )
    console().print(f"[red]after message {result.at}: {result.failure}[/]" if result.failure else "nothing failed")


def main(
    count: Annotated[int, typer.Option(help="Messages.")] = 10_000,
    seed: Annotated[int, typer.Option(help="Random seed.")] = 1,
    first: Annotated[int, typer.Option(help="Number of the first message.")] = 0,
    coverage: Annotated[bool, typer.Option("--coverage", help="Also which lines of the readers ran.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Everything as JSON.")] = False,
) -> None:
    """Send broken OpenFlow messages to the controller while another switch must be served."""
    result = fuzz(seed, count, first, coverage)
    if as_json:
        print(json.dumps(asdict(result), indent=2))  # noqa: T201
    else:
        show(result)
    raise typer.Exit(bool(result.failure))
