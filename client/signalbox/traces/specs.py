"""Make a job spec from the traffic found in a trace and from fields that the user gives.

``given`` is a job spec without collectives and transfers. The traffic is either amounts per kind of call, or
transfers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import Any

from signalbox.errors import InvalidInput
from signalbox.files import called
from signalbox.jobs.collectives import check
from signalbox.jobs.spec import MAX_ENDPOINTS, Algorithm, JobSpec, Library
from signalbox.traces.calls import SEND, Amount, Kind

REDUCE, GATHER, SCATTER = "reduce", "gather", "scatter"
"""Operations for which job specs have no algorithm. The first rank is the root."""

Sent = dict[str, int]
"""Fields of a ``Transfer``, by name."""

_ORDER = itemgetter("phase", "src", "dst")


def with_amounts(
    given: JobSpec, amounts: Mapping[Kind, Amount], names: Mapping[tuple[int, ...], str], library: str
) -> JobSpec:
    """Return the spec ``given`` with the traffic in ``amounts``. Raises ``InvalidInput``.

    ``names``: names of groups by their ranks in ascending order. ``library``: used when ``given`` names none. Kinds of
    one rank, or of no bytes, send nothing."""
    library = given.library if "library" in given.model_fields_set else library
    as_transfers = {SEND, GATHER, SCATTER} | ({REDUCE} if library == Library.GLOO else set())
    names = {**names, **{tuple(sorted(group.ranks)): group.name for group in given.groups}}
    groups: dict[tuple[int, ...], str] = {}
    collectives: dict[tuple[Algorithm, int, int], list[str]] = {}
    sending = {kind: amount for kind, amount in amounts.items() if amount.bytes and len(kind.ranks) > 1}
    for kind, amount in sending.items():
        if kind.what not in as_transfers:
            # A reduction to a root is a chain that ends there: each rank forwards its partial sum, M bytes.
            algorithm = Algorithm.PIPELINE_SEND if kind.what == REDUCE else Algorithm(kind.what)
            ranks = kind.ranks[::-1] if kind.what == REDUCE else kind.ranks
            if ranks not in groups:
                groups[ranks] = _unused(names.get(tuple(sorted(ranks)), "group"), set(groups.values()))
            collectives.setdefault((algorithm, amount.bytes, amount.phase), []).append(groups[ranks])
    return with_traffic(
        given,
        library,
        groups=tuple({"name": name, "ranks": ranks} for ranks, name in groups.items()),
        collectives=tuple(
            {"algorithm": algorithm, "groups": tuple(of), "bytes_per_iteration": size, "phase": phase}
            for (algorithm, size, phase), of in collectives.items()
        ),
        transfers=tuple(
            sorted(
                chain.from_iterable(_transfers(*one) for one in sending.items() if one[0].what in as_transfers),
                key=_ORDER,
            )
        ),
    )


def with_traffic(given: JobSpec, library: str, **traffic: object) -> JobSpec:
    """Return the spec ``given`` with the fields in ``traffic``. Raises ``InvalidInput``.

    ``library``: used when ``given`` names none."""
    data: dict[str, Any] = given.model_dump(exclude_unset=True)
    spec = JobSpec.parse({"library": library, **data, **traffic})
    InvalidInput.refuse(check(spec))
    return spec


def transfer(src: int, dst: int, size: int, phase: int) -> Sent:
    return {"src": src, "dst": dst, "bytes_per_iteration": size, "phase": phase}


def _transfers(kind: Kind, amount: Amount) -> Iterator[Sent]:
    """Yield the transfers of a send, gather, scatter or reduction.

    A gather brings each rank's share of M to the first rank, a scatter does the opposite. Gloo's reduction is a
    reduce-scatter in a ring that runs backwards, followed by a gather (``gloo/reduce.cc``; seen with torch 2.13)."""
    root, *others = kind.ranks
    n = len(kind.ranks)
    if kind.what == REDUCE:
        for place, rank in enumerate(kind.ranks):
            yield transfer(rank, kind.ranks[place - 1], -(-(n - 1) * amount.bytes // n), amount.phase)
    if kind.what == SEND:
        yield transfer(root, others[0], amount.bytes, amount.phase)
    else:
        share = -(-amount.bytes // n)
        for other in others:
            src, dst = (root, other) if kind.what == SCATTER else (other, root)
            yield transfer(src, dst, share, amount.phase)


def _unused(name: str, used: set[str]) -> str:
    name = "".join(c if c.isprintable() else "?" for c in name)[:50] or "group"
    names = (f"{name}-{number}" if number else name for number in range(len(used) + 1))
    return next(free for free in names if free not in used)


def library_of(names: Iterable[str]) -> str:
    """Return the library that a trace names; generic when the trace names several or an unknown one."""
    found = set(names)
    return found.pop() if len(found) == 1 and found <= set(Library) else Library.GENERIC


def file_of_rank(files: Sequence[Path]) -> dict[int, Path]:
    """Return the files by rank.

    The rank is the last number in a file's name, or the file's position in ``files`` when no name has a number. Raises
    ``InvalidInput``."""
    numbers = [re.findall(r"\d+", re.sub(r"\.(et|json|pkl|pickle)$", "", file.name)) for file in files]
    if not any(numbers):
        return dict(enumerate(files))
    found: dict[int, Path] = {}
    for file, number in zip(files, numbers, strict=True):
        if not number:
            raise InvalidInput.of(called(file), "the file name has no rank number, but names of other files have one")
        rank = int(number[-1][:9])
        if rank >= MAX_ENDPOINTS:
            raise InvalidInput.of(
                called(file), f"the file name gives rank {rank}; the largest possible rank is {MAX_ENDPOINTS - 1}"
            )
        if rank in found:
            raise InvalidInput.of(
                called(file), f"the file name gives rank {rank}, and so does the name of {called(found[rank])}"
            )
        found[rank] = file
    return dict(sorted(found.items()))
