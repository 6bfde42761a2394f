#!/usr/bin/env python3
"""Check the English of docstrings, Markdown pages and commit messages.

    scripts/plain_english.py                   all files that git knows
    scripts/plain_english.py FILE...           these files
    scripts/plain_english.py --message FILE    a commit message, as the hook commit-msg gets it

Prints ``file:line: what is wrong`` for each finding, and exits with status 1 when there is any. The rules are in
docs/contributing.md, "Language"; ruff also checks the form of docstrings (rules D).
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

MOST_WORDS = 25
"""Largest number of words in a sentence of the docs."""
MOST_CELL = 100
"""Largest number of characters in a cell of a table."""
MOST_SUBJECT = 72
"""Largest number of characters in the first line of a commit message."""

OPENING = (
    "Also And As At Because Both But By For From How If In Is It Its None Not Nothing Of On One Only Other Others "
    "Per Since So Some Such That Their Them Then There These They Those To Until What When Where Which While Who Whose "
    "With Without"
)
"""Words with which no docstring may begin, because they refer to a noun that only the code contains."""
FRAGMENTS = frozenset(OPENING.split())

FOREIGN = re.compile(r"_pb2(_grpc)?\.pyi?$|/chakra_schema/")
"""Files that are generated, or written elsewhere."""


def main(arguments: list[str]) -> int:
    """Check the given files or the commit message, and return the exit status."""
    if arguments[:1] == ["--message"]:
        findings = list(in_message(Path(arguments[1])))
    else:
        findings = [finding for file in map(Path, arguments or known_files()) for finding in in_file(file)]
    for finding in findings:
        sys.stdout.write(f"{finding}\n")
    return 1 if findings else 0


def known_files() -> list[str]:
    """Return the Python and Markdown files of the repository."""
    listed = subprocess.run(["git", "ls-files", "*.py", "*.md"], capture_output=True, text=True, check=True)
    return [name for name in listed.stdout.split() if not FOREIGN.search(name)]


def in_file(file: Path) -> Iterator[str]:
    text = file.read_text()
    found = in_page(text) if file.suffix == ".md" else in_module(text)
    yield from (f"{file}:{line}: {what}" for line, what in found)


def in_message(file: Path) -> Iterator[str]:
    """Yield the findings of a commit message."""
    subject = file.read_text().partition("\n")[0]
    if len(subject) > MOST_SUBJECT and not subject.startswith(("Merge ", "Revert ")):
        yield f"the subject has {len(subject)} characters; at most {MOST_SUBJECT} are allowed: {subject}"


# ---- docstrings


def in_module(text: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of each finding in a Python file."""
    for line, docstring in docstrings(ast.parse(text)):
        first = re.match(r"\W*(\w*)", docstring)
        if first and first[1] in FRAGMENTS:
            yield line, f"a docstring begins with {first[1]!r}: {docstring.strip().splitlines()[0]}"


def docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the docstrings of modules, classes, functions and values, each with its line."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if not isinstance(body, list):
            continue
        documented = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        for before, statement in zip([None, *body], body, strict=False):
            is_first = documented and before is None
            if (is_first or isinstance(before, ast.Assign | ast.AnnAssign)) and is_text(statement):
                yield statement.lineno, statement.value.value


def is_text(statement: ast.stmt) -> bool:
    """Return whether the statement is nothing but a string."""
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


# ---- Markdown


def in_page(text: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of each finding in a Markdown page."""
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith(("<<<<<<< ", ">>>>>>> ")):
            yield number, "a conflict of a merge was not resolved"
    for line, block in blocks(text):
        if block.startswith("|"):
            cells = (cell.strip() for cell in re.split(r"(?<!\\)\|", block.strip("|")))
            for cell in cells:
                if len(cell) > MOST_CELL:
                    yield line, f"a cell has {len(cell)} characters; at most {MOST_CELL} are allowed: {cell}"
            continue
        for sentence in re.split(r"(?<=[.!?])[)\"*]*\s+(?=[^a-z])", plain(block)):
            words = re.findall(r"\S*\w\S*", sentence)
            if len(words) > MOST_WORDS:
                yield line, f"a sentence has {len(words)} words; at most {MOST_WORDS} are allowed: {sentence}"


def blocks(text: str) -> Iterator[tuple[int, str]]:
    """Yield each paragraph, item of a list and row of a table, with the line where it begins.

    Headings, code and HTML are left out."""
    gathered: list[str] = []
    began, in_code = 0, False
    for number, line in enumerate([*text.splitlines(), ""], 1):
        stripped = line.strip().removeprefix("> ")
        fence = stripped.startswith("```")
        in_code ^= fence
        apart = not stripped or fence or in_code or (line.startswith("    ") and not gathered) or stripped[0] in "#|<"
        if gathered and (apart or re.match(r"([-*+]|\d+\.)\s", stripped)):
            yield began, " ".join(gathered)
            gathered = []
        if stripped.startswith("|") and not in_code:
            yield number, stripped
        if apart:
            continue
        if not gathered:
            began = number
        gathered.append(re.sub(r"^([-*+]|\d+\.)\s+", "", stripped))


def plain(block: str) -> str:
    """Return the block as it reads: links without addresses, code as one word."""
    block = re.sub(r"``.+?``|`[^`]*`", "CODE", block)
    return re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", block)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
