"""TOML files of the controller: its configuration, tokens, an inventory.

In: a path, and the model of the file's table. Out: the model, or ``InvalidInput`` with every problem of the file.
"""

from __future__ import annotations

from pathlib import Path
from types import UnionType
from typing import TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from signalbox.errors import InvalidInput, field_problems
from signalbox.standard_input import called, read_bytes
from signalbox.toml_text import table

Model = TypeVar("Model", bound=BaseModel)

MAX_FILE_BYTES = 16 << 20
"""Of a file of the controller; an inventory of 100,000 hosts has less."""


class Table(BaseModel):
    """A table of a TOML file, in which neither ``true`` nor text is a number."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @field_validator("*", mode="before")
    @classmethod
    def _number(cls, value: object, info: ValidationInfo) -> object:
        if isinstance(value, bool | str) and _is_number(cls.model_fields[info.field_name or ""].annotation):
            raise PydanticCustomError("number", "must be a number")
        return value


def _is_number(annotation: object) -> bool:
    """Return whether a field of this type takes numbers alone, or nothing in place of one."""
    kinds = {*get_args(annotation)} - {type(None)} if get_origin(annotation) in (Union, UnionType) else {annotation}
    return all(kind in (int, float) or get_args(kind)[:1] in ((int,), (float,)) for kind in kinds)


def read_toml(path: Path, model: type[Model]) -> Model:
    """A TOML file as ``model``. Raises ``InvalidInput`` with every problem of the file, each with its path in it."""
    name = called(path)
    try:
        text = read_bytes(path, MAX_FILE_BYTES).decode()
    except OSError as error:
        raise InvalidInput.of(name, error.strerror or str(error)) from None
    except UnicodeDecodeError as error:
        raise InvalidInput.of(name, f"is not text in UTF-8, at byte {error.start + 1}") from None
    try:
        return model.model_validate(table(text, name))
    except ValidationError as error:
        raise InvalidInput(field_problems(error, model)).within(name) from None
