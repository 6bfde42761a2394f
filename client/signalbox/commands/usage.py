"""Wrong values of options are told in our words, with the value: Typer passes on pydantic's, which leave it out."""

from __future__ import annotations

from typing import Any

import typer
from pydantic import ValidationError
from typer.core import TyperGroup

from signalbox.errors import value_problem


class Commands(TyperGroup):
    """All commands. What is wrong with their options passes here before it is printed."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            if isinstance(error.__cause__, ValidationError):
                error.message = value_problem(error.__cause__)
            raise
