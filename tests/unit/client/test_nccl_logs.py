"""Logs of NCCL. The lines have the formats of public logs (named where they differ), with our hosts and numbers."""

from collections.abc import Callable
from pathlib import Path

import pytest

from signalbox.errors import InvalidInput
from signalbox.jobs.spec import JobSpec
from signalbox.traces.nccl import job_spec

Lines = list[str]


def head(rank: int, per_host: int = 2) -> str:
    return f"node{rank // per_host}:{100 + rank}:{200 + rank} [{rank % per_host}] NCCL INFO "


def network(rank: int, per_host: int = 2) -> Lines:
    using = f"NET/Socket : Using [0]eth0:10.0.{rank // per_host + 1}.1<0>"
    return [head(rank, per_host) + text for text in (using, "Using network Socket")]


def comm(rank: int, event: str, comm_id: str = "0xabc") -> str:
    """Return the line of an initialized communicator; it has a commId from NCCL 2.18 on (NVIDIA/nccl #1605)."""
    text = f"ncclCommInitRank comm {0x55 + rank:#x} rank {rank} nranks 4 cudaDev 0 nvmlDev 0 busId 1a000"
    return head(rank) + text + (f" commId {comm_id}" if comm_id else "") + f" - Init {event}"


def call(rank: int, what: str, count: int, number: int, size: int, root: int = 0, pointer: int = 0x55) -> str:
    """Return the line of a call; formats of NVIDIA/nccl #1193, #203. Datatype 7 has four bytes."""
    text = f"{what}: opCount {number:x} sendbuff 0x7f1 recvbuff 0x7f2 count {count} datatype 7 op 0 root {root}"
    return head(rank) + f"{text} comm {pointer + rank:#x} [nranks={size}] stream 0x9"


def rings(rank: int, orders: list[list[int]]) -> Lines:
    """Return the lines of rings: the previous rank, the rank itself and the next rank (NVIDIA/nccl #1189)."""
    found = []
    for channel, order in enumerate(orders):
        at = order.index(rank)
        before, after = order[at - 1], order[(at + 1) % len(order)]
        found.append(head(rank) + f"Ring {channel:02} : {before} -> {rank} -> {after}")
    return found


ORDERS = [[0, 1, 3, 2], [0, 2, 3, 1]]
TREES = ["1/2/-1->0->-1", "-1/-1/-1->1->0", "3/-1/-1->2->0", "-1/-1/-1->3->2"]


def of_rank(rank: int, calls: int = 4, comm_id: str = "0xabc") -> Lines:
    listed = [head(0) + f"Channel {c:02}/02 : " + "".join(f"{r:4}" for r in order) for c, order in enumerate(ORDERS)]
    return [
        *network(rank),
        comm(rank, "START", comm_id=comm_id),
        head(rank) + f"comm {0x55 + rank:#x} rank {rank} nRanks 4 nNodes 2 localRanks 2 localRank {rank % 2} MNNVL 0",
        *(listed if rank == 0 else []),
        *rings(rank, ORDERS),
        head(rank) + f"Trees [0] {TREES[rank]} [1] {TREES[rank]}",
        head(rank) + f"Channel 00/0 : {rank}[0] -> {(rank + 1) % 4}[1] [send] via NET/Socket/0",
        comm(rank, "COMPLETE", comm_id=comm_id),
        *[call(rank, "AllReduce", 1000, number, 4) for number in range(calls)],
    ]


def everyone(make: Callable[[int], Lines] = of_rank) -> Lines:
    return [line for rank in range(4) for line in make(rank)]


def spec_of(lines: Lines, folder: Path, given: dict[str, object] | None = None, **options: int) -> JobSpec:
    file = folder / "job.log"
    file.write_text("\n".join(lines) + "\n")
    return job_spec([file], {"job_id": "logged", **(given or {})}, **options)


def sent(spec: JobSpec) -> dict[tuple[int, int], int]:
    return {(t.src, t.dst): t.bytes_per_iteration for t in spec.transfers}


RING = {(0, 1): 3000, (1, 3): 3000, (3, 2): 3000, (2, 0): 3000}
"""Bytes of an all-reduce of M = 4,000 bytes, half of it in each channel: 2·3/4 of 2,000 on each link of a ring."""
BOTH_WAYS = RING | {(b, a): size for (a, b), size in RING.items()}


def test_an_all_reduce_goes_along_the_rings_of_all_channels_and_interfaces_are_rails(tmp_path: Path) -> None:
    spec = spec_of(everyone(), tmp_path)
    assert spec.endpoints == ("10.0.1.1", "10.0.1.1", "10.0.2.1", "10.0.2.1")
    assert (spec.library, sent(spec)) == ("nccl", BOTH_WAYS)
    lines = [line.replace(".1<0>", f".1<0> [1]eth1:10.1.{1 + ('node1' in line)}.1<0>") for line in everyone()]
    spec = spec_of(lines, tmp_path)
    assert [rail.endpoints for rail in spec.rails] == [("10.1.1.1", "10.1.1.1", "10.1.2.1", "10.1.2.1")]


PREFIXES: dict[str, Callable[[int, str], str]] = {
    "mpirun": lambda rank, line: f"[1,{rank}]<stdout>:{line}",  # NVIDIA/nccl #300
    "torchrun": lambda rank, line: f"[default{rank}]:{line}",
    "srun --label": lambda rank, line: f"{rank}: {line}",
    "Ray": lambda rank, line: f"\x1b[36m(RayTrainWorker pid={rank}, ip=10.9.9.9)\x1b[0m {line}",  # NVIDIA/nccl #1193
    "logging": lambda _, line: f"2025-11-12 20:41:43,851 - INFO - {line}",
    # NVIDIA/nccl #147, #1453
    "within another line": lambda _, line: f"     131072    float  node9:1:2 [0] NCCL INFO {line}",
}


@pytest.mark.parametrize("launcher", PREFIXES)
def test_what_launchers_write_before_a_line_does_not_matter(launcher: str, tmp_path: Path) -> None:
    each = [[PREFIXES[launcher](rank, line) for line in of_rank(rank)] for rank in range(4)]
    interleaved = [line for lines in zip(*(lines[-12:] for lines in each), strict=True) for line in lines]
    lines = [line for one in each for line in one[:-12]] + ["step 3 loss 0.1"] + interleaved
    assert sent(spec_of(lines, tmp_path)) == BOTH_WAYS


@pytest.mark.parametrize("line", ["NCCL_ALGO set by environment to Tree", "TUNED"])
def test_trees_are_taken_where_the_log_says_so(line: str, tmp_path: Path) -> None:
    """NVIDIA/nccl #1453: Algo 0 is the tree. Each channel sends 2,000 bytes to the parent, and 2,000 back."""
    lines = everyone()
    if line == "TUNED":
        lines += [call(0, "AllReduce", 1000, 9, 4), head(0) + "4000 Bytes -> Algo 0 proto 2 time 37.8"]
        lines += [call(rank, "AllReduce", 1000, 9, 4) for rank in (1, 2, 3)]
    else:
        lines = [head(0) + line, *lines]
    edges = [(1, 0), (2, 0), (3, 2)]
    assert sent(spec_of(lines, tmp_path)) == dict.fromkeys([*edges, *((b, a) for a, b in edges)], 4000)


@pytest.mark.parametrize(
    "trees",
    [
        ["-1->0->1/2/-1", "0->1->-1/-1/-1", "0->2->3/-1/-1", "2->3->-1/-1/-1"],  # NVIDIA/nccl #226, #246
        [  # NVIDIA/nccl #300
            *("1/2/-1->0->-1|-1->0->1/2/-1", "-1/-1/-1->1->0|0->1->-1/-1/-1"),
            *("3/-1/-1->2->0|0->2->3/-1/-1", "-1/-1/-1->3->2|2->3->-1/-1/-1"),
        ],
    ],
    ids=["parent first", "with a bar"],
)
def test_older_forms_of_trees(trees: Lines, tmp_path: Path) -> None:
    def lines(rank: int) -> Lines:
        made = [line for line in of_rank(rank) if "Trees" not in line]
        made.insert(4, head(rank) + f"Trees [0] {trees[rank]} [1] {trees[rank]}")
        return made

    environment = head(0) + "NCCL_ALGO set by environment to Tree"
    assert sent(spec_of([environment, *everyone(lines)], tmp_path))[3, 2] == 4000


def test_single_lines_of_trees_have_the_parent_first(tmp_path: Path) -> None:
    """NVIDIA/nccl #1189: each line must agree with all other lines, or the log is refused."""
    line = head(2) + "Tree 1 : 0 -> 2 -> 3/-1/-1"
    lines = everyone()
    lines.insert(lines.index(comm(2, "COMPLETE")), line)
    assert sent(spec_of(lines, tmp_path)) == BOTH_WAYS
    lines[lines.index(line)] = head(2) + "Tree 1 : 1 -> 2 -> 3/-1/-1"
    with pytest.raises(InvalidInput, match=r"job.log:\d+: tree 1 of rank 2"):
        spec_of(lines, tmp_path)


def test_logs_in_a_file_per_rank_of_old_versions_and_with_a_communicator_of_one_rank(tmp_path: Path) -> None:
    """Before version 2.18 the communicator is named at its end.

    The log of NVIDIA/nccl-tests #136 has a communicator of one rank."""
    files = [tmp_path / f"{rank}.log" for rank in range(4)]
    for rank, file in enumerate(files):
        old = [line for line in of_rank(rank, comm_id="") if "START" not in line and "nRanks" not in line]
        alone = f"comm 0x1 rank 0 nranks 1 cudaDev 0 busId 30 commId {rank:#x} - Init "
        file.write_text("\n".join([head(rank) + alone + "START", head(rank) + alone + "COMPLETE", *old]))
    assert sent(job_spec(files, {"job_id": "logged"})) == BOTH_WAYS


def test_listed_rings_do_where_no_rank_has_its_own(tmp_path: Path) -> None:
    """The log of NVIDIA/nccl #1605 has no GRAPH lines; in #226, ``Ring`` with two numbers is a connection."""
    lines = [line for line in everyone() if "INFO Ring" not in line]
    connection = head(0) + "Ring 00 : 0 -> 2 [send] via NET/Socket/0"
    assert sent(spec_of([*lines, connection], tmp_path)) == BOTH_WAYS
    cut = [line.replace("   0   1   3   2", "   0   1   3") for line in lines]
    with pytest.raises(InvalidInput, match="no line 'Channel 00' has all ranks; run the job with NCCL_DEBUG_SUBSYS"):
        spec_of(cut, tmp_path)


@pytest.mark.parametrize(
    ("what", "sizes"),
    [
        ("ReduceScatter", {(0, 1): 6000, (1, 0): 6000}),
        ("AllGather", {(0, 1): 6000, (1, 0): 6000}),
        ("Broadcast", {(0, 1): 2000, (1, 0): 2000, (2, 0): 2000, (0, 2): 0}),
        ("Reduce", {(0, 1): 2000, (1, 0): 2000, (2, 0): 0, (0, 2): 2000}),
        ("AlltoAll", {(0, 1): 4000, (0, 3): 4000}),
    ],
)
def test_other_collectives(what: str, sizes: dict[tuple[int, int], int], tmp_path: Path) -> None:
    """Counts of an all-gather and a reduce-scatter are counts of a rank's share.

    The root is rank 2, in the rings 0 1 3 2 and 0 2 3 1. A broadcast does not use the links 3 to 2 and 0 to 2. A
    reduction does not use the links 2 to 0 and 2 to 3."""
    lines = [line.replace("AllReduce", what).replace("root 0", "root 2") for line in everyone()]
    found = sent(spec_of(lines, tmp_path))
    assert {pair: found.get(pair, 0) for pair in sizes} == sizes


def test_sends_and_receives_are_of_one_transfer(tmp_path: Path) -> None:
    def calls(rank: int) -> Lines:
        name, peer = ("Send", 2) if rank == 1 else ("Recv", 1)
        more = [call(rank, name, 50, number, 4, root=peer) for number in range(3)] if rank in (1, 2) else []
        return [*of_rank(rank, calls=0), *more]

    assert sent(spec_of(everyone(calls), tmp_path)) == {(1, 2): 200}


def test_two_communicators_of_one_size(tmp_path: Path) -> None:
    """Ranks 0 and 2 have one communicator, ranks 1 and 3 another. Each communicator has its own ranks 0 and 1."""

    def pair(rank: int, comm_id: str) -> Lines:
        own, text = rank // 2, f"comm {0x900 + rank:#x} rank {rank // 2} nranks 2 cudaDev 0 busId 1a000{comm_id}"
        return [
            head(rank) + f"ncclCommSplit {text} - Init START",
            head(rank) + f"Ring 00 : {1 - own} -> {own} -> {1 - own}",
            head(rank) + f"ncclCommSplit {text} - Init COMPLETE",
            *[call(rank, "AllReduce", 25, n, 2, pointer=0x900) for n in range(4)],
        ]

    spec = spec_of(everyone(lambda rank: of_rank(rank, 0) + pair(rank, f" commId {0xD0 + rank % 2:#x}")), tmp_path)
    assert sent(spec) == {(0, 2): 100, (2, 0): 100, (1, 3): 100, (3, 1): 100}
    with pytest.raises(
        InvalidInput, match=r"rank 0 of 2 is also in .*; from version 2.18 on, NCCL logs which ranks belong together"
    ):
        spec_of(everyone(lambda rank: of_rank(rank, 0) + pair(rank, "")), tmp_path)


def test_a_second_communicator_of_all_ranks(tmp_path: Path) -> None:
    """The second communicators of all processes have no commId and count as one. All bytes are added."""

    def two(rank: int) -> Lines:
        again = [line.replace(f"{0x55 + rank:#x}", f"{0x800 + rank:#x}") for line in of_rank(rank, comm_id="")]
        return of_rank(rank, comm_id="") + again

    assert sent(spec_of(everyone(two), tmp_path, iterations=4)) == dict.fromkeys(BOTH_WAYS, 6000)


def test_without_calls_the_user_says_the_bytes_or_switches_measure_them(tmp_path: Path) -> None:
    lines = everyone(lambda rank: of_rank(rank, calls=0))
    assert spec_of(lines, tmp_path).observed
    assert sent(spec_of(lines, tmp_path, all_reduce_bytes=4000)) == BOTH_WAYS
    with pytest.raises(InvalidInput, match="--bytes: omit this option: the log has calls"):
        spec_of(everyone(), tmp_path, all_reduce_bytes=4000)


@pytest.mark.parametrize("network", ["Using network IB", "Initialized NET plugin IB", ""])
def test_addresses_of_infiniband_are_not_in_the_log(network: str, tmp_path: Path) -> None:
    """NVIDIA/nccl #2047: plugins are used from 2.27 on. In all versions the lines of connections name the network."""
    lines = [line.replace("Using network Socket", network) for line in everyone()]
    lines = [line.replace("via NET/Socket/0", "via NET/IB/0/GDRDMA") for line in lines]
    with pytest.raises(InvalidInput, match=r"endpoints: host node0 uses the network IB.*--endpoints"):
        spec_of(lines, tmp_path)
    addresses = ["10.9.0.1", "10.9.0.1", "10.9.0.2", "10.9.0.2"]
    assert spec_of(lines, tmp_path, {"endpoints": addresses}).endpoints == tuple(addresses)
    with pytest.raises(InvalidInput, match=r"endpoints: must have one address per rank of the log, 4 \(given: 2\)"):
        spec_of(lines, tmp_path, {"endpoints": addresses[1:3]})


def without(text: str) -> Lines:
    found = [line for line in everyone() if text not in line]
    assert len(found) < len(everyone())
    return found


def changed(old: str, new: str) -> Lines:
    found = [line.replace(old, new) for line in everyone()]
    assert found != everyone()
    return found


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], "run the job with NCCL_DEBUG=INFO"),
        (without("node1:103:"), "communicator 0xabc of 4 ranks: has no line of rank 3; give the output of all ranks"),
        (without("Ring 01 : 3 -> 1"), "communicator 0xabc of 4 ranks: has no line 'Ring 01' of rank 1 on host node0"),
        (changed("Ring 01 : 3 -> 1 -> 0", "Ring 01 : 2 -> 1 -> 0"), "ring 01: rank 3 sends to 1, which does not"),
        (changed("Ring 00 : 2 -> 0 -> 1", "Ring 00 : 2 -> 0 -> 9"), "ring 00: rank 0 sends to 9"),
        (changed("   0   2   3   1", "   0   1   2   3"), r"rank 0 lists channel 1 as \(0, 1, .* give \(0, 2"),
        ([*everyone(), *of_rank(0)], "rank 0 of 4 is also in .*job.log:3"),
        (changed("rank 1 nranks 4 cudaDev 0 nvmlDev 0 busId 1a000 commId 0xabc - Init C", "rank 2 nranks 4 - Init C"),
         r"job.log:\d+: comm 0x56 has rank 2 of 4 here, and rank . of 4 in "),
        (changed("nranks 4 cuda", "nranks 99999 cuda"), "the communicator has 99999 ranks; at most 4096 are allowed"),
        (changed("comm 0x57 [nranks=4]", "comm 0x999 [nranks=4]"), r"job.log:\d+: no earlier line .* comm 0x999"),
        (changed("AllReduce", "Mystery"), "'Mystery' is not a known kind of call; known are AllReduce"),
        (changed("datatype 7", "datatype 77"), "datatype 77 is not one of 0 to"),
        (changed("root 0", "root 77"), "root 77 is not a rank from -1 to 3"),
        (changed("eth0:10.0.2.1<0>", "eth0:10.0.2.1<0> [1]eth1:10.1.2.1<0>"), "different numbers of interfaces"),
        (changed("eth0:10.0.2.1", "eth0:fe80::1%eth0"), r"endpoints\[2\]: must be an IPv4 address"),
        ([*everyone(), head(0).replace("200 ", "999 ") + "Ring 00 : 1 -> 0 -> 1"], "rank 0 has a ring or tree, but no"),
        ([*everyone(), network(0)[0].replace("10.0.1.1", "10.0.9.1")], "addresses of node0"),
    ],
)  # fmt: skip
def test_logs_that_lack_or_contradict_something_are_refused(lines: Lines, message: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=message):
        spec_of(lines, tmp_path)


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ("-1/-1/-1->3->1", "tree 0: rank 3 has the parent 1, which does not list it as a child"),
        ("-1/-1/-1->3->-1", "tree 0 must have one root"),
    ],
)
def test_trees_that_contradict_themselves_are_refused(tree: str, message: str, tmp_path: Path) -> None:
    lines = [line.replace(f"[0] {TREES[3]}", f"[0] {tree}") for line in everyone()]
    with pytest.raises(InvalidInput, match=message):
        spec_of([head(0) + "NCCL_ALGO set by environment to Tree", *lines], tmp_path)


@pytest.mark.parametrize(
    "text",
    ["a" * 300_000, "NET/Socket : Using " + "a" * 300_000, "Channel 00 :" + " 1" * 100_000 + "x", "Ring " * 100_000],
    ids=["letters", "interfaces", "channels", "rings"],
)
def test_a_long_line_costs_no_more_than_reading_it(text: str, tmp_path: Path) -> None:
    assert sent(spec_of([head(0) + text, "x" * 300_000, *everyone()], tmp_path)) == BOTH_WAYS
