"""Chakra traces, written here byte by byte as in the files of astra-sim and PyTorch."""

from pathlib import Path

import pytest

from signalbox.errors import InvalidInput
from signalbox.jobs.spec import JobSpec
from signalbox.traces.chakra import MAX_MESSAGE_BYTES, job_spec

SEND, RECEIVE, COLLECTIVE, COMPUTE = 5, 6, 7, 4
INT32, INT64, BOOL, BOOL_LIST, STRING = 7, 9, 27, 28, 29
METADATA_0_0_4 = bytes.fromhex("0a05") + b"0.0.4"
MEBI = 1 << 20


def varint(value: int) -> bytes:
    head = bytes([value & 0x7F | (0x80 if value > 0x7F else 0)])
    return head + (varint(value >> 7) if value > 0x7F else b"")


def part(field: int, data: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(data)) + data


def attribute(name: str, kind: int, value: int | bytes) -> bytes:
    data = part(kind, value) if isinstance(value, bytes) else varint(kind << 3) + varint(value)
    return part(10, part(1, name.encode()) + data)


def node(number: int, kind: int, *attributes: bytes, name: str = "node") -> bytes:
    return b"\x08" + varint(number) + part(2, name.encode()) + b"\x18" + varint(kind) + b"".join(attributes)


def collective(number: int, kind: int, size: int, *more: bytes) -> bytes:
    return node(number, COLLECTIVE, attribute("comm_type", INT64, kind), attribute("comm_size", INT64, size), *more)


def trace(*nodes: bytes, metadata: bytes = METADATA_0_0_4) -> bytes:
    return b"".join(varint(len(message)) + message for message in (metadata, *nodes))


def given(ranks: int, **more: object) -> JobSpec:
    return JobSpec.parse({"job_id": "traced", "endpoints": [f"10.0.{rank + 1}.1" for rank in range(ranks)], **more})


def written(folder: Path, *traces: bytes) -> list[Path]:
    files = [folder / f"trace.{rank}.et" for rank in range(len(traces))]
    for file, data in zip(files, traces, strict=True):
        file.write_bytes(data)
    return files


@pytest.mark.parametrize(("number", "algorithm", "size"), [
    (0, "all_reduce", MEBI), (2, "all_gather", 4 * MEBI), (5, "broadcast", MEBI), (6, "all_to_all", MEBI),
    (7, "reduce_scatter", MEBI),
])  # fmt: skip
def test_a_collective_of_all_ranks(tmp_path: Path, number: int, algorithm: str, size: int) -> None:
    """The microbenchmarks of astra-sim call all ranks; the size of an all-gather is the share of one rank."""
    one = trace(collective(1, number, MEBI, attribute("is_cpu_op", BOOL, 0)))
    spec = job_spec(written(tmp_path, one, one, one, one), given(4))
    assert [(c.algorithm, c.bytes_per_iteration) for c in spec.collectives] == [(algorithm, size)]
    assert [group.ranks for group in spec.groups] == [(0, 1, 2, 3)]


def test_sends_and_receives_go_by_the_type_of_the_node(tmp_path: Path) -> None:
    """Sends and receives of astra-sim's custom collectives have comm_type 5 and 6, which elsewhere are collectives."""

    def of(rank: int) -> bytes:
        to = (attribute("comm_dst", INT32, (rank + 1) % 3), attribute("comm_size", INT64, 100))
        by = (attribute("comm_src", INT32, (rank + 2) % 3), attribute("comm_size", INT64, 100))
        sends = [node(2 * k, SEND, attribute("comm_type", INT64, 5), *to) for k in range(4)]
        takes = [node(2 * k + 1, RECEIVE, attribute("comm_type", INT64, 6), *by) for k in range(4)]
        return trace(*[one for both in zip(sends, takes, strict=True) for one in both])

    spec = job_spec(written(tmp_path, *map(of, range(3))), given(3))
    assert spec.collectives == ()
    found = [(t.src, t.dst, t.bytes_per_iteration, t.phase) for t in spec.transfers]
    assert found == [(0, 1, 400, 0), (1, 2, 400, 0), (2, 0, 400, 0)]


def test_the_hosts_side_of_a_call_is_left_out_and_several_iterations_are_divided(tmp_path: Path) -> None:
    """PyTorch's traces of version 1.0.1 have nodes for the host's side, and the schema among the metadata."""
    metadata = part(2, part(1, b"schema") + part(STRING, b"1.0.1"))
    host = node(1, COLLECTIVE, attribute("is_cpu_op", BOOL, 1), name="c10d::allreduce_")
    more = attribute("is_cpu_op", BOOL, 0), attribute("involved_dim", BOOL_LIST, b"\x0a\x01\x01")
    one = trace(node(0, COMPUTE), host, collective(2, 0, 500, *more), metadata=metadata)
    spec = job_spec(written(tmp_path, one, one), given(2))
    assert [c.bytes_per_iteration for c in spec.collectives] == [500]
    one = trace(*[collective(number, 0, 50) for number in range(6)])
    spec = job_spec(written(tmp_path, one, one), given(2), 3)
    assert [c.bytes_per_iteration for c in spec.collectives] == [100]


def test_groups_are_those_of_the_user_in_their_order(tmp_path: Path) -> None:
    def of(group: str) -> bytes:
        return trace(collective(1, 0, 64, attribute("pg_name", STRING, group.encode())), collective(2, 0, 32))

    groups = [{"name": "even", "ranks": [2, 0]}, {"name": "odd", "ranks": [1, 3]}]
    spec = job_spec(written(tmp_path, of("even"), of("odd"), of("even"), of("odd")), given(4, groups=groups))
    found = [(group.name, group.ranks) for group in spec.groups]
    assert found == [("even", (2, 0)), ("odd", (1, 3)), ("all", (0, 1, 2, 3))]
    shown = [(c.groups, c.bytes_per_iteration, c.phase) for c in spec.collectives]
    assert shown == [(("even", "odd"), 64, 0), (("all",), 32, 1)]


GOOD = trace(collective(1, 0, 8))


@pytest.mark.parametrize(("data", "message"), [
    (b"", r"trace.1.et: byte 0: no metadata"),
    (GOOD[:-1], r"trace.1.et: byte 8: a message of \d+ bytes, but \d+ follow; is it truncated"),
    (GOOD + b"\x80", "the file ends in the middle of a length field"),
    (GOOD + varint(MAX_MESSAGE_BYTES + 1), "at most 16777216 are allowed"),
    (trace(b"\xff\xff"), "node 0: is not a message of a Chakra trace"),
    (trace(collective(7, 11, 8)), r"node 7 \('node'\): comm_type: must be from 0 to 9 \(given: 11\)"),
    (trace(node(7, COLLECTIVE, attribute("comm_type", INT64, 0))), r"node 7 \('node'\): comm_size: is missing"),
    (trace(node(7, SEND, attribute("comm_dst", INT32, 9))), "comm_dst: rank 9 has no endpoint; ranks go from 0"),
    (trace(node(7, SEND, attribute("comm_dst", STRING, b"9"))), "comm_dst: must be a whole number"),
    (trace(collective(7, 0, 8, attribute("pg_name", STRING, b"dp"))), "pg_name: no group is called 'dp'"),
    (trace(collective(7, 0, 8, attribute("involved_dim", BOOL_LIST, b"\x0a\x02\x01\x00"))),
     "involved_dim: only some ranks"),
])  # fmt: skip
def test_a_broken_trace_is_refused_with_its_place(tmp_path: Path, data: bytes, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        job_spec(written(tmp_path, GOOD, data), given(2))


def test_the_trace_of_one_rank_does_if_all_calls_are_of_all_ranks(tmp_path: Path) -> None:
    pair = trace(collective(1, 0, 8, attribute("pg_name", STRING, b"pair")))
    files = written(tmp_path, GOOD, pair, pair)
    assert [c.bytes_per_iteration for c in job_spec(files[:1], given(3)).collectives] == [8]
    with pytest.raises(
        InvalidInput, match="the trace of rank 0 is missing; the rank may have groups that no other rank has"
    ):
        job_spec(files[1:], given(3, groups=[{"name": "pair", "ranks": [1, 2]}]))
    with pytest.raises(InvalidInput, match="endpoints: rank 2 has a trace but no address"):
        job_spec(written(tmp_path, GOOD, GOOD, GOOD), given(2))


def test_files_are_taken_by_the_numbers_in_their_names(tmp_path: Path) -> None:
    """A shell sorts trace.10 before trace.2."""
    files = written(tmp_path, *[trace(node(0, SEND, *to(rank))) if rank == 10 else trace() for rank in range(11)])
    (tmp_path / "trace.2.et").write_bytes(trace(node(0, RECEIVE, *by(10))))
    spec = job_spec(sorted(files), given(11))
    assert [(t.src, t.dst) for t in spec.transfers] == [(10, 2)]
    (same := tmp_path / "other.2.et").write_bytes(GOOD)
    with pytest.raises(InvalidInput, match="the file name gives rank 2, and so does"):
        job_spec([*files, same], given(11))


def to(_: int) -> tuple[bytes, bytes]:
    return attribute("comm_dst", INT32, 2), attribute("comm_size", INT64, 8)


def by(rank: int) -> tuple[bytes, bytes]:
    return attribute("comm_src", INT32, rank), attribute("comm_size", INT64, 8)
