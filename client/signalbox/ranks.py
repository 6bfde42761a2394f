"""Exchange data between the ranks of one program, and announce the job; independent of the communication library.

``endpoints_of``, ``groups_of`` and ``gradients_of`` make the fields of a job spec from a ``RankReport`` per rank,
ordered by rank. ``Marks`` counts iterations.

``Exchange`` sends the recorded calls of each rank to rank 0 through the program's key-value store. Each rank has one
thread for this exchange. The program never waits for the thread, which ends when rank 0 has derived the traffic of the
job. Ranks need not reach a window of iterations at the same time, or at all. The first window is early, and the result
of a later window corrects it.
"""

from __future__ import annotations

import json
import logging
import time
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, count
from typing import Any, NamedTuple, Protocol

from signalbox.errors import InvalidInput
from signalbox.ip_addresses import is_loopback
from signalbox.jobs.spec import Library
from signalbox.rounds import Rounds

UNNAMED = "group"
MAX_NAME = 48
"""Largest number of characters of a group's name, without an appended number."""


class Group(NamedTuple):
    """A process group. ``ranks``: its members as ranks of the job, in the group's order."""

    name: str
    ranks: tuple[int, ...]


class Gradients(NamedTuple):
    """Gradients of a model that ``ranks`` all-reduce once per iteration.

    ``bytes``: size of all gradients of the model."""

    ranks: tuple[int, ...]
    bytes: int
    library: str


@dataclass(frozen=True)
class RankReport:
    """Data of one rank, from which the job spec is made.

    - ``endpoint``: its address
    - ``groups``: process groups that it belongs to
    - ``gradients``: gradients of its models
    - ``problem``: why the job cannot be announced; empty when it can
    - ``key``: random text; that of rank 0 identifies this announcement in the key-value store"""

    endpoint: str | None = None
    groups: tuple[Group, ...] = ()
    gradients: tuple[Gradients, ...] = ()
    problem: str = ""
    key: str = ""


def endpoints_of(reports: Sequence[RankReport]) -> list[str]:
    """Return the address of each rank.

    Raises ``InvalidInput`` for the first rank with a problem or without an address."""
    for rank, one in enumerate(reports):
        if one.problem:
            raise InvalidInput.of(f"rank {rank}", one.problem)
        if one.endpoint is None or is_loopback(one.endpoint):
            found = f", only {one.endpoint}" if one.endpoint else ""
            message = (
                f"has no address that other ranks can reach{found}; give its address as endpoint, or set "
                "GLOO_SOCKET_IFNAME or NCCL_SOCKET_IFNAME to its interface"
            )
            raise InvalidInput.of(f"rank {rank}", message)
    return [one.endpoint or "" for one in reports]


def groups_of(reports: Iterable[RankReport]) -> list[Group]:
    """Return each group of at least two ranks once, ordered by its ranks.

    Groups with the same name are numbered: a number is appended to the name."""
    names: dict[tuple[int, ...], str] = {}
    for group in chain.from_iterable(one.groups for one in reports):
        if len(group.ranks) > 1 and names.get(group.ranks, UNNAMED) == UNNAMED:
            names[group.ranks] = "".join(c for c in group.name if c.isprintable())[:MAX_NAME] or UNNAMED
    ranks_of: defaultdict[str, list[tuple[int, ...]]] = defaultdict(list)
    for ranks, name in sorted(names.items()):
        ranks_of[name].append(ranks)
    found, used = [], set(ranks_of)
    for name, several in ranks_of.items():
        numbered = (f"{name}-{number}" for number in count())
        for ranks in several:
            own = name if len(several) == 1 else next(free for free in numbered if free not in used)
            used.add(own)
            found.append(Group(own, ranks))
    return sorted(found, key=lambda group: group.ranks)


def gradients_of(reports: Sequence[RankReport], groups: Sequence[Group]) -> dict[str, Any]:
    """Return the fields ``collectives`` and ``library`` of the job spec if the groups send only gradients.

    If the groups may send more, the result is empty: the job's traffic must be measured first."""
    sizes: dict[tuple[int, ...], int] = {}
    for one in reports:
        for ranks in {gradients.ranks for gradients in one.gradients}:
            size = sum(gradients.bytes for gradients in one.gradients if gradients.ranks == ranks)
            sizes[ranks] = max(sizes.get(ranks, 0), size)
    others = [group.ranks for group in groups if len(group.ranks) < len(reports) and group.ranks not in sizes]
    names = {group.ranks: group.name for group in groups}
    if not sizes or others or not all(sizes.values()) or not sizes.keys() <= names.keys():
        return {}
    of_size: defaultdict[int, list[str]] = defaultdict(list)
    for ranks, size in sorted(sizes.items()):
        of_size[size].append(names[ranks])
    libraries = {gradients.library for one in reports for gradients in one.gradients}
    return {
        "collectives": [
            {"algorithm": "all_reduce", "groups": names, "bytes_per_iteration": size} for size, names in of_size.items()
        ],
        "library": library_named(libraries),
    }


def library_named(backends: Iterable[str]) -> str:
    """Return the library of process groups with these backends; generic for several backends or an unknown one."""
    found = {"openmpi" if backend == "mpi" else backend for backend in backends}
    return found.pop() if len(found) == 1 and found <= set(Library) else Library.GENERIC


class Window(NamedTuple):
    """Window of iterations whose traffic is evaluated.

    - ``start``: number of iterations before the window
    - ``provisional``: whether the traffic may change afterwards"""

    start: int
    iterations: int
    provisional: bool = False

    @property
    def end(self) -> int:
        """Number of iterations from the start of the job to the end of the window."""
        return self.start + self.iterations


WINDOWS = (Window(0, 1, provisional=True), Window(2, 2), Window(10, 2), Window(50, 2))
"""Windows of iterations, evaluated one after the other until one window yields the job's final traffic.

The first iterations differ from later ones: gradient buckets are rebuilt, and optimizers allocate their state. The
traffic of the first iteration is good enough for routes until more is known. Later windows serve jobs whose earlier
windows could not be evaluated."""


class Marks:
    """Ends of iterations, in ns since 1970.

    - ``on_window``: called when a window is complete, in the thread that calls ``mark``
    - ``now_ns``: begin of the first iteration"""

    def __init__(self, on_window: Callable[[], object], now_ns: int) -> None:
        self._on_window = on_window
        self.count = 0
        """Number of iterations that have ended."""
        self._ends_ns = {0: now_ns}

    def mark(self, now_ns: int) -> None:
        """Record the end of an iteration."""
        self.count += 1
        if any(self.count in (window.start, window.end) for window in WINDOWS):
            self._ends_ns[self.count] = now_ns
        if any(self.count == window.end for window in WINDOWS):
            self._on_window()

    def window(self, number: int) -> tuple[int, int] | None:
        """Return begin and end of the window with this number, in ns since 1970; None while it is incomplete.

        A window has the same iterations on all ranks that have made the same number of iterations."""
        window = WINDOWS[number]
        return (self._ends_ns[window.start], self._ends_ns[window.end]) if self.count >= window.end else None


POLL_S = 1.0
"""Longest pause in seconds between two polls of the store.

The first pauses are shorter: each is as long as rank 0 has already waited for the other ranks."""
LEAST_POLL_S = 0.1
IDLE_S = 3600.0
"""Longest pause in seconds while no window is complete. The end of a window also ends the pause."""
GIVE_UP_S = 600.0
"""Seconds for which rank 0, after its own window, waits for the windows of the other ranks.

The windows of all ranks end at about the same time."""

log = logging.getLogger("signalbox")

Record = Callable[[int, int], Mapping[str, Any]]
"""Function that returns the calls between two times (ns since 1970), in the form of a flight recorder's dump.

The function may raise ``InvalidInput``."""
Understand = Callable[[Mapping[int, Any], Window], object]
"""Function that evaluates the calls of all ranks in a window. The function receives the calls by rank, and the window.

It may raise ``InvalidInput``."""


class Store(Protocol):
    """The methods of ``torch.distributed.Store`` that ``Exchange`` calls."""

    def set(self, key: str, value: bytes, /) -> object: ...
    def get(self, key: str, /) -> bytes: ...
    def check(self, keys: list[str], /) -> bool: ...


class Exchange:
    """Exchange of recorded calls for one job, on one rank.

    - ``key``: prefix of all keys in the store for this announcement
    - ``record``: returns this rank's calls; ``understand``: evaluates the calls of all ranks on rank 0
    - ``on_end``: called when recording is over"""

    def __init__(
        self,
        store: Store,
        key: str,
        rank: int,
        ranks: int,
        record: Record,
        understand: Understand,
        on_end: Callable[[], None] = lambda: None,
    ) -> None:
        self._store, self._key = store, key
        self._rank, self._ranks = rank, ranks
        self._record, self._understand = record, understand
        self._recorded = 0
        self._asked = 0  # windows that rank 0 has evaluated
        self._asked_since = 0.0
        self._rounds = Rounds("signalbox-recording", self._round, on_end)
        self.marks = Marks(self._rounds.hurry, time.time_ns())

    def start(self) -> None:
        """Start the thread. Raises ``RuntimeError`` when the system allows no further thread."""
        self._rounds.start()

    def begin_leaving(self) -> None:
        self._rounds.leave()

    def end_leaving(self, timeout_s: float) -> None:
        """Wait until the thread has ended: it must not use the store while the interpreter ends."""
        self._rounds.join(timeout_s)

    def _round(self) -> float | None:
        try:
            return self.round(time.monotonic())
        except Exception as error:
            log.info(
                "the job's collectives are not recorded, so its traffic is unknown (the training continues): %s", error
            )
            return None

    def round(self, now: float) -> float | None:
        """Send the calls of complete windows to rank 0, which evaluates them.

        Returns the seconds until the next round, or None after the last round. ``now``: monotonic time in seconds."""
        while self._recorded < len(WINDOWS) and (window := self.marks.window(self._recorded)):
            if self._recorded and self._store.check([f"{self._key}/done"]):
                return None
            self._store.set(self._of(self._recorded, self._rank), _packed(self._record, window))
            self._recorded, self._asked_since = self._recorded + 1, now
        if self._rank:
            return IDLE_S if self._recorded < len(WINDOWS) else None
        if self._asked == self._recorded:
            return IDLE_S if self._asked < len(WINDOWS) else None
        return self._ask(now)

    def _ask(self, now: float) -> float | None:
        keys = [self._of(self._asked, rank) for rank in range(self._ranks)]
        if not self._store.check(keys):
            waited_s = now - self._asked_since
            return min(max(LEAST_POLL_S, waited_s), POLL_S) if waited_s < GIVE_UP_S else None
        window = WINDOWS[self._asked]
        self._asked += 1
        try:
            self._understand({rank: _unpacked(self._store.get(key), rank) for rank, key in enumerate(keys)}, window)
        except InvalidInput as error:
            log.info("the job's traffic cannot be derived from its calls (the training continues): %s", error)
            return 0.0
        if window.provisional:
            return 0.0
        self._store.set(f"{self._key}/done", b"")
        return None

    def _of(self, window: int, rank: int) -> str:
        return f"{self._key}/{window}/{rank}"


def _packed(record: Record, window: tuple[int, int]) -> bytes:
    try:
        data: Mapping[str, Any] = record(*window)
    except InvalidInput as error:
        data = {"problem": str(error)}
    return zlib.compress(json.dumps(data).encode(), 1)


def _unpacked(data: bytes, rank: int) -> Any:
    found = json.loads(zlib.decompress(data))
    if "problem" in found:
        raise InvalidInput.of(f"rank {rank}", found["problem"])
    return found
