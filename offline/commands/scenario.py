"""Command classes with the options that all offline commands share: fabric, jobs and failures.

A ``FabricCommand`` has these options before its own. The command finds them as ``FabricOptions`` in ``ctx.obj``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import typer

from offline.scenarios.fabric_options import FabricOptions, WrongUsage
from signalbox.commands.connecting import PrintingCommand
from signalbox.errors import FieldProblem

if TYPE_CHECKING:
    from offline.schemes import Scheme

_app = typer.Typer(add_completion=False)
_app.command()(FabricOptions)
_FABRIC_OPTIONS: Any = typer.main.get_command(_app)
"""Command that has the shared options as its parameters."""
_JOBS = ("workload", "jobs")


class FabricCommand(PrintingCommand):
    """Printing command that has the fabric options in addition to its own options.

    It raises ``typer.BadParameter`` for ``WrongUsage``."""

    shared: ClassVar[Sequence[Any]] = _FABRIC_OPTIONS.params

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
        """Return the fabric options made from ``given``, the parsed values of the shared options."""
        options: FabricOptions = _FABRIC_OPTIONS.callback(**given)
        return options


class OptionalFabricCommand(FabricCommand):
    """``FabricCommand`` that asks the running controller if no jobs are given; ``ctx.obj`` is then None."""

    def options(self, given: dict[str, Any]) -> FabricOptions | None:
        if any(given[name] is not None for name in _JOBS):
            return super().options(given)
        WrongUsage.refuse(
            FieldProblem(
                option.opts[0],
                "needs --workload or --jobs; without them the running controller answers, about its own fabric",
            )
            for option in self.shared
            if given[option.name] != option.default
        )
        return None


def scheme_named(name: str) -> Scheme:
    """Return the routing scheme of this name. Raises ``typer.BadParameter`` when there is none."""
    # The solver takes half a second to import, so it is imported only where a scheme is needed.
    from offline.schemes import SCHEMES

    if name not in SCHEMES:
        message = f"there is no scheme '{name}'; choose {', '.join(SCHEMES)}"
        raise typer.BadParameter(message, param_hint="--scheme")
    return SCHEMES[name]
