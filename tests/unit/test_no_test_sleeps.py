"""No test sleeps to synchronise: it waits for a condition, or is on the list with the reason."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping

import pytest

from tests.support.doc_pages import ROOT

MAY_SLEEP: Mapping[str, Mapping[str, str]] = {
    "tests/lab/test_circuits.py": {
        "test_a_controller_killed_at_any_instant_of_a_change_is_followed_by_one_that_completes_it": "tries instants"
    },
    "tests/lab/test_hostile_hosts.py": {
        "test_lldp_that_is_replayed_from_another_port_makes_no_link": "a probe becomes too old by time alone"
    },
    "tests/lab/test_slurm.py": {"JOINS": "waits for a file"},
    "tests/lab/test_web.py": {"test_what_the_pages_of_the_docs_show": "takes a picture, which nothing judges"},
    "tests/support/torch/ranks.py": {"plain": "stands for computing", "overlapping": "stands for a rank that is late"},
    "tests/unit/mininet_topos/test_ending.py": {
        "test_a_signal_is_raised_at_the_next_check_and_only_once": "is about sleeping",
        "test_what_holds_signals_is_not_interrupted_and_what_follows_is": "is about sleeping",
    },
    "tests/wire/test_client_process.py": {"REPORTS": "stands for computing"},
    "tests/wire/test_joined_process_ends.py": {"BEGIN": "runs until a signal ends it"},
}
"""Reason why a function or text sleeps, by file and name."""

FOR_EVER_S = (60, 600, 10_000)
"""Seconds of sleeps that only keep a program alive until the test ends it."""
IN_SHELL = re.compile(r"\bsleep [\d.]+")


def sleeps(node: ast.AST, waits: bool = False) -> bool:
    """Return whether the node, or a program in one of its texts, sleeps outside a loop that waits for a condition."""
    match node:
        case ast.While(test=test):
            waits = waits or not isinstance(test, ast.Constant)
        case ast.Call(func=ast.Name(id="sleep") | ast.Attribute(attr="sleep"), args=[seconds, *_]) if not waits:
            return not (isinstance(seconds, ast.Constant) and (not seconds.value or seconds.value in FOR_EVER_S))
        case ast.JoinedStr(values=values):
            text = "".join(str(value.value) if isinstance(value, ast.Constant) else "x" for value in values)
            parts = (value for value in values if not isinstance(value, ast.Constant))
            return text_sleeps(text) or any(sleeps(part, waits) for part in parts)
        case ast.Constant(value=str(text)):
            return text_sleeps(text)
    return any(sleeps(child, waits) for child in ast.iter_child_nodes(node))


def text_sleeps(text: str) -> bool:
    if "sleep" not in text:
        return False
    try:
        return sleeps(ast.parse(text))
    except SyntaxError:
        outside = re.sub(r"(while|until) .*?; do sleep [\d.]+", "", text)
        return "sleep(" in outside or IN_SHELL.search(outside) is not None


def that_sleep(tree: ast.Module) -> Iterator[str]:
    """Yield the names of functions, methods and texts at the top of a module that sleep."""
    for statement in tree.body:
        match statement:
            case ast.ClassDef(body=body):
                yield from that_sleep(ast.Module(body, []))
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) if sleeps(statement):
                yield name
            case ast.Assign(targets=[ast.Name(id=name)]) if sleeps(statement):
                yield name
            case ast.Expr() | ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Assign():
                pass
            case _ if sleeps(statement):
                yield ast.unparse(statement)


def test_whoever_sleeps_is_on_the_list() -> None:
    files = [file for file in (ROOT / "tests").rglob("*.py") if file.name != "test_no_test_sleeps.py"]
    texts = {str(file.relative_to(ROOT)): file.read_text() for file in files}
    found = {file: {*that_sleep(ast.parse(text))} for file, text in texts.items() if "sleep" in text}
    assert {file: names for file, names in found.items() if names} == {file: {*MAY_SLEEP[file]} for file in MAY_SLEEP}


@pytest.mark.parametrize(
    ("body", "is_found"),
    [
        ("time.sleep(1)", True),
        ("for _ in range(9): sleep(x)", True),
        ("run(f'import {time}; {time}.sleep(1)')", True),
        ("run('sleep 1')", True),
        ("while not a(): time.sleep(0.1)", False),
        ("run('while not a: time.sleep(1)')", False),
        ("run('while [[ ! -e x ]]; do sleep 0.02; done')", False),
        ("run(['sleep', '600'])", False),
    ],
)
def test_what_counts_as_sleeping(body: str, is_found: bool) -> None:
    text = f"async def test_a():\n  {body}\n"
    assert [*that_sleep(ast.parse(text))] == (["test_a"] if is_found else [])
