"""The options that every offline command takes: which fabric, which jobs, what has failed.

A command of class ``FabricCommand`` has them before its own, and finds them as ``FabricOptions`` in its context's
``obj``. They are declared once, as the parameters of ``_fabric_options``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer
from typer.core import TyperCommand

from controller.errors import FieldProblem
from controller.offline.fabric_options import LARGEST_SEED, FabricKind, FabricOptions, WrongUsage

if TYPE_CHECKING:
    from controller.planning.schemes import Scheme

PARTLY_ROUTED = 3
"""Exit status when flows have no path."""

_fabric_option = partial(typer.Option, rich_help_panel="Fabric")
failure_option = partial(typer.Option, rich_help_panel="Failures")


def _fabric_options(
    workload: Annotated[Path, typer.Option(help="Folder of workload files, one per job.", metavar="DIR")],
    fabric: Annotated[FabricKind, _fabric_option(help="What the other numbers describe.")] = FabricKind.LEAF_SPINE,
    leaves: Annotated[int | None, _fabric_option(min=1, help="Leaf-spine: leaves.")] = None,
    spines: Annotated[int | None, _fabric_option(min=1, help="Leaf-spine: spines.")] = None,
    hosts_per_leaf: Annotated[int | None, _fabric_option(min=1, help="Leaf-spine: hosts on every leaf.")] = None,
    cables: Annotated[int, _fabric_option(min=1, help="Leaf-spine: cables from every leaf to every spine.")] = 1,
    k: Annotated[int | None, _fabric_option("--k", min=2, help="Fat-tree: k.")] = None,
    graph: Annotated[
        Path | None, _fabric_option(help="Any fabric: networkx node-link JSON with capacities.", metavar="FILE")
    ] = None,
    link_gbps: Annotated[float, _fabric_option(help="Gbit/s of every NIC and link, each way.")] = 100.0,
    uplink_gbps: Annotated[
        float | None, _fabric_option(help="Gbit/s of the links between switches.", show_default="as NICs")
    ] = None,
    fail_spines: Annotated[str, failure_option(metavar="3,7", help="Spines (or cores) that have failed.")] = "",
    fail_links: Annotated[
        str,
        failure_option(
            metavar="leaf5:spine2,…",
            help="Cables that have failed: all between two switches, or one as leaf5:spine2:0.",
        ),
    ] = "",
    fail_random_links: Annotated[
        int, failure_option(min=0, help="Number of further cables that fail, at random (--seed).")
    ] = 0,
    max_subflows: Annotated[
        int, typer.Option(min=1, help="Into how many pieces a flow may be cut; 1 keeps it whole.")
    ] = 1,
    seed: Annotated[
        int, typer.Option(min=0, max=LARGEST_SEED, help="Random seed of failures, hashes and searches.")
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


def _declared(function: Callable[..., object]) -> TyperCommand:
    """A command with the function's parameters as options."""
    app = typer.Typer(add_completion=False)
    app.command()(function)
    command = typer.main.get_command(app)
    assert isinstance(command, TyperCommand)
    return command


_WITH_OPTIONS = _declared(_fabric_options)
_OPTIONAL_WORKLOAD: Any = copy(_WITH_OPTIONS.params[0])
_OPTIONAL_WORKLOAD.required = False
_OPTIONAL_WORKLOAD.show_default = "ask the running controller"


class FabricCommand(TyperCommand):
    """The fabric options, then the command's own. ``WrongUsage`` that the command raises becomes wrong usage of it."""

    shared: ClassVar[Sequence[Any]] = _WITH_OPTIONS.params

    def __init__(self, name: str | None, *, params: Sequence[Any], **more: Any) -> None:
        super().__init__(name, params=[*self.shared, *params], **more)

    def invoke(self, ctx: Any) -> Any:
        given = {option.name: ctx.params.pop(option.name) for option in self.shared}
        try:
            ctx.obj = self.options(given)
            return super().invoke(ctx)
        except WrongUsage as error:
            raise typer.BadParameter("; ".join(map(str, error.problems))) from None

    def options(self, given: dict[str, Any]) -> FabricOptions | None:
        """``given``: the values of the shared options as they were read."""
        assert _WITH_OPTIONS.callback
        options: FabricOptions = _WITH_OPTIONS.callback(**given)
        return options


class OptionalFabricCommand(FabricCommand):
    """A ``FabricCommand`` that asks the running controller when it gets no ``--workload``: then ``obj`` is None."""

    shared: ClassVar[Sequence[Any]] = [_OPTIONAL_WORKLOAD, *_WITH_OPTIONS.params[1:]]

    def options(self, given: dict[str, Any]) -> FabricOptions | None:
        if given["workload"] is not None:
            return super().options(given)
        problems = tuple(
            FieldProblem(option.opts[0], "needs a --workload; the running controller knows its own fabric")
            for option in self.shared
            if given[option.name] != option.default
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


def scheme_named(strategy: str) -> Scheme:
    """How the strategy plans. Raises ``typer.BadParameter`` when there is none of that name."""
    # The solver takes half a second to import, which no other command needs.
    from controller.planning.schemes import SCHEMES

    if strategy not in SCHEMES:
        message = f"there is no strategy '{strategy}'; choose {', '.join(SCHEMES)}"
        raise typer.BadParameter(message, param_hint="--strategy")
    return SCHEMES[strategy]
