"""Configurations, inventories, tokens files and job specs with exchanged, moved, misspelled or repeated parts.

Some files are in another encoding. Each file is accepted, or refused with a precise error. The generator is seeded, so
a failure repeats. An unexpected error fails the test by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import reduce
from operator import getitem
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.unit.test_mutated_files import CONFIG, FORMS, INVENTORY, READ, SPECS, TOKENS, problems

Place = tuple[str | int, ...]
SPELLINGS: tuple[Callable[[str], str], ...] = (
    str.upper,
    str.title,
    lambda name: name[:-1],
    lambda name: f" {name}",
    lambda name: name.replace("_", "-"),
    lambda name: name.replace("e", "\u0435"),
    lambda name: f"{name}\u200b",
    lambda name: f"__{name}__",
)


def places(data: Any, place: Place = ()) -> Iterator[Place]:
    """Yield the place of every field and item at any depth."""
    for at in list(data) if isinstance(data, dict) else range(len(data)) if isinstance(data, list) else ():
        yield (*place, at)
        yield from places(data[at], (*place, at))


def value(data: Any, place: Place) -> Any:
    return reduce(getitem, place, data)


def exchanged(data: Any, random: Random) -> None:
    one, other = random.sample([*places(data)], 2)
    if one[: len(other)] != other[: len(one)]:
        found = value(data, one), value(data, other)
        value(data, one[:-1])[one[-1]], value(data, other[:-1])[other[-1]] = reversed(found)


def moved(data: Any, random: Random) -> None:
    place = random.choice([place for place in places(data) if isinstance(place[-1], str)])
    field = value(data, place[:-1]).pop(place[-1])
    homes = [(), *(home for home in places(data) if isinstance(value(data, home), dict))]
    value(data, random.choice(homes))[place[-1]] = field


def misspelled(data: Any, random: Random) -> None:
    place = random.choice([place for place in places(data) if isinstance(place[-1], str)])
    inside = value(data, place[:-1])
    inside[random.choice(SPELLINGS)(str(place[-1]))] = inside.pop(place[-1])


def repeated(data: Any, random: Random) -> None:
    items = value(data, random.choice([place for place in places(data) if isinstance(value(data, place), list)]))
    items *= random.choice((2, 20, 1000))


REARRANGED = (exchanged, moved, misspelled, repeated)
ENCODED: tuple[Callable[[str, Random], bytes], ...] = (
    lambda text, _: text.encode("utf-16"),
    lambda text, _: text.encode("latin-1", errors="replace") + b"\xff",
    lambda text, _: text.replace("\n", "\r").encode(),
    lambda text, _: text.replace("\n", "\r\n").encode(),
    lambda text, _: b"\xef\xbb\xbf" * 2 + text.encode(),
    lambda text, _: f"{text}\n---\n{text}".encode(),
    lambda text, _: (text * 2).encode(),
    lambda text, random: text.encode()[: random.randrange(len(text))],
    lambda text, random: "\n".join(random.sample(lines := text.split("\n"), len(lines))).encode(),
)


@pytest.mark.parametrize("kind", READ)
@pytest.mark.parametrize("number", [60, pytest.param(1000, marks=pytest.mark.long)])
def test_a_rearranged_file_is_taken_or_refused_with_what_is_wrong(tmp_path: Path, kind: str, number: int) -> None:
    random, refused = Random(number), 0
    for _ in range(number):
        data = deepcopy({"config": CONFIG, "inventory": INVENTORY, "tokens": TOKENS}.get(kind) or random.choice(SPECS))
        ending = random.choice([*FORMS]) if kind == "job" else ".toml"
        is_encoded = random.random() < 0.4
        if not is_encoded:
            random.choice(REARRANGED)(data, random)
        text = FORMS[ending](data)
        path = tmp_path / f"file{ending}"
        path.touch(0o600)
        path.write_bytes(random.choice(ENCODED)(text, random) if is_encoded else text.encode())
        refused += bool(problems(READ[kind], path))
    assert refused > number / 3
