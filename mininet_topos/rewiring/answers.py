"""Controller that uses given wirings of jobs instead of its own; in all other respects it is ``signalbox serve``.

    python -m mininet_topos.rewiring.answers --wirings DIR --config FILE

DIR may have two files for a job, each named after the job. ``JOB.json`` has the wiring to use (``give``). ``JOB.wired``
says that the controller must wire the job even if it would refuse it (``accept``). A job without files is wired as by
any controller.
"""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from controller.circuits.answers import find_wiring, mend_wiring
from controller.circuits.questions import FindWiring, FoundWiring, MendedWiring, MendWiring
from controller.circuits.wiring.circuits import Wiring
from controller.config import load
from controller.serving.serve import serve
from signalbox.jobs.spec import JobSpec


def give(folder: Path, job_id: str, wiring: Wiring, parallelization: str, runs: JobSpec, planned_s: float) -> None:
    """Store the wiring for a job, before the job is announced.

    - ``parallelization``: name of the job's parallelization, empty for a job without one.
    - ``runs``: spec that the job must run, with the rings on this wiring and with the job's addresses.
    - ``planned_s``: modelled seconds of an iteration."""
    data = {
        "parallelization": parallelization,
        "runs": runs.model_dump(mode="json"),
        "peers": wiring.peers,
        "planned_s": planned_s,
    }
    _file(folder, job_id).write_text(json.dumps(data))


def accept(folder: Path, job_id: str) -> None:
    """Make the controller wire this job even if it would refuse it."""
    _accepted(folder, job_id).touch()


def answer(folder: Path, asked: FindWiring | MendWiring) -> FoundWiring | MendedWiring:
    """Return the answer for the controller. Raises ``SignalboxError`` as ``find_wiring`` does."""
    if isinstance(asked, MendWiring):
        return mend_wiring(asked)
    file = _file(folder, asked.job_id)
    if file.exists():
        data = json.loads(file.read_text())
        peers = tuple(map(tuple, data["peers"]))
        times_s = (data["planned_s"],) * 3
        return FoundWiring(data["parallelization"], JobSpec.parse(data["runs"]), peers, *times_s)
    found = find_wiring(asked)
    return replace(found, refused="") if _accepted(folder, asked.job_id).exists() else found


def _file(folder: Path, job_id: str) -> Path:
    return folder / f"{job_id}.json"


def _accepted(folder: Path, job_id: str) -> Path:
    return folder / f"{job_id}.wired"


def main(
    wirings: Annotated[
        Path, typer.Option(help="Folder with the wirings that the controller gives to jobs, one file per job.")
    ],
    config: Annotated[Path, typer.Option(help="Configuration file, as for signalbox serve.")],
) -> None:
    """Run the controller until SIGTERM."""
    raise typer.Exit(serve(load(config), answer=partial(answer, wirings)))


if __name__ == "__main__":
    typer.run(main)
