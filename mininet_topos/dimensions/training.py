"""The ranks of an emulated network of several dimensions, and the iterations that they do together.

In: a network that is there, and steps. Out: when each step ended on the last rank.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from typing import Any, NamedTuple

from mininet_topos.dimensions.cabling import LabStep, channels, places
from mininet_topos.dimensions.fabric import Dimensions
from mininet_topos.lab.record import LabError

PREPARING_S = 1.0
"""Until an iteration begins: ranks make their data meanwhile."""


class Timing(NamedTuple):
    """``steps_s``: how long each step took, from the end of the step before it on all ranks."""

    steps_s: tuple[float, ...]
    ok: bool


class Ranks:
    """Programs that are connected to each other."""

    def __init__(self, programs: Sequence[subprocess.Popen[str]], deadline_s: float) -> None:
        self._programs = programs
        self._deadline_s = deadline_s
        self._iteration = 0

    def iterate(self) -> Timing:
        """Raises ``LabError`` when a rank ends or takes too long."""
        at = time.monotonic() + PREPARING_S
        turn = {"iteration": self._iteration, "at": at}
        self._iteration += 1
        answers = self.ask([turn] * len(self._programs))
        ends = [at, *map(max, zip(*(answer["ends"] for answer in answers), strict=True))]
        steps = (end - start for start, end in pairwise(ends))
        return Timing(tuple(steps), all(answer["ok"] for answer in answers))

    def ask(self, told: Sequence[Any]) -> list[Any]:
        """A line to each, and from each."""
        watchdog = threading.Timer(self._deadline_s, self.end)
        watchdog.start()
        try:
            for program, line in zip(self._programs, told, strict=True):
                assert program.stdin is not None
                program.stdin.write(json.dumps(line) + "\n")
                program.stdin.flush()
            return [self._line(program) for program in self._programs]
        except BrokenPipeError:
            raise LabError("a rank has ended") from None
        finally:
            watchdog.cancel()

    def _line(self, program: subprocess.Popen[str]) -> Any:
        assert program.stdout is not None
        if not (line := program.stdout.readline()):
            raise LabError(f"a rank ended, or one took more than {self._deadline_s:.0f} s")
        return json.loads(line)

    def end(self) -> None:
        for program in self._programs:
            program.kill()


@contextmanager
def training(network: Dimensions, steps: Sequence[LabStep], chunks: int, deadline_s: float) -> Iterator[Ranks]:
    """``steps``: with sizes and computing as they are emulated. Raises ``LabError``."""
    with ExitStack() as stack:
        programs = [stack.enter_context(_rank(network, npu)) for npu in range(network.shape.npus)]
        ranks = Ranks(programs, deadline_s)
        stack.callback(ranks.end)
        setups = [
            {"rank": npu, "places": place, "chunks": chunks, "steps": [_of_rank(npu, step) for step in steps]}
            for npu, place in enumerate(places(network.shape))
        ]
        ports = [answer["port"] for answer in ranks.ask(setups)]
        there = channels(network.cabling)
        ranks.ask(
            [
                {"channels": [(*channel, end.address, ports[end.npu]) for channel, end in there[npu].items()]}
                for npu in range(network.shape.npus)
            ]
        )
        yield ranks


def _rank(network: Dimensions, npu: int) -> subprocess.Popen[str]:
    argv = ["ip", "netns", "exec", network.namespace(npu), sys.executable, "-m", "mininet_topos.dimensions.rank"]
    return subprocess.Popen(argv, stdin=-1, stdout=-1, text=True, start_new_session=True)


def _of_rank(npu: int, step: LabStep) -> dict[str, Any]:
    members: Sequence[int] = next((group for group in step.groups if npu in group), ())
    return {
        "members": members,
        "dimensions": step.dimensions,
        "elements": round(step.size / 4),
        "floor_s": step.step.floor_s,
    }
