"""What bash asks for when it completes a command: words that it has divided at ``:`` and ``=``.

bash ends words at the characters of ``COMP_WORDBREAKS``, so ``leaf1:5`` comes as three, and what is completed takes the
place of the last one. In: ``COMP_WORDS``, a word per line, and ``COMP_CWORD``, the number of the one to complete, as
the script of ``--show-completion bash`` sets them. Out: the same with whole words; completions without what bash keeps.
"""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager, redirect_stdout

_BREAK = re.compile("[:=]+")


def whole_words(words: list[str], current: int) -> tuple[list[str], int, str]:
    """The words as they were typed, the number of the current one, and what of it bash keeps."""
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
    """For the time in which the command completes what bash has. Nothing unless that is asked for."""
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
