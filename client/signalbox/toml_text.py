"""Read TOML as plain data, with limits that are checked before the text is parsed.

Errors are ``InvalidInput`` with the path ``FILE:LINE:COLUMN`` when the place is known. The limits are needed because
the time and memory of the standard library's parser grow with the square of the number of parts of a dotted key. The
parser also accepts integers in base 16, 8 or 2 of any length, which Python then refuses to print in decimal.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from typing import Any

from signalbox.errors import FieldProblem, InvalidInput
from signalbox.files import MAX_DEPTH, MAX_DIGITS, MAX_FIELDS

MAX_TOML_BYTES = 8 << 20
"""Largest size of a TOML text in bytes."""
MAX_MARKS = 1_000_000
"""Largest number of separators. Parsing takes a microsecond or two per separator. 65,536 transfers have fewer."""

_QUOTED = re.compile(
    r'"""(?:[^"\\]++|\\.|"{1,2}(?!"))*+(?:"{3,5})?+'
    r"|'''(?:[^']++|'{1,2}(?!'))*+(?:'{3,5})?+"
    r'|"(?:[^"\\\n]++|\\.)*+"?+'
    r"|'[^'\n]*+'?+"
    r"|#[^\n]*+",
    re.DOTALL,
)
"""Pattern of a quoted text, closed or not, or a comment. It never backtracks, so a search takes linear time."""
_DOTTED = re.compile(rf"(?<![\w-])(?:[\w-]++[ \t]*+\.[ \t]*+){{{MAX_DEPTH}}}")
_NUMBER = re.compile(rf"(?<![\w.-])[-+]?[0-9]\w{{{MAX_DIGITS},}}+")


def table(text: str, name: str, most_marks: int = MAX_MARKS) -> dict[str, Any]:
    """Return the outermost table of a TOML text. Raises ``InvalidInput``.

    ``name``: name of the file in errors. ``most_marks``: largest number of separators (see ``MAX_MARKS``)."""
    if len(text) > MAX_TOML_BYTES:
        raise InvalidInput.of(name, f"has more than {MAX_TOML_BYTES >> 20} MiB")
    _refuse_many(text, "\n\\\"'#", name, most_marks)
    plain = _QUOTED.sub(_masked, text)
    _refuse_many(plain, "\n=,.[{", name, most_marks)
    if found := _DOTTED.search(plain):
        message = f"a dotted key may have at most {MAX_DEPTH} parts"
        raise InvalidInput.of(_place(name, plain, found.start()), message)
    if found := _NUMBER.search(plain):
        message = f"a number of {len(found[0])} digits is too long"
        raise InvalidInput.of(_place(name, plain, found.start()), message)
    try:
        read = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        at = re.search(r" \(at line (\d+), column (\d+)\)$", str(error))
        place, what = (f"{name}:{at[1]}:{at[2]}", str(error)[: at.start()]) if at else (name, str(error))
        raise InvalidInput.of(place, f"not TOML: {what}") from None
    InvalidInput.refuse(_too_large(read, name))
    return read


def _refuse_many(text: str, marks: str, name: str, most: int) -> None:
    if (found := sum(map(text.count, marks))) > most:
        message = f"has {found} separators, such as line breaks, '=' and ','; at most {most} are allowed"
        raise InvalidInput.of(name, message)


def _too_large(read: dict[str, Any], name: str) -> Iterator[FieldProblem]:
    if len(read) > MAX_FIELDS:
        yield FieldProblem(name, f"at most {MAX_FIELDS} fields are allowed in a table (given: {len(read)})")
        return
    for field, value in read.items():
        if message := _refusal(value):
            yield FieldProblem(f"{name}: {field}", message)


def _masked(quoted: re.Match[str]) -> str:
    """Return a quoted text or comment with each character replaced by a letter, except line breaks."""
    return "\n".join("q" * len(line) for line in quoted[0].split("\n"))


def _place(name: str, text: str, at: int) -> str:
    return f"{name}:{text.count(chr(10), 0, at) + 1}:{at - text.rfind(chr(10), 0, at)}"


def _refusal(value: object) -> str:
    """Return why a field's value is refused (too many fields, or too deeply nested); empty if it is accepted."""
    level: list[Any] = [[value]]
    for _ in range(MAX_DEPTH):
        level = [inner for one in level for inner in (one.values() if isinstance(one, dict) else one)]
        level = [inner for inner in level if isinstance(inner, dict | list)]
        if (most := max((len(one) for one in level if isinstance(one, dict)), default=0)) > MAX_FIELDS:
            return f"at most {MAX_FIELDS} fields are allowed in a table (given: {most})"
    return f"at most {MAX_DEPTH} lists and objects may be nested" if level else ""
