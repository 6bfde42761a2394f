"""The dashboard of the whole fabric: is everything well, which links are full, what is down, which jobs are slow."""

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
            "Worst level: plan, bound, ECMP",
            "Slow-down of the worst job: by the plan, the least that is possible, and what hashing gives on average.",
            "none",
            PLAIN,
            ("signalbox_plan_level", "plan"),
            ("signalbox_plan_bound", "bound"),
            ("signalbox_ecmp_level_mean", "ECMP"),
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
            "Those that operators do not know of; signalbox status words them.",
            "short",
            NONE_IS_GOOD,
            ("sum(signalbox_alarms)", "alarms"),
        ),
    ]


def _links() -> list[Panel]:
    return [
        graph(
            "Busiest links",
            "Load over capacity of the ten links between switches that were the fullest in the range.",
            "percentunit",
            (largest(f'{LOADS}{{kind="fabric"}}'), "{{link}}"),
        ),
        graph(
            "Busiest NICs",
            "The same of the cables of hosts. A NIC that is full limits its job, whatever the routes.",
            "percentunit",
            (largest(f'{LOADS}{{kind="edge"}}'), "{{link}}"),
        ),
        graph(
            "Unannounced traffic",
            "Measured traffic that no job announced; it shrinks what the planner may use. Empty while there is none.",
            "bps",
            (f"8 * {largest('signalbox_link_background_bytes_per_second')}", "{{link}}"),
        ),
        graph(
            "Fullest link over time",
            "The largest load over capacity, of links between switches and of NICs.",
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
            "Of all links between switches together: what they carry, and what they could.",
            "bps",
            ('8 * sum(rate(signalbox_link_bytes_total{kind="fabric"}[1m]))', "carried"),
            ('8 * sum(signalbox_link_capacity_bytes_per_second{kind="fabric"})', "capacity"),
        ),
    ]


def _topology() -> list[Panel]:
    return [
        matrix(
            "Load from switch to switch",
            "A row is where a link begins, a column where it ends; of parallel links the fullest. Dark is "
            "empty, yellow full, as on a dark page of signalbox web. One per fabric.",
            f'max by (src, dst) ({LOADS}{{kind="fabric"}})',
            "src",
            "dst",
        ),
        nodes(
            "Switches and links",
            "1 is a switch that is connected; on links their load. Beyond some 250 links the table above is "
            "easier to read. One per fabric.",
            "signalbox_switch_up",
            f'topk(250, {LOADS}{{kind="fabric"}})',
        ),
    ]


def _jobs() -> list[Panel]:
    return [
        listed(
            "Slowest jobs",
            "The twenty with the least measured efficiency. A click leads to the dashboard of the job.",
            "percentunit",
            EFFICIENCY,
            "bottomk(20, signalbox_job_efficiency_measured_ratio)",
            "job_id",
            link=to_job(),
            least_first=True,
        ),
        listed(
            "Jobs that the routes slow most",
            "The twenty with the largest level: how many times longer they communicate than alone.",
            "none",
            PLAIN,
            "topk(20, signalbox_job_level)",
            "job_id",
            link=to_job(),
        ),
        graph("Jobs by state", "Pending jobs wait for hosts.", "short", ("signalbox_jobs", "{{state}}")),
        graph(
            "Jobs that are not served",
            "They count 0 in the network's efficiency, each by the first reason that holds.",
            "short",
            ("signalbox_jobs_unserved", "{{reason}}"),
        ),
        graph(
            "Registrations that ended",
            "Per minute, by how.",
            "short",
            ("60 * rate(signalbox_jobs_ended_total[1m])", "{{reason}}"),
        ),
    ]


def _missing() -> list[Panel]:
    return [
        listed(
            "Down",
            "Switches, links and hosts that were there, or are declared, and are not there.",
            "short",
            NONE_IS_GOOD,
            "1 - (signalbox_switch_up == 0 or signalbox_link_up == 0 or signalbox_host_up == 0)",
            "switch",
            "link",
            "host",
        ),
        listed(
            "Drained",
            "Parts that are taken out of use, and how far that is; safe: can be pulled.",
            "short",
            PLAIN,
            "signalbox_drained == 1",
            "part",
            "state",
        ),
        graph(
            "Drained switches and links",
            "How many.",
            "short",
            ("count(signalbox_switch_drained) or vector(0)", "switches"),
            ("count(signalbox_link_drained) or vector(0)", "directed links"),
        ),
        graph(
            "Packets that are not carried",
            "What switches drop because Signalbox does not forward its kind.",
            "pps",
            ("sum by (kind) (rate(signalbox_dropped_packets_total[1m]))", "{{kind}}"),
        ),
        graph(
            "Refused by ports",
            "Packets to the controller per second: LLDP or ARP that was rejected, that was beyond the limit of "
            "its port, and "
            "that claimed addresses of other hosts.",
            "pps",
            ("sum by (reason) (rate(signalbox_refused_packets_total[1m]))", "{{reason}}"),
            ("sum(rate(signalbox_punt_drops_total[1m]))", "beyond the limit"),
            ("sum(rate(signalbox_refused_host_claims_total[1m]))", "claims"),
        ),
    ]
