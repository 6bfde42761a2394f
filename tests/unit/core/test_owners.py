"""State is changed only by the methods of its owner: no code of the control loop sets attributes of another object."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import controller

ROOT = Path(controller.__file__).parent
FILES = [ROOT / "control_loop.py", *sorted((ROOT / "core").glob("*.py"))]
MUTATORS = {"append", "appendleft", "clear", "discard", "extend", "insert", "pop", "popleft", "remove", "setdefault"}


def written(tree: ast.AST) -> Iterator[ast.expr]:
    """Yield the expressions that the code assigns to, deletes, or changes by a method of a container."""
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=targets) | ast.Delete(targets=targets):
                for target in targets:
                    yield from target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
            case ast.AugAssign(target=target) | ast.AnnAssign(target=target) | ast.For(target=target):
                yield target
            case ast.Call(func=ast.Attribute(value=changed, attr=name)) if name in MUTATORS:
                yield changed
            case ast.Call(func=ast.Name(id="setattr" | "delattr")):
                yield node


def belongs_to_another(target: ast.expr) -> bool:
    """Return whether the target is an attribute of another object than ``self``, or an entry of such an attribute."""
    while isinstance(target, ast.Subscript):
        target = target.value
    if isinstance(target, ast.Attribute):
        return not (isinstance(target.value, ast.Name) and target.value.id == "self")
    return isinstance(target, ast.Call) and isinstance(target.func, ast.Name)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_no_file_changes_the_state_of_another_object(path: Path) -> None:
    others = filter(belongs_to_another, written(ast.parse(path.read_text())))
    assert [f"{path.name}:{target.lineno}: {ast.unparse(target)}" for target in others] == []


OTHERS = ["s.mode = new", "s.jobs.most += 1", "del s.parts[name]", "self.state.known = 1", "s.a, b = 1, 2"]
OTHERS += ["setattr(s, 'mode', new)", "s.waiting.append(1)", "s.of[name].pop()"]
OWN = ["self.most = 1", "self._of[name] = 1", "of[name] = 1", "self._of[name].append(1)"]


@pytest.mark.parametrize("line", OTHERS + OWN)
def test_such_changes_are_found_and_changes_by_the_owner_are_not(line: str) -> None:
    assert any(map(belongs_to_another, written(ast.parse(line)))) is (line in OTHERS)
