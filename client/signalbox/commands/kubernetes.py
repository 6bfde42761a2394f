"""``signalbox kubernetes``: keep the annotated jobs of a Kubernetes cluster registered."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from signalbox.client import Client
from signalbox.commands.connecting import ControllerCommand, given_connection
from signalbox.commands.lease_files import LeaseFiles
from signalbox.distributions import needs_extra
from signalbox.keeping import Keeper

commands = typer.Typer()


@commands.command("kubernetes", cls=ControllerCommand, epilog="Example: signalbox kubernetes --namespace ml")
def keep_annotated_jobs(
    namespaces: Annotated[
        list[str] | None,
        typer.Option("--namespace", metavar="NAME", help="Namespace to follow, default: all; may be repeated."),
    ] = None,
) -> None:
    """Keep the annotated jobs of a Kubernetes cluster registered: JobSet, MPIJob, PyTorchJob and Job.

    When it ends, the jobs stay registered until their leases run out or it runs again."""
    with needs_extra("kubernetes", "kopf", "aiohttp"):
        from signalbox.kubernetes.operator import run
    address, credentials = given_connection()
    open_client = partial(Client, address, credentials=credentials)  # also for threads, which have another context
    open_client().close()  # reports wrong addresses and credentials
    run(lambda on_end: Keeper(open_client, LeaseFiles(address), on_end), namespaces or ())
