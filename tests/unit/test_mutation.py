"""The runner of ``make mutants``: the faults that it inserts into code, and its report on a small project."""

from __future__ import annotations

import functools
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from types import FunctionType

import pytest

from tests.support.doc_pages import ROOT
from tests.support.mutation.changes import changes, exchange


def names(body: str) -> list[str]:
    source = "def f(x, y=1):\n" + "\n".join(f"    {line}" for line in dedent(body).strip().splitlines())
    return [change.name.removeprefix("f: ") for change in changes("a.py", source)]


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("y = x < 2", ["x < 2 → x <= 2", "2 → 3"]),
        ("y = 0 < x <= y", ["0 < x <= y → 0 <= x <= y", "0 < x <= y → 0 < x < y", "0 → 1"]),
        ("y = x is None", ["x is None → x is not None"]),
        ("y = x and not y", ["x and (not y) → x or not y", "not y → not not y"]),
        ("y = x + 2.5", ["x + 2.5 → x - 2.5", "2.5 → 5.0"]),
        ("y += x", ["y += x → nothing", "y += x → y -= x"]),
        ("y = True", ["True → False"]),
        ("return x", ["return x → return None"]),
        ("return True", ["True → False"]),
        ("if x:\n    return\ny()", ["return → nothing", "y() → nothing"]),
        ("x.y = y", ["x.y = y → nothing"]),
        ("x()\nx()", ["x() → nothing", "x() → nothing #2"]),
        ("for y in x:\n    break", ["break → nothing"]),
        ("match x:\n    case 3 if y:\n        raise y", ["3 → 4", "raise y → nothing"]),
        ("def g() -> int:\n    return x", ["return x → return None"]),
    ],
)
def test_each_operator_constant_answer_and_statement_is_changed(body: str, found: list[str]) -> None:
    assert names(body) == found


@pytest.mark.parametrize(
    "body",
    ['"""Text."""', 'log.info("text", n=1)', "y = 'a' + x", "y: Literal[1] | int", "assert x > 1", "y = f'{x + 1}'"],
)
def test_text_log_calls_annotations_and_assertions_stay(body: str) -> None:
    assert names(body) == []


def test_constructors_keep_their_statements_and_names_say_where() -> None:
    source = "class A:\n    def __init__(self):\n        self.a = 1\n    def f(self):\n        self.a = x\n"
    assert [change.name for change in changes("a.py", source)] == ["A.__init__: 1 → 2", "A.f: self.a = x → nothing"]


def test_changes_are_in_an_order_that_others_do_not_move() -> None:
    one, both = "def f(x):\n    return x - 1\n", "def e(x):\n    return x < 1\ndef f(x):\n    return x - 1\n"
    order = [change.name for change in sorted(changes("a.py", one), key=lambda change: change.rank(7))]
    among = [change.name for change in sorted(changes("a.py", both), key=lambda change: change.rank(7))]
    assert [name for name in among if name in order] == order
    assert among != [change.name for change in changes("a.py", both)]


def test_functions_in_use_get_the_changed_code() -> None:
    """The functions may be behind a decorator, or inside a function."""
    source = dedent("""
        def kept(function):
            @functools.wraps(function)
            def wrapper(x):
                return function(x)
            return wrapper
        class A:
            @kept
            def f(self):
                return [y + 1 for y in (1, 2)]
    """)
    here: dict[str, object] = {"functools": functools}
    exec(compile(source, "a.py", "exec", dont_inherit=True), here)
    kind, wrapped = here["A"], vars(here["A"])["f"].__wrapped__
    assert isinstance(wrapped, FunctionType)
    (change,) = (one for one in changes("a.py", source) if "y - 1" in one.name)
    assert kind().f() == [2, 3]  # type: ignore[operator]
    assert exchange(change.code(), [wrapped, vars(here["A"])["f"]]) == 1
    assert kind().f() == [0, 1]  # type: ignore[operator]


LIMITS = """
def clamp(value, most):
    if value > most:
        return most
    return value

def drained(items):
    while items:
        items.pop()
    return items

def unused(value):
    return value + 1

def untested(value):
    return value + 1
"""
CHECKS = """
import gc
from pathlib import Path
from sample.limits import clamp, drained, unused

gc.freeze()  # as tests/conftest.py does

def test_clamp():
    assert (clamp(3, 2), clamp(1, 2)) == (2, 1)

def test_drained(tmp_path):
    (tmp_path / "file").write_text("left")
    assert drained([1, 2, 3]) == []

def test_that_passes_once():
    before = Path("mark").exists()
    Path("mark").touch()
    assert unused(1) == 2 and not before
"""
RUN = """
import sys
from pathlib import Path
from tests.support.mutation import __main__ as mutation
mutation.SLACK_S = 0
here = Path.cwd()
sys.exit(mutation.run([here / "sample"], ["checks"], here, here / "accepted.toml"))
"""


def mutate(project: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-B", "-c", RUN],
        cwd=project,
        env={"PYTHONPATH": f"{project}:{ROOT}:{ROOT / 'client'}", "TMPDIR": str(project)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_what_no_test_notices_fails_the_run_until_it_is_accepted(tmp_path: Path) -> None:
    """A test that fails by itself notices nothing."""
    accepted = tmp_path / "accepted.toml"
    accepted.write_text('["sample/limits.py"]\n"gone: x → y" = "was once"\n')
    for file, text in (("sample/limits.py", LIMITS), ("checks/test_limits.py", CHECKS)):
        (tmp_path / file).parent.mkdir()
        (tmp_path / file).write_text(text)
    there = {*tmp_path.rglob("*"), tmp_path / "mark"}
    run = mutate(tmp_path)
    assert run.stdout.strip().splitlines() == [
        "11 changes are possible, 8 where the 3 tests pass",
        "SURVIVED   sample/limits.py:3 clamp: value > most → value >= most",
        "killed     sample/limits.py:4 clamp: return most → return None",
        "killed     sample/limits.py:5 clamp: return value → return None",
        "killed     sample/limits.py:9 drained: items.pop() → nothing",
        "killed     sample/limits.py:10 drained: return items → return None",
        "SURVIVED   sample/limits.py:13 unused: return value + 1 → return None",
        "SURVIVED   sample/limits.py:13 unused: value + 1 → value - 1",
        "SURVIVED   sample/limits.py:13 unused: 1 → 2",
        "accepted, but no change of this name is possible: sample/limits.py gone: x → y",
        "8 changes: 4 SURVIVED, 4 killed",
    ]
    assert run.returncode == 1
    names = ("value > most → value >= most", "return most → return None", "return value → return None")
    lines = [f'"clamp: {name}" = "for a reason"' for name in names]
    lines += [f'"drained: {name}" = "too"' for name in ("items.pop() → nothing", "return items → return None")]
    accepted.write_text("\n".join(['["sample/limits.py"]', *lines]))
    (tmp_path / "checks/test_limits.py").write_text(CHECKS.partition("def test_that")[0])
    run = mutate(tmp_path)
    assert (run.returncode, run.stdout.strip().splitlines()[-1]) == (0, "5 changes: 5 accepted")
    assert {*tmp_path.rglob("*")} == there, "nothing is left"
