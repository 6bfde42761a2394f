"""Write the generated parts of the reference: commands, settings, and the Python API.

    python scripts/reference_pages.py            write the pages
    python scripts/reference_pages.py --check    exit with status 1 if a page is stale

Two pages have hand-written text around regions such as ``<!-- generated: Jobs -->`` … ``<!-- end -->``, which this
program fills. It fills docs/reference/command-line.md from the help of the commands, docs/reference/configuration.md
from the documented fields of ``controller.config``. It writes all of docs/reference/python.md (``python_reference``).
"""

import ast
import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args

import python_reference
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from typer.core import TyperArgument
from typer.main import get_command

from controller.config import Config, reloaded_settings
from offline.commands.scenario import FabricCommand, OptionalFabricCommand
from signalbox.cli import PANELS, app
from signalbox.commands.connecting import AskingCommand
from signalbox.commands.exit_status import ExitStatus

REFERENCE = Path(__file__).resolve().parents[1] / "docs" / "reference"
WIDTH = 120
REGION = re.compile(r"(<!-- generated: (.+?) -->\n).*?(<!-- end -->)", re.DOTALL)


def main(arguments: Sequence[str]) -> int:
    """Write the pages, or check them; return the exit status."""
    stale = []
    for name, made in pages().items():
        page = REFERENCE / name
        if page.read_text() != made:
            stale.append(page.name)
            if "--check" not in arguments:
                page.write_text(made)
    if stale and "--check" in arguments:
        sys.stderr.write(f"stale: {', '.join(stale)} in docs/reference; make reference writes them\n")
        return 1
    return 0


def pages() -> dict[str, str]:
    """Return the text that each page should have, by file name."""
    filled = {
        name: REGION.sub(
            lambda found, regions=regions: f"{found[1]}\n{regions[found[2]]()}\n\n{found[3]}",
            (REFERENCE / name).read_text(),
        )
        for name, regions in (("command-line.md", command_regions()), ("configuration.md", setting_regions()))
    }
    return {**filled, "python.md": python_reference.page()}


# ---- commands


def command_regions() -> dict[str, Callable[[], str]]:
    """Return the functions that write each region of the command line's page."""
    of_panels = {panel: lambda names=names: of_commands(names) for panel, names in PANELS.items()}
    shared = {f"options {name}": lambda name=name: options(name, shared_options()[name]) for name in SHARED}
    return {**of_panels, **shared, "exit statuses": exit_statuses}


SHARED = ("FABRIC", "STATE", "CONNECTION", "OUTPUT")
"""Names of groups of options that many commands have, as headings write them."""


@cache
def shared_options() -> Mapping[str, Sequence[Any]]:
    """Return the options of each group in ``SHARED``."""
    asking = AskingCommand(None, params=[]).params
    output = [param for param in asking if param.name in ("as_json", "output")]
    return {
        "FABRIC": FabricCommand.shared,
        "STATE": [
            param for param in command_at("state", "list").params if param.name not in ("as_json", "output", "help")
        ],
        "CONNECTION": [param for param in asking if param not in output],
        "OUTPUT": output,
    }


NAMED = {
    f"{word}{more}"
    for word in ("JOB", "SWITCH", "HOST", "LINK", "ALARM", "KIND", "SUBJECT", "JOBS", "NETWORK")
    for more in ("", "...")
}
"""Placeholders of arguments that the page explains once for several commands."""


@cache
def group() -> tuple[Any, Any]:
    """Return the command ``signalbox``, and a context of click that reads its help."""
    found: Any = get_command(app)
    return found, found.make_context("signalbox", [], resilient_parsing=True)


def command_at(*path: str) -> Any:
    """Return the command with the words ``path``, such as ``jobs list``."""
    found, context = group()
    for word in path:
        found = found.get_command(context, word)
    return found


def of_commands(names: Sequence[str]) -> str:
    """Return the sections of the named commands, and of the commands in named groups.

    When nearly all of these commands take the options of a group in ``SHARED``, a sentence before the sections says so,
    and the headings omit the group."""
    found = {" ".join(path): command for name in names for path, command in leaves((name,), command_at(name))}
    parts, common = [], []
    for word in shared_options():
        others = [f"`{path}`" for path, command in found.items() if word not in divided(command)[0]]
        if 2 * len(others) < len(found) and len(others) <= MOST_EXCEPTIONS:
            common.append(f"[{word}]")
            but = f", except {', '.join(others)}" if others else ""
            parts.append(filled(f"All these commands take {word}{but}."))
    parts += [part for path, command in found.items() for part in of_command(path, command, common)]
    return "\n\n".join(parts)


def leaves(path: tuple[str, ...], command: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield each single command below ``path``, with its words."""
    if not hasattr(command, "list_commands"):
        yield path, command
        return
    for name in command.list_commands(group()[1]):
        yield from leaves((*path, name), command.get_command(group()[1], name))


MOST_EXCEPTIONS = 3
"""Largest number of commands that the sentence "All these commands take …, except …" names as exceptions."""


def divided(command: Any) -> tuple[dict[str, str], list[Any]]:
    """Return the groups of options in ``SHARED`` that a command takes, and its other parameters.

    The groups are a mapping from a group's name to its text in headings. The text is in brackets if the command works
    without any of the group's options."""
    own = {(*param.opts, param.help): param for param in command.params if param.name != "help"}
    words, optional = {}, {key for key, param in own.items() if not param.required}
    for word, params in shared_options().items():
        keys = {(*each.opts, each.help) for each in params}
        if keys <= own.keys():
            needed = not keys <= optional or (word == "FABRIC" and not isinstance(command, OptionalFabricCommand))
            words[word] = word if needed else f"[{word}]"
            own = {key: param for key, param in own.items() if key not in keys}
    return words, [*own.values()]


def of_command(path: str, command: Any, common: Sequence[str]) -> Iterator[str]:
    """Yield the parts of the section about a command.

    ``common``: texts of groups (see ``divided``) that its heading omits."""
    shared, mine = divided(command)
    words = [word for word in shared.values() if word not in common]
    earlier = described().setdefault((command.help, usage("", command, [*shared.values()])), path)
    yield f"### {usage(path, command, words)}"
    if earlier != path:
        yield f"As `signalbox {earlier}`."
        return
    for paragraph in (command.help or "").split("\n\n"):
        yield filled(prose(paragraph))
    if command.epilog:
        yield f"Example: `{command.epilog.removeprefix('Example: ')}`"
    if listed := [param for param in mine if not (isinstance(param, TyperArgument) and signature(param) in NAMED)]:
        yield options(path, listed)


@cache
def described() -> dict[Any, str]:
    """Return the commands that the page already describes: path by (help, usage). Callers add their command."""
    return {}


def usage(path: str, command: Any, shared: Sequence[str]) -> str:
    """Return a command with its arguments. ``shared``: names of its shared options, as in ``SHARED``."""
    pieces = command.collect_usage_pieces(group()[1])[1:]
    arguments = [re.sub(r"\{(.+?)\}", r"\1", piece).replace("......", "...") for piece in pieces]
    return " ".join([path, *arguments, *shared])


def options(owner: str, params: Sequence[Any]) -> str:
    """Return arguments and options of a command, or of a group in ``SHARED``, as a list.

    A command may take some options of a group in ``SHARED`` but not all. For these options the list has only the names
    and the text "as in GROUP"."""
    items: dict[str, list[str]] = {}
    for param in params:
        word = "" if owner in SHARED else next((word for word in SHARED if is_of(param, word)), "")
        items.setdefault(f"as in {word}." if word else meaning(param), []).append(f"`{signature(param)}`")
    return "\n".join(filled(f"- {', '.join(names)}: {text}", indent="  ") for text, names in items.items())


def is_of(param: Any, word: str) -> bool:
    """Return whether the parameter is one of the options of the group ``word`` in ``SHARED``."""
    return any((each.opts, each.help) == (param.opts, param.help) for each in shared_options()[word])


KINDS = {"<int>": "N", "<int range>": "N", "<float>": "X", "<float range>": "X", "<str>": "TEXT"}
"""Placeholder of an option's value by its type, for options that name no placeholder."""


def signature(param: Any) -> str:
    """Return the names of an option with the placeholder of its value, or the argument's placeholder."""
    shown: str = param.get_help_record(group()[1])[0]
    if isinstance(param, TyperArgument):
        return shown.partition(" <")[0].removesuffix("...") + ("..." if param.nargs == -1 else "")
    name, _, kind = shown.partition(" <")
    return f"{name} {KINDS.get(f'<{kind}', kind.removesuffix('>'))}" if kind else name


def meaning(param: Any) -> str:
    """Return the help of a parameter, then its default and its environment variable."""
    _, text = param.get_help_record(group()[1])
    found = re.search(r"default: (.*?)(?:; [\dx]|\]$)", text.removeprefix(param.help).strip())
    parts = [prose(re.sub("; - for standard (in|out)put", "", param.help))]
    if param.required and not isinstance(param, TyperArgument):
        parts.append("Required.")
    if found:
        plain = re.fullmatch(r"\((.*)\)", found[1])
        parts.append(f"Default: {plain[1] if plain else f'`{number(found[1])}`'}.")
    if param.envvar:
        parts.append(f"Environment: `{param.envvar}`.")
    return " ".join(parts)


def number(text: str) -> str:
    return text.removesuffix(".0")


def exit_statuses() -> str:
    docs = documented(ExitStatus)
    rows = [(0, "Done."), *((status.value, docs[status.name]) for status in ExitStatus)]
    return table(("status", "meaning"), [(str(value), prose(text)) for value, text in rows])


# ---- settings


def setting_regions() -> dict[str, Callable[[], str]]:
    """Return the functions that write each region of the configuration's page."""
    sections = {name: field for name, field in Config.model_fields.items() if table_of(field)[0]}
    top = {"top": lambda: settings({"": Config}, skipped=sections)}
    return top | {name: lambda name=name: settings(tables(name, Config.model_fields[name])) for name in sections}


def tables(name: str, field: FieldInfo) -> dict[str, type[BaseModel]]:
    """Return the model of a section and the models of the tables inside it, by the prefix of their keys."""
    model, in_list = table_of(field)
    prefix = f"{name}[]." if in_list else f"{name}."
    inside = {} if model is None else model.model_fields
    below = [tables(f"{prefix}{each}", of) for each, of in inside.items() if table_of(of)[0]]
    return {prefix: model} | {key: found for each in below for key, found in each.items()}


def table_of(field: FieldInfo) -> tuple[type[BaseModel] | None, bool]:
    """Return the model of a table in a setting, None for a plain value, and whether the setting is a list of them."""
    inner = get_args(field.annotation)[0] if get_args(field.annotation) else None
    for candidate, in_list in ((field.annotation, False), (inner, True)):
        if isinstance(candidate, type) and issubclass(candidate, BaseModel):
            return candidate, in_list
    return None, False


def settings(of: Mapping[str, type[BaseModel]], skipped: Mapping[str, Any] | Sequence[str] = ()) -> str:
    """Return the table of the settings in these models. ``of``: models by the beginning of their keys."""
    marked = {f"{section}.{name}": str(how) for section, name, how in reloaded_settings()}
    rows = []
    for prefix, model in of.items():
        docs = documented(model)
        for name, field in model.model_fields.items():
            if name in skipped or table_of(field)[0]:
                continue
            if name not in docs:
                raise SystemExit(f"{model.__name__}.{name} has no docstring")
            key = prefix + name
            rows.append((f"`{key}`", default(field), prose(docs[name]), marked.get(key, "-")))
    return table(("key", "default", "meaning", "SIGHUP"), rows)


def default(field: FieldInfo) -> str:
    """Return the default of a setting as the file would have it, or a dash."""
    if field.is_required() or field.default in (None, ""):
        return "-"
    value = field.default.value if isinstance(field.default, Enum) else field.default
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{', '.join(map(str, value)) if isinstance(value, tuple) else value}`"


# ---- text


def documented(of: type) -> dict[str, str]:
    """Return the docstrings after the fields of a class and of its bases, by field, each in one line."""
    found: dict[str, str] = {}
    for each in reversed(of.__mro__):
        if each.__module__.split(".")[0] not in ("controller", "signalbox"):
            continue
        body = ast.parse(textwrap.dedent(inspect.getsource(each))).body[0].body  # type: ignore[attr-defined]
        for before, after in pairwise(body):
            match before, after:
                case (
                    (ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)])),
                    ast.Expr(value=ast.Constant(value=str(text))),
                ):
                    found[name] = " ".join(text.split())
    return found


CODE = (
    r"``(.+?)``|(?<![\w`.-])"
    r"(--?[a-z][a-z-]*|-(?= (?:for|is) )|[\w.]*[a-z0-9]_[\w.]*\w|SIGNALBOX_[A-Z_]+\w|planning\.\w+"
    r"|signalbox(?:-\w+(?:\[\w+\])?| (?:COMMANDS)(?: --[a-z-]+)?))(?![\w`])"
)
"""Names in help texts: options, ``-``, names with underscores, variables, distributions and commands."""


@cache
def names() -> re.Pattern[str]:
    """Return the pattern ``CODE`` with the commands that exist, the longest ones first."""
    every, context = group()
    known = [
        " ".join(path)
        for name in every.list_commands(context)
        for path, _ in leaves((name,), every.get_command(context, name))
    ]
    return re.compile(CODE.replace("COMMANDS", "|".join(sorted(map(re.escape, known), key=len, reverse=True))))


def prose(text: str) -> str:
    """Return help or a docstring as Markdown, with options and names as code."""
    return names().sub(lambda found: f"`{found[1] or found[2]}`", " ".join(text.split()).replace("*", r"\*"))


def filled(text: str, indent: str = "") -> str:
    """Return the text wrapped at ``WIDTH``; ``indent`` begins every line but the first."""
    return textwrap.fill(
        " ".join(text.split()), WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(cells)} |" for cells in (header, *rows)]
    return "\n".join([lines[0], "|" + "---|" * len(header), *lines[1:]])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
