"""Training over real TCP on loopback: exact results, an agreed stop, slow and dead peers."""

import json
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from controller.planning.problem import FlowId, PathShare
from mininet_topos.trainer.collective import COLLECTIVES, HEADER, ProtocolError, neighbours, ring_all_reduce
from mininet_topos.trainer.log import Iteration
from mininet_topos.trainer.mesh import Mesh, PeerLostError, connect
from mininet_topos.trainer.sockets import SharesFile, find, find_opened, publish_opened
from mininet_topos.trainer.training import RankSpec, StopRequest, announcement, registered, train
from signalbox.jobs.spec import Algorithm, JobId, Striping
from signalbox.jobs.subflows import port_classes
from tests.support.waiting import DEADLINE_S, in_parallel, until
from tests.support.wire.control_stand_in import H1, H2, VIA_SPINE, Running


def addresses(size: int) -> tuple[str, ...]:
    return tuple(f"127.0.0.{rank + 1}" for rank in range(size))


def mesh_of(
    directory: Path, rank: int, size: int, algorithm: Algorithm = Algorithm.RING_ALL_REDUCE, stall_timeout_s: float = 60
) -> Mesh:
    to, from_ = neighbours(algorithm, rank, size)
    return connect(directory, rank, addresses(size), to, from_, stall_timeout_s=stall_timeout_s)


def train_together(directory: Path, specs: list[RankSpec], stop: StopRequest) -> list[list[Iteration]]:
    def one_rank(rank: int) -> list[Iteration]:
        with mesh_of(directory, rank, len(specs), specs[rank].algorithm) as mesh:
            return list(train(specs[rank], mesh, stop))

    return in_parallel(len(specs), one_rank)


@pytest.mark.parametrize("algorithm", COLLECTIVES)
@pytest.mark.parametrize(("size", "elements"), [(2, 50_021), (3, 1), (5, 50_021)])
def test_every_result_is_exact(tmp_path: Path, algorithm: Algorithm, size: int, elements: int) -> None:
    specs = [RankSpec("job", rank, addresses(size), algorithm, elements, iterations=3) for rank in range(size)]
    for iterations in train_together(tmp_path, specs, StopRequest()):
        assert [done.index for done in iterations] == [0, 1, 2]
        assert all(done.ok for done in iterations)


@pytest.mark.parametrize("algorithm", COLLECTIVES)
def test_results_are_exact_when_bytes_are_divided_and_the_shares_change(tmp_path: Path, algorithm: Algorithm) -> None:
    size, classes = 3, port_classes(3)
    specs = [
        RankSpec("job", rank, addresses(size), algorithm, 50_021, iterations=6, max_subflows=3) for rank in range(size)
    ]
    splits = [(0.5, 0.3, 0.2), (0.1, 0.9), (1 / 3, 1 / 3, 1 / 3)]

    def one_rank(rank: int) -> list[Iteration]:
        to, from_ = neighbours(algorithm, rank, size)
        done = []
        with connect(tmp_path, rank, addresses(size), to, from_, classes=classes) as mesh:
            for bundle in mesh.to.values():
                ports = [one.source_port for one in bundle.connections]
                assert all(each.holds(port) for each, port in zip(classes, ports, strict=True))
            for iteration in train(specs[rank], mesh, StopRequest(), SharesFile(tmp_path)):
                done.append(iteration)
                if rank == 0 and iteration.index % 2:
                    write(splits[iteration.index // 2])
        return done

    def write(shares: tuple[float, ...]) -> None:
        subflows = [(share, *each) for share, each in zip(shares, classes, strict=False)]
        flows = {f"{src}>{dst}": subflows for src in addresses(size) for dst in addresses(size)}
        SharesFile(tmp_path).write(flows)

    for iterations in in_parallel(size, one_rank):
        assert all(done.ok for done in iterations)
        assert iterations[0].subflows in (0, 1), "no shares yet; the last stage of a pipeline sends nothing"
        assert all(done.subflows in (0, 2, 3) for done in iterations[3:]), "all ranks have read the shares by now"


def test_bytes_go_over_the_connections_in_proportion(tmp_path: Path) -> None:
    classes = port_classes(2)
    subflows = [(share, *each) for share, each in zip((0.75, 0.25), classes, strict=True)]
    SharesFile(tmp_path).write({"127.0.0.1>127.0.0.2": subflows})

    def one_rank(rank: int) -> list[int]:
        spec = RankSpec("job", rank, addresses(2), elements=400_000, iterations=2, max_subflows=2)
        with connect(tmp_path, rank, addresses(2), {1 - rank}, {1 - rank}, classes=classes) as mesh:
            assert all(done.ok for done in train(spec, mesh, StopRequest(), SharesFile(tmp_path)))
            return [bytes_sent(one.sock) for one in mesh.to[1 - rank].connections]

    split, whole = in_parallel(2, one_rank)
    assert split[0] / split[1] == pytest.approx(3, rel=0.03)
    assert whole[1] < 100 < whole[0], "a flow without shares uses one connection, apart from the greetings"


def test_even_striping_gives_every_connection_the_same_bytes_from_any_port(tmp_path: Path) -> None:
    def one_rank(rank: int) -> list[int]:
        spec = RankSpec(
            "job", rank, addresses(2), elements=400_000, iterations=2, max_subflows=3, striping=Striping.EVEN
        )
        with connect(tmp_path, rank, addresses(2), {1 - rank}, {1 - rank}, classes=(None,) * 3) as mesh:
            publish_opened(tmp_path, rank, mesh.opened)
            assert all(done.ok for done in train(spec, mesh, StopRequest()))
            return [bytes_received(one.sock) for one in mesh.from_[1 - rank].connections]

    for received in in_parallel(2, one_rank):
        assert max(received) - min(received) < 20_000, "two slices of 3.2 MB"
    opened = find_opened(tmp_path, 2)
    assert opened
    assert Counter(one.dst_ip for one in opened) == dict.fromkeys(addresses(2), 3)
    assert find_opened(tmp_path, 3) is None, "one rank has not said"


def bytes_sent(sock: socket.socket) -> int:
    """Return ``tcpi_bytes_acked`` of linux/tcp.h; the last bytes may still be on their way."""
    return int(struct.unpack_from("Q", sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 192), 120)[0])


def bytes_received(sock: socket.socket) -> int:
    return int(struct.unpack_from("Q", sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 192), 128)[0])


def test_a_wrong_vector_is_noticed_by_every_rank(tmp_path: Path) -> None:
    jobs = ["job", "job", "another"]
    specs = [RankSpec(jobs[rank], rank, addresses(3), elements=1000, iterations=1) for rank in range(3)]
    for iterations in train_together(tmp_path, specs, StopRequest()):
        assert not iterations[0].ok


def test_arrivals_tell_when_each_slice_came_and_iterations_follow_without_a_gap(tmp_path: Path) -> None:
    specs = [RankSpec("job", rank, addresses(4), elements=4 * 10_000, iterations=2) for rank in range(4)]
    for iterations in train_together(tmp_path, specs, StopRequest()):
        assert [done.start for done in iterations[1:]] == [done.end for done in iterations[:-1]]
        for done in iterations:
            slices_per_chunk = -(-10_000 // 2048)
            assert len(done.arrivals) == 6 * slices_per_chunk
            assert list(done.arrivals) == sorted(done.arrivals)
            assert done.start <= done.arrivals[0] <= done.arrivals[-1] <= done.end


@pytest.mark.parametrize("algorithm", COLLECTIVES)
def test_a_stop_of_rank_0_is_agreed_by_all_in_one_iteration(tmp_path: Path, algorithm: Algorithm) -> None:
    stop = StopRequest()
    specs = [RankSpec("job", rank, addresses(4), algorithm, 5000) for rank in range(4)]

    def one_rank(rank: int) -> int:
        with mesh_of(tmp_path, rank, 4, algorithm) as mesh:
            count = 0
            for done in train(specs[rank], mesh, stop):
                count += 1
                if rank == 2 and done.index == 5:
                    stop.made = True
            return count

    counts = in_parallel(4, one_rank)
    assert len(set(counts)) == 1
    assert counts[0] >= 6


def test_a_silent_peer_is_lost_after_the_stall_time_out(tmp_path: Path) -> None:
    lost_it = threading.Event()

    def one_rank(rank: int) -> str:
        with mesh_of(tmp_path, rank, 2, stall_timeout_s=0.2) as mesh:
            if rank == 1:
                lost_it.wait(DEADLINE_S)
                return ""
            with pytest.raises(PeerLostError) as lost:
                ring_all_reduce(mesh, 0, np.ones(10, np.float32), False)
            lost_it.set()
            return str(lost.value)

    assert "rank 1 (127.0.0.2): not a byte for" in in_parallel(2, one_rank)[0]


def test_ranks_in_different_iterations_notice(tmp_path: Path) -> None:
    def one_rank(rank: int) -> str:
        with mesh_of(tmp_path, rank, 2) as mesh, pytest.raises((ProtocolError, PeerLostError)) as wrong:
            ring_all_reduce(mesh, 3 + rank, np.ones(10, np.float32), False)
        return str(wrong.value)

    assert any("iteration" in answer for answer in in_parallel(2, one_rank))


def test_more_data_than_all_buffers_hold_does_not_deadlock(tmp_path: Path) -> None:
    def one_rank(rank: int) -> float:
        with mesh_of(tmp_path, rank, 2) as mesh:
            result, _ = ring_all_reduce(mesh, 0, np.ones(8_000_000, np.float32), False)
            return float(result.min())

    assert in_parallel(2, one_rank) == [2.0, 2.0]


def test_a_connection_of_another_program_is_refused(tmp_path: Path) -> None:
    other_connected = threading.Event()

    def one_rank(rank: int) -> bool:
        if rank == 2:
            with socket.create_connection(find(tmp_path, "rank-0", DEADLINE_S)) as other:
                other.sendall(HEADER.pack(0, 0, False))
                other_connected.set()
            return True
        if rank == 1:
            other_connected.wait(DEADLINE_S)
        with mesh_of(tmp_path, rank, 2) as mesh:
            result, _ = ring_all_reduce(mesh, 0, np.ones(10, np.float32), False)
            return bool((result == 2).all())

    assert all(in_parallel(3, one_rank))


def start_rank(directory: Path, rank: int, size: int, *options: str) -> subprocess.Popen[bytes]:
    argv = ["--job", "job", "--rank", str(rank), "--peers", ",".join(addresses(size)), *options]
    paths = ["--rendezvous", str(directory / "ports"), "--out", str(directory / f"{rank}.jsonl")]
    command = [sys.executable, "-m", "mininet_topos.trainer", *argv, *paths]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def lines_of(directory: Path, rank: int) -> list[dict[str, Any]]:
    path = directory / f"{rank}.jsonl"
    complete = path.read_text().rpartition("\n")[0] if path.exists() else ""
    return [json.loads(line) for line in complete.splitlines()]


@contextmanager
def two_processes(directory: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Run two ranks, and yield them once both have done some iterations."""
    ranks = [start_rank(directory, rank, 2, "--compute-s", "0.02") for rank in range(2)]
    try:
        until(lambda: all(len(lines_of(directory, rank)) > 3 for rank in range(2)))
        yield ranks
    finally:
        for process in ranks:
            process.kill()
            process.communicate()


def test_processes_stop_together_on_sigterm_to_rank_0(tmp_path: Path) -> None:
    with two_processes(tmp_path) as ranks:
        ranks[0].send_signal(signal.SIGTERM)
        assert [process.wait(DEADLINE_S) for process in ranks] == [0, 0]
    first, second = lines_of(tmp_path, 0), lines_of(tmp_path, 1)
    assert first[0]["ip"] == "127.0.0.1"
    assert "ended" in first[-1]
    assert "ended" in second[-1]
    assert [line["i"] for line in first[1:-1]] == [line["i"] for line in second[1:-1]]
    assert all(line["ok"] for line in first[1:-1] + second[1:-1])


def test_a_killed_rank_ends_the_job_with_a_clear_error(tmp_path: Path) -> None:
    with two_processes(tmp_path) as ranks:
        ranks[1].kill()
        said, _ = ranks[0].communicate(timeout=DEADLINE_S)
    assert ranks[0].returncode == 1
    assert b"rank 1 (127.0.0.2)" in said
    assert b"Traceback" not in said


def test_rank_0_writes_its_shares_and_reports_the_connections_of_all(api: Running, tmp_path: Path) -> None:
    spec = announcement("job", (H1, H2), Algorithm.RING_ALL_REDUCE, 4000, 60.0, 2, reports_connections=True)
    publish_opened(tmp_path, 0, [(H1, 40_001, H2, 50_001), (H1, 40_002, H2, 50_001)])
    job_id, registry, shares = JobId("job"), api.control.registry, SharesFile(tmp_path)
    flow = FlowId(H1, H2, "job")

    def split() -> None:
        api.control.routes[flow] = (PathShare(VIA_SPINE, 0.75), PathShare(VIA_SPINE, 0.25))
        api.control.routes_generation += 1

    with registered(spec, api.addresses[0], tmp_path) as step:
        until(lambda: job_id in registry.jobs)
        publish_opened(tmp_path, 1, [])
        until(lambda: (H1, H2) in registry.jobs[job_id].dividing.connections)
        api.control.put(split)
        until(lambda: shares.read_again() and bool(shares.subflows(H1, H2)))
        assert shares.subflows(H1, H2) == [(0.75, 40_001, 0xFFFF), (0.25, 40_002, 0xFFFF)]
        with step():
            pass
        until(lambda: registry.jobs[job_id].vitals.reported.iterations == 1)
    assert job_id not in registry.jobs


def test_a_job_that_cannot_be_announced_says_why(tmp_path: Path) -> None:
    rank = start_rank(tmp_path, 0, 2, "--api", f"unix:{tmp_path}/absent")
    said, _ = rank.communicate(timeout=DEADLINE_S)
    assert rank.returncode == 1
    assert b"must be the address of a host, not loopback, multicast or reserved (given: '127.0.0.1')" in said
    assert b"Traceback" not in said
