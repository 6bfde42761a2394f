"""The commands that need no controller, no network and no root."""

from __future__ import annotations

import typer

from offline.commands import analysis, design, workload_files


def add_to(app: typer.Typer) -> None:
    """Add the commands; this is the entry point of the group ``signalbox.commands``."""
    app.add_typer(workload_files.commands)
    app.add_typer(analysis.commands)
    app.add_typer(design.commands, name="design")
