"""Branch coverage of each folder, and the floors below which it must not fall.

    python -m tests.support.coverage_floors out/coverage/coverage.json

Input: the output of ``coverage json`` for the unit and wire tests. Output: a table, and exit status 1 when a folder is
below its floor or has no floor. Code that only other processes run, such as the command line, counts as not covered."""

import json
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

FLOORS: Mapping[str, int] = {
    "client/signalbox": 93, "client/signalbox/commands": 87, "client/signalbox/jobs": 98,
    "client/signalbox/kubernetes": 73, "client/signalbox/launching": 84, "client/signalbox/live": 97,
    "client/signalbox/report": 90, "client/signalbox/top": 78, "client/signalbox/torch": 0,
    "client/signalbox/traces": 95, "client/signalbox/web": 53, "controller": 97, "controller/api": 95,
    "controller/circuits": 96, "controller/commands": 92, "controller/core": 98, "controller/demand": 98,
    "controller/fabric": 98, "controller/jobs": 98, "controller/link": 96,
    "controller/observability": 96, "controller/planning": 96, "controller/public": 95,
    "controller/serving": 84, "controller/southbound": 94, "controller/store": 95,
    "controller/tables": 98, "offline": 0, "offline/commands": 96, "offline/design": 96, "offline/scenarios": 98,
    "offline/schemes": 95, "offline/simulator": 98,
}  # fmt: skip
"""Lowest coverage per folder, in per cent of statements and branches; files beside folders count as a folder.

Each floor is one or two below the measured coverage."""


def covered(report: Any) -> dict[str, float]:
    """Return the coverage of each folder in per cent, ordered by folder name."""
    counts: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])
    for file, of_file in report["files"].items():
        parts = Path(file).parent.parts
        folder = "/".join(parts[: 3 if parts[0] == "client" else 2])
        summary = of_file["summary"]
        counts[folder][0] += summary["covered_lines"] + summary["covered_branches"]
        counts[folder][1] += summary["num_statements"] + summary["num_branches"]
    return {folder: 100 * hit / max(1, possible) for folder, (hit, possible) in sorted(counts.items())}


def problems(found: Mapping[str, float], floors: Mapping[str, int]) -> Iterator[str]:
    for folder, floor in floors.items():
        if folder not in found:
            yield f"{folder} has a floor, but no covered file"
        elif found[folder] < floor:
            yield f"{folder}: {found[folder]:.1f} % are covered, which is below its floor of {floor} %"
    for folder in found.keys() - floors.keys():
        yield f"{folder}: {found[folder]:.1f} % are covered, and it has no floor"


def main() -> None:
    found = covered(json.loads(Path(sys.argv[1]).read_text()))
    for folder, percent in found.items():
        sys.stdout.write(f"{folder:<36} {percent:5.1f} %   floor {FLOORS.get(folder, '-')}\n")
    sys.exit("\n".join(sorted(problems(found, FLOORS))) or None)


if __name__ == "__main__":
    main()
