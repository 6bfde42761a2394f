"""Make a job spec from logs of NCCL: the transfers over the rings and trees that the ranks report.

If no bytes are known, the spec has only endpoints. The lines ``Ring previous -> self -> next`` of all ranks and
channels determine the rings, and must agree with the rings that rank 0 lists. When no rank of a communicator has lines
``Ring`` (``NCCL_DEBUG_SUBSYS`` without ``GRAPH``), the rings that rank 0 lists are used if they have all ranks. A log
that lacks a rank or channel, or contradicts itself, is refused.

A call divides its bytes over all channels. On each ring, the call makes the transfers of ``formulas`` for NCCL.
All-reduces use the trees when the log says so (``NCCL_ALGO``, or a line of the subsystem ``TUNING``). With trees, each
rank sends M divided by the number of channels to its parent, and receives as many bytes from the parent.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from signalbox.errors import FieldProblem, InvalidInput
from signalbox.files import called, opened
from signalbox.jobs.formulas import formula
from signalbox.jobs.spec import Algorithm, JobSpec, Library
from signalbox.traces.calls import SEND, Amount, Call, Kind, per_iteration, transfer, with_traffic
from signalbox.traces.nccl_log import MAX_LINE_BYTES, Log, Member, NcclCall, Process, read

_DATATYPE_BYTES = (1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1)
"""Bytes per element, by NCCL's number of the datatype.

The datatypes are int8 uint8 int32 uint32 int64 uint64 float16 float32 float64 bfloat16, and two of float8."""

_ALGORITHMS = {
    "AllReduce": Algorithm.ALL_REDUCE,
    "AllGather": Algorithm.ALL_GATHER,
    "ReduceScatter": Algorithm.REDUCE_SCATTER,
    "Broadcast": Algorithm.BROADCAST,
    "Reduce": Algorithm.BROADCAST,  # the same chain with the root at its end
    "AlltoAll": Algorithm.ALL_TO_ALL,
}
_SENDS = ("Send", "Recv")
_TREE = ("tree", "0")
"""Names of the tree algorithm, as in ``NCCL_ALGO`` and in lines of the subsystem ``TUNING``."""


@dataclass(frozen=True)
class Communicator:
    """Communicator of NCCL: a group of ranks.

    - ``members``: state of each rank, ordered by rank
    - ``rings``: for each channel, the ranks in the order in which bytes travel"""

    members: tuple[Member, ...]
    rings: tuple[tuple[int, ...], ...]

    @property
    def name(self) -> str:
        return self.members[0].comm_id or self.members[0].pointer

    @cached_property
    def tuned(self) -> Mapping[tuple[str, int], str]:
        """Algorithm that NCCL chose for calls, by operation and bytes, as far as some rank has logged it."""
        return dict(item for member in self.members for item in member.tuned.items())

    def tree_edges(self) -> list[tuple[int, int]]:
        """Return the edges of the trees of all channels, as pairs (child, parent) of ranks. Raises ``InvalidInput``."""
        found: list[tuple[int, int]] = []
        for channel in range(len(self.rings)):
            trees = [member.trees.get(channel) for member in self.members]
            for rank, tree in enumerate(trees):
                if tree is None:
                    raise InvalidInput.of(f"communicator {self.name}", f"tree {channel} of rank {rank} is missing")
                parent = trees[tree.parent] if 0 <= tree.parent < len(trees) else None
                if tree.parent != -1 and (parent is None or rank not in parent.children):
                    message = (
                        f"tree {channel}: rank {rank} has the parent {tree.parent}, which does not list it as a child"
                    )
                    raise InvalidInput.of(f"communicator {self.name}", message)
                if tree.parent != -1:
                    found.append((rank, tree.parent))
            if sum(tree.parent == -1 for tree in trees if tree) != 1:
                raise InvalidInput.of(f"communicator {self.name}", f"tree {channel} must have one root")
        return found


def job_spec(
    files: Sequence[Path], given: Mapping[str, Any], iterations: int | None = None, all_reduce_bytes: int | None = None
) -> JobSpec:
    """Return the job spec of the logs. Raises ``InvalidInput`` and ``OSError``.

    - ``given``: fields of the job spec without its traffic; they include ``endpoints`` if the log has no addresses
    - ``iterations``: number of iterations in the log; None if it is unknown
    - ``all_reduce_bytes``: bytes that each iteration all-reduces; given only if the log has no calls"""
    log = read(line for file in files for line in _lines(file))
    communicators = _communicators(log)
    if not communicators:
        raise InvalidInput.of(
            "", "there is no line like 'NCCL INFO comm 0x... rank 0 nranks 2'; run the job with NCCL_DEBUG=INFO"
        )
    rank_of = _job_ranks(communicators)
    spec = JobSpec.parse({**_addresses(log, rank_of, given), **given})
    if len(spec.endpoints) != len(rank_of):
        raise InvalidInput.of(
            "endpoints", f"must have one address per rank of the log, {len(rank_of)} (given: {len(spec.endpoints)})"
        )
    amounts = _amounts(log, communicators, rank_of, iterations, all_reduce_bytes)
    sent: defaultdict[tuple[int, int, int], int] = defaultdict(int)
    by_name = {str(number): communicator for number, communicator in enumerate(communicators)}
    for kind, amount in amounts.items():
        for src, dst, size in _sent(kind, amount.bytes, by_name):
            sent[src, dst, amount.phase] += size
    transfers = tuple(transfer(src, dst, size, phase) for (src, dst, phase), size in sorted(sent.items()))
    return with_traffic(spec, Library.NCCL, transfers=transfers)


def _lines(file: Path) -> Iterator[tuple[str, bytes]]:
    with opened(file) as stream:
        number = 0
        while line := stream.readline(MAX_LINE_BYTES):
            number += 1
            yield f"{called(file)}:{number}", line


def _communicators(log: Log) -> list[Communicator]:
    """Return the communicators, the largest first.

    Ranks with the same communicator id belong together. NCCL before 2.18 logs no id. Without ids, the n-th
    communicators of a given size in all processes are taken as one communicator."""
    together: defaultdict[tuple[str, int, int], list[Member]] = defaultdict(list)
    made: defaultdict[tuple[Process, int], int] = defaultdict(int)
    for member in log.members:
        if member.size == 0:
            message = f"rank {member.rank} has a ring or tree, but no line 'comm 0x... rank {member.rank} nranks ...'"
            raise InvalidInput.of(member.where, message)
        if member.size > 1:
            nth = 0 if member.comm_id else made[member.process, member.size]
            made[member.process, member.size] += not member.comm_id
            together[member.comm_id, member.size, nth].append(member)
    return [_communicator(members) for _, members in sorted(together.items(), key=lambda item: -item[0][1])]


def _communicator(found: list[Member]) -> Communicator:
    size = found[0].size
    by_rank: dict[int, Member] = {}
    for member in found:
        other = by_rank.setdefault(member.rank, member)
        if other is not member:
            message = f"rank {member.rank} of {size} is also in {other.where}"
            if not member.comm_id:
                message += "; from version 2.18 on, NCCL logs which ranks belong together (commId)"
            raise InvalidInput.of(member.where, message)
    where = f"communicator {found[0].comm_id or found[0].pointer} of {size} ranks"
    missing = [rank for rank in range(size) if rank not in by_rank]
    InvalidInput.refuse(
        FieldProblem(where, f"has no line of rank {rank}; give the output of all ranks") for rank in missing
    )
    members = tuple(by_rank[rank] for rank in range(size))
    channels = 1 + max((channel for member in members for channel in member.rings), default=-1)
    listed = members[0].listed
    if not channels:
        return Communicator(members, _listed_rings(where, members[0], size))
    InvalidInput.refuse(
        FieldProblem(where, f"has no line 'Ring {channel:02}' of rank {rank} on host {members[rank].process[0]}")
        for channel in range(max(channels, members[0].listed_channels))
        for rank in range(size)
        if channel not in members[rank].rings
    )
    rings = tuple(_ring(where, channel, members) for channel in range(channels))
    for channel, ring in listed.items():
        if ring != rings[channel][: len(ring)]:
            raise InvalidInput.of(
                where, f"rank 0 lists channel {channel} as {ring}, but the lines of all ranks give {rings[channel]}"
            )
    return Communicator(members, rings)


def _listed_rings(where: str, first: Member, size: int) -> tuple[tuple[int, ...], ...]:
    for channel in range(max(1, first.listed_channels)):
        if sorted(first.listed.get(channel, ())) != list(range(size)):
            message = f"no rank has a line 'Ring {channel:02}', and no line 'Channel {channel:02}' has all ranks; "
            raise InvalidInput.of(where, message + "run the job with NCCL_DEBUG_SUBSYS=INIT,ENV,NET,GRAPH,COLL")
    return tuple(first.listed[channel] for channel in range(first.listed_channels))


def _ring(where: str, channel: int, members: Sequence[Member]) -> tuple[int, ...]:
    """Return the ranks in the order of a channel's ring, from rank 0 on.

    Raises ``InvalidInput`` unless the ring contains each rank exactly once."""
    found = [0]
    while len(found) <= len(members):
        rank, after = found[-1], members[found[-1]].rings[channel][1]
        if after >= len(members) or members[after].rings[channel][0] != rank:
            message = f"ring {channel:02}: rank {rank} sends to {after}, which does not receive from it"
            raise InvalidInput.of(where, message)
        if after == 0:
            break
        found.append(after)
    if len(found) != len(members):
        raise InvalidInput.of(where, f"ring {channel:02} does not pass each of the {len(members)} ranks once")
    return tuple(found)


def _job_ranks(communicators: Sequence[Communicator]) -> dict[Process, int]:
    """Return the rank in the job of each process; the processes of the largest communicator have the lowest ranks."""
    found: dict[Process, int] = {}
    for communicator in communicators:
        for member in communicator.members:
            found.setdefault(member.process, len(found))
    return found


def _addresses(log: Log, rank_of: Mapping[Process, int], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields ``endpoints`` and ``rails`` from the log's interfaces; empty if ``given`` has the endpoints."""
    if "endpoints" in given:
        return {}
    of_rank: list[tuple[str, ...]] = []
    for host, _, _ in rank_of:
        network = log.networks.get(host, "Socket")
        if network.lower() != "socket" or host not in log.addresses:
            why = f"uses the network {network}" if network.lower() != "socket" else "has no line 'NET/Socket : Using'"
            message = f"host {host} {why}, so the log lacks the host's address; give all addresses with --endpoints"
            raise InvalidInput.of("endpoints", message)
        of_rank.append(log.addresses[host])
    if len({len(addresses) for addresses in of_rank}) != 1:
        raise InvalidInput.of(
            "endpoints", "hosts have different numbers of interfaces; choose one address per rank with --endpoints"
        )
    endpoints, *rails = zip(*of_rank, strict=True)
    return {"endpoints": endpoints, "rails": tuple({"endpoints": rail} for rail in rails)}


def _amounts(
    log: Log,
    communicators: Sequence[Communicator],
    rank_of: Mapping[Process, int],
    iterations: int | None,
    all_reduce_bytes: int | None,
) -> Mapping[Kind, Amount]:
    """Return the traffic by kind of call.

    The tag of each ``Kind`` is the communicator's number; ``_call`` may append the root, or the word ``tree``."""
    number_of = {member: number for number, found in enumerate(communicators) for member in found.members}
    ranks_of = [tuple(rank_of[member.process] for member in found.members) for found in communicators]
    if all_reduce_bytes is not None:
        if log.calls:
            raise InvalidInput.of("--bytes", "omit this option: the log has calls, which contain the numbers of bytes")
        if len(communicators) > 1:
            message = (
                f"needs a log with one communicator, but the log has {len(communicators)}; log the calls with "
                "NCCL_DEBUG_SUBSYS=COLL"
            )
            raise InvalidInput.of("--bytes", message)
        tag = "0 tree" if log.algorithm in _TREE else "0"
        return {Kind("AllReduce", ranks_of[0], tag): Amount(all_reduce_bytes, 0)}
    calls: dict[int, list[Call]] = {rank: [] for rank in rank_of.values()} if log.calls else {}
    for process, made in log.calls.items():
        for call in made:
            if call.member in number_of and (found := _call(call, log, communicators, number_of, ranks_of)):
                calls[rank_of[process]].append(found)
    return per_iteration(calls, iterations)


def _call(
    call: NcclCall,
    log: Log,
    communicators: Sequence[Communicator],
    number_of: Mapping[Member, int],
    ranks_of: Sequence[tuple[int, ...]],
) -> Call | None:
    member, n = call.member, call.member.size
    if call.datatype >= len(_DATATYPE_BYTES):
        known = f"0 to {len(_DATATYPE_BYTES) - 1}"
        raise InvalidInput.of(f"a call of {member.where}", f"datatype {call.datatype} is not one of {known}")
    if not -1 <= call.root < n:
        raise InvalidInput.of(f"a call of {member.where}", f"root {call.root} is not a rank from -1 to {n - 1}")
    size = call.elements * _DATATYPE_BYTES[call.datatype]
    number = number_of[member]
    ranks = ranks_of[number]
    if call.what in _SENDS:
        pair = (ranks[member.rank], ranks[call.root])
        kind = Kind(SEND, pair if call.what == "Send" else pair[::-1], str(number))
        return Call(kind, size) if call.root != member.rank and size else None
    if call.what not in _ALGORITHMS:
        message = f"'{call.what}' is not a known kind of call; known are {', '.join((*_ALGORITHMS, *_SENDS))}"
        raise InvalidInput.of(f"a call of {member.where}", message)
    tag = str(number)
    if call.what == "AllReduce" and communicators[number].tuned.get((call.what, size), log.algorithm) in _TREE:
        tag += " tree"
    if call.what in ("Broadcast", "Reduce"):
        tag += f" root {call.root}"
    whole = n if call.what in ("AllGather", "ReduceScatter", "AlltoAll") else 1
    return Call(Kind(call.what, ranks, tag), size * whole) if size else None


def _sent(kind: Kind, size: int, communicators: Mapping[str, Communicator]) -> Iterator[tuple[int, int, int]]:
    """Yield the transfers of a kind of call: source and destination as ranks of the job, and bytes."""
    number, *how = kind.tag.split()
    communicator, ranks = communicators[number], kind.ranks
    share = -(-size // len(communicator.rings))
    if kind.what == SEND:
        yield ranks[0], ranks[1], size
    elif how == ["tree"]:
        for child, parent in communicator.tree_edges():
            yield ranks[child], ranks[parent], share
            yield ranks[parent], ranks[child], share
    else:
        for ring in communicator.rings:
            if how:
                at = ring.index(int(how[1])) + (kind.what == "Reduce")
                ring = ring[at:] + ring[:at]
            known = formula(Library.NCCL, _ALGORITHMS[kind.what], len(ring), share)
            for step in known.steps(len(ring), share) if known else ():
                for src, dst, part in step:
                    yield ranks[ring[src]], ranks[ring[dst]], part
