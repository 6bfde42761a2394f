"""Rank of a whole job, as a program: all collectives of a phase at once, phases one after another.

    python -m mininet_topos.trainer.whole_job --spec job.json --rank 0 --rendezvous DIR --out rank0.jsonl

There is one process per rank, inside its host's namespace, with connections and a thread of its own for each collective
of each group. All ranks read the same ``job.json``, whose form ``parts`` describes, and each writes the file that
``log`` describes. Rank 0 registers the job with the controller and reports its iterations. On a fabric with optical
switches it waits until the job is wired; all ranks then run the parallelization and the rings that the controller has
chosen. SIGTERM to rank 0 ends all ranks after an iteration; a second SIGTERM kills the process.

Before and after each iteration all ranks wait for each other in a ``Meeting``, and learn from rank 0 whether to
continue. Meetings cause no traffic in the network, because they use Unix sockets in the directory that the ranks share.
Within an iteration each rank continues with the next phase when its own work is done.
"""

import json
import math
import os
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated, Self

import numpy as np
import typer

from mininet_topos.trainer.collective import COLLECTIVES, ProtocolError, Vector, exchange, neighbours, right_result
from mininet_topos.trainer.log import Iteration, TrainingLog
from mininet_topos.trainer.mesh import Mesh, PeerLostError, connect
from mininet_topos.trainer.parts import Part, WholeJob, as_wired, read_job
from mininet_topos.trainer.sockets import POLL_S, publish_opened
from mininet_topos.trainer.training import (
    Drift,
    Jitter,
    Seed,
    Slow,
    StopRequest,
    Straggler,
    chance_of,
    registered,
    unreported,
)
from offline.scenarios.variation import STEADY, Variation
from signalbox.errors import InvalidInput, SignalboxError
from signalbox.jobs.reports import Step
from signalbox.jobs.spec import JobSpec

NAME = "meeting"
GO_ON, STOP = b"\x00", b"\x01"


class Meeting:
    """Meeting point: rank 0 is connected to every other rank, and all other ranks to rank 0 only.

    Raises ``TimeoutError`` on entry when a rank is missing after ``timeout_s`` seconds."""

    def __init__(self, directory: Path, rank: int, size: int, timeout_s: float = 60.0) -> None:
        self._directory, self._rank, self._size = directory, rank, size
        self._deadline = time.monotonic() + timeout_s
        self._peers: list[socket.socket] = []
        self._undo = ExitStack()

    def __enter__(self) -> Self:
        self._directory.mkdir(parents=True, exist_ok=True)
        with ExitStack() as undo, _short_path(self._directory) as path:
            if self._rank:
                self._peers.append(undo.enter_context(self._connected(path)))
            else:
                self._peers.extend(undo.enter_context(peer) for peer in self._accepted(path))
            self._undo = undo.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._undo.close()

    def meet(self, stop: bool = False) -> bool:
        """Wait until all ranks have called this method, and return the ``stop`` of rank 0 on every rank.

        Raises ``PeerLostError`` when a rank has ended."""
        told = STOP if stop else GO_ON
        try:
            if self._rank:
                self._peers[0].sendall(told)
            heard = [peer.recv(1) for peer in self._peers]
            if b"" in heard:
                raise PeerLostError("a rank has ended")
            if self._rank:
                return heard[0] == STOP
            for peer in self._peers:
                peer.sendall(told)
        except ConnectionError as error:
            raise PeerLostError(f"a rank has ended: {error.strerror}") from error
        return stop

    def _connected(self, path: str) -> socket.socket:
        while True:
            peer = socket.socket(socket.AF_UNIX)
            try:
                peer.connect(path)
                return peer
            except OSError:
                peer.close()
                if time.monotonic() > self._deadline:
                    raise TimeoutError("rank 0 could not be reached in time") from None
                time.sleep(POLL_S)

    def _accepted(self, path: str) -> Iterator[socket.socket]:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path)
            listener.listen(self._size)
            for missing in range(self._size - 1, 0, -1):
                listener.settimeout(max(0.001, self._deadline - time.monotonic()))
                try:
                    yield listener.accept()[0]
                except TimeoutError:
                    raise TimeoutError(f"{missing} ranks did not connect to rank 0 in time") from None


@contextmanager
def _short_path(directory: Path) -> Iterator[str]:
    """Yield a short path of the socket in the directory.

    The address of a Unix socket has at most 108 bytes (unix(7))."""
    descriptor = os.open(directory, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}/{NAME}"
    finally:
        os.close(descriptor)


WIRED, WIRED_S = "wired.json", 120.0
"""File in which rank 0 publishes the job's parallelization and spec to the other ranks; seconds to wait for it."""
PINNED_S = 20.0
"""Seconds that a wired job waits for its pins. Without them its first iteration could use any circuits."""
WIRED_POLL_S = 0.1
LIMIT = 251
"""Bound of the data: with at most 350 ranks all sums are exact in float32."""


class RankPart:
    """Work of this rank in one ``Part`` of the job, over connections that only this part uses."""

    def __init__(self, part: Part, mesh: Mesh) -> None:
        self._part, self._mesh = part, mesh
        self._iteration = 0
        largest = max((part.elements, *part.transfers.values()))
        self._pattern = (np.arange(largest + LIMIT) * 31 % LIMIT).astype(np.float32)
        self._own: dict[int, Vector] = {}
        self._results: dict[int, Vector] = {}

    def prepare(self, iteration: int) -> None:
        """Make the data of the iteration.

        The data of a rank follow from its number and the iteration alone, so each rank knows the right result."""
        self._iteration = iteration
        part, place = self._part, self._mesh.rank
        if part.algorithm is not None:
            self._own = {place: self._total(part.elements, [place])}
            return
        self._own = {dst: self._total(n, [place]) for (src, dst), n in part.transfers.items() if src == place}
        self._results = {src: np.zeros(n, np.float32) for (src, dst), n in part.transfers.items() if dst == place}

    def run(self) -> None:
        """Run the part. Raises ``PeerLostError`` and ``ProtocolError``."""
        part, mesh = self._part, self._mesh
        if part.algorithm is None:
            exchange(mesh, self._iteration, self._own, self._results, False)
        else:
            result, _ = COLLECTIVES[part.algorithm](mesh, self._iteration, self._own[mesh.rank], False)
            self._results = {mesh.rank: result}
        mesh.take_arrivals()

    def is_right(self) -> bool:
        part, mesh = self._part, self._mesh
        if part.algorithm is None:
            return all(np.array_equal(got, self._total(len(got), [src])) for src, got in self._results.items())
        right = right_result(part.algorithm, mesh.rank, mesh.size, lambda ranks: self._total(part.elements, ranks))
        return np.array_equal(self._results[mesh.rank], right)

    def _total(self, elements: int, places: Iterable[int]) -> Vector:
        first = self._iteration % LIMIT
        return self._pattern[first : first + elements] * np.float32(sum(place + 1 for place in places))


def peers_of(part: Part, place: int) -> tuple[set[int], set[int]]:
    """Return the places that the rank at ``place`` connects to, and the places that connect to it."""
    if part.algorithm is not None:
        return neighbours(part.algorithm, place, len(part.ranks))
    to = {dst for src, dst in part.transfers if src == place}
    return to, {src for src, dst in part.transfers if dst == place}


@contextmanager
def connections(job: WholeJob, rank: int, directory: Path, stall_timeout_s: float) -> Iterator[dict[str, Mesh]]:
    """Open the connections of this rank, and yield a ``Mesh`` for each part of the job, by name of the part.

    Raises ``TimeoutError`` when a rank does not connect."""
    with ExitStack() as stack:
        found: dict[str, Mesh] = {}
        for part in job.parts:
            if rank in part.ranks:
                place = part.ranks.index(rank)
                addresses = [job.spec.endpoints[each] for each in part.ranks]
                to, from_ = peers_of(part, place)
                mesh = connect(directory / part.name, place, addresses, to, from_, stall_timeout_s=stall_timeout_s)
                found[part.name] = stack.enter_context(mesh)
        yield found


def iterations(
    job: WholeJob,
    meshes: Mapping[str, Mesh],
    meeting: Meeting,
    stop: StopRequest,
    count: int | None,
    variation: Variation = STEADY,
    seed: int = 0,
    step: Callable[[], Step] = unreported,
) -> Iterator[Iteration]:
    """Run iterations until ``count`` are done, or until rank 0's stop request.

    ``variation``, ``seed``: variation of the computing times, with one factor per iteration for all ranks. ``step``:
    makes the context of an iteration, which may wait on entry. Data are made and results checked between iterations.
    Raises ``PeerLostError`` and ``ProtocolError``."""
    parts = {part.name: RankPart(part, meshes[part.name]) for part in job.parts if part.name in meshes}
    phases = [
        (phase, [[parts[part.name] for part in sequence if part.name in parts] for sequence in phase.sequences])
        for phase in job.phases
    ]
    index, chance = 0, chance_of(job.spec.job_id, seed)
    with ThreadPoolExecutor(max((len(sequences) for _, sequences in phases), default=1)) as pool:
        while True:
            for part in parts.values():
                part.prepare(index)
            meeting.meet()
            start = time.monotonic()
            factor = variation.factor(index, chance)
            took_s, phases_s = 0.0, []
            with step() as reported:
                time.sleep(job.alone_s * factor)
                for phase, sequences in phases:
                    time.sleep(phase.before_s * factor)
                    with reported.communication():
                        began = time.monotonic()
                        _run_all(pool, sequences, meshes)
                        took_s += time.monotonic() - began
                    time.sleep(max(0.0, began + phase.floor_s * factor - time.monotonic()))
                    phases_s.append(time.monotonic() - began)
                agreed = meeting.meet(stop.made or index + 1 == count)
            end = time.monotonic()
            ok = all(part.is_right() for part in parts.values())
            yield Iteration(index, start, end, ok, (), took_s, 1, tuple(phases_s))
            if agreed:
                return
            index += 1


def _run_all(pool: ThreadPoolExecutor, sequences: Sequence[Sequence[RankPart]], meshes: Mapping[str, Mesh]) -> None:
    def run(sequence: Sequence[RankPart]) -> None:
        for part in sequence:
            part.run()

    done, _ = wait([pool.submit(run, sequence) for sequence in sequences if sequence], return_when=FIRST_EXCEPTION)
    for each in done:
        if error := each.exception():
            for mesh in meshes.values():
                mesh.shut()
            raise error


def _wired(job: WholeJob, rank: int, api: str | None, directory: Path) -> WholeJob:
    """Return the job with the parallelization and the rings that it must run.

    Rank 0 requests these from the controller, if there is one, and publishes them to the other ranks. Raises
    ``InvalidInput`` when the job is refused, and ``TimeoutError``."""
    told = directory / WIRED
    deadline = time.monotonic() + WIRED_S
    if rank == 0:
        parallelization, runs = _asked(job, api, deadline) if api else ("", job.spec.plain)
        text = json.dumps({"parallelization": parallelization, "runs": runs.model_dump(mode="json")})
        told.with_suffix(".new").write_text(text)
        told.with_suffix(".new").rename(told)
    while not told.exists():
        if time.monotonic() > deadline:
            raise TimeoutError("rank 0 has not published the job's parallelization in time")
        time.sleep(WIRED_POLL_S)
    data = json.loads(told.read_text())
    return as_wired(job, data["parallelization"], JobSpec.parse(data["runs"]))


def _asked(job: WholeJob, api: str, deadline: float) -> tuple[str, JobSpec]:
    """Return the parallelization and spec of a wired job, once it is pinned or ``PINNED_S`` seconds have passed.

    For a job that cannot be wired, return the announced spec once all hosts are found."""
    from signalbox.client import Client
    from signalbox.mapping import job_spec, word_in

    unpinned_until, can_be_wired = math.inf, False
    with Client(api) as client:
        while time.monotonic() < deadline:
            try:
                found = client.get_job(job.spec.job_id)
            except SignalboxError:  # it is about to be registered
                time.sleep(WIRED_POLL_S)
                continue
            state = word_in(found, "state")
            if found.wiring.HasField("runs"):
                unpinned_until = min(unpinned_until, time.monotonic() + PINNED_S)
                if state == "pinned" or time.monotonic() > unpinned_until:
                    return found.wiring.parallelization, job_spec(found.wiring.runs)
            elif state != "pending" and not can_be_wired:
                return "", job.spec.plain
            # The circuits may be known before the spec is.
            can_be_wired |= bool(found.wiring.unwired)
            if "is better" in found.wiring.unwired:
                raise InvalidInput.of("job", f"is refused: {found.wiring.unwired}")
            time.sleep(WIRED_POLL_S)
    raise TimeoutError(f"job {job.spec.job_id} was not wired within {WIRED_S:g} s")


def run(
    spec: Annotated[Path, typer.Option(help="File of the job in JSON, the same on every rank.")],
    rank: Annotated[int, typer.Option(min=0, help="Index of this process into the job's endpoints.")],
    rendezvous: Annotated[Path, typer.Option(help="Directory that only this job's ranks share.")],
    out: Annotated[Path, typer.Option(help="File for the raw timestamps.")],
    count: Annotated[
        int | None, typer.Option("--iterations", min=1, help="Iterations before the end; without it, until SIGTERM.")
    ] = None,
    api: Annotated[
        str | None, typer.Option(help="Address of the controller's API, for rank 0: HOST:PORT or unix:PATH.")
    ] = None,
    jitter: Jitter = 0.0,
    straggler: Straggler = 0.0,
    slow: Slow = 2.0,
    drift: Drift = 0.0,
    seed: Seed = 0,
    stall_timeout_s: Annotated[float, typer.Option(min=1, help="Seconds of silence that end the training.")] = 60.0,
) -> None:
    """Train as one rank of a whole job until rank 0 stops it."""
    variation, stop = Variation(jitter, straggler, slow, drift), StopRequest()
    stop.listen()
    name = str(spec)
    try:
        job = read_job(spec)
        name, size = job.spec.job_id, len(job.spec.endpoints)
        if rank >= size:
            raise typer.BadParameter(f"rank {rank} has no endpoint; ranks go from 0 to {size - 1}")
        raw = TrainingLog(out)
        rendezvous.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            step = stack.enter_context(registered(None if rank else job.spec, api, rendezvous))
            job = _wired(job, rank, api, rendezvous)
            meeting = stack.enter_context(Meeting(rendezvous, rank, size))
            meshes = stack.enter_context(connections(job, rank, rendezvous, stall_timeout_s))
            publish_opened(rendezvous, rank, (ends for mesh in meshes.values() for ends in mesh.opened))
            meeting.meet()  # the log begins when all ranks are connected
            raw.begin(name, rank, job.spec.endpoints, "all of the spec", 0)
            for done in iterations(job, meshes, meeting, stop, count, variation, seed, step):
                raw.iteration(done)
                if not done.ok:
                    typer.echo(f"{name} rank {rank}: a result of iteration {done.index} is wrong", err=True)
    except (PeerLostError, ProtocolError, TimeoutError, InvalidInput, OSError) as error:
        typer.echo(f"{name} rank {rank}: training ended: {error}", err=True)
        raise typer.Exit(1) from None
    raw.end()


if __name__ == "__main__":
    typer.run(run)
