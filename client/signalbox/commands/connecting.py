"""Commands that talk to a controller take the options that say who they are, and whom they trust.

A command of class ``ControllerCommand`` has them after its own; ``connect`` uses them. One that has ``--json`` also has
``-o``, of which ``--json`` is the short form; so has a ``PrintingCommand``, which needs no controller.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperOption

from signalbox.client import Client
from signalbox.commands.output import FORM, Form
from signalbox.credentials import NO_CREDENTIALS, Credentials
from signalbox.errors import FieldProblem, InvalidInput, cut

_GIVEN: ContextVar[Credentials] = ContextVar("credentials", default=NO_CREDENTIALS)


def _credentials(
    tls_ca: Annotated[
        Path | None,
        typer.Option(
            envvar="SIGNALBOX_TLS_CA",
            metavar="FILE",
            help="Use TLS; FILE has the authorities that sign the controller's certificate (PEM).",
        ),
    ] = None,
    tls_certificate: Annotated[
        Path | None,
        typer.Option(envvar="SIGNALBOX_TLS_CERTIFICATE", metavar="FILE", help="The client's own certificate (PEM)."),
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option(envvar="SIGNALBOX_TLS_KEY", metavar="FILE", help="The key of that certificate (PEM).")
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option(envvar="SIGNALBOX_TOKEN_FILE", metavar="FILE", help="A file with the client's token.")
    ] = None,
) -> Credentials:
    return Credentials(tls_ca, tls_certificate, tls_key, token_file)


def _form(
    output: Annotated[
        Form,
        typer.Option(
            "--output",
            "-o",
            metavar="FORM",
            help="table; wide: with all columns, however narrow the terminal is; json; yaml.",
        ),
    ] = Form.TABLE,
) -> Form:
    return output


def _options(of: Callable[..., object]) -> Sequence[Any]:
    """That the function takes."""
    app = typer.Typer(add_completion=False)
    app.command()(of)
    command: Any = typer.main.get_command(app)
    return tuple(command.params)


_CONNECTION, _OUTPUT = _options(_credentials), _options(_form)


class PrintingCommand(TyperCommand):
    """The command's own options, then that of its output."""

    def __init__(self, name: str | None, *, params: Sequence[Any], **more: Any) -> None:
        output = _OUTPUT if any(param.name == "as_json" for param in params) else ()
        super().__init__(name, params=[*params, *output], **more)

    def invoke(self, ctx: Any) -> Any:
        form = Form(ctx.params.pop("output", Form.TABLE))
        if form is not Form.TABLE and ctx.params["as_json"]:
            raise typer.BadParameter("--json is --output json: give one of them", param_hint="--output")
        FORM.set(form)
        if form in (Form.JSON, Form.YAML):
            ctx.params["as_json"] = True
        return super().invoke(ctx)


class ControllerCommand(PrintingCommand):
    """The command's own options, then those of its output and its connection."""

    def __init__(self, name: str | None, *, params: Sequence[Any], **more: Any) -> None:
        super().__init__(name, params=params, **more)
        self.params += _CONNECTION

    def invoke(self, ctx: Any) -> Any:
        _GIVEN.set(credentials_in(ctx.params))
        for option in _CONNECTION:
            del ctx.params[option.name]
        given = {param.name: (param, ctx.params.get(param.name)) for param in self.params}
        try:
            return super().invoke(ctx)
        except InvalidInput as error:
            raise InvalidInput(tuple(_as_given(problem, given) for problem in error.problems)) from None


_CALLED_HERE = {"kinds": "fail", "duration": "for_s", "after": "since", "job_ids": "names", "spec": "file"}
"""Fields of requests, by the parameter of the command that they come from, where that is called otherwise."""


def _as_given(problem: FieldProblem, given: Mapping[str, Any]) -> FieldProblem:
    """In place of the API's field (``names[0]``, ``duration``) what the user has typed: the option, or the argument's
    value, unless the message repeats that. ``given``: the command's parameters, and their values."""
    field = re.fullmatch(r"(\w+)(?:\[(\d+)\])?", problem.path)
    name = "" if not field else field[1] if field[1] in given else _CALLED_HERE.get(field[1], "")
    if not field or name not in given:
        return problem
    param, value = given[name]
    if isinstance(param, TyperOption):
        return replace(problem, path=param.opts[0])
    if field[2] and isinstance(value, list | tuple) and int(field[2]) < len(value):
        value = value[int(field[2])]
    text = cut(str(value)) if isinstance(value, str | Path) and value else param.metavar
    return replace(problem, path="" if f"'{text}'" in problem.message else text)


def credentials_in(params: Mapping[str, Any]) -> Credentials:
    """That a command was given."""
    return _credentials(**{option.name: params.get(option.name) for option in _CONNECTION})


def given_credentials() -> Credentials:
    """Of the command that runs."""
    return _GIVEN.get()


def connect(address: str) -> Client:
    """With the credentials of the command that runs."""
    return Client(address, credentials=_GIVEN.get())
