"""Read dumps of PyTorch's flight recorder: the traffic of the collectives of all ranks.

Dumps are JSON (``_dump_fr_trace_json``, ``_dump_nccl_trace_json``) or pickles (``TORCH_NCCL_DUMP_ON_TIMEOUT``), which
are accepted only if they have nothing but plain data. A dump has the last calls of one rank. The ranks of a process
group come from the first of these sources that has them: the user's group of that name, ``pg_config``, all ranks (for
the default group only), the ranks whose dumps have calls of the group.

PyTorch does not record the root of a broadcast, reduction, gather or scatter, nor whether calls overlap.
``signalbox.torch.process_groups`` adds two fields for these facts. ``root`` is the root's position in the group, the
first rank if absent. ``overlaps`` is set if an earlier call of the rank was still under way.
"""

from __future__ import annotations

import io
import json
import pickle
import pickletools
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any, ClassVar

from signalbox.errors import InvalidInput, cut
from signalbox.files import called, opened
from signalbox.jobs.spec import JobSpec
from signalbox.traces.calls import (
    GATHER,
    MAX_CALLS,
    REDUCE,
    SCATTER,
    SEND,
    Call,
    Kind,
    TooManyCalls,
    file_of_rank,
    library_of,
    per_iteration,
    refuse_incomplete,
    with_amounts,
)

MAX_DUMP_BYTES = 32 << 20
"""Largest size of a rank's dump in bytes; 2,000 calls with stack traces take half a megabyte."""

MAX_ENTRIES = 100_000
MAX_TENSORS = 1024
"""Largest number of tensors in one call."""

_WHATS = {
    "all_reduce": "all_reduce",
    "allreduce_coalesced": "all_reduce",
    "all_gather": "all_gather",
    "all_gather_single": "all_gather",
    "_all_gather_base": "all_gather",
    "all_gather_into_tensor_coalesced": "all_gather",
    "allgather_coalesced": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "reduce_scatter_single": "reduce_scatter",
    "_reduce_scatter_base": "reduce_scatter",
    "reduce_scatter_tensor_coalesced": "reduce_scatter",
    "broadcast": "broadcast",
    "_broadcast_oop": "broadcast",
    "all_to_all": "all_to_all",
    "all_to_all_single": "all_to_all",
    "all_to_all_v_single": "all_to_all",
    "reduce": REDUCE,
    "_reduce_oop": REDUCE,
    "gather": GATHER,
    "scatter": SCATTER,
    "send": SEND,
    "recv": SEND,
}
"""Operations, by the part of ``profiling_name`` after the library: ``all_reduce`` in ``nccl:all_reduce``."""

_ROOTED = frozenset(("broadcast", REDUCE, GATHER, SCATTER))

_NO_BYTES = frozenset({"barrier", "all_reduce_barrier", "coalesced", "split", "new_window"})
"""Names of entries that send nothing. The calls that ``coalesced`` combines are also recorded one by one."""

_DTYPE_BYTES = {
    **dict.fromkeys(("byte", "char", "bool"), 1),
    **dict.fromkeys(("short", "half", "bfloat16", "uint16"), 2),
    **dict.fromkeys(("int", "float", "uint32"), 4),
    **dict.fromkeys(("long", "double", "complexfloat", "uint64"), 8),
    **dict.fromkeys(("complexdouble",), 16),
}


_PLAIN_DATA = frozenset(
    (
        *("PROTO", "FRAME", "STOP", "MARK", "NONE", "NEWTRUE", "NEWFALSE", "BININT", "BININT1", "BININT2", "LONG1"),
        *("BINFLOAT", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2"),
        *("TUPLE3", "EMPTY_LIST", "APPEND", "APPENDS", "EMPTY_DICT", "SETITEM", "SETITEMS", "BINPUT", "LONG_BINPUT"),
        *("MEMOIZE", "BINGET", "LONG_BINGET"),
    )
)
"""Instructions of pickles that make only numbers, texts, lists, tuples and dictionaries."""


class _PlainData(pickle._Unpickler):
    """Reader of pickles with plain data.

    Keys of dictionaries must be texts or numbers. Tuples as keys are refused, because their hashes could take for
    ever: a tuple may contain another tuple twice, which contains another one twice, and so on."""

    stack: list[Any]

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"it has {cut(module)}.{cut(name)}, which is not plain data")

    def _one(self) -> None:
        self._refuse_keys(self.stack[-2:-1])
        super().load_setitem()  # type: ignore[misc]

    def _several(self) -> None:
        self._refuse_keys(self.stack[::2])  # keys and values alternate
        super().load_setitems()  # type: ignore[misc]

    def _refuse_keys(self, keys: Sequence[object]) -> None:
        if not all(isinstance(key, str | int) for key in keys):
            raise pickle.UnpicklingError("a dictionary has keys that are neither texts nor numbers")

    dispatch: ClassVar[dict[int, Callable[[Any], None]]] = {
        **pickle._Unpickler.dispatch,
        pickle.SETITEM[0]: _one,
        pickle.SETITEMS[0]: _several,
    }


def job_spec(files: Sequence[Path], given: JobSpec, iterations: int | None = None) -> JobSpec:
    """Return the job spec of the dumps. Raises ``InvalidInput`` and ``OSError``.

    - ``given``: spec with the addresses of all ranks
    - ``iterations``: number of iterations in each dump; None if it is unknown"""
    dumps = {rank: _Dump(rank, called(file), _read(file)) for rank, file in file_of_rank(files).items()}
    return _job_spec(dumps, given, iterations)


def job_spec_of(dumps: Mapping[int, Any], given: JobSpec, iterations: int | None = None) -> JobSpec:
    """Return the job spec of dumps that are parsed already. ``dumps``: data of each rank's dump.

    Raises ``InvalidInput``."""
    return _job_spec({rank: _Dump(rank, f"rank {rank}", data) for rank, data in dumps.items()}, given, iterations)


def _job_spec(dumps: Mapping[int, _Dump], given: JobSpec, iterations: int | None) -> JobSpec:
    everyone = tuple(range(len(given.endpoints)))
    groups = _groups(dumps, given, everyone)
    calls: dict[int, list[Call]] = {}
    left = MAX_CALLS
    for rank, dump in dumps.items():
        try:
            calls[rank] = list(dump.calls(groups))
        except InvalidInput as error:
            raise error.within(dump.name) from None
        left -= len(calls[rank])
        if left < 0:
            raise TooManyCalls.in_trace()
    refuse_incomplete(calls, len(everyone))
    names = {tuple(sorted(ranks)): name for name, ranks in groups.items()}
    library = library_of(library for dump in dumps.values() for library in dump.libraries)
    return with_amounts(given, per_iteration(calls, iterations), names, library)


class _Dump:
    def __init__(self, rank: int, name: str, data: Any) -> None:
        self.rank, self.name = rank, name
        entries = data.get("entries") if isinstance(data, dict) else data
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries[:MAX_ENTRIES]):
            raise InvalidInput.of(name, "has no list 'entries' of objects, so it is not a dump of the flight recorder")
        if len(entries) > MAX_ENTRIES:
            raise InvalidInput.of(name, f"at most {MAX_ENTRIES} entries are allowed (given: {len(entries)})")
        self.entries: list[Any] = entries
        config = data.get("pg_config") if isinstance(data, dict) else None
        self.config: dict[str, Any] = config if isinstance(config, dict) else {}
        self.libraries: set[str] = set()

    def group_names(self) -> set[tuple[str, str]]:
        found = set()
        for number, entry in enumerate(self.entries):
            try:
                found.add(_group_name(entry))
            except InvalidInput as error:
                raise error.within(f"entries[{number}]").within(self.name) from None
        return found

    def calls(self, groups: Mapping[str, tuple[int, ...]]) -> Iterator[Call]:
        for number, entry in enumerate(self.entries):
            try:
                call = self._call(entry, groups)
            except InvalidInput as error:
                raise error.within(f"entries[{number}]") from None
            if call and call.bytes:
                yield call

    def _call(self, entry: Mapping[str, Any], groups: Mapping[str, tuple[int, ...]]) -> Call | None:
        title = entry.get("profiling_name")
        found = re.fullmatch(r"(\w+):(\w+)(?: (\d+)(->|<-)(\d+))?", title) if isinstance(title, str) else None
        if not found:
            raise InvalidInput.of("profiling_name", "must be like nccl:all_reduce or nccl:send 0->1")
        library, name, one, _, other = found.groups()
        if name in _NO_BYTES:
            return None
        what = _WHATS.get(name) or _WHATS.get(name.lower())
        if what is None:
            raise InvalidInput.of(
                "profiling_name", f"'{cut(name)}' is not a known kind of call; known are {', '.join(_WHATS)}"
            )
        self.libraries.add(library)
        ranks = groups[_group_name(entry)[0]]
        if self.rank not in ranks:
            raise InvalidInput.of(
                "process_group",
                f"must be a group that contains rank {self.rank}; this group has the ranks {_few(ranks)}",
            )
        overlaps = bool(entry.get("overlaps"))
        if what != SEND:
            first = _root(entry, len(ranks)) if what in _ROOTED else 0
            return Call(Kind(what, ranks[first:] + ranks[:first]), _size(entry, what, len(ranks)), overlaps)
        if one is None or one == other or max(int(one[:9]), int(other[:9])) >= len(ranks):
            raise InvalidInput.of("profiling_name", f"must name two ranks within the group, 0 to {len(ranks) - 1}")
        pair = (ranks[int(one)], ranks[int(other)])
        if name == "recv":
            return Call(Kind(SEND, pair[::-1]), _bytes(entry, "output"), overlaps)
        return Call(Kind(SEND, pair), _bytes(entry, "input"), overlaps)


def _groups(dumps: Mapping[int, _Dump], given: JobSpec, everyone: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    configured = _groups_in_config(dumps)
    known = {group.name: group.ranks for group in given.groups}
    users: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    for rank, dump in dumps.items():
        for group in dump.group_names():
            users[group].append(rank)
    found: dict[str, tuple[int, ...]] = {}
    for (name, description), members in users.items():
        ranks = known.get(name) or known.get(description) or configured.get(name)
        if ranks is None and description == "default_pg":
            ranks = everyone
        if ranks is None and len(dumps) < len(everyone):
            raise InvalidInput.of(
                dumps[members[0]].name,
                f"the ranks of process group '{cut(name)}' are not recorded; give dumps of all ranks, or the group "
                "with --spec",
            )
        found[name] = ranks or tuple(members)
        if max(found[name]) >= len(everyone):
            message = f"process group '{cut(name)}' has rank {max(found[name])}; there are {len(everyone)} addresses"
            raise InvalidInput.of("endpoints", message)
    return found


def _groups_in_config(dumps: Mapping[int, _Dump]) -> dict[str, tuple[int, ...]]:
    """Return the ranks of each group that ``pg_config`` of a dump lists, by the group's name.

    Raises ``InvalidInput`` when dumps contradict each other."""
    found: dict[str, tuple[int, ...]] = {}
    for dump in dumps.values():
        for name, group in dump.config.items():
            ranks = _ranks(group.get("ranks")) if isinstance(group, dict) else ()
            if name and ranks and found.setdefault(str(name), ranks) != ranks:
                message = f"has {_few(ranks)}, but {_few(found[name])} in another dump"
                raise InvalidInput.of(f"{dump.name}: pg_config", f"process group '{cut(name)}' {message}")
    return found


def _group_name(entry: Mapping[str, Any]) -> tuple[str, str]:
    """Return name and description of a call's group; the default group if none is recorded, as before PyTorch 2.4."""
    group = entry.get("process_group", ("0", "default_pg"))
    if not isinstance(group, list | tuple) or len(group) != 2 or not all(isinstance(part, str) for part in group):
        raise InvalidInput.of("process_group", "must be a list of two texts, the name and the description of the group")
    return group[0], group[1]


def _few(ranks: Sequence[int]) -> str:
    return "ranks " + ", ".join(map(str, ranks[:8])) + (", ..." if len(ranks) > 8 else "")


def _ranks(text: object) -> tuple[int, ...]:
    """Return the ranks in a list, or in a text with a list as JSON; empty for any other value."""
    try:
        found: Any = json.loads(text) if isinstance(text, str) else text
    except ValueError:
        return ()
    if not isinstance(found, list) or not all(type(rank) is int and rank >= 0 for rank in found):
        return ()
    return tuple(found) if len(set(found)) == len(found) else ()


def _root(entry: Mapping[str, Any], n: int) -> int:
    root = entry.get("root", 0)
    if type(root) is not int or root not in range(n):
        raise InvalidInput.of("root", f"must be a rank within the group, 0 to {n - 1}")
    return root


def _size(entry: Mapping[str, Any], what: str, n: int) -> int:
    """Return M, the size of a collective in bytes (see ``spec.Collective``)."""
    if what in ("all_gather", GATHER):
        return _bytes(entry, "input") * n
    if what in ("reduce_scatter", SCATTER):
        return _bytes(entry, "output") * n
    return _bytes(entry, "input")


def _bytes(entry: Mapping[str, Any], side: str) -> int:
    shapes, dtypes = entry.get(f"{side}_sizes"), entry.get(f"{side}_dtypes")
    if not isinstance(shapes, list) or not isinstance(dtypes, list) or len(dtypes) not in (1, len(shapes)):
        raise InvalidInput.of(f"{side}_sizes", f"must be a list of shapes, with {side}_dtypes for each")
    if len(shapes) > MAX_TENSORS:
        raise InvalidInput.of(f"{side}_sizes", f"at most {MAX_TENSORS} tensors are allowed (given: {len(shapes)})")
    if len(dtypes) == 1:
        dtypes = dtypes * len(shapes)
    total = 0
    for shape, dtype in zip(shapes, dtypes, strict=True):
        if not isinstance(shape, list) or not all(type(size) is int and 0 <= size < 1 << 50 for size in shape[:64]):
            raise InvalidInput.of(f"{side}_sizes", "must be a list of shapes such as [1024, 64]")
        total += prod(shape[:64]) * _dtype_bytes(dtype, f"{side}_dtypes")
    return total


def _dtype_bytes(dtype: object, where: str) -> int:
    if not isinstance(dtype, str):
        raise InvalidInput.of(where, "must be a list of type names such as Float")
    size = 1 if dtype.startswith("Float8") else _DTYPE_BYTES.get(dtype.lower())
    if size is None:
        raise InvalidInput.of(where, f"the size of '{cut(dtype)}' is not known; known are {', '.join(_DTYPE_BYTES)}")
    return size


def _read(file: Path) -> Any:
    with opened(file) as stream:
        data = stream.read(MAX_DUMP_BYTES + 1)
    if len(data) > MAX_DUMP_BYTES:
        raise InvalidInput.of(
            called(file), f"is larger than {MAX_DUMP_BYTES} bytes; make the recorder's buffer smaller"
        )
    try:
        return json.loads(data) if data.lstrip()[:1] in (b"{", b"[") else _unpickled(data)
    except (ValueError, RecursionError) as error:
        raise InvalidInput.of(called(file), f"is neither JSON nor a pickle of plain data: {error}") from None


def _unpickled(data: bytes) -> Any:
    """Return the data of a pickle. Raises ``ValueError``.

    All instructions are checked before any object is made: they must make plain data. Memo numbers above the file's
    size are refused too, because the reader would allocate memory for them."""
    for instruction, argument, at in pickletools.genops(data):
        if instruction.name not in _PLAIN_DATA or ("PUT" in instruction.name and int(argument or 0) > len(data)):
            raise ValueError(f"instruction {instruction.name} at byte {at}")
    try:
        return _PlainData(io.BytesIO(data)).load()
    except Exception as error:  # a broken pickle may raise any error
        raise ValueError(str(error)) from None
