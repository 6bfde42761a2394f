"""docs/operators.md is complete: configuration keys with their defaults, metrics with their labels, alerts."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import get_args

import pytest
import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from controller.config import Config
from controller.observability.families import FAMILIES, Family

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "operators.md").read_text()


def keys(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Each key's path and its default as the table shows it."""
    for name, field in model.model_fields.items():
        section, in_list = section_of(field)
        if section:
            yield from keys(section, f"{prefix}{name}{'[]' if in_list else ''}.")
        else:
            yield prefix + name, shown(field)


def section_of(field: FieldInfo) -> tuple[type[BaseModel] | None, bool]:
    inner = get_args(field.annotation)[0] if get_args(field.annotation) else None
    for candidate, in_list in ((field.annotation, False), (inner, True)):
        if isinstance(candidate, type) and issubclass(candidate, BaseModel):
            return candidate, in_list
    return None, False


def shown(field: FieldInfo) -> str:
    if field.is_required() or field.default is None:
        return "–"
    default = field.default.value if isinstance(field.default, Enum) else field.default
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    return f"`{', '.join(default) if isinstance(default, tuple) else default}`"


@pytest.mark.parametrize(("key", "default"), list(keys(Config)))
def test_every_configuration_key_stands_with_its_default(key: str, default: str) -> None:
    assert f"\n| `{key}` | {default} | " in PAGE


def test_every_alert_has_its_paragraph() -> None:
    rules = yaml.safe_load((ROOT / "deploy/prometheus/alerts.yml").read_text())["groups"][0]["rules"]
    assert [rule["alert"] for rule in rules if f"\n**{rule['alert']}.** " not in PAGE] == []


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_every_metric_stands_with_its_labels(family: Family) -> None:
    labels = ", ".join(f"`{label}`" for label in family.labels)
    assert f"\n| `{family.name}` | {labels + ' ' if labels else ''}| " in PAGE
