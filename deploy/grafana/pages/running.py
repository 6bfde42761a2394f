"""The dashboard of the controller itself: its plans, rules, counters, API, processes and saved state."""

from __future__ import annotations

from grafana_foundation_sdk.builders.dashboard import Dashboard
from grafana_foundation_sdk.models.common import BigValueTextMode

from pages.panels import BLUE, GREEN, NONE_IS_GOOD, PLAIN, RED, Panel, graph, largest, number, page, thresholds

OF_CONTROLLERS = "and on (fabric, instance) signalbox_build_info"
"""Of the processes that Prometheus scrapes."""
TABLE = "signalbox_switch_table_"


def build() -> Dashboard:
    return page(
        "signalbox-controller",
        "Signalbox: controller",
        {
            "Does it run?": _overview(),
            "Plans": _plans(),
            "Rules and repairs": _rules(),
            "API": _api(),
            "Counters and tables": _counters(),
            "Process and state": _process(),
        },
    )


def _overview() -> list[Panel]:
    return [
        number(
            "Answers",
            "Whether Prometheus reaches each controller that it has reached within a day.",
            "short",
            thresholds((None, RED), (1, GREEN)),
            ("min(up and on (job, instance) last_over_time(signalbox_build_info[1d]))", "up"),
        ),
        number(
            "Version",
            "Of the controller.",
            "short",
            PLAIN,
            ("signalbox_build_info", "{{version}}"),
            text=BigValueTextMode.NAME,
        ),
        number(
            "Strategy",
            "What is done with plans.",
            "short",
            PLAIN,
            ("signalbox_strategy == 1", "{{strategy}}"),
            text=BigValueTextMode.NAME,
        ),
        number(
            "Adopting",
            "1 while it has started and reads the rules of its switches; it removes none then.",
            "short",
            thresholds((None, GREEN), (1, BLUE)),
            ("signalbox_adopting", "adopting"),
        ),
        number(
            "Standby",
            "1 while another controller stands by.",
            "short",
            PLAIN,
            ("signalbox_standby", "standby"),
        ),
        number(
            "Changes not saved",
            "Commits that the state directory did not take, within an hour.",
            "short",
            NONE_IS_GOOD,
            ("increase(signalbox_state_failed_commits_total[1h])", "failed"),
        ),
    ]


def _plans() -> list[Panel]:
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
        graph("Gap to the bound", "0 is proven optimal.", "percentunit", ("signalbox_plan_gap_ratio", "gap")),
        graph(
            "Planning time",
            "Of the latest plan, by stage, and the 99th percentile of a quarter of an hour.",
            "s",
            ("signalbox_plan_duration_seconds", "{{stage}}"),
            ("signalbox:plan_seconds:p99_rate15m", "99th percentile, all stages"),
        ),
        graph(
            "Levels proven",
            "How many job levels, from the worst, are proven optimal: over all shortest paths, and over "
            "candidate paths only "
            "where a search shows more.",
            "short",
            ("signalbox_plan_levels_proven", "over all paths"),
            ("signalbox_plan_levels_proven_listed", "over candidate paths"),
            ("signalbox_plan_candidates_listed", "candidate paths per pair"),
        ),
        graph(
            "Plans and moves per minute",
            "Many moves without a change of the fabric or the jobs mean that the plans flap.",
            "short",
            ("60 * rate(signalbox_plans_total[1m])", "plans"),
            ("60 * rate(signalbox_moved_flows_total[1m])", "moved flows"),
        ),
        graph(
            "Age of the latest plan",
            "While jobs run there is one every planning.interval_s.",
            "s",
            ("signalbox_plan_age_seconds", "age"),
        ),
        graph(
            "Moves left",
            "From the plan to a better one that needs more moves than a cycle may make; blocked: as far as "
            "known no way.",
            "short",
            ("signalbox_plan_moves_left", "left"),
            ("signalbox_plan_blocked_flows", "blocked"),
        ),
        graph(
            "Flows in the plan",
            "Pieces of the planned virtual links, and those without a path.",
            "short",
            ("signalbox_plan_subflows", "subflows"),
            ("signalbox_plan_unrouted_flows", "without a path"),
        ),
        graph(
            "What found the plan",
            "1 for the stage and the certificate of the latest plan, and whether the switches do what it says.",
            "short",
            ("signalbox_plan_info", "{{solver}}, {{certificate}}"),
            ("signalbox_plan_installed", "installed"),
        ),
    ]


def _rules() -> list[Panel]:
    return [
        graph(
            "Pins and rules",
            "Paths that switches hold, and flows, groups and meters of all switches.",
            "short",
            ("signalbox_pins", "pins"),
            ("sum(signalbox_switch_rules)", "rules"),
            ("signalbox_circuits", "circuits"),
        ),
        graph(
            "Rules of others",
            "They are never touched; restored: rules of Signalbox that others changed, per minute.",
            "short",
            ("sum by (fabric, instance, switch) (signalbox_switch_foreign_rules) > 0", "{{switch}}"),
            ("60 * sum(rate(signalbox_healed_rules_total[5m]))", "restored"),
        ),
        graph(
            "Installing",
            "99th percentile of the time until switches have confirmed a stage of rule changes, and optical switches a "
            "change of circuits.",
            "s",
            ("signalbox:install_seconds:p99_rate15m", "99th percentile"),
            (
                "histogram_quantile(0.99, sum by (le) (rate(signalbox_circuit_change_seconds_bucket[15m])))",
                "circuits",
            ),
        ),
        graph(
            "Repairs",
            "New paths for virtual links that lost theirs: time to find them, and in all, of the latest repair.",
            "s",
            ("signalbox_repair_duration_seconds", "{{stage}}"),
            ("histogram_quantile(0.99, sum by (le) (rate(signalbox_repair_seconds_bucket[1h])))", "99th percentile"),
        ),
        graph(
            "Repairs and repaired flows",
            "Per minute.",
            "short",
            ("60 * rate(signalbox_repairs_total[1m])", "repairs"),
            ("60 * rate(signalbox_repaired_flows_total[1m])", "flows"),
        ),
        graph(
            "Alarms by kind",
            "Active ones; silenced: those that operators know of.",
            "short",
            ("sum by (kind) (signalbox_alarms) > 0", "{{kind}}"),
            ("sum(signalbox_silenced_alarms) or vector(0)", "silenced"),
        ),
    ]


def _api() -> list[Panel]:
    return [
        graph(
            "Calls per second",
            "By their status.",
            "reqps",
            ("code:signalbox_rpc:rate5m", "{{code}}"),
        ),
        graph(
            "Slowest methods",
            "99th percentile until the answer was there.",
            "s",
            (largest("method:signalbox_rpc_seconds:p99_rate5m", by="method"), "{{method}}"),
        ),
        graph(
            "Refused",
            "Per minute: connections of switches and scrapers.",
            "short",
            ("60 * sum by (reason) (rate(signalbox_refused_connections_total[5m]))", "OpenFlow: {{reason}}"),
            ("60 * sum by (reason) (rate(signalbox_metrics_refused_total[5m]))", "metrics: {{reason}}"),
        ),
    ]


def _counters() -> list[Panel]:
    return [
        graph(
            "Age of counters",
            "Of the switches and kinds of counters that were read longest ago, and of the oldest.",
            "s",
            (largest("signalbox_switch_counters_age_seconds", 5, "switch, kind"), "{{switch}} {{kind}}"),
            ("signalbox_counters_age_seconds", "the oldest"),
        ),
        graph(
            "Fullest tables",
            "Entries of flow, group and meter tables over their limits; from 90 % on an alarm. What does not "
            "fit is hashed.",
            "percentunit",
            (largest(f"{TABLE}entries / {TABLE}max_entries", by="switch, table"), "{{switch}} {{table}}"),
        ),
    ]


def _process() -> list[Panel]:
    return [
        graph(
            "Memory",
            "Of the controller's process.",
            "bytes",
            (f"process_resident_memory_bytes {OF_CONTROLLERS}", "resident"),
        ),
        graph(
            "CPU",
            "Of the controller's process.",
            "percentunit",
            (f"rate(process_cpu_seconds_total[1m]) {OF_CONTROLLERS}", "cores"),
        ),
        graph(
            "Processes that ended",
            "Per hour; each was started again.",
            "short",
            ("increase(signalbox_processes_ended_total[1h])", "{{process}}"),
        ),
        graph("Saved changes", "Commits per minute.", "short", ("60 * rate(signalbox_state_revision[1m])", "commits")),
        graph(
            "Configuration",
            "1: the latest SIGHUP changed nothing, because something was wrong.",
            "short",
            ("signalbox_reload_refused", "refused"),
        ),
        graph(
            "Certificates",
            "Time until each ends. Empty without TLS.",
            "s",
            ("signalbox_certificate_end_timestamp_seconds - time()", "{{listener}}"),
        ),
    ]
