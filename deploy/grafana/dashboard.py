"""Generates the Grafana dashboard: ``make dashboard`` writes dashboards/signalbox.json from this file.

The first row is for the question "is everything well?" and needs ten seconds; each row below explains one part.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from pathlib import Path
from string import ascii_uppercase

from grafana_foundation_sdk.builders import common, dashboard, prometheus, stat, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import (
    BigValueColorMode,
    BigValueGraphMode,
    BigValueTextMode,
    LegendDisplayMode,
    LegendPlacement,
)
from grafana_foundation_sdk.models.dashboard import DashboardCursorSync, DataSourceRef, Threshold, ThresholdsMode

HERE = Path(__file__).resolve().parent
DATASOURCE = DataSourceRef(type_val="prometheus", uid="prometheus")
GREEN, ORANGE, RED = "green", "orange", "red"
WIDTH = 24
UNITS_WITH_DECIMALS = {"percentunit": 1, "none": 2}


def thresholds(*steps: tuple[float | None, str]) -> dashboard.ThresholdsConfig:
    """Colours from each value on; the first value is None, for everything below the second."""
    return (
        dashboard.ThresholdsConfig()
        .mode(ThresholdsMode.ABSOLUTE)
        .steps([Threshold(value=value, color=color) for value, color in steps])
    )


def targets(queries: Iterable[tuple[str, str]]) -> list[prometheus.Dataquery]:
    """One target per (PromQL expression, legend), called A, B, C… as Grafana's editor would."""
    return [
        prometheus.Dataquery().expr(expression).legend_format(legend).ref_id(letter)
        for letter, (expression, legend) in zip(ascii_uppercase, queries, strict=False)
    ]


def number(
    title: str,
    description: str,
    unit: str,
    colors: dashboard.ThresholdsConfig,
    *queries: tuple[str, str],
    width: int = 4,
    text: BigValueTextMode = BigValueTextMode.AUTO,
) -> stat.Panel:
    """The current value, large, coloured by whether it is good."""
    panel = (
        stat.Panel()
        .title(title)
        .description(description)
        .datasource(DATASOURCE)
        .unit(unit)
        .decimals(UNITS_WITH_DECIMALS.get(unit, 0))
        .thresholds(colors)
        .color_mode(BigValueColorMode.BACKGROUND)
        .graph_mode(BigValueGraphMode.NONE)
        .text_mode(text)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
        .no_value("–")
        .height(5)
        .span(width)
    )
    for target in targets(queries):
        panel = panel.with_target(target.instant())
    return panel


def graph(
    title: str, description: str, unit: str, *queries: tuple[str, str], width: int = WIDTH // 3
) -> timeseries.Panel:
    """Lines over time, each with its latest and largest value in the legend."""
    legend = (
        common.VizLegendOptions()
        .show_legend(True)
        .display_mode(LegendDisplayMode.TABLE)
        .placement(LegendPlacement.BOTTOM)
        .calcs(["lastNotNull", "max"])
    )
    panel = (
        timeseries.Panel()
        .title(title)
        .description(description)
        .datasource(DATASOURCE)
        .unit(unit)
        .min(0)
        .fill_opacity(5)
        .legend(legend)
        .height(8)
        .span(width)
    )
    for target in targets(queries):
        panel = panel.with_target(target)
    return panel


def overview() -> list[stat.Panel]:
    efficiency = thresholds((None, RED), (0.6, ORANGE), (0.9, GREEN))
    return [
        number(
            "Network efficiency",
            "Predicted efficiency of the worst job: 100 % is communication as fast as on an idle fabric; 0 while a job "
            "is not served. No value without jobs.",
            "percentunit",
            efficiency,
            ("signalbox_network_efficiency_ratio", "efficiency"),
        ),
        number(
            "Worst job",
            "The job with the least measured efficiency.",
            "percentunit",
            efficiency,
            ("bottomk(1, signalbox_job_efficiency_measured_ratio)", "{{job_id}}"),
            text=BigValueTextMode.VALUE_AND_NAME,
        ),
        number(
            "Worst level: plan, bound, ECMP",
            "Slow-down of the worst job: by the plan, the least that is possible, and what hashing gives on average.",
            "none",
            thresholds((None, "blue")),
            ("signalbox_plan_level", "plan"),
            ("signalbox_plan_bound", "bound"),
            ("signalbox_ecmp_level_mean", "ECMP"),
            width=8,
        ),
        number(
            "Switches out of sync",
            "Switches that do not hold exactly their rules.",
            "short",
            thresholds((None, GREEN), (1, RED)),
            ("count(signalbox_switch_in_sync == 0) or vector(0)", "out of sync"),
        ),
        number(
            "Alarms",
            "signalbox status words them.",
            "short",
            thresholds((None, GREEN), (1, RED)),
            ("sum(signalbox_alarms)", "alarms"),
        ),
    ]


def links() -> list[timeseries.Panel]:
    fabric = '{kind="fabric"}'
    return [
        graph(
            "Busiest links",
            "Load over capacity of the ten busiest links between switches.",
            "percentunit",
            (
                f"topk(10, link:signalbox_load:ratio_rate1m{fabric})",
                "{{link}}",
            ),
        ),
        graph(
            "Unannounced traffic",
            "Measured traffic that no job announced; it shrinks what the planner may use. Empty while there is none.",
            "bps",
            (f"topk(10, 8 * signalbox_link_background_bytes_per_second{fabric})", "{{link}}"),
        ),
        graph(
            "Links and hosts",
            "Directed links between switches in use, and known hosts.",
            "short",
            ("signalbox_links", "links"),
            ("signalbox_hosts", "hosts"),
        ),
    ]


def jobs() -> list[timeseries.Panel]:
    return [
        graph(
            "Efficiency: measured and predicted",
            "They should agree. Measured below predicted: other traffic uses the links or the hosts are slow.",
            "percentunit",
            ("signalbox_job_efficiency_measured_ratio", "{{job_id}} measured"),
            ("signalbox_job_efficiency_predicted_ratio", "{{job_id}} predicted"),
        ),
        graph(
            "Communication time of an iteration",
            "Latest reported, and alone on an idle fabric.",
            "s",
            ("signalbox_job_communication_seconds", "{{job_id}}"),
            ("signalbox_job_ideal_communication_seconds", "{{job_id}} ideal"),
        ),
        graph("Jobs by state", "Pending jobs wait for hosts.", "short", ("signalbox_jobs", "{{state}}")),
        graph(
            "Iterations per second",
            "As the jobs report them.",
            "short",
            ("rate(signalbox_job_iterations_total[1m])", "{{job_id}}"),
        ),
        graph(
            "Pinned flows",
            "Virtual links with a path of their own, of all that were announced.",
            "short",
            ("signalbox_job_pinned_flows", "{{job_id}} pinned"),
            ("signalbox_job_flows", "{{job_id}} announced"),
        ),
        graph(
            "Missing hosts",
            "Endpoints of jobs that the fabric has not shown.",
            "short",
            ("signalbox_job_missing_hosts", "{{job_id}}"),
        ),
    ]


def planner() -> list[timeseries.Panel]:
    return [
        graph(
            "Worst level",
            "The plan lies between its bound and ECMP's mean; above ECMP's mean is an alarm.",
            "none",
            ("signalbox_plan_level", "plan"),
            ("signalbox_plan_bound", "bound"),
            ("signalbox_ecmp_level_mean", "ECMP mean"),
            ("signalbox_ecmp_level_p95", "ECMP 95th percentile"),
            ('signalbox_baseline_level{strategy!="ecmp"}', "{{strategy}}"),
        ),
        graph(
            "Gap to the bound",
            "0 is proven optimal.",
            "percentunit",
            ("signalbox_plan_gap_ratio", "gap"),
        ),
        graph(
            "Planning time",
            "Of the latest plan, by stage.",
            "s",
            ("signalbox_plan_duration_seconds", "{{stage}}"),
        ),
        graph(
            "Levels proven",
            "How many job levels, from the worst, are proven optimal.",
            "short",
            ("signalbox_plan_levels_proven", "proven"),
            ("signalbox_plan_unrouted_flows", "flows without a path"),
        ),
        graph(
            "Plans and moves per minute",
            "Many moves without a change of the fabric or the jobs mean that the plans flap.",
            "short",
            ("60 * rate(signalbox_plans_total[1m])", "plans"),
            ("60 * rate(signalbox_moved_flows_total[1m])", "moved flows"),
        ),
        graph(
            "Repairs",
            "New paths for virtual links that lost theirs: time to find them, and in all, of the latest repair.",
            "s",
            ("signalbox_repair_duration_seconds", "{{stage}}"),
        ),
        graph(
            "Subflows",
            "Pieces of the planned virtual links, and virtual links that a repair gave new paths per minute.",
            "short",
            ("signalbox_plan_subflows", "subflows in the plan"),
            ("sum(signalbox_job_pinned_flows)", "pinned virtual links"),
            ("60 * rate(signalbox_repaired_flows_total[1m])", "repaired per minute"),
        ),
        graph(
            "Strategy",
            "1 for the strategy in force, and whether the switches do what the plan says.",
            "short",
            ("signalbox_strategy", "{{strategy}}"),
            ("signalbox_plan_installed", "plan installed"),
        ),
    ]


def control_plane() -> list[timeseries.Panel]:
    return [
        graph("Rules", "Flows, groups and meters on each switch.", "short", ("signalbox_switch_rules", "{{switch}}")),
        graph(
            "Pins and foreign rules",
            "Foreign rules are never touched.",
            "short",
            ("signalbox_pins", "pins"),
            ("signalbox_switch_foreign_rules > 0", "{{switch}} foreign"),
        ),
        graph(
            "Age of counters",
            "Of the switches and kinds of counters that were read longest ago.",
            "s",
            ("topk(5, signalbox_switch_counters_age_seconds)", "{{switch}} {{kind}}"),
        ),
        graph(
            "Switches",
            "Connected, and of these in sync.",
            "short",
            ("signalbox_switches", "connected"),
            ("sum(signalbox_switch_in_sync)", "in sync"),
            ("signalbox_adopting", "adopting after a restart"),
        ),
        graph("Memory", "Of the controller's process.", "bytes", ("process_resident_memory_bytes", "resident")),
        graph("CPU", "Of the controller's process.", "percentunit", ("rate(process_cpu_seconds_total[30s])", "cores")),
        graph(
            "Fullest tables",
            "Entries of flow, group and meter tables over their limits; from 90 % on an alarm. What does not fit is "
            "hashed.",
            "percentunit",
            (
                "topk(10, signalbox_switch_table_entries / signalbox_switch_table_max_entries)",
                "{{switch}} {{table}}",
            ),
        ),
        graph(
            "Packets that are not carried",
            "What switches drop because Signalbox does not forward its kind.",
            "pps",
            ("sum by (kind) (rate(signalbox_dropped_packets_total[1m]))", "{{kind}}"),
        ),
    ]


def build() -> dashboard.Dashboard:
    page = (
        dashboard.Dashboard("Signalbox")
        .uid("signalbox")
        .tags(["signalbox"])
        .refresh("5s")
        .time("now-15m", "now")
        .timezone("browser")
        .tooltip(DashboardCursorSync.CROSSHAIR)
    )
    rows: Mapping[str, Sequence[stat.Panel | timeseries.Panel]] = {
        "Is everything well?": overview(),
        "Links": links(),
        "Jobs": jobs(),
        "Planner": planner(),
        "Control plane": control_plane(),
    }
    ids = count(1)
    for title, panels in rows.items():
        page = page.with_row(dashboard.Row(title).id(next(ids)))
        for panel in panels:
            page = page.with_panel(panel.id(next(ids)))
    return page


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, default=HERE / "dashboards" / "signalbox.json")
    out: Path = parser.parse_args().out
    out.write_text(JSONEncoder(sort_keys=True, indent=2).encode(build().build()) + "\n")


if __name__ == "__main__":
    main()
