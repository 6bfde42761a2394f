"""Results as lines of JSON in a file, so that a run continues where the previous one ended.

A record that was cut off by a crash is dropped.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

Record = dict[str, Any]


class Records:
    """Records of a file. ``known``: records by name; the last record if several have the same name."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.known: dict[str, Record] = {}
        if file.exists():
            whole = file.read_text(encoding="utf-8").rpartition("\n")[0]
            for line in filter(None, whole.split("\n")):
                record = json.loads(line)
                self.known[record["name"]] = record
            file.write_text(f"{whole}\n" if whole else "", encoding="utf-8")

    def add(self, record: Record) -> None:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        with self._file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
        self.known[record["name"]] = record

    def fill(self, names: Iterable[str], judged: Callable[[str], Record], within_s: float) -> int:
        """Add the missing records of ``names`` for up to ``within_s`` seconds; return the number still missing."""
        left = [name for name in names if name not in self.known]
        deadline = time.monotonic() + within_s
        while left and time.monotonic() < deadline:
            self.add(judged(left.pop(0)))
        return len(left)
