"""Find the addresses of the hosts that launchers and job specs name.

A file of addresses (``address_map``) has precedence; the resolver looks up all other names. Each host has one address
per NIC. ``InvalidInput`` names each host that has no usable address."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from ipaddress import ip_address
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from signalbox.errors import FieldProblem, InvalidInput, cut, value_problem
from signalbox.file_forms import Hosts, addresses_in
from signalbox.files import MAX_VALUES, called, read_text
from signalbox.ip_addresses import VERSION, Network, is_loopback, resembles_range, resolved
from signalbox.jobs.spec import MAX_ENDPOINTS

Nics = tuple[str, ...]
"""Addresses of a host: the address of its first NIC, then the addresses of its rails."""

TOO_MANY = f"at most {MAX_ENDPOINTS} hosts are allowed"

_WORDS = re.compile(r"(?:\[[^\]]*\]|[^,\s])+")
_PIECES = re.compile(r"\[([^\[\]]*)\]|([^,\[\]]+)|[\[\]]")
_NUMBERS = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")


def host_names(text: str) -> list[str]:
    """Return the host names in a list of the form that Slurm and PBS write.

    ``n[1-4,07],m05`` stands for six names, ``r[0-1]n[1-2]`` for four. Raises ``InvalidInput``."""
    names: list[str] = []
    for word in _WORDS.findall(text):
        parts = list(_PIECES.finditer(word))
        pieces = [_numbered(part[1] or "") if part[2] is None else (part[2],) for part in parts]
        if not all(pieces):
            raise InvalidInput.of("", f"'{cut(text)}' does not name hosts; write them as n[1-4,7],m5")
        if len(names) + prod(map(len, pieces)) > MAX_ENDPOINTS:
            raise InvalidInput.of("", TOO_MANY)
        names += map("".join, product(*pieces))
    return names


def hosts_named(text: str) -> list[str]:
    """Return the hosts in a list of names, as for ``host_names``, and of address ranges (``10.0.1.1-4``).

    Raises ``InvalidInput``, also for an empty list."""
    found: list[str] = []
    for word in _WORDS.findall(text):
        found += addresses_in("", [_range(word)]) if resembles_range(word) else host_names(word)
    if not found:
        raise InvalidInput.of("", "must name at least one host")
    return found


def _range(word: str) -> str:
    try:
        return TypeAdapter(Hosts).validate_python(word)[0]
    except ValidationError as error:
        raise InvalidInput.of("", value_problem(error)) from None


def _numbered(text: str) -> Sequence[str]:
    """Return the numbers in a list: ``1``, ``2``, ``3`` and ``07`` for ``1-3,07``; empty if the text is no such list.

    In a range, all numbers have at least as many digits as the first: ``08-10`` is ``08``, ``09`` and ``10``."""
    found: list[str] = []
    for part in text.split(","):
        numbers = _NUMBERS.fullmatch(part)
        if not numbers:
            return ()
        first, last = numbers[1], numbers[2] or numbers[1]
        if len(found) + int(last) - int(first) >= MAX_ENDPOINTS:
            raise InvalidInput.of("", TOO_MANY)
        found += [f"{number:0{len(first)}}" for number in range(int(first), int(last) + 1)]
    return found


def address_map(path: Path) -> dict[str, Nics]:
    """Return the addresses of each host, by name, from a YAML or JSON file.

    The file maps each host to its address, or to a list with one address per NIC. ``n[1-4]: 10.0.1.1-4`` stands for
    four hosts. Raises ``InvalidInput`` with the file, line and column of each mistake."""
    from signalbox.yaml_text import documents  # its import takes a moment

    name, text = called(path), read_text(path)
    try:
        found = documents(text, MAX_VALUES)
    except InvalidInput as error:
        raise InvalidInput.of(f"{name}:{error.problems[0].path}", error.problems[0].message) from None
    if len(found) != 1 or not isinstance(found[0].data, dict):
        raise InvalidInput.of(name, "must have the address of each host, such as 'n1: 10.0.1.1'")
    nics: dict[str, Nics] = {}
    problems: list[FieldProblem] = []
    for hosts, (line, column, _) in found[0].entries.items():
        try:
            nics |= _nics(str(hosts), found[0].data[hosts])
        except InvalidInput as error:
            problems += error.within(f"{name}:{line}:{column}").problems
    InvalidInput.refuse(problems)
    return nics


def _nics(hosts: str, value: Any) -> dict[str, Nics]:
    names = host_names(hosts)
    try:
        ranges = TypeAdapter(Hosts).validate_python(value)
    except ValidationError as error:
        raise InvalidInput.of(hosts, value_problem(error)) from None
    rails = [addresses_in(hosts, [one]) for one in ranges]
    for one, addresses in zip(ranges, rails, strict=True):
        if len(addresses) != len(names):
            message = (
                f"{one} has {len(addresses)} addresses, but there are {len(names)} hosts; give one address per host"
            )
            raise InvalidInput.of(hosts, message)
    return dict(zip(names, zip(*rails, strict=True), strict=True))


def addresses_of(hosts: Sequence[str], given: Mapping[str, Nics], within: Sequence[Network] = ()) -> list[Nics]:
    """Return the addresses of each host, in the order of ``hosts``.

    - ``given``: result of ``address_map``. A host is looked up by its full name, then by its name without the domain.
    - ``within``: preferred networks, for a name that the resolver maps to several addresses

    Raises ``InvalidInput`` when a host has no usable address."""
    known: dict[str, Nics] = {}
    problems: list[FieldProblem] = []
    for host in dict.fromkeys(hosts):
        try:
            known[host] = given.get(host) or given.get(host.partition(".")[0]) or (_resolved(host, within),)
        except InvalidInput as error:
            problems += error.problems
    InvalidInput.refuse(problems)
    InvalidInput.refuse(_uneven(known))
    return [known[host] for host in hosts]


def _resolved(host: str, within: Sequence[Network]) -> str:
    try:
        found = resolved(host)
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise InvalidInput.of(host, f"has no {VERSION} address: {why}; give it with --addresses FILE") from None
    useful = [address for address in found if not is_loopback(address)]
    if not useful:
        message = f"resolves to {found[0]}, which other hosts cannot reach; give its address with --addresses FILE"
        raise InvalidInput.of(host, message)
    chosen = [address for address in useful if any(ip_address(address) in network for network in within)] or useful
    if len(chosen) > 1:
        raise InvalidInput.of(host, f"has several addresses, {', '.join(chosen)}; choose one with --addresses FILE")
    return chosen[0]


def _uneven(known: Mapping[str, Nics]) -> Iterator[FieldProblem]:
    counts = {len(nics): host for host, nics in known.items()}
    if len(counts) > 1:
        (few, one), (many, other), *_ = sorted(counts.items())
        addresses = "address" if few == 1 else "addresses"
        yield FieldProblem(
            one, f"has {few} {addresses} and {other} has {many}; all hosts of a job need the same number"
        )


def endpoints_of(ranks: Sequence[Nics]) -> dict[str, Any]:
    """Return the fields ``endpoints`` and ``rails`` of a job spec.

    ``ranks``: for each rank, the addresses of its host's NICs."""
    first, *rails = zip(*ranks, strict=True)
    return {"endpoints": first, "rails": [{"endpoints": rail} for rail in rails]}


def with_addresses(job: Any, given: Mapping[str, Nics]) -> Any:
    """Return a job's plain data with addresses instead of host names in ``hosts`` and ``endpoints``.

    If the hosts have several NICs, the data get the field ``rails``, unless the data already have this field. Texts
    that are not names stay unchanged, and ``job_in`` checks them. Raises ``InvalidInput`` with the field whose names
    have no address."""
    if not isinstance(job, dict):
        return job
    for field in ("hosts", "endpoints"):
        words = [job[field]] if isinstance(job.get(field), str) else job.get(field)
        if not isinstance(words, list) or not any(map(_is_name, words)):
            continue
        ranks = _ranks(field, words, given)
        if not all(len(nics) == len(ranks[0]) for nics in ranks):
            raise InvalidInput.of(
                field,
                "some of the named hosts have several NICs, but a host given as an address has one; name all hosts",
            )
        first, *rails = zip(*ranks, strict=True)
        rails_of_names = {"rails": [{field: list(rail)} for rail in rails]} if rails else {}
        job = {**rails_of_names, **job, field: list(first)}
    return job


def _ranks(field: str, words: list[Any], given: Mapping[str, Nics]) -> list[Nics]:
    ranks: list[Nics] = []
    for number, word in enumerate(words):
        try:
            ranks += addresses_of(host_names(word), given) if _is_name(word) else [(word,)]
        except InvalidInput as error:
            where = f"{field}[{number}]" if len(words) > 1 else field
            texts = (f"{problem.path} {problem.message}".strip() for problem in error.problems)
            raise InvalidInput(tuple(FieldProblem(where, text) for text in texts)) from None
    return ranks


def _is_name(word: object) -> bool:
    return isinstance(word, str) and any(c.isalpha() for c in word)
