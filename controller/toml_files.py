"""TOML files of the controller: its configuration, tokens, and inventory.

In: a path, and the model class of the file's top table. Out: an instance of the model, or ``InvalidInput`` with every
problem of the file.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Any, Self, TypeVar, Union, get_args, get_origin

from pydantic import (
    BaseModel,
    ConfigDict,
    ModelWrapValidatorHandler,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError, PydanticOmit

from signalbox.errors import MAX_PROBLEMS, InvalidInput, field_problems
from signalbox.files import called, read_bytes
from signalbox.toml_text import MAX_TOML_BYTES, table

Model = TypeVar("Model", bound=BaseModel)

MAX_MARKS = 400_000
"""Largest number of separators in a file; an inventory of 30,000 hosts has fewer."""


class TomlTable(BaseModel):
    """Table of a TOML file with strict types: numbers must not be text or truth values, and paths must not be empty."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @model_validator(mode="wrap")
    @classmethod
    def _while_few_are_wrong(cls, data: Any, checked: ModelWrapValidatorHandler[Self], info: ValidationInfo) -> Self:
        """Do not check this table if others already have ``MAX_PROBLEMS`` problems, since each takes a kilobyte."""
        found: Counter[str] = info.context if info.context is not None else Counter()
        before = found["problems"]
        if before >= MAX_PROBLEMS:
            raise PydanticOmit
        try:
            return checked(data)
        except ValidationError as error:
            found["problems"] = before + error.error_count()
            raise

    @field_validator("*", mode="before")
    @classmethod
    def _as_toml_has_it(cls, value: object, info: ValidationInfo) -> object:
        name = info.field_name
        if isinstance(value, bool | str) and name in _fields_of(cls, int, float):
            raise PydanticCustomError("number", "must be a number")
        if not isinstance(value, bool) and name in _fields_of(cls, bool):
            raise PydanticCustomError("truth", "must be true or false, without quotes")
        if value == "" and name in _fields_of(cls, Path):
            raise PydanticCustomError("empty_path", "must name a file or directory; leave it out to have none")
        return value


def matching(pattern: str, what: str) -> WrapValidator:
    """Return a validator that accepts text only if ``pattern`` matches all of it.

    ``what``: description of valid text."""

    def check(value: object, checked: ValidatorFunctionWrapHandler) -> str:
        text = checked(value) if isinstance(value, str) else None
        if text is None or not re.fullmatch(pattern, text):
            raise PydanticCustomError("pattern", "must be {what}", {"what": what})
        return str(text)

    return WrapValidator(check)


def refuse_above(less_s: float, more_s: float, less: str, more: str) -> None:
    """Raise ``PydanticCustomError`` if the setting ``less`` of a table is larger than the setting ``more``."""
    if less_s > more_s:
        message = "{less} ({less_s} s) must be at most {more} ({more_s} s)"
        values = {"less": less, "more": more, "less_s": f"{less_s:g}", "more_s": f"{more_s:g}"}
        raise PydanticCustomError("order", message, values)


@cache
def _fields_of(model: type[BaseModel], *types: type) -> frozenset[str]:
    return frozenset(name for name, field in model.model_fields.items() if _is_of(field.annotation, types))


def _is_of(annotation: object, types: tuple[type, ...]) -> bool:
    kinds = {*get_args(annotation)} - {type(None)} if get_origin(annotation) in (Union, UnionType) else {annotation}
    return all((get_args(kind) or (kind,))[0] in types for kind in kinds)


def read_toml(path: Path, model: type[Model]) -> Model:
    """Return the contents of a TOML file as an instance of ``model``.

    Raises ``InvalidInput`` with every problem of the file, each with the path of the invalid setting."""
    name = called(path)
    try:
        text = read_bytes(path, MAX_TOML_BYTES).decode("utf-8-sig")
    except OSError as error:
        raise InvalidInput.of(name, error.strerror or str(error)) from None
    except UnicodeDecodeError as error:
        raise InvalidInput.of(name, f"is not text in UTF-8, at byte {error.start + 1}") from None
    try:
        return model.model_validate(table(text, name, MAX_MARKS), context=Counter())
    except ValidationError as error:
        raise InvalidInput(field_problems(error, model)).within(name) from None
