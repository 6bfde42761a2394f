"""Metrics that Prometheus reads, computed from the published ``Status``. ``FAMILIES`` is the complete list.

The series of a switch, link or job disappear with it. Only series ending in ``_up`` stay, with the value 0, until the
part returns or is forgotten. Other modules measure durations and publish them (``controller.shared_map``).

Names follow the Prometheus rules: base units (bytes, seconds, ratios), ``_total`` for counters, names as labels rather
than ids.
"""

from __future__ import annotations

from importlib.metadata import version

from controller.observability import samples
from controller.observability.shapes import (
    Family,
    LinkLabels,
    histogram,
    of_plan,
    one,
    per_demand,
    per_job,
    per_port,
    per_switch,
    per_timing,
)
from signalbox.words import Mode

VERSION = version("signalbox-controller")


FAMILIES: tuple[Family, ...] = (
    Family("signalbox_build_info", "Always 1; the version is a label.", lambda _: [((VERSION,), 1)], ("version",)),
    Family(
        "signalbox_mode",
        "1 for the mode in force, 0 for the others.",
        lambda snapshot: [((mode.value,), mode == snapshot.status.mode) for mode in Mode],
        ("mode",),
    ),
    one("signalbox_adopting", "1 while a restarted controller adopts the rules it finds.", lambda s: s.adopting),
    Family(
        "signalbox_alarms",
        "Active alarms by kind; signalbox status lists them.",
        samples.alarms,
        ("kind", "severity"),
    ),
    Family(
        "signalbox_silenced_alarms",
        "Active alarms that operators have silenced; kinds without any have no series.",
        samples.silenced_alarms,
        ("kind", "severity"),
    ),
    Family(
        "signalbox_reload_refused",
        "1 when the latest SIGHUP, or the take-over of a standby, found a wrong file and kept the former settings; "
        "the log names the problems.",
        lambda snapshot: [((), snapshot.board.reload_refused)],
    ),
    Family(
        "signalbox_standby",
        "1 while another controller on this machine waits to take over.",
        lambda snapshot: [((), snapshot.board.has_standby())],
    ),
    Family(
        "signalbox_active",
        "1 while this controller controls the switches, 0 while it stands by.",
        lambda snapshot: [((), not snapshot.board.stands_by)],
    ),
    Family(
        "signalbox_leader_known",
        "1 while this controller knows which member is active; no series without etcd.",
        lambda snapshot: [((), one.leader() is not None) for one in samples.membership(snapshot)],
    ),
    Family(
        "signalbox_members_age_seconds",
        "Age of the list of members, as read from etcd; no series without etcd.",
        lambda snapshot: [((), snapshot.now - one.newest.began) for one in samples.membership(snapshot)],
    ),
    Family(
        "signalbox_member_switches",
        "Switches that the member holds: they have confirmed it as their OpenFlow master; no series at standbys and "
        "without etcd.",
        samples.member_switches,
        ("member",),
    ),
    Family(
        "signalbox_member_assigned_switches",
        "Switches that the leader has assigned to the member; no series at standbys and without etcd.",
        samples.member_assigned_switches,
        ("member",),
    ),
    Family(
        "signalbox_member_draining",
        "1 while the member is draining, so that it should hold no switch; no series at standbys and without etcd.",
        samples.member_draining,
        ("member",),
    ),
    Family(
        "signalbox_member_refused_total",
        "Claims and writes of the member, refused by switches because another controller is their master, since the "
        "start of this leader; no series at standbys and without etcd.",
        samples.member_refused,
        ("member",),
    ),
    one(
        "signalbox_masterships_lost_total",
        "Claims and writes of this controller that switches refused because another controller is their master.",
        lambda s: s.masterships_lost,
    ),
    Family(
        "signalbox_processes_ended_total",
        "Processes of the controller that were replaced because they ended or did not reply in time; the log says why.",
        lambda snapshot: [(("planning",), snapshot.board.planning_replaced())],
        ("process",),
    ),
    Family(
        "signalbox_certificate_end_timestamp_seconds",
        "End of the listener's own certificate, in seconds since 1970; listeners without TLS have no series.",
        lambda snapshot: (((listener,), end) for listener, end in snapshot.board.certificates_end.items()),
        ("listener",),
    ),
    one(
        "signalbox_network_efficiency_ratio",
        "1 / slowdown of the worst job; 0 while a job is not served, no series while no slowdown is known.",
        lambda s: s.network_efficiency,
    ),
    # switches
    one("signalbox_switches", "Connected switches.", lambda s: len(s.fabric.switches)),
    per_switch("signalbox_switch_in_sync", "1 when the switch has exactly its intended rules.", lambda s: s.in_sync),
    per_switch(
        "signalbox_switch_rules",
        "Flows, groups and meters of Signalbox on the switch.",
        samples.if_read(lambda s: s.rules),
    ),
    per_switch(
        "signalbox_switch_foreign_rules",
        "Foreign flows, groups and meters on the switch; Signalbox never changes them.",
        samples.if_read(lambda s: s.foreign_rules),
    ),
    per_switch(
        "signalbox_healed_rules_total",
        "Rules that Signalbox restored after another program had removed, changed or added rules.",
        lambda s: s.healed_rules,
    ),
    Family(
        "signalbox_refused_connections_total", "Refused OpenFlow connections.", samples.refused_connections, ("reason",)
    ),
    Family(
        "signalbox_refused_packets_total",
        "Rejected LLDP and ARP packets from the port.",
        samples.refused_packets,
        ("switch", "port", "reason"),
    ),
    per_port(
        "signalbox_refused_host_claims_total",
        "ARP packets from the port that claimed the address of a host at another port.",
        lambda s: s.refused_claims,
    ),
    per_port(
        "signalbox_punt_drops_total",
        "LLDP and ARP packets from the port that its meter dropped; ports without drops have no series.",
        lambda s: s.punt_drops,
    ),
    Family(
        "signalbox_dropped_packets_total",
        "Packets of kinds that the fabric does not forward, dropped by the switch; no series before the first reading.",
        samples.dropped_packets,
        ("switch", "kind"),
    ),
    Family(
        "signalbox_switch_table_entries",
        "Entries in the flow, group or meter table, including foreign ones; no series if their number is unknown.",
        samples.table_entries,
        ("switch", "table"),
    ),
    Family(
        "signalbox_switch_table_max_entries",
        "Entries that fit into the table; no series if their number is unknown.",
        samples.table_max_entries,
        ("switch", "table"),
    ),
    Family(
        "signalbox_rpc_seconds",
        "Duration of API calls by method and status code, without streams.",
        labels=("method", "code"),
        histograms=lambda snapshot: snapshot.board.call_times.items(),
    ),
    Family(
        "signalbox_metrics_refused_total",
        "Refused connections of scrapers.",
        lambda snapshot: (((reason,), count) for reason, count in snapshot.board.metrics_refused.items()),
        ("reason",),
    ),
    one(
        "signalbox_state_revision",
        "Revision of the saved state; it grows with each commit.",
        lambda s: s.state_revision,
    ),
    one(
        "signalbox_state_failed_commits_total",
        "Commits to the saved state that failed; the controller refused their changes.",
        lambda s: s.state_failures,
    ),
    Family(
        "signalbox_drained",
        "State of a drained component: 1 for its current state; components in use have no series.",
        lambda snapshot: (((drain.name, drain.state), 1) for drain in snapshot.status.drains.values()),
        ("part", "state"),
    ),
    Family(
        "signalbox_counters_age_seconds", "Age of the oldest port or flow counters of any switch.", samples.counters_age
    ),
    Family(
        "signalbox_switch_counters_age_seconds",
        "Age of the latest port counters and flow counters of the switch.",
        samples.switch_counters_age,
        ("switch", "kind"),
    ),
    # links
    one("signalbox_hosts", "Known hosts.", lambda s: len(s.fabric.hosts)),
    one("signalbox_links", "Directed links in use between switches.", lambda s: len(s.fabric.links)),
    Family(
        "signalbox_link_capacity_bytes_per_second", "Capacity of the link.", samples.link_capacity, LinkLabels._fields
    ),
    Family(
        "signalbox_link_bytes_total",
        "Bytes sent over the link, counted at the port of its switch; no series while the counter is out of date.",
        samples.link_bytes,
        LinkLabels._fields,
    ),
    Family(
        "signalbox_link_background_bytes_per_second",
        "Measured traffic on the link that no job announced; no series if there is none.",
        samples.link_background,
        LinkLabels._fields,
    ),
    Family(
        "signalbox_switch_up", "1 while the switch is connected, 0 while it is down.", samples.switch_up, ("switch",)
    ),
    Family(
        "signalbox_switch_drained",
        "1 for a drained switch, connected or not; others have no series.",
        samples.switch_drained,
        ("switch",),
    ),
    Family(
        "signalbox_link_drained",
        "1 for a link of a drained cable or switch, up or down; others have no series.",
        samples.link_drained,
        LinkLabels._fields,
    ),
    Family("signalbox_link_up", "1 while the link is in use, 0 while it is down.", samples.link_up, LinkLabels._fields),
    Family(
        "signalbox_host_up",
        "1 while the port of the host is up, 0 while it is down; only for hosts that a job or the inventory names.",
        samples.host_up,
        ("host", "switch"),
    ),
    # jobs
    Family("signalbox_jobs", "Jobs by state.", samples.jobs, ("state",)),
    Family(
        "signalbox_jobs_unserved",
        "Jobs that count as 0 in the network's efficiency, by reason.",
        samples.jobs_unserved,
        ("reason",),
    ),
    Family(
        "signalbox_jobs_ended_total",
        "Registrations of jobs that have ended, by reason.",
        samples.jobs_ended,
        ("reason",),
    ),
    per_job("signalbox_job_flows", "Virtual links of the job.", lambda j: len(j.routes)),
    per_job("signalbox_job_pinned_flows", "Virtual links of the job that are pinned to a path.", lambda j: j.pinned),
    per_job("signalbox_job_subflows", "Subflows of the job's pinned virtual links.", lambda j: j.subflows),
    per_job(
        "signalbox_job_missing_hosts", "Hosts of the job that have not been found yet.", lambda j: len(j.missing_hosts)
    ),
    per_job(
        "signalbox_job_flows_without_path",
        "Virtual links between hosts that the fabric does not connect; no series if there are none.",
        lambda j: j.flows_without_path or None,
    ),
    # In the status of a job, 0 stands for an unknown value.
    per_job(
        "signalbox_job_slowdown",
        "Predicted slowdown of the job's communication compared with an idle fabric; 1 is ideal.",
        lambda j: j.slowdown or None,
    ),
    per_job(
        "signalbox_job_efficiency_predicted_ratio",
        "Ideal communication time of the job divided by the time that its routes allow; 0 when it is not served.",
        lambda j: j.efficiency_predicted,
    ),
    per_job(
        "signalbox_job_efficiency_measured_ratio",
        "Ideal / reported communication time of iterations that began with the routes and bytes in force; no "
        "series before the first such report.",
        lambda j: j.efficiency_measured or None,
    ),
    per_job(
        "signalbox_job_ideal_communication_seconds",
        "Communication time of one iteration of the job alone on an idle fabric.",
        lambda j: j.ideal_communication_s or None,
    ),
    per_job(
        "signalbox_job_communication_seconds",
        "Communication time of the latest reported iteration.",
        lambda j: j.last_communication_s or None,
    ),
    per_job("signalbox_job_iterations_total", "Iterations reported.", lambda j: j.iterations),
    per_timing(
        "signalbox_slot_waits_seconds_total", "Time that the job has waited for its slots.", lambda t: t.waited_s
    ),
    per_timing(
        "signalbox_slot_drift_seconds",
        "Usual time by which iterations of the job begin too early for its slot; no series without a slot.",
        lambda t: t.drift_s,
    ),
    per_timing(
        "signalbox_slot_realignments_total", "Number of times that the job has left its slot.", lambda t: t.realignments
    ),
    per_timing("signalbox_job_class", "Class of the job's packets; 1 goes first.", lambda t: t.traffic_class),
    histogram(
        "signalbox_iteration_communication_seconds",
        "Communication times of the iterations that jobs reported.",
        lambda s: s.communication_times,
    ),
    per_demand(
        "signalbox_job_payload_bytes_per_second",
        "Payload of the job as counted by switches; no series before a window is full.",
        lambda d: float(d.measurement.bps.sum()) / samples.BITS_PER_BYTE if d.measurement else None,
    ),
    per_demand(
        "signalbox_job_undeclared_ratio",
        "Share of the job's payload on pairs or directions that it did not announce.",
        lambda d: d.measurement.undeclared_fraction if d.measurement else None,
    ),
    per_demand(
        "signalbox_job_demand_differs",
        "1 while the job sends other traffic, or other amounts, than it announced.",
        lambda d: d.contradicted,
    ),
    per_demand(
        "signalbox_job_demand_factor",
        "Counted / announced bytes, if this ratio is the same for all announced pairs of the job; otherwise no series.",
        lambda d: d.difference.factor if d.difference else None,
    ),
    per_demand(
        "signalbox_job_learning",
        "1 while switches count all pairs of the job's hosts, unless they only check the announcement of a new job.",
        lambda d: d.learning,
    ),
    Family(
        "signalbox_job_demand_source",
        "Always 1; a label names the source of the bytes that the job is planned for.",
        samples.demand_source,
        ("job_id", "source"),
    ),
    # planner
    one("signalbox_plans_total", "Plans made.", lambda s: s.plans_total),
    Family(
        "signalbox_plan_info",
        "Always 1; labels name the solver that found the latest plan, and its certificate.",
        samples.plan_info,
        ("solver", "certificate"),
    ),
    of_plan("signalbox_plan_slowdown", "Worst job slowdown of the latest plan.", lambda p: p.max_slowdown),
    of_plan("signalbox_plan_bound", "Lower bound of the worst job slowdown under any routing.", lambda p: p.bound),
    of_plan("signalbox_plan_gap_ratio", "Worst slowdown of the plan / its lower bound, minus 1.", lambda p: p.gap),
    of_plan(
        "signalbox_plan_slowdowns_proven",
        "Number of job slowdowns proven optimal, from the worst one on.",
        lambda p: p.slowdowns_proven,
    ),
    of_plan(
        "signalbox_plan_slowdowns_proven_listed",
        "Number of job slowdowns proven optimal over candidate paths, if more than over all shortest paths; else 0.",
        lambda p: p.slowdowns_proven_listed,
    ),
    of_plan(
        "signalbox_plan_candidates_listed",
        "Largest number of candidate paths per pair of switches, if slowdowns are proven over these only; else 0.",
        lambda p: p.candidates_listed,
    ),
    of_plan("signalbox_plan_unrouted_flows", "Virtual links without a path in the plan.", lambda p: len(p.unrouted)),
    of_plan("signalbox_plan_subflows", "Subflows of all virtual links in the latest plan.", lambda p: p.subflows),
    one("signalbox_plan_installed", "1 when the latest plan is installed on the switches.", lambda s: s.plan_installed),
    one(
        "signalbox_plan_moves_left",
        "Flows that must still move to get from the latest plan to its goal plan.",
        lambda s: s.moves_left,
    ),
    one(
        "signalbox_plan_blocked_flows",
        "Flows that block the goal plan: they must move together, and one planning cycle may not move so many.",
        lambda s: s.blocked_flows,
    ),
    Family("signalbox_plan_age_seconds", "Time since the latest plan was made.", samples.plan_age),
    histogram("signalbox_plan_seconds", "Time spent on each plan: build, solve and check.", lambda s: s.plan_times),
    Family("signalbox_plan_duration_seconds", "Time spent on the latest plan.", samples.plan_duration, ("stage",)),
    one("signalbox_repairs_total", "Repairs made.", lambda s: s.repairs_total),
    one(
        "signalbox_repaired_flows_total",
        "Virtual links that got new paths from a repair because theirs were lost.",
        lambda s: s.repaired_flows_total,
    ),
    Family(
        "signalbox_repair_duration_seconds",
        "Duration of the latest repair: time to find new paths, and total time until the switches confirmed them.",
        samples.repair_duration,
        ("stage",),
    ),
    histogram(
        "signalbox_repair_seconds",
        "Time from a loss until the switches confirmed the repaired routes.",
        lambda s: s.repair_times,
    ),
    histogram(
        "signalbox_install_seconds",
        "Time from sending a stage of rule changes until its switches confirmed it.",
        lambda s: s.install_times,
    ),
    one(
        "signalbox_circuits",
        "Circuits of optical switches that are in use.",
        lambda s: sum(link.one_way for link in s.fabric.links.values()),
    ),
    histogram(
        "signalbox_circuit_change_seconds",
        "Time from sending a change of circuits to optical switches until all confirmed it.",
        lambda s: s.extension.change_times,
    ),
    of_plan(
        "signalbox_ecmp_slowdown_mean",
        "Worst job slowdown if switches hash all flows of the latest plan (ECMP), mean over random hashes.",
        lambda p: p.ecmp.mean if p.ecmp else None,
    ),
    of_plan(
        "signalbox_ecmp_slowdown_p95",
        "Worst job slowdown if switches hash all flows of the latest plan (ECMP), 95th percentile over random hashes.",
        lambda p: p.ecmp.p95 if p.ecmp else None,
    ),
    Family(
        "signalbox_baseline_slowdown",
        "Worst job slowdown if a published scheme routed the flows of the latest plan.",
        lambda snapshot: [((name,), slowdown) for name, slowdown in snapshot.status.baseline_slowdowns.items()],
        ("scheme",),
    ),
    one("signalbox_pins", "Pins on the switches, for virtual links and their acknowledgements.", lambda s: s.pins),
    one("signalbox_moved_flows_total", "Pinned flows moved.", lambda s: s.moved_flows_total),
)

OF_STANDBY = tuple(
    family
    for family in FAMILIES
    if family.name
    in (
        "signalbox_build_info",
        "signalbox_reload_refused",
        "signalbox_active",
        "signalbox_leader_known",
        "signalbox_members_age_seconds",
        "signalbox_certificate_end_timestamp_seconds",
        "signalbox_metrics_refused_total",
    )
)
"""Metrics of a controller that stands by."""
