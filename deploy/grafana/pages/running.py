"""Dashboard of the controller itself: plans, rules, counters, API, processes and saved state."""

from __future__ import annotations

from grafana_foundation_sdk.builders.dashboard import Dashboard
from grafana_foundation_sdk.models.common import BigValueTextMode

from pages.panels import BLUE, GREEN, NONE_IS_GOOD, PLAIN, RED, Panel, graph, largest, number, page, thresholds

OF_CONTROLLERS = "and on (fabric, instance) signalbox_build_info"
"""PromQL suffix that selects the controllers among the processes that Prometheus scrapes."""
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
            "1 while Prometheus reaches every controller that it has reached within the last day.",
            "short",
            thresholds((None, RED), (1, GREEN)),
            ("min(up and on (job, instance) last_over_time(signalbox_build_info[1d]))", "up"),
        ),
        number(
            "Version",
            "Version of the controller.",
            "short",
            PLAIN,
            ("signalbox_build_info", "{{version}}"),
            text=BigValueTextMode.NAME,
        ),
        number(
            "Mode",
            "Mode in force: what the controller does with plans.",
            "short",
            PLAIN,
            ("signalbox_mode == 1", "{{mode}}"),
            text=BigValueTextMode.NAME,
        ),
        number(
            "Adopting",
            "1 while a restarted controller adopts the rules of its switches; it removes none meanwhile.",
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
            "Commits to the state directory that failed within the last hour.",
            "short",
            NONE_IS_GOOD,
            ("increase(signalbox_state_failed_commits_total[1h])", "failed"),
        ),
    ]


def _plans() -> list[Panel]:
    return [
        graph(
            "Worst slowdown",
            "The plan should lie between its bound and ECMP's mean; above ECMP's mean it raises an alarm.",
            "none",
            ("signalbox_plan_slowdown", "plan"),
            ("signalbox_plan_bound", "bound"),
            ("signalbox_ecmp_slowdown_mean", "ECMP mean"),
            ("signalbox_ecmp_slowdown_p95", "ECMP 95th percentile"),
            ('signalbox_baseline_slowdown{scheme!="ecmp"}', "{{scheme}}"),
        ),
        graph(
            "Gap to the bound",
            "Slowdown of the plan over its bound, less 1; at 0 the plan is proven optimal.",
            "percentunit",
            ("signalbox_plan_gap_ratio", "gap"),
        ),
        graph(
            "Planning time",
            "Time for the latest plan by stage, and the 99th percentile of all plans of the last 15 minutes.",
            "s",
            ("signalbox_plan_duration_seconds", "{{stage}}"),
            ("signalbox:plan_seconds:p99_rate15m", "99th percentile, all stages"),
        ),
        graph(
            "Slowdowns proven",
            "Job slowdowns, counted from the worst, that are proven optimal: over all shortest paths, and over "
            "candidate paths only if these are more.",
            "short",
            ("signalbox_plan_slowdowns_proven", "over all paths"),
            ("signalbox_plan_slowdowns_proven_listed", "over candidate paths"),
            ("signalbox_plan_candidates_listed", "candidate paths per pair"),
        ),
        graph(
            "Plans and moves per minute",
            "Many moves while neither fabric nor jobs change mean that the plans flap.",
            "short",
            ("60 * rate(signalbox_plans_total[1m])", "plans"),
            ("60 * rate(signalbox_moved_flows_total[1m])", "moved flows"),
        ),
        graph(
            "Age of the latest plan",
            "While jobs run, the controller plans every planning.interval_s.",
            "s",
            ("signalbox_plan_age_seconds", "age"),
        ),
        graph(
            "Moves left",
            "Moves from the plan to its goal plan, which needs more moves than one cycle may make; blocked: moves that "
            "must be made together.",
            "short",
            ("signalbox_plan_moves_left", "left"),
            ("signalbox_plan_blocked_flows", "blocked"),
        ),
        graph(
            "Flows in the plan",
            "Subflows of the planned virtual links, and virtual links without a path.",
            "short",
            ("signalbox_plan_subflows", "subflows"),
            ("signalbox_plan_unrouted_flows", "without a path"),
        ),
        graph(
            "What found the plan",
            "1 for the stage that found the latest plan and its certificate; installed: 1 when it is on the switches.",
            "short",
            ("signalbox_plan_info", "{{solver}}, {{certificate}}"),
            ("signalbox_plan_installed", "installed"),
        ),
    ]


def _rules() -> list[Panel]:
    return [
        graph(
            "Pins and rules",
            "Pinned paths, and flow entries, groups and meters of all switches.",
            "short",
            ("signalbox_pins", "pins"),
            ("sum(signalbox_switch_rules)", "rules"),
            ("signalbox_circuits", "circuits"),
        ),
        graph(
            "Rules of others",
            "Rules of others, which Signalbox never changes; restored: its own rules that others changed, per minute.",
            "short",
            ("sum by (fabric, instance, switch) (signalbox_switch_foreign_rules) > 0", "{{switch}}"),
            ("60 * sum(rate(signalbox_healed_rules_total[5m]))", "restored"),
        ),
        graph(
            "Installing",
            "99th percentile of the time until switches confirmed a stage of rule changes, and optical switches a "
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
            "Latest repair of lost paths: time to find new paths, and total time; 99th percentile of the total time.",
            "s",
            ("signalbox_repair_duration_seconds", "{{stage}}"),
            ("histogram_quantile(0.99, sum by (le) (rate(signalbox_repair_seconds_bucket[1h])))", "99th percentile"),
        ),
        graph(
            "Repairs and repaired flows",
            "Repairs, and virtual links that they moved, per minute.",
            "short",
            ("60 * rate(signalbox_repairs_total[1m])", "repairs"),
            ("60 * rate(signalbox_repaired_flows_total[1m])", "flows"),
        ),
        graph(
            "Alarms by kind",
            "Active alarms; silenced: alarms that operators have silenced.",
            "short",
            ("sum by (kind) (signalbox_alarms) > 0", "{{kind}}"),
            ("sum(signalbox_silenced_alarms) or vector(0)", "silenced"),
        ),
    ]


def _api() -> list[Panel]:
    return [
        graph(
            "Calls per second",
            "API calls by status code, without streams.",
            "reqps",
            ("code:signalbox_rpc:rate5m", "{{code}}"),
        ),
        graph(
            "Slowest methods",
            "99th percentile of the time until the answer.",
            "s",
            (largest("method:signalbox_rpc_seconds:p99_rate5m", by="method"), "{{method}}"),
        ),
        graph(
            "Refused",
            "Refused connections of switches and scrapers per minute.",
            "short",
            ("60 * sum by (reason) (rate(signalbox_refused_connections_total[5m]))", "OpenFlow: {{reason}}"),
            ("60 * sum by (reason) (rate(signalbox_metrics_refused_total[5m]))", "metrics: {{reason}}"),
        ),
    ]


def _counters() -> list[Panel]:
    return [
        graph(
            "Age of counters",
            "Age of the oldest counters: the five largest by switch and kind, and the largest of all.",
            "s",
            (largest("signalbox_switch_counters_age_seconds", 5, "switch, kind"), "{{switch}} {{kind}}"),
            ("signalbox_counters_age_seconds", "the oldest"),
        ),
        graph(
            "Fullest tables",
            "Entries of flow, group and meter tables over their limits; an alarm begins at 90 %. Flows that do not "
            "fit are hashed.",
            "percentunit",
            (largest(f"{TABLE}entries / {TABLE}max_entries", by="switch, table"), "{{switch}} {{table}}"),
        ),
    ]


def _process() -> list[Panel]:
    return [
        graph(
            "Members",
            "Which controller is active, whether each knows it, and the age of what it knows; the last two with etcd.",
            "short",
            ("signalbox_active", "{{instance}} active"),
            ("signalbox_leader_known", "{{instance}} knows the active one"),
            ("signalbox_members_age_seconds", "{{instance}} age"),
        ),
        graph(
            "Leader changes",
            "Controllers that became active per hour, among members that serve metrics while they stand by.",
            "short",
            ("sum without (instance) (changes(signalbox_active[1h]) - resets(signalbox_active[1h]))", "{{fabric}}"),
        ),
        graph(
            "etcd",
            "Members of etcd that know a leader of etcd, and the fullest database over its quota, of every etcd that "
            "Prometheus scrapes. At 100 % etcd refuses all changes.",
            "percentunit",
            ('avg(etcd_server_has_leader{fabric=~"$fabric"})', "members that know a leader"),
            (
                'max(etcd_mvcc_db_total_size_in_bytes{fabric=~"$fabric"} '
                '/ etcd_server_quota_backend_bytes{fabric=~"$fabric"})',
                "fullest database",
            ),
        ),
        graph(
            "Memory",
            "Resident memory of the controller's process.",
            "bytes",
            (f"process_resident_memory_bytes {OF_CONTROLLERS}", "resident"),
        ),
        graph(
            "CPU",
            "Processor cores that the controller's process uses.",
            "percentunit",
            (f"rate(process_cpu_seconds_total[1m]) {OF_CONTROLLERS}", "cores"),
        ),
        graph(
            "Processes that ended",
            "Planning processes that ended per hour; the controller replaced each.",
            "short",
            ("increase(signalbox_processes_ended_total[1h])", "{{process}}"),
        ),
        graph("Saved changes", "Commits per minute.", "short", ("60 * rate(signalbox_state_revision[1m])", "commits")),
        graph(
            "Configuration",
            "1 when the latest SIGHUP changed nothing because a file was wrong.",
            "short",
            ("signalbox_reload_refused", "refused"),
        ),
        graph(
            "Certificates",
            "Time until the certificate of each listener ends; empty without TLS.",
            "s",
            ("signalbox_certificate_end_timestamp_seconds - time()", "{{listener}}"),
        ),
    ]
