"""``signalbox token``: makes a token, and its entry for the controller's tokens file."""

from __future__ import annotations

from typing import Annotated

import typer

from controller.api.identities import Role, new_token, token_table

commands = typer.Typer()


@commands.command()
def token(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of its holder, which the audit log shows.")],
    role: Annotated[Role, typer.Option(help="Role of the holder.")] = Role.TENANT,
    tenant: Annotated[
        str | None, typer.Option(metavar="NAME", help="Tenant of the holder; for the role tenant only.")
    ] = None,
) -> None:
    """Make a token: print it once on stdout, and its table for the controller's tokens file on stderr.

    The table contains only the token's SHA-256. After SIGHUP, or a restart, the controller accepts the token."""
    if (role is Role.TENANT) != (tenant is not None):
        raise typer.BadParameter("the role 'tenant' requires a tenant; other roles allow none", param_hint="--tenant")
    made, sha256 = new_token()
    typer.echo(token_table(name, role, tenant, sha256), err=True)
    typer.echo(made)
