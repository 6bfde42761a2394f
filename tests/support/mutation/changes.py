"""Small faults for a module: another comparison, operator, constant or return value, or a removed statement.

Input: the source of a module. Output: changes inside functions, because a running process can exchange only the code of
functions. Text, log calls, annotations, assertions and assignments in ``__init__`` are left as they are."""

import ast
import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any, NamedTuple, Self

_OTHER: dict[type, type] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult, ast.Pow: ast.Mult, ast.LShift: ast.RShift, ast.RShift: ast.LShift, ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr, ast.BitXor: ast.BitAnd,
}  # fmt: skip
_LONGEST = 80
"""Largest number of characters of an expression in the name of a change."""


class _Edit(NamedTuple):
    """Edit of the tree: ``node`` changes when ``key`` of ``holder`` is set to ``value``."""

    node: ast.AST
    holder: Any
    key: Any
    value: object

    def put(self) -> Self:
        """Carry out the edit, and return the edit that undoes it."""
        if isinstance(self.holder, list):
            old = self.holder[self.key]
            self.holder[self.key] = self.value
        else:
            old = getattr(self.holder, self.key)
            setattr(self.holder, self.key, self.value)
        return self._replace(value=old)


@dataclass(frozen=True, slots=True)
class Change:
    """Change of one place in a module.

    ``name``: the qualified name of the function, and the text before and after. The second place in the function with
    equal texts gets a number. The name stays the same as long as the function is not changed.
    ``lines``: lines of the statement, without the blocks in it."""

    file: str
    name: str
    lines: range
    tree: ast.Module
    edit: _Edit

    def rank(self, seed: int) -> bytes:
        """Return the position in a pseudo-random order that does not depend on changes elsewhere."""
        return hashlib.sha256(f"{seed} {self.file} {self.name}".encode()).digest()

    def code(self) -> CodeType:
        """Return the code of the whole module with the change, which stays in the tree."""
        self.edit.put()
        return compile(ast.fix_missing_locations(self.tree), self.file, "exec", dont_inherit=True)


def changes(file: str, source: str) -> Iterator[Change]:
    tree = ast.parse(source)
    for function, body in _functions(tree.body, ""):
        names: Counter[str] = Counter()
        for lines, edit in _edits_of(body, function.endswith("__init__")):
            before, undo = _short(edit.node), edit.put()
            name = f"{function}: {before} → {'nothing' if isinstance(edit.value, ast.Pass) else _short(edit.node)}"
            undo.put()
            names[name] += 1
            yield Change(file, name if names[name] == 1 else f"{name} #{names[name]}", lines, tree, edit)


def exchange(code: CodeType, functions: Iterable[FunctionType]) -> int:
    """Set the functions of a module to their code in ``code``, where it differs; return the number of changes."""
    new = {(each.co_qualname, each.co_firstlineno): each for each in _nested(code)}
    count = 0
    for function in functions:
        old = function.__code__
        other = new.get((old.co_qualname, old.co_firstlineno), old)
        if other != old and other.co_freevars == old.co_freevars:
            function.__code__ = other
            count += 1
    return count


def _nested(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _nested(constant)


def _functions(body: Iterable[ast.stmt], prefix: str) -> Iterator[tuple[str, list[ast.stmt]]]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield prefix + node.name, node.body
        elif isinstance(node, ast.ClassDef):
            yield from _functions(node.body, f"{prefix}{node.name}.")


def _edits_of(block: list[ast.stmt], constructor: bool) -> Iterator[tuple[range, _Edit]]:
    for at, node in enumerate(block):
        if isinstance(node, ast.Assert) or (isinstance(node, ast.Expr) and ast.unparse(node).startswith("log.")):
            continue
        cases = getattr(node, "cases", [])
        if not constructor and _can_go(node):
            yield _lines(node, node), _Edit(node, block, at, ast.Pass())
        for holder, start in [(node, node), *((case, case.pattern) for case in cases)]:
            yield from ((_lines(start, holder), edit) for part in _expressions(holder) for edit in _edits(part))
        for holder in (node, *getattr(node, "handlers", []), *cases):
            for name in ("body", "orelse", "finalbody"):
                yield from _edits_of(getattr(holder, name, []), constructor)


def _lines(start: Any, node: Any) -> range:
    body = [case.pattern for case in node.cases] if isinstance(node, ast.Match) else getattr(node, "body", [])
    return range(start.lineno, max(start.lineno + 1, body[0].lineno if body else node.end_lineno + 1))


def _can_go(node: ast.stmt) -> bool:
    """Return whether the surrounding code still runs without the statement."""
    match node:
        case ast.Expr(value=ast.Call() | ast.Await()) | ast.Return(value=None):
            return True
        case ast.Assign(targets=targets):
            return all(isinstance(target, ast.Attribute | ast.Subscript) for target in targets)
    return isinstance(node, ast.AugAssign | ast.Delete | ast.Raise | ast.Break | ast.Continue)


def _expressions(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the node and its parts, except other statements, text, annotations and parameters of functions."""
    yield node
    for name, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            other = (ast.stmt, ast.match_case, ast.ExceptHandler, ast.JoinedStr, ast.arguments)
            if isinstance(child, ast.AST) and not isinstance(child, other) and name not in ("annotation", "returns"):
                yield from _expressions(child)


def _edits(node: ast.AST) -> Iterator[_Edit]:
    match node:
        case ast.Compare(ops=ops):
            yield from (_Edit(node, ops, at, _OTHER[type(op)]()) for at, op in enumerate(ops))
        case ast.BinOp(op=op) | ast.AugAssign(op=op) | ast.BoolOp(op=op) if type(op) in _OTHER and not _is_text(node):
            yield _Edit(node, node, "op", _OTHER[type(op)]())
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield _Edit(node, node, "operand", ast.UnaryOp(ast.Not(), operand))
        case ast.Constant(value=bool(value)):
            yield _Edit(node, node, "value", not value)
        case ast.Constant(value=int(value)):
            yield _Edit(node, node, "value", value + 1)
        case ast.Constant(value=float(value)):
            yield _Edit(node, node, "value", value * 2 or 1.0)
        case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
            yield _Edit(node, node, "value", ast.Constant(None))


def _is_text(node: ast.AST) -> bool:
    match node:
        case ast.Constant(value=value):
            return isinstance(value, str | bytes)
        case ast.BinOp(left=left, right=right):
            return _is_text(left) or _is_text(right)
        case ast.AugAssign(value=added):
            return _is_text(added)
    return isinstance(node, ast.JoinedStr)


def _short(node: ast.AST) -> str:
    text, half = " ".join(ast.unparse(node).split()), _LONGEST // 2 - 2
    return text if len(text) <= _LONGEST else f"{text[:half]} … {text[-half:]}"
