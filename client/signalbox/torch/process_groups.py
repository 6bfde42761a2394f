"""Process groups of a rank, the gradients that its models all-reduce over them, and the calls of all its groups.

``Calls`` records the bytes and the duration of each call of ``torch.distributed``. PyTorch's flight recorder lacks
sends over Gloo, the roots of broadcasts and similar calls, and the ends of calls. So the methods of process groups are
wrapped, once per process. A wrapped method takes a microsecond longer.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple

import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh

from signalbox.errors import InvalidInput
from signalbox.ranks import UNNAMED, Gradients, Group

_UNTOLD = {"": UNNAMED, "undefined": UNNAMED, "default_pg": "default"}
"""Names of groups that the program has not described, by the description that PyTorch gives them."""


def models_of(given: Any) -> list[nn.Module]:
    """Return the models in ``given``; empty for groups. Raises ``InvalidInput`` for anything else."""
    if given is None or isinstance(given, Mapping | DeviceMesh | dist.ProcessGroup):
        return []
    models = [given] if isinstance(given, nn.Module) else list(given) if isinstance(given, list | tuple) else [None]
    if not all(isinstance(model, nn.Module) for model in models):
        text = "must be a model, a list of models, a DeviceMesh, or a mapping of names to process groups"
        raise InvalidInput.of("model_or_groups", f"{text} (given: {type(given).__name__})")
    return models


def groups_of(given: Any) -> tuple[Group, ...]:
    """Return the groups in ``given`` with their names, then all groups of this rank that PyTorch knows."""
    return (*_given(given), *(Group(_name_of(group), ranks_of(group)) for group in known()))


def known() -> list[Any]:
    """Return the process groups of this rank."""
    return list(dist.distributed_c10d._world.pg_map)


def ranks_of(group: Any) -> tuple[int, ...]:
    """Return the members of a group in the group's order, as ranks of the default group."""
    return tuple(dist.get_process_group_ranks(group))


def _given(given: Any) -> Iterator[Group]:
    if isinstance(given, DeviceMesh):
        names = given.mesh_dim_names or [f"dim-{number}" for number in range(given.ndim)]
        yield from (Group(name, ranks_of(given.get_group(name))) for name in names)
    elif isinstance(given, dist.ProcessGroup):
        yield Group(_name_of(given), ranks_of(given))
    elif isinstance(given, Mapping):
        for name, group in given.items():
            if isinstance(group, DeviceMesh):
                yield Group(str(name), ranks_of(group.get_group()))
            elif isinstance(group, dist.ProcessGroup):
                yield Group(str(name), ranks_of(group))
            elif group is not dist.GroupMember.NON_GROUP_MEMBER:
                text = f"must be a process group or a DeviceMesh of one dimension (given: {type(group).__name__})"
                raise InvalidInput.of(f"model_or_groups['{name}']", text)


def _name_of(group: Any) -> str:
    """Return the name of a group from its description.

    A DeviceMesh describes the group of its dimension ``data`` as ``mesh_data``; this group gets the name ``data``."""
    text = str(getattr(group, "group_desc", ""))
    return _UNTOLD.get(text, text.removeprefix("mesh_"))


def data_parallel(models: Iterable[nn.Module]) -> list[nn.parallel.DistributedDataParallel]:
    """Return the ``DistributedDataParallel`` modules among the models and inside them."""
    found = [part for model in models for part in model.modules()]
    return [part for part in found if isinstance(part, nn.parallel.DistributedDataParallel)]


def gradients_of(models: Iterable[nn.parallel.DistributedDataParallel]) -> tuple[Gradients, ...]:
    """Return the gradients of each model.

    Their size is 0 bytes if a communication hook of the model sends other data."""
    found = []
    for model in models:
        group = model.process_group
        parameters = list(_reduced(model))
        backend = group._get_backend(parameters[0].device).name() if parameters else ""
        size = 0 if _hooked(model) else sum(parameter.numel() * _width(model, parameter) for parameter in parameters)
        found.append(Gradients(ranks_of(group), size, backend))
    return tuple(found)


def _reduced(model: nn.parallel.DistributedDataParallel) -> Iterator[nn.Parameter]:
    ignored = model.parameters_to_ignore
    for name, parameter in model.module.named_parameters():
        if parameter.requires_grad and name not in ignored:
            yield parameter


def _width(model: nn.parallel.DistributedDataParallel, parameter: nn.Parameter) -> int:
    """Return the number of bytes of one element of the parameter's gradient in the all-reduce."""
    reduced = getattr(getattr(model, "mixed_precision", None), "reduce_dtype", None)
    return int(reduced.itemsize if reduced is not None else parameter.element_size())


def _hooked(model: nn.parallel.DistributedDataParallel) -> bool:
    return bool(getattr(model, "_comm_hooks", ()))


_COLLECTIVES = (
    *("allreduce", "allreduce_coalesced", "broadcast", "reduce", "gather", "scatter", "alltoall", "alltoall_base"),
    *("all_to_all_single", "allgather", "_allgather_base", "allgather_coalesced", "allgather_into_tensor_coalesced"),
    *("all_gather_single", "all_gather_single_coalesced", "reduce_scatter", "_reduce_scatter_base"),
    *("reduce_scatter_tensor_coalesced", "reduce_scatter_single", "reduce_scatter_single_coalesced"),
)
_SENDS = ("send", "recv", "recv_anysource")
_ROOTED = ("broadcast", "reduce", "gather", "scatter")
MAX_NOTED = 20_000
"""Largest number of recorded sends in all groups together, and of other recorded calls in each group."""
_KEPT = (
    "profiling_name",
    "input_sizes",
    "input_dtypes",
    "output_sizes",
    "output_dtypes",
    "time_created_ns",
    "overlaps",
)
"""Fields of a flight recorder's entry that ``Calls.between`` returns."""

Method = Callable[..., Any]


class _Made(NamedTuple):
    """Begin and end of a call, in ns since 1970. ``more``: fields that the flight recorder lacks."""

    begin_ns: int
    end_ns: int
    more: Mapping[str, int]


class Calls:
    """Recorder of the calls of all process groups of this process."""

    def __init__(self) -> None:
        self.recording = False
        """True while calls are recorded."""
        self._wrapped = False
        self._open: set[int] = set()  # ids of works that are under way
        self._lock = threading.Lock()  # works end in threads of the library
        self._since_s = 0.0
        self._communicated_s = 0.0
        self._first_at: float | None = None  # begin of the first call since ``begun_at`` was called
        self._sends = deque[dict[str, Any]](maxlen=MAX_NOTED)
        self._made = defaultdict[str, deque[_Made]](lambda: deque(maxlen=MAX_NOTED))  # by the group's name

    def wrap(self) -> None:
        """Wrap the methods of process groups, unless they are wrapped already."""
        if not self._wrapped:
            self._wrapped = True
            for name in (*_COLLECTIVES, *_SENDS):
                if original := getattr(dist.ProcessGroup, name, None):
                    setattr(dist.ProcessGroup, name, self._begins(original, name))
            dist.Work.wait = self._ends(dist.Work.wait)

    def communicated_s(self) -> float:
        """Return the seconds during which some call was under way since this method was called last.

        Only calls made in Python count. A call lasts until its end, or if the library does not report the end, until
        the program has waited for the call."""
        with self._lock:
            if self._open:
                self._open.clear()
                self._communicated_s += time.perf_counter() - self._since_s
            total, self._communicated_s = self._communicated_s, 0.0
        return total

    def begun_at(self) -> float | None:
        """Return when the first call since the last call of this method began, as ``time.perf_counter``; None if none.

        Only calls made in Python count."""
        begun_at, self._first_at = self._first_at, None
        return begun_at

    def _begins(self, original: Method, name: str) -> Method:
        sends, rooted = name in _SENDS, name in _ROOTED

        def called(group: Any, *args: Any, **kwargs: Any) -> Any:
            began, begin_ns = time.perf_counter(), time.time_ns()
            more = {"overlaps": 1} if self._open else {}
            if sends and self.recording:
                self._note(name, more, group, *args)
            work = original(group, *args, **kwargs)
            if self.recording and not sends:
                self._note_call(group, begin_ns, more | (_root_of(*args, *kwargs.values()) if rooted else {}))
            if work is not None:
                with self._lock:
                    self._first_at = self._first_at or began
                    if not self._open:
                        self._since_s = began
                    self._open.add(id(work))
                # Making a future takes 20 microseconds, so only asynchronous calls get one. The program waits for any
                # other call at once.
                if any(getattr(option, "asyncOp", False) for option in args):
                    with suppress(Exception):
                        work.get_future().add_done_callback(partial(self._ended, id(work)))
            return work

        return called

    def _ended(self, work: int, _: Any = None) -> None:
        now = time.perf_counter()
        with self._lock:
            if work in self._open:
                self._open.discard(work)
                if not self._open:
                    self._communicated_s += now - self._since_s

    def _ends(self, original: Method) -> Method:
        def wait(work: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(work, *args, **kwargs)
            self._ended(id(work))
            return result

        return wait

    def _note(self, what: str, more: Mapping[str, int], group: Any, tensors: Any = (), peer: int = -1, *_: Any) -> None:
        """Record a send or receive, in the form of the flight recorder's entries."""
        with suppress(Exception):
            arrow, side = ("->", "input") if what == "send" else ("<-", "output")
            size = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
            entry = {"profiling_name": f"gloo:{what} {group.rank()}{arrow}{peer}", f"{side}_sizes": [[size]]}
            where = {"process_group": (group.group_name,), f"{side}_dtypes": ["Byte"]}
            self._sends.append({**entry, **where, **more, "time_created_ns": time.time_ns()})

    def _note_call(self, group: Any, begin_ns: int, more: Mapping[str, int]) -> None:
        with suppress(Exception):
            self._made[group.group_name].append(_Made(begin_ns, time.time_ns(), more))

    def stop(self) -> None:
        """Stop recording, and delete what has been recorded."""
        self.recording = False
        self._sends.clear()
        self._made.clear()

    def _refuse_lost(self, since_ns: int) -> None:
        """Raise ``InvalidInput`` unless the records contain all calls since ``since_ns``, in ns since 1970."""
        firsts = [self._sends[0]["time_created_ns"]] if len(self._sends) == MAX_NOTED else []
        firsts += [made[0].begin_ns for made in self._made.values() if len(made) == MAX_NOTED]
        if firsts and max(firsts) > since_ns:
            raise InvalidInput.of("", f"two iterations make more than the {MAX_NOTED} calls that can be recorded")

    def _more(self, entry: Mapping[str, Any]) -> Mapping[str, int]:
        """Return the fields that the flight recorder lacks in this entry; empty if the call was not made in Python."""
        made, at = self._made[entry["process_group"][0]], entry["time_created_ns"]
        before = bisect_right(made, at, key=attrgetter("begin_ns"))
        return made[before - 1].more if before and at <= made[before - 1].end_ns else {}

    def between(self, begin_ns: int, end_ns: int) -> Mapping[str, Any]:
        """Return the flight recorder's content between two times (ns since 1970), with sends, roots and overlaps added.

        Names of process groups are derived from their ranks, so all ranks of a group use the same name. Raises
        ``InvalidInput`` when calls are missing."""
        entries = _recorded(begin_ns)
        self._refuse_lost(begin_ns)
        if not any(entry["profiling_name"].startswith(("gloo:send", "gloo:recv")) for entry in entries):
            entries += [*self._sends]
        ranks = {group.group_name: ranks_of(group) for group in known()}
        kept, groups = [], {}
        for entry in sorted(entries, key=lambda entry: entry["time_created_ns"]):
            if begin_ns < entry["time_created_ns"] <= end_ns:
                members = ranks.get(entry["process_group"][0])
                if members is None:
                    raise InvalidInput.of("", "a process group was destroyed while its calls were recorded")
                name = hashlib.sha256(repr(members).encode()).hexdigest()
                groups[name] = {"ranks": list(members)}
                fields = {key: entry[key] for key in _KEPT if key in entry}
                kept.append({**fields, **self._more(entry), "process_group": [name, ""]})
        return {"entries": kept, "pg_config": groups}


def _root_of(*given: Any) -> dict[str, int]:
    """Return the field ``root`` for a call with these arguments; empty for a call without a root.

    The root is an argument itself, or the attribute ``rootRank`` of an argument."""
    roots = (getattr(one, "rootRank", one) for one in given)
    return next(({"root": root} for root in roots if type(root) is int), {})


def _recorded(since_ns: int) -> list[dict[str, Any]]:
    """Return the flight recorder's entries.

    Raises ``InvalidInput`` if calls since ``since_ns`` (ns since 1970) are missing."""
    from torch._C import _distributed_c10d as c10d

    entries: list[dict[str, Any]] = []
    for dump in ("_dump_fr_trace_json", "_dump_nccl_trace_json"):
        if hasattr(c10d, dump):
            found = json.loads(getattr(c10d, dump)()).get("entries", [])
            if found and found[0]["record_id"] > 0 and found[0]["time_created_ns"] > since_ns:
                text = f"the flight recorder keeps {len(found)} calls, but two iterations make more"
                raise InvalidInput.of("TORCH_FR_BUFFER_SIZE", f"{text}; set it to a larger number")
            entries += found
    if not entries:
        text = "PyTorch's flight recorder is off; unset this variable or set it to 2000 before process groups are made"
        raise InvalidInput.of("TORCH_FR_BUFFER_SIZE", text)
    return entries


CALLS = Calls()
