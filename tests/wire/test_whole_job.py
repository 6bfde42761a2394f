"""Whole jobs over real TCP on loopback: exact results, the bytes that are announced, an agreed end."""

import re
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from mininet_topos.trainer.collective import DONE, HEADER
from mininet_topos.trainer.log import Iteration
from mininet_topos.trainer.mesh import Connection, Mesh, PeerLostError
from mininet_topos.trainer.parts import WholeJob, whole_job
from mininet_topos.trainer.training import StopRequest
from mininet_topos.trainer.whole_job import Meeting, connections, iterations
from signalbox.jobs.collectives import virtual_links
from signalbox.jobs.spec import Compute, JobSpec
from tests.support.waiting import DEADLINE_S, in_parallel

SIZE = 5
Pair = tuple[str, str]

GROUPS = {
    "ring": [0, 1, 2, 3, 4], "other ring": [0, 2, 4, 1, 3], "first": [0, 1], "second": [4, 3, 2], "stages": [1, 4, 3],
}  # fmt: skip
COLLECTIVES = [
    ("ring_all_reduce", ["ring", "other ring"], 400_000, 0), ("all_to_all", ["ring"], 100_000, 0),
    ("reduce_scatter", ["first", "second"], 120_000, 1), ("ring_all_gather", ["first", "second"], 120_000, 2),
    ("pipeline_send", ["stages"], 50_000, 2), ("broadcast", ["ring"], 30_000, 3),
]  # fmt: skip
TRANSFERS = [(0, 4, 70_000, 3, 0), (4, 0, 40_000, 3, 0), (2, 0, 4_000, 3, 0), (4, 2, 20_000, 3, 1), (4, 2, 400, 3, 1)]


def spec_of(collectives: list[Any], transfers: list[Any]) -> JobSpec:
    """Return the spec of a job on loopback addresses, which ``JobSpec.parse`` would refuse."""
    spec = JobSpec.parse(
        {
            "job_id": "job",
            "endpoints": [f"10.0.0.{rank + 1}" for rank in range(SIZE)],
            "groups": [{"name": name, "ranks": ranks} for name, ranks in GROUPS.items()],
            "collectives": [
                {"algorithm": algorithm, "groups": groups, "bytes_per_iteration": size, "phase": phase}
                for algorithm, groups, size, phase in collectives
            ],
            "transfers": [
                {"src": src, "dst": dst, "bytes_per_iteration": size, "phase": phase, "step": step}
                for src, dst, size, phase, step in transfers
            ],
        }
    )
    return spec.model_copy(update={"endpoints": tuple(f"127.0.1.{rank + 1}" for rank in range(SIZE))})


def train_together(
    job: WholeJob,
    directory: Path,
    count: int | None,
    stop: StopRequest | None = None,
    connected: Callable[[int, Iterable[Mesh]], object] = lambda *_: None,
    finished: Callable[[Iteration], object] = lambda _: None,
) -> list[list[Iteration]]:
    def one_rank(rank: int) -> list[Iteration]:
        with Meeting(directory, rank, SIZE) as meeting, connections(job, rank, directory, DEADLINE_S) as meshes:
            connected(rank, meshes.values())
            done = []
            for iteration in iterations(job, meshes, meeting, stop or StopRequest(), count):
                done.append(iteration)
                finished(iteration)
            return done

    return in_parallel(SIZE, one_rank)


@pytest.mark.parametrize("collective", [*COLLECTIVES, None], ids=lambda each: each[0] if each else "transfers")
def test_results_are_right_and_pairs_carry_the_announced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, collective: Any
) -> None:
    spec = spec_of([collective], []) if collective else spec_of([], TRANSFERS)
    sent = Sent(spec, monkeypatch)
    for done in train_together(whole_job(spec), tmp_path, 3, connected=sent.connected):
        assert [each.index for each in done] == [0, 1, 2]
        assert all(each.ok for each in done)
    announced = Counter[Pair]()
    for link in virtual_links(spec):
        announced[link.src_ip, link.dst_ip] += 3 * link.bytes
    assert sent.data == announced
    assert set(sent.headers) == set(announced)


def test_all_parts_of_a_phase_are_at_once_and_phases_follow_each_other(tmp_path: Path) -> None:
    job = whole_job(spec_of(COLLECTIVES, TRANSFERS), [Compute(seconds=0.2), Compute(seconds=0.3, phase=1)])
    assert [len(phase.sequences) for phase in job.phases] == [3, 2, 3, 2]
    for done in train_together(job, tmp_path, 2):
        assert all(each.ok for each in done)
        for each in done:
            assert len(each.phases_s) == 4
            assert each.phases_s[1] >= 0.3
            assert sum(each.phases_s) + 0.2 <= each.duration_s
            assert each.communication_s <= sum(each.phases_s)
        for before, after in pairwise(done):
            assert before.end < after.start


def test_a_wrong_result_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = Mesh.receive_each

    def falsify(self: Mesh, into: Any) -> None:
        original(self, into)
        if self.rank == 2:
            next(iter(into.values()))[0].cast("B")[0] ^= 0xFF

    monkeypatch.setattr(Mesh, "receive_each", falsify)
    done = train_together(whole_job(spec_of([COLLECTIVES[1]], [])), tmp_path, 1)
    assert [each[0].ok for each in done] == [rank != 2 for rank in range(SIZE)]


def test_all_ranks_end_after_the_iteration_in_which_rank_0_is_told(tmp_path: Path) -> None:
    stop = StopRequest()

    def finished(iteration: Iteration) -> None:
        stop.made = stop.made or iteration.index == 3

    done = train_together(whole_job(spec_of(COLLECTIVES[4:5], [])), tmp_path, None, stop, finished=finished)
    assert len({len(each) for each in done}) == 1
    assert len(done[0]) > 3


def test_when_a_rank_ends_all_others_end(tmp_path: Path) -> None:
    job = whole_job(spec_of(COLLECTIVES, TRANSFERS))

    def one_rank(rank: int) -> str:
        with Meeting(tmp_path, rank, SIZE) as meeting, connections(job, rank, tmp_path, DEADLINE_S) as meshes:
            running = iterations(job, meshes, meeting, StopRequest(), None)
            next(running)
            if rank == 3:
                return "left"
            with pytest.raises(PeerLostError) as lost:
                list(running)
            return str(lost.value)

    assert in_parallel(SIZE, one_rank)[3] == "left"


def test_a_rank_that_does_not_come_is_not_waited_for_for_ever(tmp_path: Path) -> None:
    with (
        pytest.raises(TimeoutError, match="1 ranks did not connect to rank 0 in time"),
        Meeting(tmp_path, 0, 2, timeout_s=0.1),
    ):
        pass
    with (
        pytest.raises(TimeoutError, match="rank 0 could not be reached in time"),
        Meeting(tmp_path / "other", 1, 2, timeout_s=0.1),
    ):
        pass


class Sent:
    """Recorder of what the ranks send: bytes of data, and number of headers, by pair of addresses."""

    def __init__(self, spec: JobSpec, monkeypatch: pytest.MonkeyPatch) -> None:
        self.data, self.headers = Counter[Pair](), Counter[Pair]()
        self._spec = spec
        self._rank_of: dict[Mesh, int] = {}
        lock, original = threading.Lock(), Mesh.send

        def send(mesh: Mesh, connection: Connection, data: Any) -> None:
            (peer,) = re.findall(r"\((.*)\)", connection.peer)
            pair, size = (self._spec.endpoints[self._rank_of[mesh]], peer), memoryview(data).nbytes
            with lock:
                if isinstance(data, memoryview):
                    self.data[pair] += size
                elif size == HEADER.size:
                    self.headers[pair] += 1
                else:
                    assert data == DONE
            original(mesh, connection, data)

        monkeypatch.setattr(Mesh, "send", send)

    def connected(self, rank: int, meshes: Iterable[Mesh]) -> None:
        self._rank_of |= dict.fromkeys(meshes, rank)
