"""The controller killed at random instants of the load, and started again with thousands of jobs.

In: how often, with how many jobs. Out: what was acknowledged and is not there, what is there and should not be; the
time until the first right answer, what the start costs by stage in CPU time, and that beside a process that only
imports the libraries: the two together are independent of how fast the machine is.
"""

from __future__ import annotations

import asyncio
import json
import random
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from typing import Any

from benchmarks.api_load.load import Announced, Clients, Outcome, Spec, pending_jobs
from benchmarks.measures import Spread, usage
from controller.api.lease_tokens import LeaseTokens
from controller.jobs.messages import Registration, SavedState
from controller.store.records import changes
from controller.store.sqlite_store import SqliteStore
from mininet_topos.controller_process import ControllerProcess, Settings
from signalbox.client import Client
from signalbox.errors import NotFound, SignalboxError, WrongLeaseToken
from signalbox.spec_messages import spec_message

CLIENTS = 20
CALLS_PER_S = 400.0
KILLED_AFTER_S = (0.2, 2.0)
START_S = 120.0
POLL_S = 0.005
ASKED = 50
"""Jobs that a controller is asked for after its first answer."""

LIBRARIES = ("grpc.aio", "ortools.sat.python.cp_model", "numpy", "pydantic", "structlog", "sqlite3")
"""What any controller of this kind imports; to start Python with them is what starts are compared with."""

SETTINGS: Settings = {"jobs": {"max_jobs": 4_000}, "log": {"level": "warning"}}
PROGRAM = ("benchmarks.api_load",)


@dataclass(frozen=True, slots=True)
class Restarts:
    """``wrong``: NOT_FOUND, and answers of another registration. ``answer_s``: until the first right answer.
    ``stages_cpu_s``: medians of the CPU time of each stage of a start, in their order; ``bare_cpu_s``: of a process
    that imports ``LIBRARIES``."""

    seed: int
    restarts: int
    jobs: int
    asked: int
    wrong: int
    answer_s: Spread | None
    answer_cpu_s: Spread | None
    bare_cpu_s: Spread | None
    stages_cpu_s: dict[str, float]

    @property
    def ratio(self) -> float:
        """Of the CPU time until the first right answer to that of the bare process."""
        return self.answer_cpu_s.p50 / self.bare_cpu_s.p50 if self.answer_cpu_s and self.bare_cpu_s else 0.0


@dataclass(slots=True)
class Kills:
    """``acknowledged``: changes whose answer had come; ``unsure``: those on their way when the controller was killed.
    ``lost``: of the former, as they are after the restart. ``risen``: jobs whose end was acknowledged, or which nobody
    has registered. ``altered``: jobs with another spec than was announced. ``locked_out``: refusals of the lease tokens
    of jobs that are there, ``ASKED`` after each restart. ``errors``: answers of the load other than those that a killed
    controller leaves."""

    seed: int
    kills: int
    jobs: int
    acknowledged: int = 0
    unsure: int = 0
    lost: int = 0
    risen: int = 0
    twice: int = 0
    altered: int = 0
    locked_out: int = 0
    errors: dict[str, int] = field(default_factory=dict)
    start_s: list[float] = field(default_factory=list)


def restarted(count: int, jobs: int, seed: int, within_s: float) -> Restarts:
    """Starts a controller with so many jobs, and asks it for them from its first moment on. ``within_s``: no other
    start begins later. Raises ``SignalboxError``."""
    draw, ends = random.Random(seed), time.monotonic() + within_s
    wrong, answer_s, answer_cpu_s, bare_cpu_s = 0, list[float](), list[float](), list[float]()
    stages: list[dict[str, float]] = []
    with _folder() as folder:
        controller = ControllerProcess(folder, settings=SETTINGS, program=PROGRAM)
        uids = {job_id: _uid(token) for job_id, token in filled(folder / "state", pending_jobs(seed), jobs)[0].items()}
        for _ in range(count):
            if time.monotonic() > ends:
                break
            bare_cpu_s.append(_bare_cpu_s())
            began = controller.start("--measured", str(folder / "measured.json"))
            asked = [draw.choice(list(uids)) for _ in range(1 + ASKED)]
            wrong += _wrong_until_right(controller, asked[0], uids[asked[0]])
            answer_s.append(time.monotonic() - began)
            answer_cpu_s.append(usage(controller.process).cpu_s)
            with Client(controller.address) as client:
                wrong += sum(not _is_right(client, job_id, uids[job_id]) for job_id in asked[1:])
                wrong += abs(len(client.list_jobs()) - jobs)
            controller.stop()
            stages.append(json.loads((folder / "measured.json").read_text())["start_cpu_s"])
    took = Spread.of(answer_s), Spread.of(answer_cpu_s), Spread.of(bare_cpu_s)
    return Restarts(seed, len(stages), jobs, len(stages) * (1 + ASKED), wrong, *took, _medians(stages))


def killed(count: int, jobs: int, seed: int, within_s: float) -> Kills:
    """SIGKILL at random instants of the load, always with the same state directory. ``within_s``: no other load begins
    later. Raises ``SignalboxError``."""
    draw, spec, result = random.Random(seed), pending_jobs(seed), Kills(seed, 0, jobs)
    errors, ends = Counter[str](), time.monotonic() + within_s
    with _folder() as folder:
        controller = ControllerProcess(folder, settings=SETTINGS, program=PROGRAM)
        (tokens, specs), unsure = filled(folder / "state", spec, jobs), set[str]()
        while True:
            began = controller.start("--measured", str(folder / "measured.json"))
            _wait_until_it_listens(controller)
            with Client(controller.address) as client:
                found = client.list_jobs()
                result.start_s.append(time.monotonic() - began)
                there = sorted(tokens.keys() & {job.spec.job_id for job in found})
                asked = draw.sample(there, min(ASKED, len(there)))
                result.locked_out += sum(not _renews(client, job_id, tokens[job_id]) for job_id in asked)
            _compare(result, tokens, unsure, specs, found)
            if result.kills == count or time.monotonic() > ends:
                break
            result.kills += 1
            # Of a job whose registration was not answered nobody has the token: it stays as it is.
            lonely = {job.spec.job_id for job in found} - tokens.keys()
            known = {job_id: tokens[job_id] for job_id in there}
            clients, outcome = asyncio.run(_until_killed(controller, known, spec, draw, seed + result.kills))
            result.acknowledged += sum(len(outcome.took_s[kind]) for kind in ("register", "deregister"))
            result.unsure += len(clients.unsure)
            errors += Counter({text: n for text, n in outcome.errors.items() if ": UNAVAILABLE" not in text})
            tokens, unsure = dict(clients.jobs), clients.unsure | lonely
            specs |= clients.specs
        controller.stop()
    result.errors = dict(errors)
    return result


def _compare(
    result: Kills, tokens: dict[str, str], unsure: set[str], specs: dict[str, Announced], found: Sequence[Any]
) -> None:
    uids = {job.spec.job_id: job.uid for job in found}
    result.altered += sum(job.spec != specs.get(job.spec.job_id, job.spec) for job in found)
    result.lost += sum(uids.get(job_id) != _uid(token) for job_id, token in tokens.items())
    result.risen += len(uids.keys() - tokens.keys() - unsure)
    result.twice += len(found) - len(uids)


async def _until_killed(
    controller: ControllerProcess, tokens: dict[str, str], spec: Spec, draw: random.Random, seed: int
) -> tuple[Clients, Outcome]:
    clients, stop = Clients(controller.address, CLIENTS, spec, seed), asyncio.Event()
    clients.jobs |= tokens
    loading = asyncio.ensure_future(clients.load(CALLS_PER_S, START_S, stop))
    await asyncio.sleep(draw.uniform(*KILLED_AFTER_S))
    await asyncio.to_thread(controller.kill)
    stop.set()
    outcome = await loading
    await clients.close()
    return clients, outcome


# ---- state


def filled(state_dir: Path, spec: Spec, count: int) -> tuple[dict[str, str], dict[str, Announced]]:
    """Saves so many jobs as a controller would have; returns their lease tokens and specs by id. Raises ``OSError``."""
    store, done = SqliteStore(state_dir), Future[int | OSError]()
    before, jobs = store.load(), [Registration(spec()) for _ in range(count)]
    tokens = LeaseTokens.of(state_dir)
    store.begin()
    store.commit(changes(before, SavedState({job.job_id: job for job in jobs})), done.set_result)
    store.close()
    if isinstance(error := done.result(), OSError):
        raise error
    specs = {job.spec.job_id: spec_message(job.spec) for job in jobs}
    return {job.job_id: tokens.token(job.uid) for job in jobs}, specs


def _uid(lease_token: str) -> str:
    return lease_token.partition(".")[0]


@contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="signalbox-load-") as name:
        yield Path(name)


# ---- starts


def _wait_until_it_listens(controller: ControllerProcess) -> None:
    """gRPC's client tries again after a second, and then after more: too coarse. Raises ``SignalboxError``."""
    path, ends = controller.address.removeprefix("unix:"), time.monotonic() + START_S
    while time.monotonic() < ends:
        controller.check()
        with suppress(FileNotFoundError, ConnectionRefusedError), socket.socket(socket.AF_UNIX) as probe:
            probe.connect(path)
            return
        time.sleep(POLL_S)
    raise SignalboxError(f"the controller does not listen after {START_S:.0f} s")


def _wrong_until_right(controller: ControllerProcess, job_id: str, uid: str) -> int:
    """Asks until the answer is right; returns how many were wrong. Raises ``SignalboxError``."""
    wrong = 0
    _wait_until_it_listens(controller)
    with Client(controller.address) as client:
        while not _is_right(client, job_id, uid):
            controller.check()
            wrong += 1
    return wrong


def _is_right(client: Client, job_id: str, uid: str) -> bool:
    try:
        return bool(client.get_job(job_id).uid == uid)
    except NotFound:
        return False


def _renews(client: Client, job_id: str, lease_token: str) -> bool:
    try:
        client.renew_lease(job_id, lease_token)
    except (NotFound, WrongLeaseToken):
        return False
    return True


def _bare_cpu_s() -> float:
    before = getrusage(RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", "import " + ", ".join(LIBRARIES)], check=True)
    after = getrusage(RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _medians(starts: list[dict[str, float]]) -> dict[str, float]:
    """Of what each stage took, from the time at which each was over."""
    took: dict[str, list[float]] = {}
    for over_at in starts:
        before = 0.0
        for stage, cpu_s in over_at.items():
            took.setdefault(stage, []).append(cpu_s - before)
            before = cpu_s
    return {stage: spread.p50 for stage, values in took.items() if (spread := Spread.of(values))}
