"""Figures that take long: each is kept in a file, so that an interrupted run continues where it ended."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
SOURCES = ("benchmarks/contention", "controller/planning", "offline/scenarios", "offline/schemes", "offline/simulator")


def folder_of(parent: Path) -> Path:
    """Return the folder for figures of the present code; figures of other code are in other folders."""
    files = sorted(file for source in SOURCES for file in ROOT.joinpath(source).rglob("*.py"))
    return parent / hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:12]


Wanted = Iterable[tuple[str, Callable[[], Mapping[str, Any]]]]
"""Names of figures, each with the function that computes them."""


def kept(folder: Path, wanted: Wanted, budget_s: float) -> list[dict[str, Any]]:
    """Return the figures that are in the folder; compute missing ones until the budget in CPU seconds is spent."""
    folder.mkdir(parents=True, exist_ok=True)
    until_s, found = time.process_time() + budget_s, []
    for name, computed in wanted:
        file = folder / f"{name}.json"
        if not file.exists() and time.process_time() < until_s:
            part = file.with_suffix(".part")
            part.write_text(json.dumps(computed()) + "\n")
            part.replace(file)
        if file.exists():
            found.append(json.loads(file.read_text()))
    return found
