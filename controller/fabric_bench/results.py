"""What a run found, and what it should find.

Figures that were not reached are None. Times are seconds unless the name says milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from controller.fabric_bench.figures import Spread

SPREADS = ("echo_ms", "repair_ms", "repair_routes_ms", "reconfigured_ms")


@dataclass(slots=True)
class Figures:
    """In the order of the run; docs/benchmarks.md says what each is and how it is observed."""

    switches: int
    links_expected: int
    links_found: int | None = None
    build_s: float | None = None
    discovery_s: float | None = None
    discovery_from_start_s: float | None = None
    links_reported_s: float | None = None
    pins: int | None = None
    flows: int | None = None
    install_s: float | None = None
    install_from_call_s: float | None = None
    install_changes: int | None = None
    idle_cpu_percent: float | None = None
    observer_cpu_percent: float | None = None
    false_link_downs: int | None = None
    quiet_s: float | None = None
    plans: int | None = None
    echo_ms: Spread | None = None
    silent_loss_detect_s: float | None = None
    silent_loss_return_s: float | None = None
    reconnect_resync_s: float | None = None
    reconnect_rules_rewritten: int | None = None
    restart_s: float | None = None
    rules_rewritten_on_restart: int | None = None
    switches_changed_on_restart: int | None = None
    cuts: int | None = None
    repair_ms: Spread | None = None
    repair_routes_ms: Spread | None = None
    routes_repaired: int | None = None
    reconfigured_ms: Spread | None = None
    replug_s: float | None = None
    rss_mb: float | None = None
    rss_peak_mb: float | None = None
    processes: int | None = None
    errors: int | None = None
    machine: dict[str, str | int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def data(self) -> dict[str, Any]:
        """For JSON."""
        spreads = {
            name: value._asdict() if isinstance(value := getattr(self, name), Spread) else value for name in SPREADS
        }
        return asdict(self) | spreads


def rows(found: Figures) -> Iterator[tuple[str, float | None]]:
    """Every figure by name, and every percentile."""
    for name, value in found.data().items():
        if name in SPREADS:
            for part in Spread._fields:
                yield f"{name} {part}", value[part] if value else None
        elif name not in ("machine", "problems"):
            yield name, value


TARGETS = {
    "discovery_s": 5,
    "install_s": 1,
    "idle_cpu_percent": 10,
    "false_link_downs": 0,
    "echo_ms p99": 50,
    "silent_loss_detect_s": 15,
    "rules_rewritten_on_restart": 0,
    "repair_ms p50": 30,
    "repair_ms p99": 100,
    "rss_mb": 300,
}
"""By the name of the row, at most: at 64 leaves and 32 spines on two cores. A smaller fabric should be well below."""
