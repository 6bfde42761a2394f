"""The output of ``--help`` for each command."""

import shlex
from collections.abc import Iterator
from typing import Any

from typer.main import get_command

from signalbox.cli import app
from signalbox.commands.usage import PANEL_OF

Command = tuple[tuple[str, ...], Any]


def commands(of: Any, path: tuple[str, ...] = ()) -> Iterator[Command]:
    for name, command in of.commands.items():
        found = (*path, name)
        yield from commands(command, found) if hasattr(command, "commands") else [(found, command)]


COMMANDS = dict(commands(get_command(app)))


def test_each_command_is_in_a_panel_of_the_list() -> None:
    every: Any = get_command(app)
    assert set(PANEL_OF) == set(every.list_commands(every.make_context("signalbox", [], resilient_parsing=True)))


def test_the_first_paragraph_is_one_line() -> None:
    """The list of commands shows the paragraph with the line breaks of its docstring."""
    assert [path for path, command in COMMANDS.items() if "\n" in command.help.split("\n\n")[0]] == []


def test_examples_have_options_that_exist() -> None:
    for path, command in COMMANDS.items():
        example = shlex.split((command.epilog or f"signalbox {' '.join(path)}").removeprefix("Example: "))
        assert example[: len(path) + 1] == ["signalbox", *path]
        own = example[: example.index("--")] if "--" in example else example
        known = {option for param in command.params for option in param.opts}
        assert {word for word in own if word.startswith("--")} <= known, path
