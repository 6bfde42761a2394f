"""Published view of the controller: the ``Status``, all alarms, and inputs of analyses of the present network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from controller.alarms import Alarm
from controller.core.alarms import AlarmTimes, port_exists, raised_alarms
from controller.core.derived import Derived
from controller.core.messages import Extension
from controller.core.state import State
from controller.fabric.drains import links_named, with_links
from controller.fabric.parts import MAX_NAMES
from controller.fabric.topology import Dpid, Fabric
from controller.planning.analysis.messages import (
    AnalysisRequest,
    Explain,
    FabricNames,
    GetPlanProof,
    Network,
    Question,
    WhatIf,
    analysis_request,
)
from controller.planning.problem import FlowId
from controller.status import Status, SwitchStatus
from controller.tables.switch_sync import SwitchSync, TableUse
from signalbox.errors import NotKnownYet

RETRY_S = 0.5
"""Seconds after which a client should repeat a request whose answer is not known yet.

The controller needs tenths of a second to read the rules of switches and to confirm routes."""


def all_alarms(s: State, d: Derived, extension: Extension, now: float) -> Sequence[Mapping[Any, Alarm]]:
    """Return the raised alarms, without start times, in groups for ``AlarmTimes.dated``.

    ``now`` is monotonic seconds."""
    fabric = d.fabric_with_unique_names()
    others = (*raised_alarms(s, fabric, d.published_without_path(), now), *extension.alarms(fabric))
    return (
        {alarm.key: alarm for alarm in others},
        d.demand_alarms(),
        d.host_alarms(),
        d.part_alarms_with_unique_names(),
        d.switch_alarms_with_unique_names(),
    )


def status(s: State, d: Derived, extension: Extension, alarms: AlarmTimes, rules_due: bool) -> Status:
    """Return the published status. Jobs appear as they are on disk.

    ``alarms``: alarms with their times. ``rules_due``: whether rules are about to be derived again."""
    down = d.down_parts()
    late = s.wanted.not_followed(d.jobs()) if rules_due else frozenset[Dpid]()
    return Status(
        fabric=s.fabric,
        mode=s.saved_mode,
        adopting=s.phases.adopting,
        switches=_switches(s.sync, s.fabric, s.tables.of, late),
        links=s.load.figures(s.fabric, d.background()),
        rules=s.sync.installed,
        jobs=d.job_statuses(),
        job_ends=s.jobs.ends.certain,
        jobs_ended=s.jobs.ends.totals,
        demands=d.published_demands(),
        plan=s.cycle.plan,
        plan_installed=s.plan_installed,
        plan_reason=s.cycle.reason,
        plan_demand_source=s.cycle.demand_source,
        goal=s.cycle.goal,
        baseline_slowdowns=s.cycle.baseline_slowdowns,
        pins=s.sending.pins,
        moved_flows_total=s.cycle.moved_flows_total,
        plans_total=s.cycle.plans_total,
        repair=s.cycle.repair,
        repair_s=s.losses.repair_s,
        repairs_total=s.cycle.repairs_total,
        repaired_flows_total=s.cycle.repaired_flows_total,
        counters_read=s.counters.read,
        counters_late_after_s=s.counters.late_after_s,
        punt_drops={
            at: drops.total for at, drops in s.counters.drops.items() if drops.total and port_exists(s.fabric, at)
        },
        dropped_packets=dict(s.counters.dropped),
        refused_connections=dict(s.refusals.connections),
        refused_packets=s.refusals.packet_totals(),
        masterships_lost=s.refusals.masterships_lost,
        refused_claims=dict(s.hosts.claims.refused.totals),
        plan_at=s.cycle.plan_at if s.cycle.plan else None,
        plan_times=s.cycle.plan_times,
        repair_times=s.losses.repair_times,
        install_times=s.sending.install_times,
        communication_times=s.jobs.communication_times,
        state_revision=s.commits.revision,
        state_failures=s.commits.failures,
        alarms=alarms.alarms,
        alarms_before=alarms.before,
        drains=s.draining.statuses(d.drained(), s.fabric, s.parts.parts, down.keys()),
        drained=d.excluded() | s.drains.waiting | d.drained_keys(),
        parts=s.parts.parts,
        down_parts=down,
        absent_parts=s.parts.absent,
        named_hosts=d.named_hosts(),
        extension=extension.status(),
    )


def _switches(
    sync: SwitchSync, fabric: Fabric, tables: Mapping[Dpid, tuple[TableUse, ...]], late: frozenset[Dpid]
) -> dict[Dpid, SwitchStatus]:
    """Return the status of each connected switch.

    ``late``: switches whose wanted rules are not derived yet."""
    foreign = sync.foreign
    refusing = {dpid for dpid, _ in sync.refused} | late
    return {
        dpid: SwitchStatus(
            in_sync=dpid in sync.settled and dpid not in refusing,
            rules=len(sync.installed.get(dpid, ())),
            foreign_rules=foreign.get(dpid, 0),
            healed_rules=sync.healed[dpid],
            is_read=dpid in sync.installed,
            tables=tables.get(dpid, ()),
        )
        for dpid in fabric.switches
    }


# ---- questions


def analysis(s: State, d: Derived, extension: Extension, question: Question) -> AnalysisRequest:
    """Return the input of an analysis: the question, and the present network.

    Raises ``InvalidInput`` for unknown names, and ``NotKnownYet`` while the running routes are not known."""
    intact, fabric, sharing = s.topology.intact, with_links(s.fabric, d.plannable()), extension.status().sharing
    network = Network(d.snapshot(), fabric, intact, s.cycle.limits, FabricNames(intact), d.excluded(), sharing)
    names = question.names if isinstance(question, WhatIf) else ()
    links = links_named(names, s.fabric, d.down_parts().values(), extension.no_parts(names[:MAX_NAMES]))
    known = d.job_statuses().get(question.job_id) if isinstance(question, Explain) else None
    withheld = known.prediction_withheld if known else ""
    request = analysis_request(
        question, network, d.jobs(), d.without_path(), links, withheld, s.demand.demands, s.cycle.min_gain
    )
    if not s.fabric.switches:
        raise NotKnownYet("no switch is connected yet: try again when the switches have connected")
    refuse_while_adopting(s)
    if isinstance(question, GetPlanProof):
        _refuse_unknown_routes(s, d)
    return request


def refuse_while_adopting(s: State) -> None:
    """Raise ``NotKnownYet`` while the controller adopts the rules of the switches."""
    if s.phases.adopting:
        raise NotKnownYet(
            "the controller is still reading the rules of the switches; try again in a moment", {}, RETRY_S
        )


def _refuse_unknown_routes(s: State, d: Derived) -> None:
    routes, confirmed = s.routes.routes, d.confirmed().routes
    for job_id in sorted(d.missing().keys() & confirmed.keys()):
        text = f"job '{job_id}' waits for hosts, and switches hold its earlier routes, whose traffic is not known"
        raise NotKnownYet(text, {"jobId": job_id})
    held = set[FlowId]().union(*confirmed.values())
    missing = [flow for flow, route in routes.items() if flow not in held and any(path for path, _ in route)]
    if missing:
        named = f"{len(missing)} routes, the first from {missing[0].src_ip} to {missing[0].dst_ip}"
        text = f"switches do not hold all routes: {named}, are being installed or were refused"
        raise NotKnownYet(text, {}, RETRY_S)
