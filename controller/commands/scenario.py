"""The options that every offline command takes: which fabric, which jobs, what has failed.

A command that is wrapped in ``takes_fabric`` gets them as ``FabricOptions``; they come before its own in the help.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Concatenate, ParamSpec

import typer

from controller.errors import FieldProblem
from controller.offline.fabric_options import LARGEST_SEED, FabricKind, FabricOptions, WrongUsage

Own = ParamSpec("Own")

_FABRIC = "Fabric"
_FAILURES = "Failures"


def _fabric_options(
    workload: Annotated[Path, typer.Option(help="Folder of workload files, one per job.", metavar="DIR")],
    fabric: Annotated[
        FabricKind, typer.Option(help="What the other numbers describe.", rich_help_panel=_FABRIC)
    ] = FabricKind.LEAF_SPINE,
    leaves: Annotated[int | None, typer.Option(min=1, help="Leaf-spine: leaves.", rich_help_panel=_FABRIC)] = None,
    spines: Annotated[int | None, typer.Option(min=1, help="Leaf-spine: spines.", rich_help_panel=_FABRIC)] = None,
    hosts_per_leaf: Annotated[
        int | None, typer.Option(min=1, help="Leaf-spine: hosts on every leaf.", rich_help_panel=_FABRIC)
    ] = None,
    cables: Annotated[
        int, typer.Option(min=1, help="Leaf-spine: cables from every leaf to every spine.", rich_help_panel=_FABRIC)
    ] = 1,
    k: Annotated[int | None, typer.Option("--k", min=2, help="Fat-tree: k.", rich_help_panel=_FABRIC)] = None,
    graph: Annotated[
        Path | None,
        typer.Option(
            help="Any fabric: networkx node-link JSON with capacities.", metavar="FILE", rich_help_panel=_FABRIC
        ),
    ] = None,
    link_gbps: Annotated[
        float, typer.Option(help="Gbit/s of every NIC and link, each way.", rich_help_panel=_FABRIC)
    ] = 100.0,
    uplink_gbps: Annotated[
        float | None,
        typer.Option(help="Gbit/s of the links between switches.", show_default="as NICs", rich_help_panel=_FABRIC),
    ] = None,
    fail_spines: Annotated[
        str, typer.Option(metavar="3,7", help="Spines (or cores) that have failed.", rich_help_panel=_FAILURES)
    ] = "",
    fail_links: Annotated[
        str,
        typer.Option(
            metavar="leaf5:spine2,…",
            help="Cables that have failed: all between two switches, or one as leaf5:spine2:0.",
            rich_help_panel=_FAILURES,
        ),
    ] = "",
    fail_random_links: Annotated[
        int, typer.Option(min=0, help="So many more cables fail, drawn with --seed.", rich_help_panel=_FAILURES)
    ] = 0,
    max_subflows: Annotated[
        int, typer.Option(min=1, help="Into how many pieces a flow may be cut; 1 keeps it whole.")
    ] = 1,
    seed: Annotated[
        int, typer.Option(min=0, max=LARGEST_SEED, help="Of all that is drawn: failures, hashes, searches.")
    ] = 1,
) -> FabricOptions:
    return FabricOptions(
        workload=workload,
        fabric=fabric,
        leaves=leaves,
        spines=spines,
        hosts_per_leaf=hosts_per_leaf,
        cables=cables,
        k=k,
        graph=graph,
        link_gbps=link_gbps,
        uplink_gbps=uplink_gbps,
        fail_spines=_items("--fail-spines", fail_spines),
        fail_links=_items("--fail-links", fail_links),
        fail_random_links=fail_random_links,
        max_subflows=max_subflows,
        seed=seed,
    )


def takes_fabric(command: Callable[Concatenate[FabricOptions, Own], None]) -> Callable[..., None]:
    """The command with the shared options in place of its first parameter. What ``WrongUsage`` says becomes wrong usage
    of the command."""
    return _taking(command, _shared(), _fabric_options)


def may_take_fabric(command: Callable[Concatenate[FabricOptions | None, Own], None]) -> Callable[..., None]:
    """``takes_fabric`` for a command that asks the running controller when it gets no ``--workload``: then its first
    parameter is None."""
    shared = _shared()
    annotation = Annotated[
        Path | None,
        typer.Option(
            help="Folder of workload files, one per job.", metavar="DIR", show_default="ask the running controller"
        ),
    ]
    shared["workload"] = shared["workload"].replace(default=None, annotation=annotation)
    return _taking(command, shared, _perhaps_fabric_options)


def _taking(
    command: Callable[Concatenate[Any, Own], None],
    shared: Mapping[str, inspect.Parameter],
    options: Callable[..., FabricOptions | None],
) -> Callable[..., None]:
    _, *own = inspect.signature(command, eval_str=True).parameters.values()

    def run(**given: Any) -> None:
        try:
            first = options(**{name: given.pop(name) for name in shared})
            command(first, **given)  # type: ignore[call-arg]
        except WrongUsage as error:
            raise typer.BadParameter("; ".join(map(str, error.problems))) from None

    # Only parameters by name may come in any order, whether they have a default or not.
    parameters = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in (*shared.values(), *own)]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    run.__name__, run.__doc__ = command.__name__, command.__doc__
    return run


def _shared() -> dict[str, inspect.Parameter]:
    return dict(inspect.signature(_fabric_options, eval_str=True).parameters)


def _perhaps_fabric_options(**given: Any) -> FabricOptions | None:
    if given["workload"] is not None:
        return _fabric_options(**given)
    problems = tuple(
        FieldProblem(f"--{name.replace('_', '-')}", "needs a --workload; the running controller knows its own fabric")
        for name, parameter in _shared().items()
        if name != "workload" and given[name] != parameter.default
    )
    if problems:
        raise WrongUsage(problems)
    return None


def _items(option: str, text: str) -> tuple[str, ...]:
    if not text:
        return ()
    items = tuple(item.strip() for item in text.split(","))
    if not all(items):
        raise typer.BadParameter(f"'{text}' has an empty item; items are separated by single commas", param_hint=option)
    return items
