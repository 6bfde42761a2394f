"""The reference pages are complete: configuration keys, metrics, alerts, commands and their options, job fields."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from enum import Enum
from typing import get_args

import pytest
import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from typer.main import get_group

from controller.alarms import Alarm
from controller.config import Config, reloaded_settings
from controller.observability.families import FAMILIES
from controller.observability.shapes import Family
from signalbox.commands.usage import BROUGHT_BY, EXTENDED
from signalbox.distributions import CONTROLLER, OFFLINE, added_commands
from signalbox.file_forms import JobInFile
from signalbox.jobs.spec import Algorithm
from signalbox.words import AlarmKind
from tests.support.doc_pages import ROOT
from tests.support.repository_names import commands, options_of

REFERENCE = ROOT / "docs" / "reference"
CONFIGURATION, METRICS = ((REFERENCE / f"{name}.md").read_text() for name in ("configuration", "metrics"))
COMMAND_LINE, JOB_SPEC = ((REFERENCE / f"{name}.md").read_text() for name in ("command-line", "job-spec"))
ALARMS = (REFERENCE / "alarms.md").read_text()
ALARM_ROWS = [
    [cell.strip() for cell in line.split("|")[1:-1]]
    for line in ALARMS.partition("\n## Alarms\n")[2].partition("\n## ")[0].splitlines()
    if line.startswith("| `")
]
"""Cells of the table of alarms: kind, subject, severity, and the alert of the kind."""


def keys(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield each key's path and its default as the table shows it."""
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
def test_every_configuration_key_has_a_row_with_its_default(key: str, default: str) -> None:
    assert f"\n| `{key}` | {default} | " in CONFIGURATION


FILES = ("certificate", "private_key", "ca_certificates", "tokens")


@pytest.mark.parametrize("key", [key for key, _ in keys(Config)])
def test_every_configuration_key_says_whether_sighup_takes_it(key: str) -> None:
    marked = {f"{section}.{name}": how for section, name, how in reloaded_settings()}
    (row,) = (line for line in CONFIGURATION.splitlines() if line.startswith(f"| `{key}` | "))
    expected = "yes" if key.rpartition(".")[2] in FILES else marked.get(key, "–")
    assert row.split(" | ")[-1] == f"{expected} |"


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_every_metric_has_a_row_with_its_labels(family: Family) -> None:
    labels = ", ".join(f"`{label}`" for label in family.labels)
    assert f"\n| `{family.name}` | {labels + ' ' if labels else ''}| " in METRICS


def rows_of(text: str) -> dict[str, str]:
    """Return the last cell of each row of a table, by the first one."""
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("| `")]
    return {row[0].strip("`"): row[-1] for row in cells}


def test_metrics_have_a_row_each_which_says_of_histograms_that_they_are() -> None:
    rows = rows_of(METRICS.partition("## Recorded")[0])
    assert rows.keys() == {family.name for family in FAMILIES}
    histograms = {family.name for family in FAMILIES if family.kind == "histogram"}
    assert {name for name, meaning in rows.items() if meaning.startswith("histogram: ")} == histograms


def test_every_recorded_series_has_a_row() -> None:
    rules = yaml.safe_load((ROOT / "deploy/prometheus/rules.yml").read_text())["groups"][0]["rules"]
    assert rows_of(METRICS.partition("## Recorded")[2]).keys() == {rule["record"] for rule in rules}


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_a_metric_ends_with_its_base_unit_if_its_help_speaks_of_one(family: Family) -> None:
    units = {"seconds": ("Time ", "Age ", "Communication time"), "bytes": ("Bytes ",), "ratio": ("Ideal ",)}
    spoken_of = {unit for unit, begins in units.items() if family.help.startswith(begins)}
    assert spoken_of <= {*family.name.split("_")}, family.help


def test_every_alert_has_a_row_and_a_remedy() -> None:
    rules = yaml.safe_load((ROOT / "deploy/prometheus/alerts.yml").read_text())["groups"][0]["rules"]
    names = [rule["alert"] for rule in rules]
    of_alarms = {cell for row in ALARM_ROWS for cell in row[3:] if cell.startswith("*")}
    assert [name for name in names if f"\n| `{name}` | " not in ALARMS] == []
    assert [name for name in names if f"\n**{name}.** " not in ALARMS and f"*{name}*" not in of_alarms] == []


@pytest.mark.parametrize("kind", AlarmKind)
def test_every_alarm_has_a_remedy(kind: AlarmKind) -> None:
    assert f"\n**`{kind}`.** " in ALARMS


@pytest.mark.parametrize("kind", AlarmKind)
def test_every_alarm_has_a_row_with_its_severity(kind: AlarmKind) -> None:
    assert [row[2] for row in ALARM_ROWS if row[0] == f"`{kind}`"] == [Alarm(kind, "").severity]


@pytest.mark.parametrize("path", [path for path, command in commands().items() if not hasattr(command, "commands")])
def test_every_command_is_described_with_its_options(path: str) -> None:
    assert f"`signalbox {path}" in COMMAND_LINE
    options = options_of(commands()[path]) - {"--help"}
    assert [option for option in options if option.startswith("--") and f"`{option}" not in COMMAND_LINE] == []


def test_it_is_said_which_distribution_has_which_command() -> None:
    rows = re.findall(rf"^\| `({CONTROLLER}|{OFFLINE})` \| (.*) \|$", COMMAND_LINE, re.MULTILINE)
    described = {name: {*re.findall("`(.*?)`", commands)} for name, commands in rows}
    added = get_group(added_commands(pytest.fail)).commands.keys()
    assert described[CONTROLLER] | described[OFFLINE] == added
    brought = {name: {each for each in added if BROUGHT_BY.get(each) == name} for name in described}
    assert {name: of - {*EXTENDED} for name, of in described.items()} == brought


@pytest.mark.parametrize("field", JobInFile.model_fields)
def test_every_field_of_a_job_has_a_row(field: str) -> None:
    assert any(f"`{field}" in line.split(" | ")[0] for line in JOB_SPEC.splitlines() if line.startswith("| `"))


@pytest.mark.parametrize("algorithm", Algorithm)
def test_every_collective_has_a_row(algorithm: Algorithm) -> None:
    assert f"\n| `{algorithm.name}` | " in JOB_SPEC


def test_the_python_reference_is_that_of_the_docstrings() -> None:
    made = subprocess.run([sys.executable, "scripts/python_reference.py"], cwd=ROOT, capture_output=True, check=True)
    assert made.stdout.decode() == (REFERENCE / "python.md").read_text()
