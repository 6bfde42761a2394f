"""``signalbox kubernetes``: keep the annotated jobs of a Kubernetes cluster registered."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from signalbox.client import DEFAULT_ADDRESS
from signalbox.commands.connecting import ControllerCommand, connect
from signalbox.commands.lease_files import LeaseFiles
from signalbox.commands.output import Address
from signalbox.errors import SignalboxError
from signalbox.keeping import Keeper

commands = typer.Typer()


@commands.command("kubernetes", cls=ControllerCommand, epilog="Example: signalbox kubernetes --namespace ml")
def keep_annotated_jobs(
    namespaces: Annotated[
        list[str] | None,
        typer.Option("--namespace", metavar="NAME", help="Look at this namespace only; may be given several times."),
    ] = None,
    address: Address = DEFAULT_ADDRESS,
) -> None:
    """Keep the annotated jobs of a Kubernetes cluster registered: JobSet, MPIJob, PyTorchJob and Job.

    Runs until it is ended; then the jobs stay registered until their leases run out, or it runs again."""
    try:
        from signalbox.kubernetes.operator import run
    except ModuleNotFoundError as error:
        if error.name not in ("kopf", "aiohttp"):
            raise
        raise SignalboxError(
            "kopf is not installed: pip install --find-links dist 'signalbox-client[kubernetes]'"
        ) from None
    connect(address).close()  # says what is wrong with the address and the credentials
    run(lambda on_end: Keeper(partial(connect, address), LeaseFiles(address), on_end), namespaces or ())
