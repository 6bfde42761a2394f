"""``signalbox token``: a new token, and what the controller's tokens file needs to know of it."""

from __future__ import annotations

from typing import Annotated

import typer

from controller.api.identities import Role, new_token, token_table

commands = typer.Typer()


@commands.command()
def token(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Who will have it; the audit log shows the name.")],
    role: Annotated[Role, typer.Option(help="What whoever has it may do.")] = Role.TENANT,
    tenant: Annotated[str | None, typer.Option(metavar="NAME", help="Whose jobs: with the role tenant.")] = None,
) -> None:
    """Make a token: print it once on stdout, and on stderr the table that the controller's tokens file needs.

    Only its SHA-256 is in the table. After SIGHUP, or a restart, the controller accepts the token.
    """
    made, sha256 = new_token()
    typer.echo(token_table(name, role, tenant, sha256), err=True)
    typer.echo(made)
