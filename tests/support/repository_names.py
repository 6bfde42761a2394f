"""Names that the repository defines: files, Python modules with their members, commands with their options.

The names are read from the sources; only the ``signalbox`` command, the configuration and the metrics are imported.
Output: sets of names, and predicates that say whether a name in a document exists."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import typer
import yaml

from controller.config import Config
from controller.observability.families import FAMILIES
from signalbox.cli import app
from tests.support.doc_pages import ROOT

PACKAGES = ("client/signalbox", "controller", "offline", "mininet_topos", "benchmarks")
_SOURCES = (*PACKAGES, "deploy", "tests/support", "tests/lab/conftest.py", "tests/lab/test_libraries.py")
_SKIPPED = {"__pycache__", ".venv", ".venv-torch", "out", ".git"}
_OPTION = re.compile(r"--[a-z][a-z0-9-]*")
_WORD = re.compile(r"[\w.-]+")


class Module(NamedTuple):
    """Names of one Python module.

    ``top``: names that the module defines or imports.
    ``members``: members of each class, its own and those of its bases in the module.
    ``words``: every identifier that the module defines, and every string constant that is a single word.
    ``texts``: all string constants of the module.
    ``options``: options of its command line."""

    top: set[str]
    members: dict[str, set[str]]
    words: set[str]
    texts: set[str]
    options: set[str]


@cache
def files() -> dict[str, set[str]]:
    """Return the paths of all files, relative to the root, by file name."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for top in ROOT.iterdir():
        for path in () if top.name in _SKIPPED else [top] if top.is_file() else top.rglob("*"):
            if path.is_file() and not _SKIPPED & set(path.parts):
                found[path.name].add(str(path.relative_to(ROOT)))
    return dict(found)


@cache
def modules() -> dict[str, Module]:
    """Return the Python modules by dotted name; packages by the name of their folder."""
    found = {}
    for path in sorted(chain.from_iterable(paths for name, paths in files().items() if name.endswith(".py"))):
        if path.startswith(_SOURCES) and "_pb2" not in path:
            dotted = path.removeprefix("client/").removesuffix(".py").removesuffix("/__init__").replace("/", ".")
            found[dotted] = _module(ast.parse((ROOT / path).read_bytes()))
    return found


def _module(tree: ast.Module) -> Module:
    module = Module(set(chain.from_iterable(map(_defined, tree.body))), {}, set(), set(), set())
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(text)):
                module.texts.add(text)
            case ast.arg(arg=name) | ast.keyword(arg=str(name)):
                module.words.add(name)
            case ast.Attribute(attr=name, ctx=ast.Store()) | ast.Name(id=name, ctx=ast.Store()):
                module.words.add(name)
            case ast.ClassDef():
                module.members[node.name] = _members(node, module.members)
                module.words.update([node.name], module.members[node.name])
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                module.words.add(name)
    module.options.update(f"--{name.replace('_', '-')}" for name in module.words)
    module.options.update(chain.from_iterable(_OPTION.findall(text) for text in module.texts if text.startswith("--")))
    module.words.update(module.top, (text for text in module.texts if _WORD.fullmatch(text)))
    return module


def _members(node: ast.ClassDef, known: dict[str, set[str]]) -> set[str]:
    bases = chain.from_iterable(known.get(ast.unparse(base), ()) for base in node.bases)
    on_self = (n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store))
    return {*chain.from_iterable(map(_defined, node.body)), *on_self, *bases}


def _defined(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.Assign(targets=targets):
            yield from (n.id for target in targets for n in ast.walk(target) if isinstance(n, ast.Name))
        case ast.AnnAssign(target=ast.Name(id=name)):
            yield name
        case ast.Import(names=names) | ast.ImportFrom(names=names):
            yield from (alias.asname or alias.name for alias in names)
        case ast.If() | ast.Try() | ast.With():
            yield from chain.from_iterable(map(_defined, ast.iter_child_nodes(node)))


@cache
def words() -> frozenset[str]:
    """Return the words that a document may write as code.

    The words are identifiers, strings of one word, names of the API, configuration keys, metrics, alerts, recorded
    series and commands."""
    alerts, recorded = (
        yaml.safe_load((ROOT / f"deploy/prometheus/{name}.yml").read_text())["groups"][0]["rules"]
        for name in ("alerts", "rules")
    )
    return frozenset(
        chain(
            chain.from_iterable(module.words for module in modules().values()),
            chain.from_iterable(name.split(".") for name in modules()),
            re.findall(r"\w+", _proto()),
            (status.name for status in grpc.StatusCode),
            chain.from_iterable(key.split(".") for key in config_keys()),
            (family.name for family in FAMILIES),
            (rule["alert"] for rule in alerts),
            chain.from_iterable(rule["record"].split(":") for rule in recorded),
            chain.from_iterable(map(str.split, commands())),
        )
    )


@cache
def texts() -> frozenset[str]:
    return frozenset(chain.from_iterable(module.texts for module in modules().values()))


@cache
def config_keys() -> frozenset[str]:
    """Return the configuration keys as ``section.key``, without the brackets of lists, and the sections."""

    def walk(model: type, prefix: str) -> Iterator[str]:
        for name, field in model.model_fields.items():  # type: ignore[attr-defined]
            yield prefix + name
            for section in (field.annotation, *getattr(field.annotation, "__args__", ())):
                if hasattr(section, "model_fields"):
                    yield from walk(section, f"{prefix}{name}.")

    return frozenset(walk(Config, ""))


@cache
def commands() -> dict[str, Any]:
    """Return every ``signalbox`` command and group by its words; the empty text is the whole program."""

    def walk(command: Any, path: str) -> Iterator[tuple[str, Any]]:
        yield path, command
        for name, inner in getattr(command, "commands", {}).items():
            yield from walk(inner, f"{path} {name}".strip())

    program: Any = typer.main.get_command(app)
    program.list_commands(typer.Context(program))
    return dict(walk(program, ""))


def options_of(command: Any) -> set[str]:
    return {"--help"}.union(*({*p.opts, *p.secondary_opts} for p in command.params))


@cache
def all_options() -> frozenset[str]:
    return frozenset().union(*map(options_of, commands().values()), *(m.options for m in modules().values()))


@cache
def make_targets() -> frozenset[str]:
    return frozenset(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def module_options(dotted: str, command: str = "") -> set[str] | None:
    """Return the options of ``python -m dotted``, or of ``python -m benchmarks command``; None for an unknown one."""
    if dotted == "benchmarks" and re.match(r"[a-z]", command):
        dotted = import_module("benchmarks.__main__").MODULES.get(command, "")
    places = (f"{dotted}.command", f"{dotted}.__main__", dotted)
    own = next((modules()[name] for name in places if name in modules()), None)
    if own is None:
        return None
    return {"--help", *own.options}


def path_exists(text: str, bases: Iterable[Path]) -> bool:
    """Return whether a file or folder exists relative to one of the folders; a bare file name may be anywhere."""
    return ("/" not in text and text in files()) or any((base / text).exists() for base in bases)


def dotted_exists(text: str) -> bool:
    """Return whether the name exists.

    Forms: ``module.name``, ``Class.member``, ``module.Class.member``, ``section.key`` or ``Message.field``."""
    if text in config_keys() or text in modules():
        return True
    owner, _, name = text.rpartition(".")
    outer, _, last = owner.rpartition(".")
    for dotted, module in modules().items():
        if f".{dotted}".endswith(f".{owner}") and name in module.top:
            return True
        if name in module.members.get(last, ()) and (not outer or f".{dotted}".endswith(f".{outer}")):
            return True
    return name in _messages().get(last, ())


@cache
def _proto() -> str:
    return re.sub(r"//.*", "", (ROOT / "proto/signalbox/v1/signalbox.proto").read_text())


@cache
def _messages() -> dict[str, set[str]]:
    """Return the names that the package of the API defines, and for each its members.

    Members are the fields of messages, values of enumerations and methods of services."""
    found = re.findall(r"(?:message|enum|service) (\w+) \{(.*?)\}", _proto(), re.DOTALL)
    return {name: set(re.findall(r"\w+", body)) for name, body in found} | {"v1": {name for name, _ in found}}
