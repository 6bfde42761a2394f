"""Broken OpenFlow messages from one switch, while another switch must be served as usual.

    .venv/bin/python -m benchmarks fuzz-openflow [--count N] [--seed S] [--first I] [--json]

The real controller runs in its own process, on free ports. Message I of seed S is always the same, so ``--seed S
--first I --count 1`` repeats it. The exit status is 1 when the controller died, did not end cleanly, lost the good
switch or let it wait for seconds.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.measures import Spread, figures_of, report, usage
from benchmarks.openflow.mutants import mutant
from benchmarks.openflow.switches import GoodSwitch, HostileSwitch
from mininet_topos.controller_process import ControllerProcess, Settings
from signalbox.commands.output import AsJson
from signalbox.errors import SignalboxError

SETTINGS: Settings = {"counters": {"interval_s": 0.05}}
MEBI = 1 << 20
STUCK_S = 5.0
"""Seconds after which a good switch that waits for an echo counts as not served."""


@dataclass(frozen=True, slots=True)
class Result:
    """Result of a run."""

    seed: int
    first: int
    count: int
    seconds: float
    failure: str
    """First failure; empty without one."""
    at: int
    """Number of the message before the failure."""
    connections: int
    thrown_out: int
    """Number of connections that the controller ended."""
    good_echo_ms: Spread | None
    good_rules_ms: Spread | None
    good_barriers: int
    rss_mb: tuple[float, float]
    tracebacks: int
    readers: Mapping[str, Mapping[str, int]]
    """Number of messages that each reader has ``accepted`` and ``refused``."""


def fuzz(seed: int, count: int, first: int = 0) -> Result:
    """Send messages ``first`` to ``first + count - 1`` of the seed in order, and stop at the first failure."""
    failure, at = "", first
    with tempfile.TemporaryDirectory(prefix="signalbox-fuzz-") as name:
        file = Path(name) / "reached.json"
        controller = ControllerProcess(Path(name), settings=SETTINGS, program=("benchmarks.openflow.controller",))
        with controller.running("--reached", str(file)):
            with GoodSwitch(controller.openflow_port) as good:
                hostile = HostileSwitch(controller.openflow_port)
                before, began = usage(controller.process), time.monotonic()
                for at in range(first, first + count):
                    hostile.send(mutant(seed, at))
                    failure = _failure(controller, good)
                    if failure:
                        break
                hostile.close()
                seconds = time.monotonic() - began
                after = usage(controller.process)
            exit_status = controller.stop()
        if not failure and exit_status != 0:
            failure = f"the controller ended with {exit_status}"
        readers = json.loads(file.read_text()) if file.exists() else {}
        tracebacks = controller.log.read_text(errors="replace").count("Traceback")
    return Result(
        seed=seed,
        first=first,
        count=at - first + 1,
        seconds=seconds,
        failure=failure,
        at=at,
        connections=hostile.connections,
        thrown_out=hostile.thrown_out,
        good_echo_ms=Spread.of([1000 * took for _, took in good.answered]),
        good_rules_ms=Spread.of(good.rules_ms),
        good_barriers=good.barriers,
        rss_mb=(before.rss_bytes / MEBI, after.rss_bytes / MEBI),
        tracebacks=tracebacks,
        readers=readers,
    )


def _failure(controller: ControllerProcess, good: GoodSwitch) -> str:
    try:
        controller.check()
    except SignalboxError as error:
        return str(error)
    if good.connection_lost:
        return "the good switch lost its connection"
    if any(time.monotonic() - since > STUCK_S for since in good.unanswered):
        return f"the good switch waits {STUCK_S:g} s for an echo"
    return ""


def main(
    count: Annotated[int, typer.Option(help="Number of messages.")] = 10_000,
    seed: Annotated[int, typer.Option(help="Random seed.")] = 1,
    first: Annotated[int, typer.Option(help="Number of the first message.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Send broken OpenFlow messages to the controller while another switch must be served."""
    result = fuzz(seed, count, first)
    data = asdict(result)
    readers = [{"what": name, **counts} for name, counts in data["readers"].items()]
    figures = figures_of({name: data[name] for name in data if name != "readers"})
    report(data, None, as_json, {"Messages that reached a reader": readers, "Broken messages": figures})
    raise typer.Exit(bool(result.failure))
