"""Options that commands share: form of the output, address of the controller, and credentials.

A ``PrintingCommand`` adds ``--json`` and ``-o`` after its own options. A ``ControllerCommand`` adds address and
credentials, which ``connect`` uses. An ``AskingCommand`` adds both."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperOption

from signalbox.client import DEFAULT_ADDRESS, Client
from signalbox.commands.output import FORM, AsJson, Form
from signalbox.credentials import NO_CREDENTIALS, Credentials
from signalbox.errors import FieldProblem, InvalidInput, cut

Connection = tuple[str, Credentials]
"""Address of a controller, and the credentials for it."""

_GIVEN: ContextVar[Connection] = ContextVar("connection", default=(DEFAULT_ADDRESS, NO_CREDENTIALS))


def _connection(
    address: Annotated[
        str,
        typer.Option(
            envvar="SIGNALBOX_ADDRESS",
            metavar="ADDRESS",
            help="Address of the controller's API: HOST:PORT or unix:PATH; several controllers: HOST:PORT,HOST:PORT.",
        ),
    ] = DEFAULT_ADDRESS,
    tls_ca: Annotated[
        Path | None,
        typer.Option(
            envvar="SIGNALBOX_TLS_CA",
            metavar="FILE",
            help="Use TLS; FILE has the certificates of the controller's authorities (PEM).",
        ),
    ] = None,
    tls_certificate: Annotated[
        Path | None,
        typer.Option(envvar="SIGNALBOX_TLS_CERTIFICATE", metavar="FILE", help="Client certificate (PEM)."),
    ] = None,
    tls_key: Annotated[
        Path | None,
        typer.Option(envvar="SIGNALBOX_TLS_KEY", metavar="FILE", help="Private key of the client certificate (PEM)."),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(
            envvar="SIGNALBOX_TOKEN_FILE",
            metavar="FILE",
            help="File with the client's token, sent through TLS, a Unix socket or loopback only.",
        ),
    ] = None,
) -> Connection:
    return address, Credentials(tls_ca, tls_certificate, tls_key, token_file)


def _form(
    as_json: AsJson = False,
    output: Annotated[
        Form,
        typer.Option(
            "--output",
            "-o",
            metavar="FORM",
            help="Output form: table, wide (all columns, whatever the terminal's width), json or yaml.",
        ),
    ] = Form.TABLE,
) -> Form:
    if as_json and output is not Form.TABLE:
        raise typer.BadParameter("--json is --output json: give one of them", param_hint="--output")
    return Form.JSON if as_json else output


def _options(of: Callable[..., object]) -> Sequence[Any]:
    app = typer.Typer(add_completion=False)
    app.command()(of)
    command: Any = typer.main.get_command(app)
    return tuple(command.params)


_CONNECTION, _OUTPUT = _options(_connection), _options(_form)


def _taken(options: Sequence[Any], params: dict[str, Any]) -> dict[str, Any]:
    """Remove these options from a command's parameters, and return their values by name."""
    return {option.name: params.pop(option.name) for option in options}


class PrintingCommand(TyperCommand):
    """A command that prints a table, or data for programs."""

    def __init__(self, name: str | None, *, params: Sequence[Any], **more: Any) -> None:
        super().__init__(name, params=[*params, *_OUTPUT], **more)

    def invoke(self, ctx: Any) -> Any:
        before = FORM.set(_form(**_taken(_OUTPUT, ctx.params)))
        try:
            return super().invoke(ctx)
        finally:
            FORM.reset(before)


class ControllerCommand(TyperCommand):
    """A command that calls a controller."""

    def __init__(self, name: str | None, *, params: Sequence[Any], **more: Any) -> None:
        super().__init__(name, params=[*params], **more)
        self.params += _CONNECTION

    def invoke(self, ctx: Any) -> Any:
        _GIVEN.set(_connection(**_taken(_CONNECTION, ctx.params)))
        given = {param.name: (param, ctx.params.get(param.name)) for param in self.params}
        try:
            return super().invoke(ctx)
        except InvalidInput as error:
            raise InvalidInput(tuple(_as_given(problem, given) for problem in error.problems)) from None


class AskingCommand(ControllerCommand, PrintingCommand):
    """A command that calls a controller and prints the answer."""


_CALLED_HERE = {"kinds": "fail", "duration": "for_s", "after": "since", "job_ids": "names", "spec": "file"}
"""Parameters of commands by the request's field, when the two names differ."""


def _as_given(problem: FieldProblem, given: Mapping[str, Any]) -> FieldProblem:
    """Replace the API's field in a problem (``names[0]``, ``duration``) by the option or argument that the user typed.

    An argument is named by its value, unless the message repeats that value. ``given``: the command's parameters and
    their values."""
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


def connection_in(params: Mapping[str, Any]) -> Connection:
    """Return the connection that these parameters of a command describe, with defaults for missing ones."""
    return _connection(**{option.name: params[option.name] for option in _CONNECTION if params.get(option.name)})


def given_connection() -> Connection:
    """Return the connection given to the running command."""
    return _GIVEN.get()


def connect(max_answer_bytes: int = -1) -> Client:
    """Return a client with the address and the credentials given to the running command."""
    address, credentials = _GIVEN.get()
    return Client(address, credentials=credentials, max_answer_bytes=max_answer_bytes)
