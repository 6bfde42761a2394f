"""Findings of scripts/plain_english.py: all that the language rules forbid, and no others."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = ROOT / "scripts/plain_english.py"
SPEC = importlib.util.spec_from_file_location("plain_english", SCRIPT)
assert SPEC is not None
assert SPEC.loader is not None
plain_english = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(plain_english)

WORDS = "word " * 24


def lines(findings: list[tuple[int, str]]) -> list[int]:
    return [line for line, _ in findings]


def test_docstrings_that_begin_with_a_fragment_are_found() -> None:
    module = '''"""Names of jobs."""

LIMIT = 3
"""Of the jobs."""
TEXT = "Of no interest."


class Job:
    """A job."""

    size: int = 0
    """Bytes."""

    async def end(self) -> None:
        """
        What follows.
        """
        "None of this is a docstring."
'''
    assert sorted(lines(list(plain_english.in_module(module)))) == [4, 15]


@pytest.mark.parametrize(
    ("page", "found"),
    [
        (f"{WORDS}end.\n", []),
        (f"{WORDS}\nmany\nmore.\n", [1]),
        (f"A line.\n\n{WORDS}end. {WORDS}is `too long` here.\n", [3]),
        (f"- {WORDS}end\n- {WORDS}end\n  of it\n", [2]),
        (f"    {WORDS}code code\n\n```\n{WORDS}code code\n```\n\n# {WORDS}heading heading\n", []),
        (f"{WORDS}[one](https://example.org/a.b?c=d)\n", []),
        (f"Use `{WORDS}` or ``{WORDS}``.\n", []),
        (f"| a | {'b' * 100} |\n|---|---|\n| {'c' * 101} | d |\n", [3]),
        (f"> {WORDS}\n> of it\n", [1]),
        ("One.\n<<<<<<< HEAD\nTwo.\n=======\nThree.\n>>>>>>> other\n", [2, 6]),
    ],
)
def test_long_sentences_and_cells_and_conflicts_are_found(page: str, found: list[int]) -> None:
    assert lines(list(plain_english.in_page(page))) == found


def test_the_command_prints_its_findings_and_its_status_says_whether_there_are_any(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.py", tmp_path / "bad.md"
    good.write_text('"""Good."""\n')
    bad.write_text(f"{WORDS}one two\n")
    done = subprocess.run([sys.executable, SCRIPT, good, bad], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stdout.startswith(f"{bad}:1: a sentence has 26 words; at most 25 are allowed: word word")
    assert subprocess.run([sys.executable, SCRIPT, good], check=False).returncode == 0
