"""Dashboard of one job: whether it is slow, whether the network slows it, whether it sends what it announced."""

from __future__ import annotations

from grafana_foundation_sdk.builders.dashboard import Dashboard

from pages.panels import EFFICIENCY, NONE_IS_GOOD, PLAIN, Panel, graph, number, one_job, page

ITERATIONS = "signalbox_iteration_communication_seconds"
JOB = '{job_id="$job"}'


def build() -> Dashboard:
    return page(
        "signalbox-job",
        "Signalbox: job",
        {"Is it slow, and is it the network?": _overview(), "Over time": _over_time(), "What it sends": _demand()},
        one_job(),
    )


def _overview() -> list[Panel]:
    return [
        number(
            "Measured",
            "Ideal over reported communication time since its routes and bytes last changed. Above "
            "105 % the job has announced too many bytes.",
            "percentunit",
            EFFICIENCY,
            (f"signalbox_job_efficiency_measured_ratio{JOB}", "measured"),
        ),
        number(
            "Predicted",
            "Ideal communication time over the time that the installed routes allow. If the measured efficiency is far "
            "lower, the routes are not the cause; signalbox explain says more.",
            "percentunit",
            EFFICIENCY,
            (f"signalbox_job_efficiency_predicted_ratio{JOB}", "predicted"),
        ),
        number(
            "Slowdown",
            "Predicted communication time on its routes, over the ideal time.",
            "none",
            PLAIN,
            (f"signalbox_job_slowdown{JOB}", "slowdown"),
        ),
        number(
            "Pinned flows",
            "Virtual links that are pinned to a path, and all virtual links.",
            "short",
            PLAIN,
            (f"signalbox_job_pinned_flows{JOB}", "pinned"),
            (f"signalbox_job_flows{JOB}", "of"),
        ),
        number(
            "Hosts not found",
            "Hosts of the job that have not been found; until then it is pending.",
            "short",
            NONE_IS_GOOD,
            (f"signalbox_job_missing_hosts{JOB}", "hosts"),
        ),
        number(
            "Flows without a path",
            "Virtual links without a path: the fabric is partitioned, or the port of a host is down.",
            "short",
            NONE_IS_GOOD,
            (f"signalbox_job_flows_without_path{JOB} or 0 * signalbox_job_flows{JOB}", "flows"),
        ),
    ]


def _over_time() -> list[Panel]:
    return [
        graph(
            "Communication of an iteration",
            "Latest reported communication time, and the ideal time.",
            "s",
            (f"signalbox_job_communication_seconds{JOB}", "reported"),
            (f"signalbox_job_ideal_communication_seconds{JOB}", "ideal"),
        ),
        graph(
            "Efficiency",
            "Both should agree. A lower measured value shows other traffic, slow hosts, or lost packets.",
            "percentunit",
            (f"signalbox_job_efficiency_measured_ratio{JOB}", "measured"),
            (f"signalbox_job_efficiency_predicted_ratio{JOB}", "predicted"),
        ),
        graph(
            "Iterations per second",
            "Iterations that the job reports per second.",
            "short",
            (f"rate(signalbox_job_iterations_total{JOB}[1m])", "iterations"),
        ),
        graph(
            "Routes",
            "Virtual links, pinned virtual links, and their subflows.",
            "short",
            (f"signalbox_job_flows{JOB}", "virtual links"),
            (f"signalbox_job_pinned_flows{JOB}", "pinned"),
            (f"signalbox_job_subflows{JOB}", "subflows"),
        ),
        graph(
            "Moves and repairs of all jobs",
            "Flows per minute that plans or repairs moved to other paths; each move may delay the job for a moment.",
            "short",
            ("60 * rate(signalbox_moved_flows_total[1m])", "moved"),
            ("60 * rate(signalbox_repaired_flows_total[1m])", "repaired"),
        ),
        graph(
            "Communication of iterations of all jobs",
            "Mean and approximate 99th percentile, for comparison.",
            "s",
            (f"sum(rate({ITERATIONS}_sum[5m])) / sum(rate({ITERATIONS}_count[5m]))", "mean"),
            (f"histogram_quantile(0.99, sum by (le) (rate({ITERATIONS}_bucket[5m])))", "99th percentile"),
        ),
    ]


def _demand() -> list[Panel]:
    return [
        graph(
            "Payload",
            "Payload as counted by switches; signalbox jobs show compares it with the announcement for each pair.",
            "bps",
            (f"8 * signalbox_job_payload_bytes_per_second{JOB}", "payload"),
        ),
        graph(
            "Not announced",
            "Share of the payload on pairs of hosts or directions that the job did not announce.",
            "percentunit",
            (f"signalbox_job_undeclared_ratio{JOB}", "not announced"),
        ),
        graph(
            "What it is planned for",
            "1 for the source of the bytes that its routes are planned for; whether these differ from the "
            "announcement, by which factor if all pairs share one, and whether pairs of hosts are being learnt. "
            "Counters have not confirmed the sources declared, provisional and learning.",
            "short",
            (f"signalbox_job_demand_source{JOB}", "{{source}}"),
            (f"signalbox_job_demand_factor{JOB}", "counted / announced"),
            (f"signalbox_job_demand_differs{JOB}", "differs"),
            (f"signalbox_job_learning{JOB}", "learning"),
        ),
    ]
