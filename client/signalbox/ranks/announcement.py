"""Make the fields of a job spec from the reports of all ranks: addresses, process groups, gradients.

The functions take a ``RankReport`` per rank, ordered by rank."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, count
from typing import Any, NamedTuple

from signalbox.errors import InvalidInput
from signalbox.ip_addresses import is_loopback
from signalbox.jobs.spec import Library

UNNAMED = "group"
MAX_NAME = 48
"""Largest number of characters of a group's name, before a number is appended."""


class Group(NamedTuple):
    """A process group. ``ranks``: ranks of the job, in the group's order."""

    name: str
    ranks: tuple[int, ...]


class Gradients(NamedTuple):
    """Gradients of a model that ``ranks`` all-reduce once per iteration. ``bytes``: total size of the gradients."""

    ranks: tuple[int, ...]
    bytes: int
    library: str


@dataclass(frozen=True)
class RankReport:
    """Report of one rank.

    - ``endpoint``: its address
    - ``groups``: process groups that it belongs to
    - ``gradients``: gradients of its models
    - ``problem``: why the job cannot be announced; empty when it can
    - ``key``: random key of the rank; the key of rank 0 names this announcement"""

    endpoint: str | None = None
    groups: tuple[Group, ...] = ()
    gradients: tuple[Gradients, ...] = ()
    problem: str = ""
    key: str = ""


def endpoints_of(reports: Sequence[RankReport]) -> list[str]:
    """Return one address per rank. Raises ``InvalidInput`` for the first rank without an address or with a problem."""
    for rank, one in enumerate(reports):
        if one.problem:
            raise InvalidInput.of(f"rank {rank}", one.problem)
        if one.endpoint is None or is_loopback(one.endpoint):
            found = f"only {one.endpoint}" if one.endpoint else "no address"
            message = (
                f"has {found} towards the other ranks; give its address as endpoint, or set GLOO_SOCKET_IFNAME or "
                "NCCL_SOCKET_IFNAME to its interface"
            )
            raise InvalidInput.of(f"rank {rank}", message)
    return [one.endpoint or "" for one in reports]


def groups_of(reports: Iterable[RankReport]) -> list[Group]:
    """Return each group of at least two ranks once, ordered by its ranks. Equal names get a number appended."""
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
    """Return the fields ``collectives`` and ``library`` if the groups can send only gradients, else no fields.

    If the groups may send more, the job's traffic must be observed first."""
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
    """Return the library of process groups with these backends; generic for several or unknown ones."""
    found = {"openmpi" if backend == "mpi" else backend for backend in backends}
    return found.pop() if len(found) == 1 and found <= set(Library) else Library.GENERIC
