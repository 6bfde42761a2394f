"""No test has all its assertions under conditions; where the conditions never hold, it would test nothing."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

import pytest

from tests.support.doc_pages import ROOT
from tests.support.syntax import statements

CHECKS = {"fail", "raises", "warns"}
"""Functions of pytest that assert."""


def checks(node: ast.AST) -> bool:
    return any(
        isinstance(one, ast.Assert) or (isinstance(one, ast.Attribute) and one.attr in CHECKS) for one in ast.walk(node)
    )


def always_checks(body: Iterable[ast.stmt]) -> bool:
    """Return whether the body asserts on every branch. Loops count as run, and functions in the body as called."""
    return any(map(_always, body))


def _always(statement: ast.stmt) -> bool:
    match statement:
        case ast.If(test=test, body=body, orelse=other):
            return checks(test) or (always_checks(body) and always_checks(other))
        case ast.Match(cases=cases):
            return all(always_checks(case.body) for case in cases)
        case ast.Try(body=body, handlers=handlers, orelse=other, finalbody=last):
            whole = always_checks([*body, *other]) and all(always_checks(handler.body) for handler in handlers)
            return whole or always_checks(last)
        case ast.With(items=items, body=body) | ast.AsyncWith(items=items, body=body):
            return any(map(checks, items)) or always_checks(body)
        case ast.For(body=body) | ast.AsyncFor(body=body) | ast.While(body=body):
            return always_checks(body)
        case ast.FunctionDef(body=body) | ast.AsyncFunctionDef(body=body):
            return always_checks(body)
    return checks(statement)


def only_under_conditions(tree: ast.Module) -> Iterator[str]:
    functions = (node for node in statements(tree) if isinstance(node, ast.FunctionDef))
    for function in functions:
        if function.name.startswith("test_") and not always_checks(function.body) and checks(function):
            yield function.name


def test_no_test_asserts_only_under_a_condition() -> None:
    files = [*(ROOT / "tests").rglob("test_*.py")]
    found = {str(file.relative_to(ROOT)): [*only_under_conditions(ast.parse(file.read_text()))] for file in files}
    assert {file: names for file, names in found.items() if names} == {}


@pytest.mark.parametrize(
    ("body", "is_found"),
    [
        ("for a in b:\n  if a: assert b", True),
        ("if a: assert b\nelse: pass", True),
        ("match a:\n  case 1: assert b\n  case _: pass", True),
        ("try: a()\nexcept E: pass\nelse: assert b", True),
        ("if a: assert b\nelse: assert c", False),
        ("with pytest.raises(E): a()", False),
        ("if a: assert b\nassert c", False),
        ("helper()", False),
    ],
)
def test_what_counts_as_such_a_test(body: str, is_found: bool) -> None:
    text = "def test_a():\n" + "".join(f"  {line}\n" for line in body.splitlines())
    assert [*only_under_conditions(ast.parse(text))] == (["test_a"] if is_found else [])
