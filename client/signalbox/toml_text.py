"""TOML as plain data, with limits that hold before it is parsed.

In: text. Out: its table, or ``InvalidInput`` whose path is ``LINE:COLUMN`` where that is known. The parser of the
standard library needs time and memory with the square of the parts of a dotted key, and has no limit for the digits of
an integer in base 16, 8 or 2, which Python then refuses to write as decimal digits.
"""

from __future__ import annotations

import re
import tomllib
from typing import Any

from signalbox.errors import FieldProblem, InvalidInput
from signalbox.standard_input import MAX_DEPTH, MAX_DIGITS

_QUOTED = re.compile(
    r'"""(?:[^"\\]++|\\.|"{1,2}(?!"))*+(?:"{3,5})?+'
    r"|'''(?:[^']++|'{1,2}(?!'))*+(?:'{3,5})?+"
    r'|"(?:[^"\\\n]++|\\.)*+"?+'
    r"|'[^'\n]*+'?+"
    r"|#[^\n]*+",
    re.DOTALL,
)
"""A text in quotes, also one without end, or a comment. No alternative goes back, so that the search takes linear
time."""
_DOTTED = re.compile(rf"(?<![\w-])(?:[\w-]++[ \t]*+\.[ \t]*+){{{MAX_DEPTH}}}")
_NUMBER = re.compile(rf"(?<![\w.-])[-+]?[0-9]\w{{{MAX_DIGITS},}}+")


def table(text: str, name: str) -> dict[str, Any]:
    """Return the table of the text. ``name``: of the file in errors. Raises ``InvalidInput``."""
    plain = _QUOTED.sub(_masked, text)
    if found := _DOTTED.search(plain):
        message = f"a key has at most {MAX_DEPTH} parts with dots between them"
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
    InvalidInput.refuse(
        FieldProblem(f"{name}: {field}", f"at most {MAX_DEPTH} lists and objects may be in each other")
        for field, value in read.items()
        if _depth_exceeds(value, MAX_DEPTH)
    )
    return read


def _masked(quoted: re.Match[str]) -> str:
    """Return letters in place of a text in quotes or a comment, with its line breaks."""
    return "\n".join("q" * len(line) for line in quoted[0].split("\n"))


def _place(name: str, text: str, at: int) -> str:
    """Return the file with line and column of a character, from 1."""
    return f"{name}:{text.count(chr(10), 0, at) + 1}:{at - text.rfind(chr(10), 0, at)}"


def _depth_exceeds(value: object, most: int) -> bool:
    """Return whether more than ``most`` lists and objects are in each other, with the one that has the value."""
    level: list[Any] = [[value]]
    for _ in range(most):
        level = [inner for one in level for inner in (one.values() if isinstance(one, dict) else one)]
        level = [inner for inner in level if isinstance(inner, dict | list)]
    return bool(level)
