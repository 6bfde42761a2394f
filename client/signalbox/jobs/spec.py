"""Announcement of a job, validated: endpoints, groups, collectives, transfers, parallelizations, and striping.

``JobSpec.parse`` turns plain data (from protobuf, JSON or a test) into a frozen ``JobSpec``, or raises ``InvalidInput``
with the paths of the wrong fields."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from itertools import chain
from typing import Annotated, Any, NewType, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    FailFast,
    Field,
    StrictBool,
)
from pydantic_core import PydanticCustomError, PydanticKnownError

from signalbox.errors import FieldProblem, InvalidInput, cut, validated
from signalbox.ip_addresses import HostAddress
from signalbox.job_ids import JOB_ID, JOB_ID_FORM

JobId = NewType("JobId", str)

MAX_ENDPOINTS = 4096
MAX_GROUPS = 4096
MAX_COLLECTIVES = 256
MAX_VIRTUAL_LINKS = 65_536
"""Largest number of virtual links of a job before merging, and of its transfers. An all-to-all over 256 ranks fits."""
MAX_RANKS = 2 * MAX_VIRTUAL_LINKS
"""Largest number of ranks of all groups together. A collective over n ranks makes at least n-1 ≥ n/2 virtual links."""
MAX_PARALLELIZATIONS = 32
MAX_COMPUTE = 1000
MAX_GPUS = 1 << 20
MAX_GPUS_PER_RANK = 16
"""Largest number of GPUs that a rank may have; a rank is a process, or a host."""
MAX_WORK, MAX_WEIGHT = 1e30, 1e6
MAX_IN_PARALLELIZATIONS = 4
"""Factor on the limits of groups and of compute times if a job has parallelizations.

All parallelizations together may have up to this many times what a single one may have. The limits of transfers, of
ranks in groups, and of groups of collectives have no such factor: they hold for all parallelizations together, and are
as large as for a job without parallelizations."""
MAX_RAILS = 7
MAX_BYTES = 1 << 50
MAX_PHASE = 1000
MAX_STEP = 1000
MAX_SUBFLOWS = 16
LIMITS = (("groups", MAX_GROUPS), ("collectives", MAX_COLLECTIVES), ("transfers", MAX_VIRTUAL_LINKS))
"""Largest number of items of each list that describes traffic."""
SENDS = tuple(name for name, _ in LIMITS)
SAID_BY_EACH = "cannot be combined with parallelizations, each of which has its own: omit one of them"
MIN_LEASE_S = 1.0
MAX_LEASE_S = 86_400.0


class Algorithm(StrEnum):
    """Algorithm or operation of a collective; ``formulas`` lists the transfers of each.

    The operations are ``broadcast``, ``all_to_all``, ``all_reduce``, ``reduce_scatter`` and ``all_gather``. The job's
    ``Library`` determines the algorithm of an operation."""

    RING_ALL_REDUCE = "ring_all_reduce"
    RING_REDUCE_SCATTER = "ring_reduce_scatter"
    RING_ALL_GATHER = "ring_all_gather"
    HALVING_DOUBLING_ALL_REDUCE = "halving_doubling_all_reduce"
    ALL_TO_ALL = "all_to_all"
    BROADCAST = "broadcast"
    PIPELINE_SEND = "pipeline_send"
    RECURSIVE_DOUBLING_ALL_REDUCE = "recursive_doubling_all_reduce"
    ALL_REDUCE = "all_reduce"
    REDUCE_SCATTER = "reduce_scatter"
    ALL_GATHER = "all_gather"


class Library(StrEnum):
    """Communication library of a job, see ``formulas``. ``generic``: algorithms as their articles describe them."""

    GENERIC = "generic"
    GLOO = "gloo"
    OPENMPI = "openmpi"
    NCCL = "nccl"


class Striping(StrEnum):
    """Way in which a sender divides the bytes of a virtual link over its connections.

    - ``paced`` and ``by_share``: in proportion to the shares of the subflows; ``paced`` also sends each subflow at its
      own steady rate
    - ``even``: the same number of bytes on each connection
    - ``common_queue``: the next bytes go to whichever connection accepts them

    Predicted slowdowns hold for all but ``by_share``."""

    PACED = "paced"
    BY_SHARE = "by_share"
    EVEN = "even"
    COMMON_QUEUE = "common_queue"


ROCE_PORT = 4791


class Transport(StrEnum):
    """Transport protocol of the job's connections. Switches find the subflow of a packet by the ports of this protocol.

    ``roce_v2`` is UDP to port 4791 with the source port as entropy (InfiniBand specification, annex A17)."""

    TCP = "tcp"
    ROCE_V2 = "roce_v2"


class Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", str_strip_whitespace=False)


def _no_text(value: object) -> object:
    if isinstance(value, bool | str):
        raise PydanticCustomError("number", "must be a number")
    return value


def _rank(value: object) -> object:
    if isinstance(value, bool | str):
        raise PydanticCustomError("rank", "must be the number of a rank")
    return value


_UNITS = {
    f"{prefix}{binary}B": base**power
    for power, prefix in enumerate("KMGT", start=1)
    for binary, base in (("i", 1024), ("", 1000))
}


def _bytes(value: object) -> object:
    """Convert a size such as ``"64 MiB"``, which is 64·2^20; refuse other texts."""
    if isinstance(value, str) and (size := re.fullmatch(r"(\d{1,16}) ?([kKMGT]i?B)", value)):
        return int(size[1]) * _UNITS[size[2].upper().replace("I", "i")]
    if isinstance(value, bool | str):
        message = "must be a number of bytes, or a whole number with kB to TB or KiB to TiB, such as '64 MiB'"
        raise PydanticCustomError("bytes", message)
    return value


def at_most(limit: int) -> BeforeValidator:
    """Return a validator that refuses lists of more than ``limit`` items before it checks any item.

    Without this validator, a long list of wrong items would make an error per item."""

    def check(value: object) -> object:
        if isinstance(value, list | tuple) and len(value) > limit:
            found = {"field_type": "List", "max_length": limit, "actual_length": len(value)}
            raise PydanticKnownError("too_long", found)
        return value

    return BeforeValidator(check)


Whole = Annotated[int, BeforeValidator(_no_text)]
Rank = Annotated[int, BeforeValidator(_rank), Field(ge=0)]
Bytes = Annotated[int, BeforeValidator(_bytes), Field(ge=1, le=MAX_BYTES)]
Phase = Annotated[Whole, Field(ge=0, le=MAX_PHASE)]
Number = Annotated[float, BeforeValidator(_no_text)]
Seconds = Number


def _job_id(text: str) -> str:
    if not text:
        raise PydanticCustomError("missing", "is missing")
    if not JOB_ID.fullmatch(text):
        raise PydanticCustomError("job_id", JOB_ID_FORM)
    return text


def _printable(text: str) -> str:
    """Refuse control characters, because a terminal that shows the text would obey them."""
    if not text.isprintable():
        raise PydanticCustomError("printable", "must have printable characters only")
    return text


class ParallelGroup(Frozen):
    """Ranks that communicate with each other, in the order of the ring or pipeline.

    A rank is an index into ``endpoints``."""

    name: Annotated[str, AfterValidator(_printable)] = Field(min_length=1, max_length=63)
    ranks: Annotated[tuple[Rank, ...], FailFast(), at_most(MAX_ENDPOINTS)] = Field(min_length=2)


class Collective(Frozen):
    """A collective that every group in ``groups`` runs once per iteration.

    ``bytes_per_iteration`` is the size M of the buffer per rank. For all-reduce, reduce-scatter and all-gather, M is
    the whole vector. For all-to-all, M is what one rank sends, including its own share. For broadcast and pipeline
    send, M is what each rank receives. Collectives of one ``phase`` overlap in time; phases follow each other."""

    algorithm: Algorithm
    groups: Annotated[tuple[str, ...], FailFast(), at_most(MAX_GROUPS)] = Field(min_length=1)
    bytes_per_iteration: Bytes
    phase: Phase = 0


class Transfer(Frozen):
    """Bytes that rank ``src`` sends to rank ``dst`` in each iteration. The steps of a phase follow each other."""

    src: Rank
    dst: Rank
    bytes_per_iteration: Bytes
    phase: Phase = 0
    step: Whole = Field(default=0, ge=0, le=MAX_STEP)


class Compute(Frozen):
    """Compute time in an iteration, in seconds.

    - ``phase``: phase whose communication overlaps with this computation; None if there is no overlap
    - ``before``: phase that follows this computation, if there is no overlap; None for the first phase"""

    seconds: Annotated[Seconds, Field(ge=0, le=1e6, allow_inf_nan=False)]
    phase: Phase | None = None
    # Earlier controllers cannot read the field in a saved spec.
    before: Phase | None = Field(default=None, exclude_if=lambda phase: phase is None)


class Parallelization(Frozen):
    """Parallelization of a job that can be trained in several ways. The fields are as in a ``JobSpec``."""

    name: Annotated[str, AfterValidator(_printable)] = Field(min_length=1, max_length=63)
    groups: Annotated[tuple[ParallelGroup, ...], FailFast(), at_most(MAX_GROUPS)] = ()
    collectives: Annotated[tuple[Collective, ...], at_most(MAX_COLLECTIVES)] = ()
    transfers: Annotated[tuple[Transfer, ...], FailFast(), at_most(MAX_VIRTUAL_LINKS)] = ()
    compute: Annotated[tuple[Compute, ...], at_most(MAX_COMPUTE)] = ()


class Rail(Frozen):
    """Additional NIC of every rank. ``endpoints``: address of this NIC, by rank."""

    endpoints: Annotated[tuple[HostAddress, ...], FailFast(), at_most(MAX_ENDPOINTS)] = Field(min_length=2)


class JobSpec(Frozen):
    """Announcement of a job.

    Its traffic is in ``transfers``, and in ``collectives``, which are short for transfers. Alternatively, the job has
    ``parallelizations``, each with its own traffic; any of them can train the job. A job without all three is
    ``observed``: switches measure its traffic.

    - ``endpoints``: address of each rank; ranks on one host have the same address
    - ``rails``: additional NICs. Every transfer is divided evenly over all NICs: NIC k sends its part to NIC k.
    - ``max_subflows``: largest number of subflows into which the job can divide each virtual link; 1 for whole flows
    - ``transport``: transport protocol of the connections; it matters only for subflows
    - ``striping``: how the job divides the bytes of a virtual link over its connections
    - ``reports_connections``: whether the job reports its open connections, so that subflows need no port classes
    - ``lease_s``: seconds without renewal after which the job is removed
    - ``provisional``: whether the announcement may soon change. Until the change, measured traffic has precedence over
      the announcement, and a difference raises no alarm
    - ``compute``: compute times of an iteration; empty if they are to be measured, or for parallelizations
    - ``gpus``: number of GPUs, at most 16 per rank; None for one per rank
    - ``work_per_iteration``: work of an iteration in a unit that all jobs share; None for ``gpus`` times the seconds of
      computing
    - ``weight``: weight of the job where a weighted mean is minimized; None for 1
    - ``keeps_slots``: whether the program waits once in each iteration as long as the controller says"""

    job_id: Annotated[str, AfterValidator(_job_id)]
    endpoints: Annotated[tuple[HostAddress, ...], at_most(MAX_ENDPOINTS)] = Field(min_length=2)
    groups: Annotated[tuple[ParallelGroup, ...], at_most(MAX_GROUPS)] = ()
    collectives: Annotated[tuple[Collective, ...], at_most(MAX_COLLECTIVES)] = ()
    transfers: Annotated[tuple[Transfer, ...], FailFast(), at_most(MAX_VIRTUAL_LINKS)] = ()
    library: Library = Library.GENERIC
    rails: Annotated[tuple[Rail, ...], at_most(MAX_RAILS)] = ()
    max_subflows: Whole = Field(default=1, ge=1, le=MAX_SUBFLOWS)
    transport: Transport = Transport.TCP
    striping: Striping = Striping.BY_SHARE
    reports_connections: StrictBool = False
    lease_s: Seconds = Field(default=60.0, ge=MIN_LEASE_S, le=MAX_LEASE_S, allow_inf_nan=False)
    parallelizations: Annotated[tuple[Parallelization, ...], at_most(MAX_PARALLELIZATIONS)] = ()
    provisional: StrictBool = False
    compute: Annotated[tuple[Compute, ...], at_most(MAX_COMPUTE)] = ()
    gpus: Whole | None = Field(default=None, ge=1, le=MAX_GPUS)
    work_per_iteration: Number | None = Field(default=None, gt=0, le=MAX_WORK, allow_inf_nan=False)
    weight: Number | None = Field(default=None, gt=0, le=MAX_WEIGHT, allow_inf_nan=False)
    keeps_slots: StrictBool = False

    @property
    def addresses(self) -> frozenset[str]:
        """Addresses of all NICs."""
        return frozenset((*self.endpoints, *(ip for rail in self.rails for ip in rail.endpoints)))

    @property
    def observed(self) -> bool:
        """True if the job announces only its members, not its traffic."""
        return not self.collectives and not self.transfers and not self.parallelizations

    @property
    def plain(self) -> JobSpec:
        """The spec itself. For a job with parallelizations, the spec of the first one.

        The first parallelization applies where the controller cannot choose circuits."""
        return self.of_parallelization(self.parallelizations[0].name) if self.parallelizations else self

    def of_parallelization(self, name: str) -> JobSpec:
        """Return the spec with the traffic of this parallelization only. Raises ``KeyError`` for an unknown name."""
        for way in self.parallelizations:
            if way.name == name:
                sends = {field: getattr(way, field) for field in SENDS}
                return self.model_copy(update={"parallelizations": (), **sends})
        raise KeyError(name)

    @classmethod
    def parse(cls, data: Any) -> Self:
        """Return the spec for ``data``, a mapping of field names to values.

        Raises ``InvalidInput`` with the fields whose values are wrong (for a long list, only its first wrong item). If
        all values are right, the error has up to 100 fields that contradict other fields."""
        spec = validated(cls, data)
        misfits = (_problems_of_traffic(way, where, len(spec.endpoints)) for where, way in spec.ways())
        InvalidInput.refuse(
            chain(
                oversized(spec),
                spec.wrong_parallelizations(name for name in (*SENDS, "compute") if getattr(spec, name)),
                chain.from_iterable(misfits),
                _contradictory(spec),
                spec._wrong_rails(),
            )
        )
        return spec

    def ways(self) -> Iterator[tuple[str, JobSpec | Parallelization]]:
        """Yield the spec itself, then each of its parallelizations, each as a pair (prefix, value).

        The prefix comes before the paths of the value's fields in errors. The prefix is empty for the spec itself, and
        ``parallelizations[0].`` for the first parallelization."""
        yield "", self
        for number, way in enumerate(self.parallelizations):
            yield f"parallelizations[{number}].", way

    def wrong_parallelizations(
        self, given: Iterable[str], kinds: str = "collectives or transfers"
    ) -> Iterator[FieldProblem]:
        """Yield problems of parallelizations: repeated names, no traffic, or a job that has traffic of its own as well.

        - ``given``: fields of the job that describe traffic; they cannot be combined with parallelizations
        - ``kinds``: names of the fields that describe traffic, of which each parallelization needs at least one"""
        if self.parallelizations:
            yield from (FieldProblem(name, SAID_BY_EACH) for name in given)
        names = Counter(way.name for way in self.parallelizations)
        for number, way in enumerate(self.parallelizations):
            path = f"parallelizations[{number}]"
            if names[way.name] > 1:
                yield FieldProblem(
                    f"{path}.name",
                    f"'{cut(way.name)}' is the name of several parallelizations; each needs a name of its own",
                )
            if not way.collectives and not way.transfers and getattr(way, "model", None) is None:
                yield FieldProblem(path, f"has no traffic: give {kinds}")

    def _wrong_rails(self) -> Iterator[FieldProblem]:
        """Yield the first wrong address of each rail.

        An address may be in one list only. In every rail, ranks share an address exactly when they are on one host. If
        ranks on different hosts shared an address, it would be unknown which transfers stay within a host."""
        taken = dict.fromkeys(self.endpoints, "endpoints")
        for r, rail in enumerate(self.rails):
            where = f"rails[{r}].endpoints"
            if len(rail.endpoints) != len(self.endpoints):
                message = f"one address per rank is needed: {len(self.endpoints)} (given: {len(rail.endpoints)})"
                yield FieldProblem(where, message)
                continue
            host_of: dict[str, str] = {}
            nic_of: dict[str, str] = {}
            for rank, (host, nic) in enumerate(zip(self.endpoints, rail.endpoints, strict=True)):
                if nic in taken:
                    message = f"{nic} is also in {taken[nic]}; each address may be in one rail only"
                elif nic_of.setdefault(host, nic) != nic:
                    message = (
                        f"another rank on {host} has {nic_of[host]}; ranks on one host need the same address in a rail"
                    )
                elif host_of.setdefault(nic, host) != host:
                    message = (
                        f"ranks on {host_of[nic]} also have {nic}; ranks on different hosts need different addresses"
                    )
                else:
                    continue
                yield FieldProblem(f"{where}[{rank}]", message)
                break
            taken |= dict.fromkeys(rail.endpoints, where)


def _problems_of_traffic(sends: JobSpec | Parallelization, where: str, ranks: int) -> Iterator[FieldProblem]:
    def without_endpoint(path: str, rank: int) -> Iterator[FieldProblem]:
        if rank >= ranks:
            yield FieldProblem(path, f"rank {rank} has no endpoint; ranks go from 0 to {ranks - 1}")

    names = Counter(group.name for group in sends.groups)
    for g, group in enumerate(sends.groups):
        path = f"{where}groups[{g}]"
        if names[group.name] > 1:
            yield FieldProblem(
                f"{path}.name",
                f"'{cut(group.name)}' is the name of {names[group.name]} groups; each needs a name of its own",
            )
        if max(group.ranks) >= ranks:
            for r, rank in enumerate(group.ranks):
                yield from without_endpoint(f"{path}.ranks[{r}]", rank)
        if len(set(group.ranks)) < len(group.ranks):
            ((rank, times),) = Counter(group.ranks).most_common(1)
            yield FieldProblem(f"{path}.ranks", f"rank {rank} appears {times} times; name each rank once per group")
    known = ", ".join(sorted(names)[:8]) or "none"
    for c, collective in enumerate(sends.collectives):
        for g, name in enumerate(collective.groups):
            if name not in names:
                path = f"{where}collectives[{c}].groups[{g}]"
                yield FieldProblem(path, f"no group is called '{cut(name)}'; there are: {known}")
    for t, transfer in enumerate(sends.transfers):
        yield from without_endpoint(f"{where}transfers[{t}].src", transfer.src)
        yield from without_endpoint(f"{where}transfers[{t}].dst", transfer.dst)
        if transfer.src == transfer.dst:
            yield FieldProblem(f"{where}transfers[{t}].dst", f"rank {transfer.dst} sends to itself")


def _contradictory(spec: JobSpec) -> Iterator[FieldProblem]:
    for where, way in spec.ways():
        for number, each in enumerate(way.compute):
            if each.phase is not None and each.before is not None:
                path = f"{where}compute[{number}].before"
                yield FieldProblem(path, "cannot be combined with phase, which overlaps with this computing: omit one")
    ranks = len(spec.endpoints)
    if spec.gpus and spec.gpus > MAX_GPUS_PER_RANK * ranks:
        most = f"{MAX_GPUS_PER_RANK} for each of the {ranks} ranks"
        yield FieldProblem("gpus", f"at most {MAX_GPUS_PER_RANK * ranks} are allowed, {most} (given: {spec.gpus})")


def oversized(spec: Any) -> Iterator[FieldProblem]:
    """Yield a problem for each list that is too long, and for lists whose lengths together exceed a limit.

    If the lists of all parallelizations together are too long, the path of the problem is ``parallelizations``.
    ``spec`` may be any object with the fields of a ``JobSpec``. So the sizes in a message of the API can be checked
    before its items are read."""
    ways = [("", spec)]
    if len(spec.parallelizations) <= MAX_PARALLELIZATIONS:
        ways += [(f"parallelizations[{number}].", way) for number, way in enumerate(spec.parallelizations)]
    lists: list[tuple[str, Any, int]] = [("endpoints", spec.endpoints, MAX_ENDPOINTS)]
    for where, way in ways:
        lists += [(f"{where}{name}", getattr(way, name), limit) for name, limit in LIMITS]
    lists += [(f"{where}compute", way.compute, MAX_COMPUTE) for where, way in ways]
    lists += [("rails", spec.rails, MAX_RAILS), ("parallelizations", spec.parallelizations, MAX_PARALLELIZATIONS)]
    sending = [way for _, way in ways]
    counts = [(path, path.rpartition(".")[2], len(items), limit) for path, items, limit in lists]
    counts += _in_parallelizations(sending[1:])
    # Items of a list that is too long are not counted: there may be a million.
    if all(count <= limit for *_, count, limit in counts):
        counts += _counts_in_items(sending, spec.rails)
    for path, what, count, limit in counts:
        if count > limit:
            yield FieldProblem(path, f"at most {limit} {what} are allowed (given: {count})")


_Count = tuple[str, str, int, int]
"""Path of a list, name of its items, number of items, and largest allowed number."""


def _in_parallelizations(parallelizations: Sequence[Any]) -> Iterator[_Count]:
    for name, what, limit in (
        ("groups", "groups", MAX_IN_PARALLELIZATIONS * MAX_GROUPS),
        ("transfers", "transfers", MAX_VIRTUAL_LINKS),
        ("compute", "times of computing", MAX_IN_PARALLELIZATIONS * MAX_COMPUTE),
    ):
        yield "parallelizations", what, sum(len(getattr(way, name)) for way in parallelizations), limit


def _counts_in_items(sending: Sequence[Any], rails: Sequence[Any]) -> Iterator[_Count]:
    for name, of, what, limit in (
        ("groups", "ranks", "ranks in all groups", MAX_RANKS),
        ("collectives", "groups", "groups in all collectives", MAX_VIRTUAL_LINKS),
    ):
        count = sum(len(getattr(item, of)) for way in sending for item in getattr(way, name))
        yield "parallelizations" if sending[1:] else name, what, count, limit
    yield "rails", "addresses in all rails", sum(len(rail.endpoints) for rail in rails), MAX_RAILS * MAX_ENDPOINTS


_TIMING = ("compute", "gpus", "work_per_iteration", "weight", "keeps_slots")
NOT_TRAFFIC = ("lease_s", "max_subflows", "striping", "provisional", *_TIMING)

NEWER_FIELDS = ("parallelizations", "provisional", *_TIMING)
"""Fields of a ``JobSpec`` that earlier versions of the controller do not know.

A saved spec omits them when they are empty, so that those versions can read the spec."""


def same_traffic(one: JobSpec, other: JobSpec) -> bool:
    """Return whether traffic measured for one spec also holds for the other.

    The measured traffic holds if the specs are equal, or differ only in the fields ``NOT_TRAFFIC``."""
    return one.model_copy(update={name: getattr(other, name) for name in NOT_TRAFFIC}) == other
