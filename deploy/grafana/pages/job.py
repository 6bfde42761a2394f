"""The dashboard of one job: is it slow, is it the network, does it send what it announced."""

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
            "Ideal communication time over what the job reported, since its routes and bytes last changed. Above "
            "105 %: it announced too much.",
            "percentunit",
            EFFICIENCY,
            (f"signalbox_job_efficiency_measured_ratio{JOB}", "measured"),
        ),
        number(
            "Predicted",
            "Ideal communication time over what the running routes allow. Measured far below it: it is not the "
            "routing; "
            "signalbox explain says more.",
            "percentunit",
            EFFICIENCY,
            (f"signalbox_job_efficiency_predicted_ratio{JOB}", "predicted"),
        ),
        number(
            "Level",
            "How many times longer it communicates than alone on the fabric, by its routes.",
            "none",
            PLAIN,
            (f"signalbox_job_level{JOB}", "level"),
        ),
        number(
            "Pinned flows",
            "Virtual links with a path of their own, of all that it has.",
            "short",
            PLAIN,
            (f"signalbox_job_pinned_flows{JOB}", "pinned"),
            (f"signalbox_job_flows{JOB}", "of"),
        ),
        number(
            "Hosts not found",
            "It is pending while there are some.",
            "short",
            NONE_IS_GOOD,
            (f"signalbox_job_missing_hosts{JOB}", "hosts"),
        ),
        number(
            "Flows without a path",
            "The fabric has parted, or the port of a host is down.",
            "short",
            NONE_IS_GOOD,
            (f"signalbox_job_flows_without_path{JOB} or 0 * signalbox_job_flows{JOB}", "flows"),
        ),
    ]


def _over_time() -> list[Panel]:
    return [
        graph(
            "Communication of an iteration",
            "Latest reported, and alone on an idle fabric.",
            "s",
            (f"signalbox_job_communication_seconds{JOB}", "reported"),
            (f"signalbox_job_ideal_communication_seconds{JOB}", "ideal"),
        ),
        graph(
            "Efficiency",
            "Measured and predicted should agree. Below: other traffic, slow hosts, or lost packets.",
            "percentunit",
            (f"signalbox_job_efficiency_measured_ratio{JOB}", "measured"),
            (f"signalbox_job_efficiency_predicted_ratio{JOB}", "predicted"),
        ),
        graph(
            "Iterations per second",
            "As the job reports them.",
            "short",
            (f"rate(signalbox_job_iterations_total{JOB}[1m])", "iterations"),
        ),
        graph(
            "Routes",
            "Virtual links, those that are pinned, and their pieces.",
            "short",
            (f"signalbox_job_flows{JOB}", "virtual links"),
            (f"signalbox_job_pinned_flows{JOB}", "pinned"),
            (f"signalbox_job_subflows{JOB}", "subflows"),
        ),
        graph(
            "Moves and repairs of all jobs",
            "Flows per minute that plans moved, and that repairs gave new paths; each may delay the job for a moment.",
            "short",
            ("60 * rate(signalbox_moved_flows_total[1m])", "moved"),
            ("60 * rate(signalbox_repaired_flows_total[1m])", "repaired"),
        ),
        graph(
            "Communication of iterations of all jobs",
            "Mean, and the 99th percentile to a quarter of it, to compare with.",
            "s",
            (f"sum(rate({ITERATIONS}_sum[5m])) / sum(rate({ITERATIONS}_count[5m]))", "mean"),
            (f"histogram_quantile(0.99, sum by (le) (rate({ITERATIONS}_bucket[5m])))", "99th percentile"),
        ),
    ]


def _demand() -> list[Panel]:
    return [
        graph(
            "Payload",
            "As switches count it; signalbox jobs show has it by pair, beside what was announced.",
            "bps",
            (f"8 * signalbox_job_payload_bytes_per_second{JOB}", "payload"),
        ),
        graph(
            "Not announced",
            "Share of it on pairs of hosts, or in directions, that the job did not announce.",
            "percentunit",
            (f"signalbox_job_undeclared_ratio{JOB}", "not announced"),
        ),
        graph(
            "What it is planned for",
            "1 for the source of the bytes that its routes are planned for; whether they differ from the "
            "announcement, and by what factor if all pairs share one; whether pairs of hosts are being learnt. "
            "declared, provisional, learning: not yet confirmed by counters.",
            "short",
            (f"signalbox_job_demand_source{JOB}", "{{source}}"),
            (f"signalbox_job_demand_factor{JOB}", "counted / announced"),
            (f"signalbox_job_demand_differs{JOB}", "differs"),
            (f"signalbox_job_learning{JOB}", "learning"),
        ),
    ]
