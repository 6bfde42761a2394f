"""Dashboard of the whole fabric: its condition, full links, absent parts, slow jobs."""

from __future__ import annotations

from grafana_foundation_sdk.builders.dashboard import Dashboard
from grafana_foundation_sdk.models.common import BigValueTextMode

from pages.panels import (
    EFFICIENCY,
    NONE_IS_GOOD,
    PLAIN,
    Panel,
    graph,
    largest,
    listed,
    matrix,
    nodes,
    number,
    page,
    to_job,
)

LOADS = "link:signalbox_load:ratio_rate1m"


def build() -> Dashboard:
    return page(
        "signalbox-fabric",
        "Signalbox: fabric",
        {
            "Is everything well?": _overview(),
            "Links": _links(),
            "Topology": _topology(),
            "Jobs": _jobs(),
            "What is not there, or not carried": _missing(),
        },
    )


def _overview() -> list[Panel]:
    return [
        number(
            "Network efficiency",
            "Predicted efficiency of the worst job: 100 % is communication as fast as on an idle fabric; 0 while a job "
            "is not served. No value without jobs.",
            "percentunit",
            EFFICIENCY,
            ("signalbox_network_efficiency_ratio", "efficiency"),
        ),
        number(
            "Worst job",
            "The job with the least measured efficiency.",
            "percentunit",
            EFFICIENCY,
            ("bottomk(1, signalbox_job_efficiency_measured_ratio)", "{{job_id}}"),
            text=BigValueTextMode.VALUE_AND_NAME,
        ),
        number(
            "Worst slowdown: plan, bound, ECMP",
            "Slowdown of the worst job: in the plan, at best under any routing, and under ECMP on average.",
            "none",
            PLAIN,
            ("signalbox_plan_slowdown", "plan"),
            ("signalbox_plan_bound", "bound"),
            ("signalbox_ecmp_slowdown_mean", "ECMP"),
            width=8,
        ),
        number(
            "Switches out of sync",
            "Switches that do not hold exactly their rules.",
            "short",
            NONE_IS_GOOD,
            ("count(signalbox_switch_in_sync == 0) or vector(0)", "out of sync"),
        ),
        number(
            "Alarms",
            "Active alarms that are not silenced; signalbox status describes them.",
            "short",
            NONE_IS_GOOD,
            ("sum(signalbox_alarms)", "alarms"),
        ),
    ]


def _links() -> list[Panel]:
    return [
        graph(
            "Busiest links",
            "Load over capacity of the ten links between switches with the highest load in the range.",
            "percentunit",
            (largest(f'{LOADS}{{kind="fabric"}}'), "{{link}}"),
        ),
        graph(
            "Busiest NICs",
            "Load over capacity of the ten busiest host links. A full NIC limits its job under any routing.",
            "percentunit",
            (largest(f'{LOADS}{{kind="edge"}}'), "{{link}}"),
        ),
        graph(
            "Unannounced traffic",
            "Measured traffic that no job announced; it reduces the capacity for planning. Empty while there is none.",
            "bps",
            (f"8 * {largest('signalbox_link_background_bytes_per_second')}", "{{link}}"),
        ),
        graph(
            "Fullest link over time",
            "Highest load over capacity of the links between switches, and of the NICs.",
            "percentunit",
            ("kind:signalbox_load:max_rate1m", "{{kind}}"),
        ),
        graph(
            "Links, switches and hosts",
            "Directed links between switches in use, connected switches, known hosts.",
            "short",
            ("signalbox_links", "links"),
            ("signalbox_switches", "switches"),
            ("signalbox_hosts", "hosts"),
        ),
        graph(
            "Capacity in use",
            "Traffic and capacity of all links between switches together.",
            "bps",
            ('8 * sum(rate(signalbox_link_bytes_total{kind="fabric"}[1m]))', "carried"),
            ('8 * sum(signalbox_link_capacity_bytes_per_second{kind="fabric"})', "capacity"),
        ),
    ]


def _topology() -> list[Panel]:
    return [
        matrix(
            "Load from switch to switch",
            "Rows are the switches where links begin, columns where they end; of parallel links the fullest. Dark is "
            "empty, yellow full, as on a dark page of signalbox web. One per fabric.",
            f'max by (src, dst) ({LOADS}{{kind="fabric"}})',
            "src",
            "dst",
        ),
        nodes(
            "Switches and links",
            "A connected switch has the value 1, a link its load. Beyond about 250 links the table above is "
            "easier to read. One per fabric.",
            "signalbox_switch_up",
            f'topk(250, {LOADS}{{kind="fabric"}})',
        ),
    ]


def _jobs() -> list[Panel]:
    return [
        listed(
            "Slowest jobs",
            "Twenty jobs with the lowest measured efficiency. A click opens the dashboard of the job.",
            "percentunit",
            EFFICIENCY,
            "bottomk(20, signalbox_job_efficiency_measured_ratio)",
            "job_id",
            link=to_job(),
            least_first=True,
        ),
        listed(
            "Jobs that the routes slow most",
            "Twenty jobs with the highest slowdown: predicted communication time over their ideal time.",
            "none",
            PLAIN,
            "topk(20, signalbox_job_slowdown)",
            "job_id",
            link=to_job(),
        ),
        graph("Jobs by state", "Pending jobs wait for hosts.", "short", ("signalbox_jobs", "{{state}}")),
        graph(
            "Jobs that are not served",
            "Jobs that count as 0 in the network's efficiency, by the first reason that applies.",
            "short",
            ("signalbox_jobs_unserved", "{{reason}}"),
        ),
        graph(
            "Registrations that ended",
            "Ended registrations per minute, by reason.",
            "short",
            ("60 * rate(signalbox_jobs_ended_total[1m])", "{{reason}}"),
        ),
    ]


def _missing() -> list[Panel]:
    return [
        listed(
            "Down",
            "Switches, links and hosts that are known or declared, and absent.",
            "short",
            NONE_IS_GOOD,
            "1 - (signalbox_switch_up == 0 or signalbox_link_up == 0 or signalbox_host_up == 0)",
            "switch",
            "link",
            "host",
        ),
        listed(
            "Drained",
            "Drained components and their state; safe: the component can be removed.",
            "short",
            PLAIN,
            "signalbox_drained == 1",
            "part",
            "state",
        ),
        graph(
            "Drained switches and links",
            "Number of drained switches and directed links.",
            "short",
            ("count(signalbox_switch_drained) or vector(0)", "switches"),
            ("count(signalbox_link_drained) or vector(0)", "directed links"),
        ),
        graph(
            "Packets that are not carried",
            "Packets that switches drop because the fabric does not forward their kind.",
            "pps",
            ("sum by (kind) (rate(signalbox_dropped_packets_total[1m]))", "{{kind}}"),
        ),
        graph(
            "Refused by ports",
            "Refused packets to the controller per second: LLDP or ARP that was rejected, that exceeded the limit of "
            "its port, and that claimed addresses of other hosts.",
            "pps",
            ("sum by (reason) (rate(signalbox_refused_packets_total[1m]))", "{{reason}}"),
            ("sum(rate(signalbox_punt_drops_total[1m]))", "beyond the limit"),
            ("sum(rate(signalbox_refused_host_claims_total[1m]))", "claims"),
        ),
    ]
