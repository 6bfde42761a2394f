"""Recorded scrapes as input of promtool's rule tests, and checks of Prometheus expressions on the recorded series."""

import json
import subprocess
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

Labels = tuple[tuple[str, str], ...]


class Recorded:
    """Scrapes of some metrics, ``interval_s`` apart."""

    def __init__(self, interval_s: int, *names: str) -> None:
        self._interval_s = interval_s
        self._names = names
        self._scrapes: list[Mapping[tuple[str, Labels], float]] = []

    @property
    def seconds(self) -> int:
        """Seconds from the first scrape to the last."""
        return self._interval_s * (len(self._scrapes) - 1)

    def scrape(self, exposition: str | None) -> None:
        """Add a scrape; None means that the controller does not answer."""
        lines = (exposition or "").splitlines(keepends=True)
        of_these = "".join(line for line in lines if any(name in line for name in self._names))
        samples = (s for family in text_string_to_metric_families(of_these) for s in family.samples)
        self._scrapes.append({(s.name, tuple(s.labels.items())): s.value for s in samples if s.name in self._names})

    def values(self) -> Mapping[tuple[str, Labels], list[str]]:
        """Return the value of each series at each scrape, as promtool writes it; a series that ends is stale."""
        found: defaultdict[tuple[str, Labels], list[str]] = defaultdict(list)
        for key in dict.fromkeys(key for scrape in self._scrapes for key in scrape):
            before = False
            for scrape in self._scrapes:
                found[key].append(repr(scrape[key]) if key in scrape else "stale" if before else "_")
                before = key in scrape
        return found

    def assert_hold(self, directory: Path, *expressions: str) -> None:
        """Assert that each expression has the value 1 in Prometheus at the time of the last scrape."""
        series = [
            {"series": f"{name}{_selector(labels)}", "values": " ".join(values)}
            for (name, labels), values in self.values().items()
        ]
        test: dict[str, Any] = {
            "evaluation_interval": "1s",
            "tests": [
                {
                    "interval": f"{self._interval_s}s",
                    "input_series": series,
                    "promql_expr_test": [
                        {
                            "expr": f"sum({expression})",
                            "eval_time": f"{self.seconds}s",
                            "exp_samples": [{"labels": "{}", "value": 1}],
                        }
                        for expression in expressions
                    ],
                }
            ],
        }
        path = directory / "recorded.json"  # JSON is YAML
        path.write_text(json.dumps(test))
        done = subprocess.run(
            ["promtool", "test", "rules", path], capture_output=True, text=True, check=False, cwd=directory
        )
        assert done.returncode == 0, done.stdout + done.stderr


def _selector(labels: Labels) -> str:
    return "{" + ",".join(f"{name}={json.dumps(value)}" for name, value in labels) + "}"
