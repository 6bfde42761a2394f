"""Commands that take the options of all offline commands: which fabric, which jobs, what has failed.

A command of class ``FabricCommand`` has them before its own, and finds them as ``FabricOptions`` in its context's
``obj``.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, ClassVar

import typer
from typer.core import TyperCommand

from offline.scenarios.fabric_options import FabricOptions, WrongUsage
from signalbox.errors import FieldProblem

if TYPE_CHECKING:
    from offline.schemes import Scheme

_app = typer.Typer(add_completion=False)
_app.command()(FabricOptions)
_FABRIC_OPTIONS: Any = typer.main.get_command(_app)
"""A command with the options as its parameters."""
_OPTIONAL_WORKLOAD: Any = copy(_FABRIC_OPTIONS.params[0])
_OPTIONAL_WORKLOAD.required = False
_OPTIONAL_WORKLOAD.show_default = "ask the running controller"


class FabricCommand(TyperCommand):
    """The fabric options, then the command's own. ``WrongUsage`` that the command raises becomes wrong usage of it."""

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
        """``given``: the values of the shared options as they were read."""
        options: FabricOptions = _FABRIC_OPTIONS.callback(**given)
        return options


class OptionalFabricCommand(FabricCommand):
    """A ``FabricCommand`` that asks the running controller when it gets no ``--workload``: then ``obj`` is None."""

    shared: ClassVar[Sequence[Any]] = [_OPTIONAL_WORKLOAD, *_FABRIC_OPTIONS.params[1:]]

    def options(self, given: dict[str, Any]) -> FabricOptions | None:
        if given["workload"] is not None:
            return super().options(given)
        WrongUsage.refuse(
            FieldProblem(option.opts[0], "needs a --workload; the running controller knows its own fabric")
            for option in self.shared
            if given[option.name] != option.default
        )
        return None


def scheme_named(strategy: str) -> Scheme:
    """How the strategy plans. Raises ``typer.BadParameter`` when there is none of that name."""
    # The solver takes half a second to import, which no other command needs.
    from offline.schemes import SCHEMES

    if strategy not in SCHEMES:
        message = f"there is no strategy '{strategy}'; choose {', '.join(SCHEMES)}"
        raise typer.BadParameter(message, param_hint="--strategy")
    return SCHEMES[strategy]
