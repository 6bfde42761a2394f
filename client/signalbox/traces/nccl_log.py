"""Read the output of ``NCCL_DEBUG=INFO``: communicators and calls of each process. The result is a ``Log``.

A line is ``host:pid:tid [device] NCCL INFO text``. The lines of different processes may be in any order, and launchers
may write before them. A thread's lines about rings and trees belong to the communicator that the thread is making. Such
lines lie between two lines of ``comm 0x... rank 3 nranks 4``; before NCCL 2.18, only the second of these two lines
exists.

The formats are those of the logs in NVIDIA/nccl #1189, #447, #226, #302, #385, #514, #1605 and NVIDIA/nccl-tests #128:

- ``Ring 02 : 2 -> 0 -> 1``: previous, self, next. NCCL up to 2.6 also writes such a line with two numbers, for a
  connection.
- ``Channel 01/02 : 0 3 2 1``: a whole ring, listed by rank 0; some versions cut the list after 20 ranks.
- ``Trees [0] 1/2/-1->0->-1``: children, self, parent. NCCL before 2.7 also writes ``-1->0->1/2/-1`` (parent, self,
  children), or both forms with a bar between them.
- ``Tree 0 : -1 -> 0 -> 1/2/-1``: parent, self, children.
- ``AllReduce: opCount 1a ... count 64 datatype 7 op 0 root 0 comm 0x...``: a call.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from signalbox.errors import InvalidInput
from signalbox.jobs.spec import MAX_ENDPOINTS
from signalbox.traces.calls import MAX_CALLS, TooManyCalls

MAX_LINE_BYTES = 1 << 20
"""Largest length of a line in bytes; a ring over 4,096 ranks has 20,000 characters."""

MAX_INTERFACES_CHARS = 4096
"""Largest number of characters in a line about interfaces in which addresses are searched for."""

MAX_COMMUNICATORS = 65_536
"""Largest number of ranks in all communicators together."""

Key = TypeVar("Key")
Value = TypeVar("Value")

Process = tuple[str, int, int]
"""Host name, process id, and index of the process's CUDA device."""


class Tree(NamedTuple):
    """Neighbours of one rank in the tree of one channel. ``parent`` is -1 at the root."""

    parent: int
    children: frozenset[int]


class NcclCall(NamedTuple):
    """Call of the operation ``what`` by one rank.

    ``elements``, ``datatype`` and ``root`` are the numbers that NCCL logs."""

    member: Member
    what: str
    elements: int
    datatype: int
    root: int


@dataclass(slots=True, eq=False)
class Member:
    """A rank of one communicator, as far as the log describes it.

    - ``where``: place of its first line, ``FILE:NUMBER``
    - ``pointer``: address in ``comm 0x...``, which identifies the communicator within a process
    - ``made``: whether the communicator is complete, so that later rings and trees belong to another one
    - ``rings``: previous and next rank, by channel; ``trees``: neighbours in the tree, by channel
    - ``listed``: whole rings by channel, as rank 0 lists them; ``listed_channels``: number of channels in these lines
    - ``tuned``: algorithm that NCCL chose, by operation and bytes of a call"""

    process: Process
    where: str
    pointer: str = ""
    rank: int = -1
    size: int = 0
    comm_id: str = ""
    made: bool = False
    rings: dict[int, tuple[int, int]] = field(default_factory=dict)
    trees: dict[int, Tree] = field(default_factory=dict)
    listed: dict[int, tuple[int, ...]] = field(default_factory=dict)
    listed_channels: int = 0
    tuned: dict[tuple[str, int], str] = field(default_factory=dict)


@dataclass(slots=True)
class Log:
    """Content of a log.

    - ``members``: ranks of all communicators
    - ``calls``: calls of each process, in their order
    - ``addresses``: by host, the addresses of the interfaces that NCCL uses with sockets
    - ``networks``: by host, NCCL's name of the network that it uses, such as ``Socket`` or ``IB``
    - ``algorithm``: value of the variable ``NCCL_ALGO`` in lower case; empty when it is not set"""

    members: list[Member] = field(default_factory=list)
    calls: dict[Process, list[NcclCall]] = field(default_factory=dict)
    addresses: dict[str, tuple[str, ...]] = field(default_factory=dict)
    networks: dict[str, str] = field(default_factory=dict)
    algorithm: str = ""


_COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_HEAD = re.compile(r"(?<![\w.-])([\w.-]{1,255}):(\d{1,10}):(\d{1,10}) \[(\d{1,4})\]$")
_COMM = re.compile(r"\bcomm (0x[0-9a-f]{1,16}) rank (\d{1,7}) n[rR]anks (\d{1,7})\b")
_COMM_ID = re.compile(r"\bcommId (0x[0-9a-f]{1,32})\b")
_RING = re.compile(r"Ring (\d{1,4}) : (\d{1,7}) -> (\d{1,7}) -> (\d{1,7})\b")
_LISTED = re.compile(r"Channel (\d{1,4})(?:/(\d{1,4}))? :((?:\s+\d{1,7})+)\s*$")
_TREE = re.compile(r"Tree (\d{1,4}) : (-?\d{1,7}) -> (\d{1,7}) -> ([-\d/]{1,40})")
_TREES = re.compile(r"\[(\d{1,4})\] ([\d/-]{1,40})->(\d{1,7})->([\d/-]{1,40})")
_ADDRESS = re.compile(r"(?:\[\d+\])?([\w.@-]+):([0-9A-Fa-f.:]+)(?:%[\w.-]+)?<\d+>")
_CALL = re.compile(
    r"(\w{1,32}): opCount [0-9a-f]+ .*"
    r"\bcount (\d{1,18}) datatype (\d{1,3}) op -?\d+ root (-?\d{1,7}) comm (0x[0-9a-f]{1,16})"
)
_NETWORK = re.compile(r"^(?:Using (?:internal )?[nN]etwork|Initialized NET plugin) (\w{1,60})| via NET/(\w{1,60})")
_TUNED = re.compile(r"(?:(\w+): )?(\d{1,18}) Bytes -> Algo (\w+)")


def read(lines: Iterable[tuple[str, bytes]]) -> Log:
    """Return the content of a log. ``lines``: each line after its place ``FILE:NUMBER``.

    Raises ``InvalidInput`` for lines that contradict each other."""
    reader = _Reader()
    for where, line in lines:
        if b"NCCL INFO" in line:
            text = _COLOURS.sub("", line.decode(errors="replace"))
            before, _, said = text.rpartition("NCCL INFO ")
            if head := _HEAD.search(before[-400:].rstrip()):
                host, pid, tid, device = head.groups()
                try:
                    reader.take(where, (host, int(pid), int(device)), int(tid), said.strip())
                except InvalidInput as error:
                    raise error.within(where) from None
    return reader.log


class _Reader:
    def __init__(self) -> None:
        self.log = Log()
        self._now: dict[tuple[Process, int], Member] = {}
        """``Member`` that a thread's lines describe now, or have described last, by process and thread id."""
        self._by_pointer: dict[tuple[str, int, str], Member] = {}
        self._called: dict[tuple[str, int], Member] = {}
        """``Member`` of the communicator that a thread has called last, by host and thread id."""
        self._calls = 0

    def take(self, where: str, process: Process, tid: int, text: str) -> None:
        thread = (process, tid)
        if found := _CALL.match(text):
            self._call(process, tid, *found.groups())
        elif found := _RING.match(text):
            channel, before, rank, after = map(int, found.groups())
            member = self._member_being_made(where, thread, rank)
            _once(member.rings, channel, (before, after), f"ring {channel:02} of rank {rank}")
        elif text.startswith("Trees "):
            self._trees(where, thread, text)
        elif found := _TREE.match(text):
            channel, parent, rank = (int(number) for number in found.groups()[:3])
            member = self._member_being_made(where, thread, rank)
            _once(member.trees, channel, Tree(parent, _children(found[4])), f"tree {channel} of rank {rank}")
        elif found := _LISTED.match(text):
            ring = tuple(map(int, found[3].split()))
            member = self._member_being_made(where, thread, ring[0])
            _once(member.listed, int(found[1]), ring, f"channel {found[1]}")
            member.listed_channels = max(member.listed_channels, int(found[2] or 0), int(found[1]) + 1)
        elif found := _COMM.search(text):
            if "Destroy" not in text and "Abort" not in text:
                self._comm(where, thread, text, *found.groups())
        elif found := _TUNED.match(text):
            if caller := self._called.get((process[0], tid)):
                caller.tuned[found[1] or "AllReduce", int(found[2])] = found[3].lower()
        else:
            self._host(process[0], text)

    def _member_being_made(self, where: str, thread: tuple[Process, int], rank: int) -> Member:
        """Return the member of the communicator that the thread is making, and set its rank to ``rank``."""
        member = self._now.get(thread)
        if member is None or member.made:
            member = self._new(where, thread)
        if member.rank not in (-1, rank):
            why = f"this line gives its thread rank {rank} in the communicator, {member.where} rank {member.rank}"
            raise InvalidInput.of("", why)
        member.rank = rank
        return member

    def _new(self, where: str, thread: tuple[Process, int]) -> Member:
        if len(self.log.members) == MAX_COMMUNICATORS:
            raise InvalidInput.of(
                "", f"at most {MAX_COMMUNICATORS} communicators are allowed, each counted once per rank"
            )
        member = self._now[thread] = Member(thread[0], where)
        self.log.members.append(member)
        return member

    def _comm(self, where: str, thread: tuple[Process, int], text: str, pointer: str, rank: str, size: str) -> None:
        if int(size) > MAX_ENDPOINTS:
            raise InvalidInput.of("", f"the communicator has {size} ranks; at most {MAX_ENDPOINTS} are allowed")
        begins = "Init START" in text
        member = self._now.get(thread)
        if member is None or (member.pointer not in ("", pointer)) or (begins and member.made):
            member = self._new(where, thread)
        if member.made and not begins:
            return
        if member.rank not in (-1, int(rank)) or member.size not in (0, int(size)):
            raise InvalidInput.of(
                "",
                f"comm {pointer} has rank {rank} of {size} here, "
                f"and rank {member.rank} of {member.size} in {member.where}",
            )
        member.pointer, member.rank, member.size = pointer, int(rank), int(size)
        if found := _COMM_ID.search(text):
            member.comm_id = found[1]
        member.made = "COMPLETE" in text
        self._by_pointer[thread[0][0], thread[0][1], pointer] = member

    def _trees(self, where: str, thread: tuple[Process, int], text: str) -> None:
        for channel, one, rank, other in _TREES.findall(text.replace("|", " ")):
            member = self._member_being_made(where, thread, int(rank))
            # The side with slashes lists the children. Without slashes, the children come first, as from NCCL 2.7 on.
            left, right = (one, other) if "/" in one or "/" not in other else (other, one)
            tree = Tree(int(right) if re.fullmatch(r"-?\d+", right) else -1, _children(left))
            _once(member.trees, int(channel), tree, f"tree {channel} of rank {rank}")

    def _call(self, process: Process, tid: int, what: str, count: str, datatype: str, root: str, pointer: str) -> None:
        member = self._by_pointer.get((process[0], process[1], pointer))
        if member is None:
            raise InvalidInput.of(
                "",
                f"no earlier line has the rank of comm {pointer}, which makes this call; log from the start of the job",
            )
        self._calls += 1
        if self._calls > MAX_CALLS:
            raise TooManyCalls.in_trace()
        self._called[process[0], tid] = member
        call = NcclCall(member, what, int(count), int(datatype), int(root))
        self.log.calls.setdefault(member.process, []).append(call)

    def _host(self, host: str, text: str) -> None:
        if text.startswith(("NET/Socket : Using ", "NET : Using interface ")):
            found = tuple(address for _, address in _ADDRESS.findall(text[:MAX_INTERFACES_CHARS]))
            if found:
                _once(self.log.addresses, host, found, f"addresses of {host}")
        elif found_network := _NETWORK.search(text):
            self.log.networks[host] = found_network[1] or found_network[2]
        elif found_algorithm := re.match(r"NCCL_ALGO set by environment to (\S{1,60}?)\.?$", text):
            self.log.algorithm = found_algorithm[1].lower()


def _once(known: dict[Key, Value], key: Key, value: Value, what: str) -> None:
    if known.setdefault(key, value) != value:
        raise InvalidInput.of("", f"{what}: this line has {value}, but an earlier line has {known[key]}")


def _children(text: str) -> frozenset[int]:
    return frozenset(int(child) for child in text.split("/") if re.fullmatch(r"\d+", child))
