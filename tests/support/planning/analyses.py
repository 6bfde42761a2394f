"""Analyses of one job: not slowed, slowed, and slowed as much as the fabric makes inevitable."""

from dataclasses import replace

from controller.planning.analysis.messages import (
    BusyLink,
    FoundRoutes,
    JobAnalysis,
    JobFlows,
    JobShare,
    LeafCut,
    Verdict,
)
from signalbox.jobs.spec import JobId

A, B = JobId("a"), JobId("b")
NIC = BusyLink("s1:1", True, 2.0, 0.0, (JobShare(A, 1, 1.0), JobShare(B, 1, 1.0)))
LINK = BusyLink("s1>s101", False, 2.0, 0.0, (JobShare(A, 1, 1.0), JobShare(B, 1, 1.0)))
CUT = LeafCut("s1", None, "out", 3, 1, 4 / 3, 2.0, (JobFlows(A, 4),), 4, drained=2)
BEST = FoundRoutes(1.0, 1.0, 1.0, "optimal", True, 1, 1, 1.0, 1)
SPLIT = FoundRoutes(4 / 3, 4 / 3, 4 / 3, "optimal", True, 0, 2, 4 / 3, 0)
FINE = JobAnalysis(
    job_id=A, verdict=Verdict.NOTHING, slowdown=1.0, efficiency_measured=None, least_slowdown=1.0, nic_slowdown=1.0,
    flows=4, flows_inside_a_leaf=0, flows_hashed=0, flows_without_a_path=0, equally_full_links=1,
    fullest_links=(replace(LINK, load=1.0),), cut=None, best=None, split=None,
)  # fmt: skip
SLOWED = replace(FINE, verdict=Verdict.ROUTING, slowdown=2.0, fullest_links=(LINK,), best=BEST)
BOUNDED = replace(
    SLOWED, verdict=Verdict.FABRIC, least_slowdown=2.0, cut=CUT, best=replace(BEST, slowdown=2.0, moves=0), split=SPLIT
)
