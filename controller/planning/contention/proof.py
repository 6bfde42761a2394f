"""Slots and classes of a plan as plain data, which ``planning.verify`` checks without a solver.

In: a plan with its proofs (``planning.certificate``), and its ``Sharing``. Out: the same plan with the key ``sharing``,
and with the cut that proves the lower bound. docs/reference/json-output.md describes the form.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from controller.planning import verify
from controller.planning.plan import Sharing
from signalbox.jobs.spec import JobId
from signalbox.words import SharingObjective


def with_sharing(form: dict[str, Any], sharing: Sharing) -> dict[str, Any]:
    """Return the plan with its slots and classes. Raises ``ValueError`` when they are for other traffic."""
    whole = form["denominator"]
    jobs = [JobId(job["name"]) for job in form["jobs"]]
    weights = {job: _weight(job, sharing) for job in jobs}
    total = sum(weights.values()) or 1.0
    slots = {job: (place, circle) for place, circle in enumerate(sharing.circles) for job in circle.slots}

    def of_job(job: JobId) -> dict[str, Any]:
        timing = sharing.timings.get(job)
        found = {
            "class": sharing.class_of.get(job, 1),
            "weight": round(weights[job] / total * whole),
            "phases": [
                [each.phase, round(each.compute_s * whole), round(each.ideal_s * whole)] for each in timing.phases
            ]
            if timing
            else [],
        }
        if timing:
            found["guaranteed"] = round(sharing.guaranteed_s[job] * whole)
        if job in slots:
            place, circle = slots[job]
            found["slot"] = [place, round(circle.slots[job][0].start_s * whole), circle.turns[job]]
        return found

    least = 0.0 if sharing.objective is SharingObjective.GPU_SECONDS else 1.0
    unit = total if sharing.objective is SharingObjective.GPU_SECONDS else 1.0
    of = {
        "objective": sharing.objective.value,
        "floor": round(sharing.floor * whole),
        "periods": [round(circle.period_s * whole) for circle in sharing.circles],
        "jobs": [of_job(job) for job in jobs],
        "value": round(sharing.value / unit * whole),
        "bound": round(least * whole),
    }
    made = form | {"sharing": of}
    found, graph = verify.Sharing(made), verify.Graph(form["links"])
    cuts = [(cut, verify.Cut(made, graph, cut)) for cut in (*form["cuts"], *_of_leaves(form))]
    best, proof = max(cuts, key=lambda each: found.bound([each[1]]), default=({}, None))
    if proof:
        of["bound"] = int(found.bound([proof]) * whole)
        made["cuts"] = [*form["cuts"], *([] if best in form["cuts"] or of["bound"] <= least * whole else [best])]
    found.check([proof] if proof else [])
    return made


def _weight(job: JobId, sharing: Sharing) -> float:
    timing = sharing.timings.get(job)
    if timing is None:
        return 0.0
    if sharing.objective is SharingObjective.GPU_SECONDS:
        return timing.work / sum(each.compute_s + each.ideal_s for each in timing.phases)
    return timing.weight


def _of_leaves(form: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a cut for each leaf and direction: all its links to other switches, and the flows that need them."""
    for near, far in ((0, 1), (1, 0)):
        flows, links = defaultdict[Any, list[int]](list), defaultdict[Any, list[list[int]]](list)
        hosts = {flow[end] for flow in form["flows"] for end in ("from", "to")}
        for number, link in enumerate(form["links"]):
            if hosts.isdisjoint(link[:2]):
                links[link[near]].append([number, 1])
        for number, flow in enumerate(form["flows"]):
            if flow["hops"] > 2:
                nic = flow["route"][0][1][-near]
                flows[form["links"][nic][far]].append(number)
        for leaf, crossing in flows.items():
            yield {"prices": links[leaf], "phases": [], "flows": crossing, "unit": 0, "subflows": 1}
