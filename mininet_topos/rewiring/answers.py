"""Wirings that are given to a controller instead of those that it would find: one file for each job, named after it.

In: a folder, and the controller's questions. Out: answers. A job that has no file there is wired as by any controller,
except that one which should not be on the fabric (``refused``) is wired all the same when the folder has its name with
the ending ``.wired``.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from controller.circuits.live import find_wiring, mend_wiring
from controller.circuits.messages import FindWiring, FoundWiring, MendedWiring, MendWiring
from controller.circuits.wiring.circuits import Wiring
from signalbox.jobs.spec import JobSpec


def give(folder: Path, job_id: str, wiring: Wiring, strategy: str, runs: JobSpec, planned_s: float) -> None:
    """``strategy``: of the job; empty for one without. ``runs``: what it sends, with the rings that it runs in, with
    the addresses of the job. Before the job is announced."""
    data = {
        "strategy": strategy,
        "runs": runs.model_dump(mode="json"),
        "peers": wiring.peers,
        "planned_s": planned_s,
    }
    _file(folder, job_id).write_text(json.dumps(data))


def accept(folder: Path, job_id: str) -> None:
    """Also when it would be refused."""
    _accepted(folder, job_id).touch()


def answer(folder: Path, asked: FindWiring | MendWiring) -> FoundWiring | MendedWiring:
    """What the controller is told. Raises ``SignalboxError`` as ``find_wiring`` does."""
    if isinstance(asked, MendWiring):
        return mend_wiring(asked)
    file = _file(folder, asked.job_id)
    if file.exists():
        data = json.loads(file.read_text())
        peers = tuple(map(tuple, data["peers"]))
        times_s = (data["planned_s"],) * 3
        return FoundWiring(data["strategy"], JobSpec.parse(data["runs"]), peers, *times_s)
    found = find_wiring(asked)
    return replace(found, refused="") if _accepted(folder, asked.job_id).exists() else found


def _file(folder: Path, job_id: str) -> Path:
    return folder / f"{job_id}.json"


def _accepted(folder: Path, job_id: str) -> Path:
    return folder / f"{job_id}.wired"
