"""Wirings as plain data (docs/reference/json-output.md), and as files for the planner, simulator and lab.

In: one ``Answer`` per job, with the wiring of each of its parallelizations. Out: the report, a graph of the fabric, the
specs of the jobs with addresses in this fabric, and workload files with the traffic of rings.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from controller.public.problems import Fabric
from controller.public.wirings import RINGS, Answer, Evaluated, Rates, Wiring
from offline.design.exact import MOST_SERVERS, best_steps, least_mean_hops
from offline.scenarios.fabrics import fabric_of
from offline.scenarios.graph_file import write_graph
from offline.scenarios.scenario import GIGABIT
from offline.scenarios.topologies import OFFLINE, direct_connect
from offline.scenarios.workloads import Line, Numbering, write_workload
from signalbox.errors import InvalidInput
from signalbox.jobs.spec import Algorithm, JobSpec

Report = dict[str, Any]


def wiring_report(found: Sequence[Answer], servers: int, interfaces: int, rates: Rates, exact: bool) -> Report:
    """Return the report on the wirings of all jobs.

    ``exact``: add the proven best steps of circulant wirings for the chosen parallelization. The best steps are given
    for at most ``MOST_SERVERS`` servers."""
    return {
        "servers": servers,
        "interfaces": interfaces,
        "interface_gbps": rates.interface_gbps,
        "alternative_gbps": rates.other_gbps,
        "jobs": [
            {
                "job_id": answer.offer.job_id,
                "servers": list(at),
                "parallelization": answer.best.name,
                "refused": answer.refused,
                "alternative_parallelization": answer.other.name,
                "parallelizations": [parallelization_report(each) for each in answer.parallelizations],
                "exact": _best_steps(answer.best) if exact else None,
            }
            for answer, at in zip(found, places(found), strict=True)
        ],
    }


def parallelization_report(each: Evaluated) -> Report:
    found, even = each.found, each.break_even
    pairs = found.traffic.of_pairs
    return {
        "parallelization": each.name,
        "iteration_s": each.planned_s,
        "bound_s": each.bound_s,
        "gap": each.planned_s / each.bound_s - 1 if each.bound_s else 0.0,
        "alternative_s": each.other_s,
        "steps": found.wiring.steps,
        "ring_interfaces": [len(orders) for orders in found.orders],
        "diameter": found.diameter,
        "mean_hops": _finite(found.mean_hops),
        "pair_hops": _finite(found.pair_hops),
        "least_pair_hops": least_mean_hops(pairs, found.wiring.interfaces),
        "bandwidth_tax": _finite(found.bandwidth_tax),
        "ratio": _finite(even.ratio),
        "most_ratio": _finite(even.most_ratio),
        "break_even": _finite(even.time_ratio),
        "solver": each.plan.solver,
        "phases": [phase._asdict() for phase in each.phases],
    }


def places(found: Iterable[Answer]) -> list[range]:
    """Return the servers of each job; jobs get consecutive ranges."""
    first, at = 0, []
    for answer in found:
        at.append(range(first, first + answer.offer.servers))
        first += answer.offer.servers
    return at


def exported(folder: Path, found: Sequence[Answer], servers: int, interfaces: int, rates: Rates) -> list[str]:
    """Write ``fabric.json``, the job specs in the folder ``jobs``, and the traffic of rings in the folder ``workload``.

    Refused jobs are left out. Returns the ids of jobs that ``workload`` describes only partly. Raises ``OSError``, and
    ``InvalidInput`` when all jobs are refused."""
    accepted = [(answer, at) for answer, at in zip(found, places(found), strict=True) if not answer.refused]
    if not accepted:
        raise InvalidInput.of("--export", "there is nothing to wire: all jobs are refused")
    wiring = Wiring(servers, ((None,) * servers,) * interfaces)
    for answer, at in accepted:
        wiring = wiring.beside(answer.best.found.wiring.placed(at, servers))
    topology = direct_connect(wiring.peers, rates.interface_gbps * GIGABIT, OFFLINE)
    fabric = fabric_of(topology)
    specs = [_with_addresses(answer.best.spec, fabric, at) for answer, at in accepted]
    (folder / "jobs").mkdir(parents=True, exist_ok=True)
    for spec in specs:
        text = json.dumps(spec.model_dump(mode="json", exclude_defaults=True), indent=2)
        (folder / "jobs" / f"{spec.job_id}.json").write_text(text + "\n", encoding="utf-8")
    write_graph(folder / "fabric.json", topology)
    alone_s = {answer.offer.job_id: answer.best.alone_s for answer, _ in accepted}
    lines = {spec.job_id: [*ring_lines(spec, Numbering(fabric), alone_s[spec.job_id])] for spec in specs}
    write_workload(folder / "workload", {job: of_job for job, of_job in lines.items() if of_job})
    return [spec.job_id for spec in specs if not _has_only_rings(spec) or not lines[spec.job_id]]


def ring_lines(spec: JobSpec, numbering: Numbering, compute_s: float) -> Iterator[Line]:
    """Yield the workload lines of the rings of a job.

    Rings over the same servers in the same order are merged. A ring that shares a pair of servers with an earlier ring
    is left out, since a workload has each pair once."""
    sent: defaultdict[tuple[str, ...], float] = defaultdict(float)
    groups = {group.name: group.ranks for group in spec.groups}
    for collective in spec.collectives:
        for name in collective.groups if collective.algorithm in RINGS else ():
            ranks = groups[name]
            order = tuple(dict.fromkeys(spec.endpoints[rank] for rank in ranks))
            halves = 2 if RINGS[collective.algorithm] is Algorithm.RING_ALL_REDUCE else 1
            sent[order] += halves * (len(ranks) - 1) / len(ranks) * collective.bytes_per_iteration
    used: set[tuple[str, str]] = set()
    for stage, (order, size) in enumerate(sent.items()):
        pairs = [*pairwise((*order, order[0]))]
        if len(order) > 1 and used.isdisjoint(pairs):
            used.update(pairs)
            of_step = math.ceil(size / (2 * (len(order) - 1)))
            for pair in pairs:
                src, dst = (numbering.host_of[ip] for ip in pair)
                src_tor, dst_tor = (numbering.switch_of[host - numbering.first_host] for host in (src, dst))
                yield Line(src, dst, src_tor, dst_tor, 0, of_step, round(compute_s * 1e9), stage)


def _has_only_rings(spec: JobSpec) -> bool:
    return not spec.transfers and all(collective.algorithm in RINGS for collective in spec.collectives)


def _with_addresses(spec: JobSpec, fabric: Fabric, at: Sequence[int]) -> JobSpec:
    hosts = list(fabric.hosts)
    place = {address: hosts[at[number]] for number, address in enumerate(dict.fromkeys(spec.endpoints))}
    return spec.model_copy(update={"endpoints": tuple(place[address] for address in spec.endpoints)})


def _best_steps(each: Evaluated) -> Report | None:
    """Return the best steps and whether they are proven, or None for more than ``MOST_SERVERS`` servers."""
    found = each.found
    servers, interfaces = found.traffic.servers, found.wiring.interfaces
    if servers > MOST_SERVERS:
        return None
    spanning = [
        len(orders)
        for rings, orders in zip(found.traffic.rings, found.orders, strict=True)
        if len(rings.groups[0]) == servers
    ]
    weights = found.traffic.by_offset.tolist() if found.traffic.pairs else None
    steps, proven = best_steps(servers, interfaces, sum(spanning), weights)
    return {"steps": list(steps.all), "pair_hops": steps.mean, "diameter": steps.most, "proven": proven}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def alternative(found: Mapping[str, Any]) -> str:
    """Return the text that describes the alternative to a wiring: one switch for all servers, with its rate."""
    return f"one switch with {found['alternative_gbps']:g} Gbit/s per server"
