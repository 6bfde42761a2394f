"""Which flows cross which link and switch, from the routes that switches hold. Flows that are hashed cross links too;
which ones is not known.

In: messages of the API in their JSON form. Out: the same.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Fields = Mapping[str, Any]
At = tuple[str, int]
"""Where a link begins: dpid and port."""


def at(ref: Fields) -> At:
    """Of a ``PortRef``."""
    return ref["dpid"], ref["port"]


def flows_by_link(routes: Iterable[Fields]) -> Mapping[At, list[Fields]]:
    """Per link the pieces of flows that take it: ``job_id``, ``src``, ``dst``, ``share`` of the flow's bytes."""
    found: defaultdict[At, list[Fields]] = defaultdict(list)
    for route in routes:
        flow = {name: route[name] for name in ("job_id", "src", "dst")}
        for path in route["held"]:
            for link in path["links"]:
                found[at(link)].append({**flow, "share": path["share"]})
    return found


def flows_at_switch(dpid: str, fabric: Fields, routes: Iterable[Fields]) -> list[Fields]:
    """That begin or end there, or cross it on their way."""
    ends = {host["ip"] for host in fabric["hosts"] if host["at"]["dpid"] == dpid}
    touching = {at(link["src"]) for link in fabric["links"] if dpid in (link["src"]["dpid"], link["dst"]["dpid"])}
    return [
        route
        for route in routes
        if not ends.isdisjoint((route["src"], route["dst"]))
        or any(at(link) in touching for path in route["held"] for link in path["links"])
    ]


def jobs_of(flows: Iterable[Fields]) -> list[dict[str, Any]]:
    """How many flows each job has among these, most first."""
    pairs = {(flow["job_id"], flow["src"], flow["dst"]) for flow in flows}
    counted = Counter(job_id for job_id, *_ in pairs)
    return [{"job_id": job_id, "flows": flows} for job_id, flows in sorted(counted.items(), key=_most_first)]


def _most_first(of_job: tuple[str, int]) -> tuple[int, str]:
    return -of_job[1], of_job[0]


def hashed(fabric: Fields, routes: Iterable[Fields]) -> int:
    """How many flows between hosts that are found have no route."""
    known = {host["ip"] for host in fabric["hosts"]}
    return sum(not route["held"] and known >= {route["src"], route["dst"]} for route in routes)


def not_known(flows_hashed: int) -> list[str]:
    """For people; nothing without such flows."""
    if flows_hashed == 1:
        return ["1 flow is hashed: which links it uses is not known."]
    return [f"{flows_hashed:,} flows are hashed: which links they use is not known."] if flows_hashed else []


def words(jobs: Sequence[Fields], most: int = 3) -> str:
    """``ring 4, bert 2``"""
    named = [f"{job['job_id']} {job['flows']}" for job in jobs[:most]]
    return ", ".join(named + [f"{len(jobs) - most} more jobs"] * (len(jobs) > most))
