"""Job of the demo, and a function that divides the bytes of a job.

A job is a mapping with the fields of a job file, without id and addresses. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

MB = 1_000_000

Job = Mapping[str, Any]


def recommender() -> Job:
    """Return the recommender of docs/wiring.md, with three parallelizations.

    - ``data``: each server has all parameters.
    - ``hybrid``: the tables are spread over the servers.
    - ``pipeline``: three stages of four servers."""
    everyone = [{"name": "all", "ranks": list(range(12))}]
    stages = [
        {"name": name, "ranks": list(range(first, first + 4))}
        for name, first in (("first", 0), ("second", 4), ("third", 8))
    ]
    chains = [{"name": f"to {8 + n}", "ranks": [n, 4 + n, 8 + n]} for n in range(4)]
    return {
        "parallelizations": [
            {
                "name": "data",
                "groups": everyone,
                "collectives": [sends("all_reduce", ["all"], 2000 * MB)],
                "compute": [{"seconds": 0.1}],
            },
            {
                "name": "hybrid",
                "groups": everyone,
                "collectives": [sends("all_to_all", ["all"], 240 * MB), sends("all_reduce", ["all"], 600 * MB, 1)],
                "compute": [{"seconds": 0.1}],
            },
            {
                "name": "pipeline",
                "groups": [*stages, *chains],
                "collectives": [
                    sends("pipeline_send", [chain["name"] for chain in chains], 250 * MB),
                    sends("all_reduce", [stage["name"] for stage in stages], 670 * MB, 1),
                ],
                "compute": [{"seconds": 0.15}],
            },
        ]
    }


def sends(algorithm: str, groups: Sequence[Any], size: int, phase: int = 0) -> dict[str, Any]:
    """Return a collective in the form of a job file."""
    return {"algorithm": algorithm, "groups": list(groups), "bytes_per_iteration": size, "phase": phase}


def scaled(job: Job, divisor: float) -> Job:
    """Return the job with all bytes divided by ``divisor``, at least one each. Computing times stay."""

    def part(name: str, value: Any) -> Any:
        if name == "bytes_per_iteration":
            return max(1, round(value / divisor))
        if isinstance(value, Mapping):
            return {key: part(key, of) for key, of in value.items()}
        return [part("", each) for each in value] if isinstance(value, list) else value

    return {name: part(name, value) for name, value in job.items()}
