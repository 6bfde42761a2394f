"""Dumps of PyTorch's flight recorder: those in tests/data are recorded, others are written here."""

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from signalbox.errors import InvalidInput
from signalbox.jobs.spec import JobSpec
from signalbox.traces.flight_recorder import job_spec
from tests.support.doc_pages import ROOT

RECORDED = ROOT / "tests/data/flight_recorder"
PICKLES = [RECORDED / f"rank_{rank}" for rank in range(4)]


def given(ranks: int, **more: object) -> JobSpec:
    return JobSpec.parse({"job_id": "traced", "endpoints": [f"10.0.{rank + 1}.1" for rank in range(ranks)], **more})


def sends(spec: JobSpec) -> list[tuple[str, tuple[str, ...], int, int]]:
    return [(c.algorithm, c.groups, c.bytes_per_iteration, c.phase) for c in spec.collectives]


def test_what_gloo_did_in_four_ranks() -> None:
    """The dumps are those of record.py, whose iteration is known.

    The iteration has an all-reduce of 16 x 16 weights and 16 biases, and an all-reduce of 6 numbers in each pair of
    ranks. A reduce-scatter of 12 numbers follows, which Gloo carries out and records as an all-reduce. The last calls
    are an all-gather of 12 numbers and a broadcast of 5. All numbers are float32. Calls before the iteration do not
    count. The ranks of each pair follow from the ranks that record the pair's calls."""
    spec = job_spec(PICKLES, given(4))
    assert spec.library == "gloo"
    assert {group.name: group.ranks for group in spec.groups} == {"0": (0, 1, 2, 3), "1": (0, 1), "2": (2, 3)}
    assert sends(spec) == [
        ("all_reduce", ("1", "2"), 24, 0),
        ("all_reduce", ("0",), 1088 + 48, 0),
        ("all_gather", ("0",), 48, 1),
        ("broadcast", ("0",), 20, 2),
    ]
    assert job_spec([RECORDED / "rank_0.json", *PICKLES[1:]], given(4)) == spec, "JSON says the same as a pickle"


def test_one_rank_does_not_say_what_others_do_in_their_groups() -> None:
    with pytest.raises(InvalidInput, match=r"rank_0: the ranks of process group '1' are not recorded"):
        job_spec(PICKLES[:1], given(4))


WORLD = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2]"}}


def entry(what: str, shape: list[int], out: list[int] | None = None, **more: object) -> dict[str, Any]:
    """Return an entry as the process group of NCCL writes it."""
    return {
        "process_group": ("0", "default_pg"), "profiling_name": f"nccl:{what}", "input_sizes": [shape],
        "input_dtypes": ["BFloat16"], "output_sizes": [out or shape], "output_dtypes": ["BFloat16"],
        "state": "completed", **more,
    }  # fmt: skip


def dumped(folder: Path, *ranks: list[dict[str, Any]], config: object = WORLD) -> list[Path]:
    files = [folder / f"nccl_trace_rank_{rank}" for rank in range(len(ranks))]
    for file, entries in zip(files, ranks, strict=True):
        file.write_bytes(pickle.dumps({"version": "2.4", "pg_config": config, "entries": entries}))
    return files


def of_all(folder: Path, *entries: dict[str, Any], **more: Any) -> JobSpec:
    return job_spec(dumped(folder, *[list(entries) * 3] * 3, **more), given(3))


@pytest.mark.parametrize(
    ("call", "algorithm", "size"),
    [
        (entry("all_reduce", [10, 5]), "all_reduce", 100),
        (entry("allreduce_coalesced", [10], input_sizes=[[10], [40]]), "all_reduce", 100),
        (entry("_all_gather_base", [50], [150]), "all_gather", 300),
        (entry("all_gather", [50], input_dtypes=["Float8_e4m3fn"]), "all_gather", 150),
        (entry("_reduce_scatter_base", [150], [50]), "reduce_scatter", 300),
        (entry("broadcast", [50]), "broadcast", 100),
        (entry("all_to_all", [150]), "all_to_all", 300),
    ],
)
def test_the_size_of_each_collective(tmp_path: Path, call: dict[str, Any], algorithm: str, size: int) -> None:
    assert sends(of_all(tmp_path, call)) == [(algorithm, ("0",), size, 0)]


def test_rooted_calls_are_chains_or_transfers(tmp_path: Path) -> None:
    spec = of_all(tmp_path, entry("reduce", [50]))
    assert [group.ranks for group in spec.groups] == [(2, 1, 0)]
    assert sends(spec) == [("pipeline_send", ("0",), 100, 0)]
    spec = of_all(tmp_path, entry("broadcast", [50], root=2), entry("broadcast", [30], root=0))
    assert {group.name: group.ranks for group in spec.groups} == {"0": (2, 0, 1), "0-1": (0, 1, 2)}
    assert sends(spec) == [("broadcast", ("0",), 100, 0), ("broadcast", ("0-1",), 60, 1)]
    spec = of_all(tmp_path, entry("gather", [50], root=1))
    assert [(t.src, t.dst) for t in spec.transfers] == [(0, 1), (2, 1)]
    spec = of_all(tmp_path, entry("gather", [50]), entry("scatter", [5], [5]))
    found = [(t.src, t.dst, t.bytes_per_iteration, t.phase) for t in spec.transfers]
    assert found == [(1, 0, 100, 0), (2, 0, 100, 0), (0, 1, 10, 1), (0, 2, 10, 1)]


def test_a_reduction_of_gloo_is_a_ring_and_a_gather(tmp_path: Path) -> None:
    """Gloo sends (n-1)/n·M from each rank to the rank before, and M/n from each other rank to the root.

    M is 300 bytes here. With 1.6 MB over 4 ranks the kernel has counted 1.2 and 0.4 MB."""
    spec = of_all(tmp_path, entry("reduce", [150], profiling_name="gloo:reduce", root=1))
    sent = [(t.src, t.dst, t.bytes_per_iteration) for t in spec.transfers]
    assert sent == [(0, 1, 100), (0, 2, 200), (1, 0, 200), (2, 1, 200), (2, 1, 100)]
    assert spec.collectives == ()


def test_a_send_is_one_with_its_receive_and_a_coalesced_call_none_of_its_own(tmp_path: Path) -> None:
    """Ranks in the title of a call are numbered within the group."""
    group: dict[str, Any] = {"process_group": ["7", "mesh_pp"]}
    send = entry("send 0->1", [4]) | group
    take = entry("recv 1<-0", [], [4]) | group
    done = entry("coalesced", [4]) | group
    files = dumped(tmp_path, [done] * 4, [send, done] * 4, [take, done] * 4, config={"7": {"ranks": [1, 2]}})
    files[0].write_bytes(pickle.dumps({"version": "2.4", "entries": []}))
    spec = job_spec(files, given(3))
    assert [(t.src, t.dst, t.bytes_per_iteration) for t in spec.transfers] == [(1, 2, 8)]


def test_what_a_dump_lacks_is_known_from_other_ranks_or_the_user(tmp_path: Path) -> None:
    files = dumped(tmp_path, *[[entry("all_reduce", [50]), entry("barrier", [])] * 3] * 3)
    assert sends(job_spec(files[1:2], given(3))) == [("all_reduce", ("0",), 100, 0)]
    with pytest.raises(InvalidInput, match="endpoints: process group '0' has rank 2; there are 2 addresses"):
        job_spec(files, given(2))
    files = dumped(tmp_path, *[[entry("all_reduce", [50])] * 3] * 3)
    spec = job_spec(files, given(3, groups=[{"name": "default_pg", "ranks": [2, 0, 1]}], library="generic"))
    assert [(group.name, group.ranks) for group in spec.groups] == [("default_pg", (2, 0, 1))]
    assert spec.library == "generic"
    old = entry("all_reduce", [50])
    del old["process_group"]
    files = dumped(tmp_path, [], [], [])
    for file in files:
        file.write_bytes(pickle.dumps([old] * 3))
    assert sends(job_spec(files, given(3))) == [("all_reduce", ("0",), 100, 0)]


class Runs:
    """Class whose pickle creates a file when a reader executes it."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (Path("ran"),))


GOOD = pickle.dumps({"entries": [entry("all_reduce", [50])] * 2, "pg_config": WORLD})
LARGE_PLACE = b"\x80\x02}r\xff\xff\xff\x7f."
"""Pickle whose LONG_BINPUT stores a value at place 2,147,483,647 of the memo."""
NESTED = b")\x94" + b"".join(b"h%ch%c\x86\x94" % (place, place) for place in range(60))
"""Pickle of sixty nested pairs, each of which holds the next pair twice (MEMOIZE, BINGET, TUPLE2).

To hash the outermost pair takes 2^60 steps."""


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is neither JSON nor a pickle"),
        (GOOD[:-9], "is neither JSON nor a pickle"),
        (b'{"entries": [', "is neither JSON nor a pickle"),
        (b"[" * 100_000, "is neither JSON nor a pickle"),
        (pickle.dumps(Runs()), "a pickle of plain data: instruction (STACK_GLOBAL|REDUCE) at byte"),
        (pickle.dumps(Path), "instruction STACK_GLOBAL"),
        (pickle.dumps(bytearray(9), 5), "instruction BYTEARRAY8"),
        (LARGE_PLACE, "instruction LONG_BINPUT"),
        (b"\x80\x04}(" + NESTED + b"K\x01u.", "keys that are neither texts nor numbers"),
        (b"\x80\x04}" + NESTED + b"K\x01s.", "keys that are neither texts nor numbers"),
        (b"\x80\x02e.", "is neither JSON nor a pickle"),
        (b'{"entries": [3]}', "has no list 'entries' of objects"),
        (b"[" + b"{}," * 100_000 + b"{}]", "at most 100000 entries are allowed"),
    ],
)  # fmt: skip
def test_what_is_no_dump_is_refused_and_nothing_of_it_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: bytes, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (file := tmp_path / "rank_0").write_bytes(data)
    with pytest.raises(InvalidInput, match=f"rank_0: .*{message}"):
        job_spec([file], given(2))
    assert not Path("ran").exists()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"profiling_name": 3}, r"entries\[0\]: profiling_name: must be like nccl:all_reduce"),
        ({"profiling_name": "nccl:mystery"}, r"entries\[0\]: profiling_name: 'mystery' is not a known kind of call"),
        ({"profiling_name": "nccl:send"}, "must name two ranks within the group, 0 to 2"),
        ({"profiling_name": "nccl:broadcast", "root": 3}, "root: must be a rank within the group, 0 to 2"),
        ({"profiling_name": "nccl:broadcast", "root": True}, "root: must be a rank within the group, 0 to 2"),
        ({"input_sizes": 3}, "input_sizes: must be a list of shapes, with input_dtypes for each"),
        ({"input_sizes": [[-1]]}, "input_sizes: must be a list of shapes such as"),
        ({"input_sizes": [[1]] * 2000}, "input_sizes: at most 1024 tensors are allowed"),
        ({"input_dtypes": ["Quaternion"]}, "input_dtypes: the size of 'Quaternion' is not known; known are byte"),
        ({"input_dtypes": [3]}, "input_dtypes: must be a list of type names such as Float"),
        ({"process_group": 3}, "process_group: must be a list of two texts"),
        ({"process_group": ("9", "undefined")}, "the ranks of process group '9' are not recorded"),
    ],
)
def test_a_wrong_entry_is_refused_with_its_place(tmp_path: Path, wrong: dict[str, Any], message: str) -> None:
    (file := tmp_path / "rank_0.json").write_text(json.dumps({"entries": [entry("all_reduce", [50]) | wrong] * 2}))
    with pytest.raises(InvalidInput, match=message):
        job_spec([file], given(3))


def test_dumps_that_contradict_each_other_are_refused(tmp_path: Path) -> None:
    one = entry("all_reduce", [50])
    files = dumped(tmp_path, [one] * 2, [one] * 2, [one] * 2)
    files[1].write_bytes(pickle.dumps({"entries": [one] * 2, "pg_config": {"0": {"ranks": "[0, 1]"}}}))
    with pytest.raises(
        InvalidInput, match="rank_1: pg_config: process group '0' has ranks 0, 1, but ranks 0, 1, 2 in another"
    ):
        job_spec(files, given(3))
