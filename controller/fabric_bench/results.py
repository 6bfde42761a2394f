"""What a run found, and what it should find.

Figures that were not reached are None. Times are seconds unless the name says milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from controller.fabric_bench.figures import Spread


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
            name: value._asdict() if isinstance(value := getattr(self, name), Spread) else value
            for name in ("echo_ms", "repair_ms", "repair_routes_ms")
        }
        return asdict(self) | spreads


class Target(NamedTuple):
    """``value``: of the figure, None when there is none."""

    name: str
    value: Callable[[Figures], float | None]
    most: float


TARGETS = (
    Target("links not found", lambda f: None if f.links_found is None else f.links_expected - f.links_found, 0),
    Target("discovery_s", lambda f: f.discovery_s, 5),
    Target("false_link_downs", lambda f: f.false_link_downs, 0),
    Target("silent_loss_detect_s", lambda f: f.silent_loss_detect_s, 15),
    Target("install_s", lambda f: f.install_s, 1),
    Target("repair_ms p50", lambda f: f.repair_ms.p50 if f.repair_ms else None, 30),
    Target("repair_ms p99", lambda f: f.repair_ms.p99 if f.repair_ms else None, 100),
    Target("rules_rewritten_on_restart", lambda f: f.rules_rewritten_on_restart, 0),
    Target("echo_ms p99", lambda f: f.echo_ms.p99 if f.echo_ms else None, 50),
    Target("rss_mb", lambda f: f.rss_mb, 300),
    Target("idle_cpu_percent", lambda f: f.idle_cpu_percent, 10),
)
"""At 64 leaves and 32 spines on two cores; a smaller fabric should be well below."""
