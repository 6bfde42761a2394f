"""The reference pages are complete: metrics, alerts, job fields; so is the output of ``--help``."""

import shlex
from collections.abc import Iterator
from typing import Any

import yaml
from typer.main import get_command

from controller.alarms import Alarm
from controller.config import Config
from controller.observability.families import FAMILIES
from signalbox.cli import PANEL_OF, app
from signalbox.file_forms import JobInFile
from signalbox.jobs.spec import Algorithm
from signalbox.words import AlarmKind
from tests.support.doc_pages import ROOT

REFERENCE = ROOT / "docs" / "reference"
NAMES = ("alarms", "configuration", "job-spec", "metrics")
ALARMS, CONFIGURATION, JOB_SPEC, METRICS = ((REFERENCE / f"{name}.md").read_text() for name in NAMES)
ALARM_ROWS = [
    [cell.strip() for cell in line.split("|")[1:-1]]
    for line in ALARMS.partition("\n## Alarms\n")[2].partition("\n## ")[0].splitlines()
    if line.startswith("| `")
]
"""Cells of the table of alarms: kind, subject, severity, and the alert of the kind."""


def rows_of(text: str) -> dict[str, str]:
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("| `")]
    return {row[0].strip("`"): row[-1] for row in cells}


def test_metrics_have_a_row_each_with_labels_and_the_unit_of_the_help_which_says_of_histograms_that_they_are() -> None:
    rows = rows_of(METRICS.partition("## Recorded")[0])
    assert rows.keys() == {family.name for family in FAMILIES}
    units = {"seconds": ("Time ", "Age ", "Communication time"), "bytes": ("Bytes ",), "ratio": ("Ideal ",)}
    for family in FAMILIES:
        labels = ", ".join(f"`{label}`" for label in family.labels)
        assert f"\n| `{family.name}` | {labels + ' ' if labels else ''}| " in METRICS
        spoken_of = {unit for unit, begins in units.items() if family.help.startswith(begins)}
        assert spoken_of <= {*family.name.split("_")}, family.help
    histograms = {family.name for family in FAMILIES if family.kind == "histogram"}
    assert {name for name, meaning in rows.items() if meaning.startswith("histogram: ")} == histograms


def test_every_recorded_series_has_a_row() -> None:
    rules = yaml.safe_load((ROOT / "deploy/prometheus/rules.yml").read_text())["groups"][0]["rules"]
    assert rows_of(METRICS.partition("## Recorded")[2]).keys() == {rule["record"] for rule in rules}


def test_every_alert_has_a_row_and_a_remedy() -> None:
    rules = yaml.safe_load((ROOT / "deploy/prometheus/alerts.yml").read_text())["groups"][0]["rules"]
    names = [rule["alert"] for rule in rules]
    of_alarms = {cell for row in ALARM_ROWS for cell in row[3:] if cell.startswith("*")}
    own = [name for name in names if f"*{name}*" not in of_alarms]
    assert [name for name in own if f"\n| `{name}` | " not in ALARMS or f"\n### {name}\n\n" not in ALARMS] == []


def test_every_alarm_has_a_remedy_and_a_row_with_its_severity() -> None:
    assert [kind for kind in AlarmKind if f"\n### `{kind}`\n\n" not in ALARMS] == []
    rows = {row[0]: row for row in ALARM_ROWS}
    assert {kind: rows[f"`{kind}`"][2] for kind in AlarmKind} == {kind: Alarm(kind, "").severity for kind in AlarmKind}


def test_every_setting_has_a_row() -> None:
    assert [name for name in Config.model_fields if f"\n| `{name}` | " not in CONFIGURATION
            and f"\n| `{name}." not in CONFIGURATION] == []  # fmt: skip


def test_every_field_and_every_collective_of_a_job_has_a_row() -> None:
    first_cells = [line.split(" | ")[0] for line in JOB_SPEC.splitlines() if line.startswith("| `")]
    assert [field for field in JobInFile.model_fields if not any(f"`{field}" in cell for cell in first_cells)] == []
    assert [each.name for each in Algorithm if f"\n| `{each.name}` | " not in JOB_SPEC] == []


Command = tuple[tuple[str, ...], Any]


def commands(of: Any, path: tuple[str, ...] = ()) -> Iterator[Command]:
    for name, command in of.commands.items():
        found = (*path, name)
        yield from commands(command, found) if hasattr(command, "commands") else [(found, command)]


COMMANDS = dict(commands(get_command(app)))


def test_each_command_is_in_a_panel_of_the_list() -> None:
    every: Any = get_command(app)
    assert set(PANEL_OF) == set(every.list_commands(every.make_context("signalbox", [], resilient_parsing=True)))


def test_the_first_paragraph_is_one_line() -> None:
    """The list of commands shows the paragraph with the line breaks of its docstring."""
    assert [path for path, command in COMMANDS.items() if "\n" in command.help.split("\n\n")[0]] == []


def test_examples_have_options_that_exist() -> None:
    for path, command in COMMANDS.items():
        example = shlex.split((command.epilog or f"signalbox {' '.join(path)}").removeprefix("Example: "))
        assert example[: len(path) + 1] == ["signalbox", *path]
        own = example[: example.index("--")] if "--" in example else example
        known = {option for param in command.params for option in param.opts}
        assert {word for word in own if word.startswith("--")} <= known, path
