"""Mutated configurations, inventories, tokens files and job specs: each is taken, or refused with what is wrong in it.

The generator is seeded, so a failure repeats. An error that is not ours fails the test by itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from copy import deepcopy
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import pytest

from controller.api.identities import Identities
from controller.config import Config, load
from controller.serving import inventory
from signalbox.errors import MAX_TEXT_CHARS, FieldProblem, InvalidInput
from signalbox.spec_files import jobs_in
from tests.support.doc_pages import ROOT

WRONG: tuple[object, ...] = (
    *(True, False, "", "text", "7", "\x1b[31mred\n", "\u202e", "a" * 5000, "9" * 5000, "'", '"""', "a.b.c"),
    *(-1, 0, 1, 2**31, 2**63, 2**64, 10**99, 10**150, 0.5, -0.0, 1e308, float("nan"), float("inf"), float("-inf")),
    *([], {}, [[]], [{}], ["text"] * 200, [0] * 5000, {"a": {"b": 1}}, {"\x1b": 1}, {"k" * 500: 1}),
    datetime(2026, 1, 1, tzinfo=UTC),
)
"""What no field takes, or few do."""
DEPTHS = (5, 40)
SNIPPETS: tuple[str, ...] = (
    "\0",
    "\x1b",
    "\ufeff",
    "'''",
    '"""',
    "[",
    "]" * 9,
    "{",
    "=",
    ".",
    ",",
    "#",
    "\\",
    "\r",
    "a." * 40,
    "9" * 5000,
)
SNIPPETS += (
    "[" * 3000,
    "0x" + "f" * 5000,
    "1_0",
    "nan",
    "1e999",
    "- ",
    ": ",
    "&a ",
    "*a",
    "!!x ",
    "\ud83d",
    "\n\n[x]\n",
)

CONFIG = Config.model_validate(
    {
        "api": {"listen": ["127.0.0.1:1", "unix:/run/a"]},
        "fabric": {
            "link": [{"switch": "leaf1", "port": "p1", "bps": 1e9}],
            "gateway": [{"ip": "10.0.0.254", "mac": "02:00:00:00:01:01"}],
        },
        "circuits": {"switch": [{"dpid": 5, "fibres": ["0x1:1", ""]}]},
    }
).model_dump(mode="json", exclude_none=True)
INVENTORY = {
    "host": [{"ip": "10.0.0.1", "mac": "02:00:00:00:01:01", "switch": "leaf1", "port": "p1"}],
    "switch": [{"name": "leaf1", "dpid": 1, "role": "leaf"}, {"name": "spine1"}],
    "link": [{"ends": ["leaf1:p2", "spine1:p1"]}],
}
TOKENS = {
    "token": [{"name": "admin", "role": "operator", "sha256": "0" * 64}],
    "certificate": [{"name": "scheduler", "role": "tenant", "tenant": "blue"}],
    "tenant": [{"name": "blue", "max_jobs": 3}],
}
SPECS = [json.loads((ROOT / f"examples/{name}.json").read_text()) for name in ("language", "transfers", "rails")]


def toml(value: object) -> str:
    """A value on one line."""
    match value:
        case bool():
            return str(value).lower()
        case str():
            return json.dumps(value, ensure_ascii=False).replace("\x7f", r"\u007f")
        case list():
            return f"[{', '.join(map(toml, value))}]"
        case dict():
            return f"{{{', '.join(f'{toml(key)} = {toml(inner)}' for key, inner in value.items())}}}"
        case datetime():
            return value.isoformat()
    return repr(value)


def toml_file(data: dict[str, Any]) -> str:
    return "".join(f"{toml(key)} = {toml(value)}\n" for key, value in data.items())


def json_file(data: dict[str, Any]) -> str:
    return json.dumps(data, indent=1, default=str)


FORMS: dict[str, Callable[[dict[str, Any]], str]] = {".toml": toml_file, ".json": json_file, ".yaml": json_file}


def mutated(data: dict[str, Any], random: Random) -> tuple[dict[str, Any], str]:
    """With one value replaced, removed, repeated or added, and the name of the field at the top that has it."""
    data = deepcopy(data)
    inside: Any = data
    top = ""
    while True:
        at: Any = random.choice(list(inside) if isinstance(inside, dict) else range(len(inside)))
        top = top or at
        if not isinstance(inside[at], dict | list) or not inside[at] or random.random() < 0.3:
            break
        inside = inside[at]
    how = random.randrange(8)
    if how == 0:
        del inside[at]
    elif how == 1 and isinstance(inside, list):
        inside.insert(at, inside[at])
    elif how == 1:
        inside[random.choice((f"{at}s", "no_such", "\x1b[31m", "a" * 300))] = inside[at]
    elif how == 2:
        nested: object = 1
        for _ in range(random.choice(DEPTHS)):
            nested = [nested] if random.random() < 0.5 else {"a": nested}
        inside[at] = nested
    else:
        inside[at] = random.choice(WRONG)
    return data, top


def cut_up(text: str, random: Random) -> str:
    """With a part removed, repeated or replaced, at one to three places."""
    for _ in range(random.randint(1, 3)):
        begin = random.randrange(len(text) + 1)
        end = min(len(text), begin + random.choice((0, 1, 10, 100)))
        text = text[:begin] + random.choice(("", text[begin:end] * 2, random.choice(SNIPPETS))) + text[end:]
    return text


def problems(read: Callable[[Path], object], path: Path) -> tuple[FieldProblem, ...]:
    """What is wrong with the file; each can be read, and says in which file."""
    found: tuple[FieldProblem, ...] = ()
    try:
        read(path)
        return found
    except InvalidInput as error:
        found = error.problems
    assert found
    for problem in found:
        assert str(path) in problem.path, problem
        assert problem.message
        assert str(problem).isprintable()
        assert len(str(problem)) < 2 * MAX_TEXT_CHARS
        assert "nput should" not in str(problem), problem
    return found


def files(kind: str, random: Random) -> Iterator[tuple[str, str, str]]:
    """Ending, text and the field that was changed (empty: any), without end."""
    while True:
        data = {"config": CONFIG, "inventory": INVENTORY, "tokens": TOKENS}.get(kind) or random.choice(SPECS)
        ending = random.choice([*FORMS]) if kind == "job" else ".toml"
        if random.random() < 0.6:
            changed, top = mutated(data, random)
            yield ending, FORMS[ending](changed), top
        else:
            yield ending, cut_up(FORMS[ending](data), random), ""


READ: dict[str, Callable[[Path], object]] = {
    "config": load,
    "inventory": inventory.load,
    "tokens": Identities.load,
    "job": jobs_in,
}


@pytest.mark.parametrize("kind", READ)
@pytest.mark.parametrize("number", [250, pytest.param(5000, marks=pytest.mark.long)])
def test_a_mutated_file_is_taken_or_refused_with_the_field_that_is_wrong(
    tmp_path: Path, kind: str, number: int
) -> None:
    refused = named = 0
    for _, (ending, text, field) in zip(range(number), files(kind, Random(number)), strict=False):
        path = tmp_path / f"file{ending}"
        path.touch(0o600)
        path.write_text(text, errors="surrogatepass")
        if found := problems(READ[kind], path):
            refused += 1
            if field:
                named += 1
                place = re.compile(rf"{re.escape(field.rstrip('s'))}|{re.escape(str(path))}:[0-9]+:[0-9]+")
                assert any(place.search(str(problem)) for problem in found), (found, text[:2000])
    assert refused > number / 3
    assert named > number / 6
