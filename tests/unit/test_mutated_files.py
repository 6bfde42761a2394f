"""Changed configurations, inventories, tokens files and job specs: each is accepted, or refused with a precise error.

Parts are replaced, exchanged, moved, misspelled or repeated, and some files are in another encoding. The generator is
seeded, so a failure repeats. An unexpected error fails the test by itself."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from copy import deepcopy
from datetime import UTC, datetime
from functools import reduce
from operator import getitem
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pydantic import ValidationError

from controller.api.identities import Identities
from controller.api.identities import _TokensFile as TokensFile
from controller.config import Config, load
from controller.serving import inventory
from controller.toml_files import MAX_MARKS
from signalbox.errors import MAX_PROBLEMS, MAX_TEXT_CHARS, FieldProblem, InvalidInput
from signalbox.files import MAX_FIELDS, MAX_LISTS, MAX_VALUES
from signalbox.jobs.spec import MAX_VIRTUAL_LINKS
from signalbox.spec_files import MAX_JOBS, MAX_SPEC_BYTES, jobs_in
from signalbox.toml_text import MAX_MARKS as MAX_OF_JOBS
from signalbox.toml_text import MAX_TOML_BYTES
from tests.support.doc_pages import ROOT

Place = tuple[str | int, ...]
WRONG: tuple[object, ...] = (
    *(True, False, "", "text", "7", "\x1b[31mred\n", "\u202e", "a" * 5000, "9" * 5000, "'", '"""', "a.b.c"),
    *(-1, 0, 1, 2**31, 2**63, 2**64, 10**99, 10**150, 0.5, -0.0, 1e308, float("nan"), float("inf"), float("-inf")),
    *([], {}, [[]], [{}], ["text"] * 200, [0] * 5000, {"a": {"b": 1}}, {"\x1b": 1}, {"k" * 500: 1}),
    datetime(2026, 1, 1, tzinfo=UTC),
)
"""Wrong values: no field accepts them, or few fields do."""
DEPTHS = (5, 40)
SNIPPETS: tuple[str, ...] = (
    *("\0", "\x1b", "\ufeff", "'''", '"""', "[", "]" * 9, "{", "=", ".", ",", "#", "\\", "\r", "a." * 40, "9" * 5000),
    *("[" * 3000, "0x" + "f" * 5000, "1_0", "nan", "1e999", "- ", ": ", "&a ", "*a", "!!x ", "\ud83d", "\n\n[x]\n"),
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
    """Return the TOML text of a value, on one line."""
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
    """Return the data with one value replaced, removed, repeated or added, and the top-level field of the change."""
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
    """Return the text with a part removed, repeated or replaced, at one to three places."""
    for _ in range(random.randint(1, 3)):
        begin = random.randrange(len(text) + 1)
        end = min(len(text), begin + random.choice((0, 1, 10, 100)))
        text = text[:begin] + random.choice(("", text[begin:end] * 2, random.choice(SNIPPETS))) + text[end:]
    return text


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


def problems(read: Callable[[Path], object], path: Path) -> tuple[FieldProblem, ...]:
    """Return the problems of the file, and assert that each is readable and names the file."""
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


def files(kind: str, random: Random) -> Iterator[tuple[str, bytes, str]]:
    """Yield files without end: suffix, bytes, and the changed top-level field, which is '' if any field may differ."""
    while True:
        data = deepcopy({"config": CONFIG, "inventory": INVENTORY, "tokens": TOKENS}.get(kind) or random.choice(SPECS))
        ending = random.choice([*FORMS]) if kind == "job" else ".toml"
        way = random.choices(("mutate", "cut up", "rearrange", "encode"), (5, 3, 2, 2))
        match way[0]:
            case "mutate":
                changed, top = mutated(data, random)
                yield ending, FORMS[ending](changed).encode(errors="surrogatepass"), top
            case "cut up":
                yield ending, cut_up(FORMS[ending](data), random).encode(errors="surrogatepass"), ""
            case "rearrange":
                random.choice(REARRANGED)(data, random)
                yield ending, FORMS[ending](data).encode(errors="surrogatepass"), ""
            case _:
                yield ending, random.choice(ENCODED)(FORMS[ending](data), random), ""


READ: dict[str, Callable[[Path], object]] = {
    "config": load,
    "inventory": inventory.load,
    "tokens": Identities.load,
    "job": jobs_in,
}


@pytest.mark.parametrize("kind", READ)
@pytest.mark.parametrize("number", [120, pytest.param(6000, marks=pytest.mark.long)])
def test_a_changed_file_is_taken_or_refused_with_the_field_that_is_wrong(
    tmp_path: Path, kind: str, number: int
) -> None:
    refused = named = 0
    for _, (ending, data, field) in zip(range(number), files(kind, Random(number)), strict=False):
        path = tmp_path / f"file{ending}"
        path.touch(0o600)
        path.write_bytes(data)
        if found := problems(READ[kind], path):
            refused += 1
            if field:
                named += 1
                place = re.compile(rf"{re.escape(field.rstrip('s'))}|{re.escape(str(path))}:[0-9]+:[0-9]+")
                assert any(place.search(str(problem)) for problem in found), (found, data[:2000])
    assert refused > number / 3
    assert named > number / 6


MANY = MAX_FIELDS + 44
UNKNOWN = "".join(f"k{n} = 1\n" for n in range(MANY))
IN_TABLE = f"at most {MAX_FIELDS} fields are allowed in a table (given: {MANY})"
JOB_YAML = ("job", ".yaml")
IN_OBJECT = f"at most {MAX_FIELDS} fields are allowed in an object"
LARGE = {
    "unknown keys": ("config", ".toml", UNKNOWN, f": {IN_TABLE}"),
    "unknown keys of a section": ("config", ".toml", f"[api]\n{UNKNOWN}", f": api: {IN_TABLE}"),
    "unknown keys in an inner table": ("inventory", ".toml", f"[[host]]\n{UNKNOWN}", f": host: {IN_TABLE}"),
    "a long file": ("config", ".toml", "#" * (MAX_TOML_BYTES + 1), ": has more than 8 MiB"),
    "many empty lines": ("tokens", ".toml", "\n" * (MAX_MARKS + 1), ": has 400001 separators, such as line breaks"),
    "many short texts": ("config", ".toml", "x = [" + "''," * (MAX_MARKS // 2) + "'']", ": has 400002 separators, "),
    "many lists": ("job", ".toml", "x = [" + "[]," * (MAX_OF_JOBS // 2) + "[]]", ": has 1000003 separators, "),
    "unknown fields": ("job", ".json", json.dumps(dict.fromkeys(map(str, range(MANY)))), f":1:3220: {IN_OBJECT}"),
    "unknown fields in YAML": ("job", ".yaml", UNKNOWN.replace(" =", ":"), f":{MAX_FIELDS + 1}:1: {IN_OBJECT}"),
    "a large file": ("job", ".json", " " * (MAX_SPEC_BYTES + 1), ": has more than 16 MiB"),
    "many numbers": ("job", ".json", f"[{'1,' * MAX_VALUES}1,2]", f": at most {MAX_VALUES} values are allowed"),
    "many objects": ("job", ".json", f"[{'{},' * MAX_LISTS}{{}}]", f": at most {MAX_LISTS} lists and objects are"),
    "many lists in YAML": (*JOB_YAML, f"[{'[],' * MAX_LISTS}]", f":1:{3 * MAX_LISTS - 1}: at most {MAX_LISTS} lists"),
    "many documents": (*JOB_YAML, "--- 1\n" * (MAX_JOBS + 1), f":{MAX_JOBS + 1}:1: at most {MAX_JOBS} documents are"),
    "many jobs": ("job", ".json", f"[{'1,' * MAX_JOBS}1]", f": at most {MAX_JOBS} jobs are allowed (given: 10001)"),
    "many wrong endpoints": (
        *("job", ".json", json.dumps({"job_id": "j", "endpoints": [1] * 5000})),
        ":1:17: endpoints: at most 4096 endpoints are allowed (given: 5000)",
    ),
}


SLOW = "many lists in YAML"


@pytest.mark.parametrize("what", [pytest.param(what, marks=[pytest.mark.long] * (what == SLOW)) for what in LARGE])
def test_a_file_is_refused_before_it_costs_an_error_for_each_value(tmp_path: Path, what: str) -> None:
    kind, ending, text, problem = LARGE[what]
    path = tmp_path / f"file{ending}"
    path.touch(0o600)
    path.write_text(text)
    (found,) = problems(READ[kind], path)
    assert str(found).startswith(f"{path}{problem}")


@pytest.mark.parametrize("entry", [{}, {"name": "x", "role": "reader"}, {"name": "x", "role": "tenant", "sha256": 1}])
def test_of_many_wrong_tables_the_first_are_looked_at(entry: dict[str, object]) -> None:
    with pytest.raises(ValidationError) as error:
        TokensFile.model_validate({"token": [entry] * 1000, "no_such": 1}, context=Counter())
    assert MAX_PROBLEMS <= error.value.error_count() < 2 * MAX_PROBLEMS


@pytest.mark.parametrize("form", [".json", pytest.param(".yaml", marks=pytest.mark.long)])
def test_the_largest_job_spec_is_within_all_limits(tmp_path: Path, form: str) -> None:
    """The job has 4,096 ranks, and as many transfers as a job may have, each with all fields."""
    ranks = 4096
    pairs = [(n % ranks, (n + 1 + n // ranks) % ranks) for n in range(MAX_VIRTUAL_LINKS)]
    transfers = [
        {"src": src, "dst": dst, "bytes_per_iteration": 1 << 50, "phase": 1000, "step": 1000} for src, dst in pairs
    ]
    spec = {
        "job_id": "largest",
        "endpoints": [f"10.0.{n // 250}.{n % 250 + 1}" for n in range(ranks)],
        "transfers": transfers,
    }
    path = tmp_path / f"job{form}"
    path.write_text(json.dumps(spec, indent=4))
    (job,) = jobs_in(path)
    assert len(job.spec.transfers) == MAX_VIRTUAL_LINKS


@pytest.mark.long
def test_the_largest_job_spec_in_toml_is_within_all_limits(tmp_path: Path) -> None:
    lines = [f"[[transfers]]\nsrc = {n % 4096}\ndst = {(n + 1) % 4096}\n" for n in range(MAX_VIRTUAL_LINKS)]
    hosts = [f"10.0.{n // 250}.{n % 250 + 1}" for n in range(4096)]
    path = tmp_path / "job.toml"
    path.write_text(f"job_id = 'largest'\nendpoints = {hosts}\n" + "bytes_per_iteration = 1000\n".join((*lines, "")))
    (job,) = jobs_in(path)
    assert len(job.spec.transfers) == MAX_VIRTUAL_LINKS
