"""Undo bash's division of words at ``:`` and ``=`` while it completes a command.

bash divides words at the characters of ``COMP_WORDBREAKS``: ``leaf1:5`` arrives as three words, and a completion
replaces only the last one. ``COMP_WORDS`` has a word per line, and ``COMP_CWORD`` the index of the current word, as the
script of ``--show-completion bash`` sets them. This module sets both variables to whole words, and removes from each
completion the part that bash keeps."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager, redirect_stdout

_BREAK = re.compile("[:=]+")


def whole_words(words: list[str], current: int) -> tuple[list[str], int, str]:
    """Return the words as typed, the index of the current word, and the part of that word that bash keeps."""
    whole: list[str] = []
    place, kept, glue = current, "", False
    for number, word in enumerate(words):
        is_break = _BREAK.fullmatch(word) is not None
        if whole and (glue or is_break):
            before = whole[-1]
            whole[-1] += word
            if number == current:
                place, kept = len(whole) - 1, before + word if is_break else before
        else:
            whole.append(word)
            if number == current:
                place = len(whole) - 1
        glue = is_break
    return whole, place, kept


@contextmanager
def for_bash(environ: MutableMapping[str, str]) -> Iterator[None]:
    """Correct words and completions while the command completes for bash; do nothing otherwise."""
    if environ.get("_SIGNALBOX_COMPLETE") != "complete_bash":
        yield
        return
    words, current, kept = whole_words(environ.get("COMP_WORDS", "").split("\n"), int(environ.get("COMP_CWORD", "0")))
    environ["COMP_WORDS"], environ["COMP_CWORD"] = "\n".join(words), str(current)
    found = io.StringIO()
    try:
        with redirect_stdout(found):
            yield
    finally:
        sys.stdout.writelines(f"{line.removeprefix(kept)}\n" for line in found.getvalue().splitlines())
