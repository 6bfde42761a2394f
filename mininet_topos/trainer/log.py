"""Raw timestamps of one rank: a file of JSON lines, written by the trainer and read for the demo's figures.

The first line is ``{"job", "rank", "ip", "size", "elements", "algorithm", "mono", "wall"}``. Each iteration has a line
``{"i", "start", "end", "wall", "comm_s", "ok", "slices_ms", "subflows"}`` (``slices_ms``: arrivals after ``start``),
for a whole job also with ``phases_s``. The line of the agreed end is ``{"ended": mono}``. Times are seconds on
CLOCK_MONOTONIC, which all namespaces share. Only the standard library is imported, because ranks of other libraries
(``joining``) run in environments of their own.
"""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Iteration:
    """Iteration as seen by one rank.

    ``start``: end of the previous iteration, and of any pause after it; for a whole job, the time when all ranks have
    met. ``ok``: whether the result was right. ``arrivals``: completion time of each slice. ``subflows``: connections in
    use to the neighbour with the most. ``phases_s``: seconds of this rank in each phase of a whole job."""

    index: int
    start: float
    end: float
    ok: bool
    arrivals: tuple[float, ...]
    communication_s: float
    subflows: int
    phases_s: tuple[float, ...] = ()

    @property
    def duration_s(self) -> float:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class RankLog:
    """Log of one rank. ``ended``: time when all ranks agreed to stop; None when the rank died or lost its peers."""

    job_id: str
    rank: int
    ip: str
    iterations: tuple[Iteration, ...]
    ended: float | None


class TrainingLog:
    """Writer of a rank's log file. Every line is flushed, so that a killed process loses no line."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w")

    def begin(self, job_id: str, rank: int, peers: Sequence[str], algorithm: str, elements: int) -> None:
        self._line(
            job=job_id,
            rank=rank,
            ip=peers[rank],
            size=len(peers),
            elements=elements,
            algorithm=algorithm,
            mono=time.monotonic(),
            wall=time.time(),
        )

    def iteration(self, done: Iteration) -> None:
        phases = {"phases_s": [round(each, 4) for each in done.phases_s]} if done.phases_s else {}
        self._line(
            i=done.index,
            start=round(done.start, 4),
            end=round(done.end, 4),
            wall=round(time.time(), 4),
            comm_s=round(done.communication_s, 4),
            ok=done.ok,
            slices_ms=[round((arrival - done.start) * 1000, 1) for arrival in done.arrivals],
            subflows=done.subflows,
            **phases,
        )

    def end(self) -> None:
        self._line(ended=time.monotonic())
        self._file.close()

    def _line(self, **values: Any) -> None:
        self._file.write(json.dumps(values, separators=(",", ":")) + "\n")
        self._file.flush()


def read_rank_logs(folder: Path) -> list[RankLog]:
    return [read_rank_log(path) for path in sorted(folder.glob("*-rank*.jsonl"))]


def read_rank_log(path: Path) -> RankLog:
    """Return the file's content without an incomplete last line, which a rank leaves when it dies while writing."""
    lines = [json.loads(line) for line in path.read_text().rpartition("\n")[0].splitlines()]
    head = lines[0]
    return RankLog(
        job_id=head["job"],
        rank=head["rank"],
        ip=head["ip"],
        iterations=tuple(read_iteration(line) for line in lines if "i" in line),
        ended=next((line["ended"] for line in lines if "ended" in line), None),
    )


def read_iteration(line: Mapping[str, Any]) -> Iteration:
    start = line["start"]
    arrivals = tuple(start + ms / 1000 for ms in line["slices_ms"])
    phases = tuple(line.get("phases_s", ()))
    return Iteration(line["i"], start, line["end"], line["ok"], arrivals, line["comm_s"], line["subflows"], phases)
