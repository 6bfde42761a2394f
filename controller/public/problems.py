"""Fabrics, jobs and planning problems: the input of the planner."""

from __future__ import annotations

from controller.fabric.topology import (
    CandidatePaths,
    Dpid,
    Fabric,
    Host,
    Link,
    LinkId,
    Path,
    Port,
    PortNo,
    PortRef,
    Switch,
    Towards,
)
from controller.planning.analysis.messages import FabricNames
from controller.planning.problem import (
    Flow,
    FlowId,
    Ints,
    PathShare,
    PlanLimits,
    Problem,
    Route,
    Routes,
    flow_ids,
    route_of,
    whole,
)
from controller.planning.snapshot import ideal_communication_s, ideal_time_s, take_snapshot

__all__ = (
    "CandidatePaths",
    "Dpid",
    "Fabric",
    "FabricNames",
    "Flow",
    "FlowId",
    "Host",
    "Ints",
    "Link",
    "LinkId",
    "Path",
    "PathShare",
    "PlanLimits",
    "Port",
    "PortNo",
    "PortRef",
    "Problem",
    "Route",
    "Routes",
    "Switch",
    "Towards",
    "flow_ids",
    "ideal_communication_s",
    "ideal_time_s",
    "route_of",
    "take_snapshot",
    "whole",
)
