"""Commands that talk to a controller take the options that say who they are, and whom they trust.

A command of class ``ControllerCommand`` has them after its own; ``connect`` uses them.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from controller.api.certificates import NO_CREDENTIALS, Credentials
from controller.api.client import Client

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


_app = typer.Typer(add_completion=False)
_app.command()(_credentials)
_OPTIONS: Any = typer.main.get_command(_app)
"""A command with the options as its parameters."""


class ControllerCommand(TyperCommand):
    """The command's own options, then those of its connection."""

    def __init__(self, name: str | None, *, params: Sequence[Any], **more: Any) -> None:
        super().__init__(name, params=[*params, *_OPTIONS.params], **more)

    def invoke(self, ctx: Any) -> Any:
        given = {option.name: ctx.params.pop(option.name) for option in _OPTIONS.params}
        _GIVEN.set(_credentials(**given))
        return super().invoke(ctx)


def connect(address: str) -> Client:
    """With the credentials of the command that runs."""
    return Client(address, credentials=_GIVEN.get())
