"""Input of the planner: one immutable problem of link capacities, candidate paths and flows, also as arrays.

A *flow* is all bytes that a job sends from one host to another (a virtual link). A *route* says how the flow travels:
whole on one path, or in *subflows*, each with a share of the bytes. A flow may take part in several phases of its job.
Its demand in a phase is its bits / the ideal time of the phase, in bit/s. The busiest NIC sets the ideal time. When all
flows of a phase send at their demands, they all end together.

Bounds, closed forms, slowdowns and searches compute with the arrays of ``Links`` and ``Numbers``. Closed forms return
their routes as ``NumberedRoutes``.

A fabric with three tiers has ``Tiers``. A *pod* is a group of leaves with cables to the same aggregation switches. A
*plane* has one aggregation switch in every pod, and the cores that these switches share. A *common link* is a set of
cables that counts as one link. A common edge link has a cable from every leaf to the same plane. A common core link has
a cable from every pod to the same core. A path between two pods stays in one plane, and uses the same common links up
and down. Source: Al-Fares, Loukissas and Vahdat, "A scalable, commodity data center network architecture", SIGCOMM
2008, section 3.
"""

from __future__ import annotations

import itertools
import math
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import attrgetter, itemgetter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from controller.fabric.topology import CandidatePaths, Dpid, LinkId, Path
from signalbox.jobs.spec import JobId
from signalbox.jobs.subflows import Dividing
from signalbox.words import SharingObjective

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


# ---- flows and routes


class FlowId(NamedTuple):
    """Source and destination address of a flow, and two fields that distinguish flows with equal addresses.

    At most one job without an ``owner`` may announce a pair of addresses."""

    src_ip: str
    dst_ip: str
    owner: str = ""
    """Job of the flow if several jobs have flows between these addresses (``signalbox.jobs.subflows``); else empty."""
    subflow: int = 0
    """Number of the equal subflow, if the job has divided its flow between the addresses; else 0."""

    @property
    def pair(self) -> tuple[str, str]:
        return self.src_ip, self.dst_ip

    @property
    def back(self) -> FlowId:
        """Flow in the opposite direction."""
        return self._replace(src_ip=self.dst_ip, dst_ip=self.src_ip)

    @property
    def joined(self) -> FlowId:
        """Common id of all equal subflows of the same pair and owner."""
        return FlowId(self.src_ip, self.dst_ip, self.owner) if self.subflow else self


def flow_ids(dividing: Dividing, pair: tuple[str, str]) -> tuple[FlowId, ...]:
    """Return the ids of a job's flows between a pair of addresses: one, or one per equal subflow."""
    return tuple(FlowId(*pair, dividing.owner, subflow) for subflow in range(len(dividing.subflows(pair).weights)))


def flow_count(flows: Iterable[Flow]) -> int:
    """Return the number of flows between pairs of hosts; equal subflows of one flow count once."""
    return len({flow.id.joined for flow in flows})


class PathShare(NamedTuple):
    """A subflow: its path, and its share of the flow's bytes."""

    path: Path
    share: float
    """Share of the flow's bytes, in (0, 1]."""


Route = tuple[PathShare, ...]
"""Subflows of one flow. Subflow i has source-port class i (``signalbox.jobs.subflows``). The shares add up to 1."""
Routes = Mapping[FlowId, Route]


def whole(path: Path) -> Route:
    """Return the route of a flow that takes one path."""
    return (PathShare(path, 1.0),)


def route_of(dividing: Dividing, pair: tuple[str, str], routes: Routes) -> Route | None:
    """Return the route of all traffic of a job between a pair of addresses.

    Return None when a flow of the job between the addresses has no route."""
    ids, weights = flow_ids(dividing, pair), dividing.subflows(pair).weights
    if len(ids) == 1:
        return routes.get(ids[0])
    subflows = [routes.get(flow) for flow in ids]
    return (
        tuple(PathShare(subflow[0].path, weight) for subflow, weight in zip(subflows, weights, strict=True) if subflow)
        if all(subflows)
        else None
    )


@dataclass(frozen=True, slots=True)
class Flow:
    """Traffic of one job from one host to another, as the planner sees it: the demand and the current route."""

    id: FlowId
    job_id: JobId
    src_leaf: Dpid
    dst_leaf: Dpid
    nic_links: tuple[LinkId, LinkId]
    """Uplink of the source host and downlink of the destination host, which the flow loads on every path."""
    demand_bps: tuple[tuple[int, float], ...]
    """Demand of each phase in bit/s (bits of the phase / its ideal time), in ascending order of phases."""
    current: Route | None = None
    """Route that the flow is pinned to now; None when ECMP routes it."""
    max_subflows: int = 1
    """Largest number of subflows into which the job can divide the flow; 1 for a flow that stays whole."""
    paced: bool = False
    """Whether each subflow is sent at a steady rate of its own."""
    idle_phases: frozenset[int] = frozenset()
    """Phases that belong to other traffic patterns than the present one.

    The job does not send these phases now, and will not send them for some time."""
    phase_share: tuple[tuple[int, float], ...] = ()
    """Share of each phase in the job's ideal communication time; empty when only the worst phase counts."""


# ---- jobs in time


class PhaseTime(NamedTuple):
    """Part of an iteration: the job computes for ``compute_s``, then communicates."""

    phase: int
    """Number of the phase, as in ``Flow.demand_bps``."""
    compute_s: float
    ideal_s: float
    """Communication time on an idle fabric, see ``snapshot.ideal_time_s``; a measured time replaces it."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Times of a job's iteration, declared or measured."""

    phases: tuple[PhaseTime, ...]
    """Phases in the order in which they follow each other."""
    gpus: int = 1
    work: float = 1.0
    """Work of an iteration in GPU-seconds."""
    weight: float = 1.0
    """Weight of the job's slowdown when the objective is ``SharingObjective.WEIGHTED``."""
    keeps_slots: bool = False
    """Whether the job's iterations are regular, and the job waits for its slots."""


@dataclass(frozen=True, slots=True)
class SharingRules:
    """Rules for jobs that share links. They matter only for jobs with a ``Timing``."""

    classes: int = 0
    """Number of classes of priority; 0 when all jobs have the same priority."""
    floor: float = 0.1
    """Fraction of a link that each class but the first keeps."""
    objective: SharingObjective = SharingObjective.WORST
    max_stretch: float = 0.02
    """Largest fraction by which an iteration in slots is planned longer than the ideal iteration."""


# ---- problems


@dataclass(frozen=True)
class Problem:
    """Immutable input of one planning run."""

    generation: int
    capacity_bps: Mapping[LinkId, float]
    """Capacity of each directed link (bit/s) for announced traffic: measured background is already subtracted."""
    paths: CandidatePaths
    """Candidate paths between each pair of switches. A flow between a pair without candidates cannot be routed."""
    flows: tuple[Flow, ...]
    drained: frozenset[LinkId] = frozenset()
    """Links that work, but that an operator has taken out of service."""

    @cached_property
    def links(self) -> Links:
        """Links as arrays. Raises ``KeyError`` with the link when a link between switches has no capacity."""
        return Links(self.capacity_bps, self.paths)

    @property
    def link_number(self) -> Mapping[LinkId, int]:
        """Number of each link: its position in ``capacity_bps``."""
        return self.links.number

    @cached_property
    def numbers(self) -> Numbers:
        """Flows and demands as arrays. Raises ``KeyError`` with the link when a link has no capacity."""
        return Numbers(self.flows, self.links)

    def with_flows(self, flows: Iterable[Flow]) -> Problem:
        """Return this problem with other flows; both problems share the numbering of links."""
        other = replace(self, flows=tuple(flows))
        vars(other)["links"] = self.links
        return other

    def with_subflows(self, most: int) -> Problem:
        """Return this problem with ``max_subflows`` of each flow reduced to at most ``most``; itself if none is."""
        if all(flow.max_subflows <= most for flow in self.flows):
            return self
        return self.with_flows(
            flow if flow.max_subflows <= most else replace(flow, max_subflows=most) for flow in self.flows
        )

    @cached_property
    def now(self) -> Problem:
        """Problem without the demands of idle phases; this object itself when no flow has an idle phase."""
        if not any(flow.idle_phases for flow in self.flows):
            return self

        def sending(flow: Flow) -> Flow:
            kept = tuple(demand for demand in flow.demand_bps if demand[0] not in flow.idle_phases)
            return replace(flow, demand_bps=kept, idle_phases=frozenset())

        return self.with_flows(sending(flow) if flow.idle_phases else flow for flow in self.flows)

    @cached_property
    def phase_share(self) -> Floats | None:
        """Share of each cell (``Numbers``) in its job's ideal communication time; the shares of a job add up to 1.

        None when iterations do not count, because every job has one phase, or because only its worst phase counts."""
        numbers = self.numbers
        phases = np.bincount(numbers.cell_job, minlength=len(numbers.job_ids))
        if phases.max(initial=0) <= 1:
            return None
        first = np.unique(numbers.job, return_index=True)[1].tolist()
        shares = [dict(self.flows[flow].phase_share) for flow in first]
        if not any(shares):
            return None
        cells = zip(numbers.cell_job.tolist(), numbers.cell_phase.tolist(), strict=True)
        share = np.array([shares[job].get(phase, 0.0) for job, phase in cells])
        total = np.bincount(numbers.cell_job, share, len(phases))[numbers.cell_job]
        return np.where(total > 0, share / np.where(total > 0, total, 1), 1 / phases[numbers.cell_job])

    @cached_property
    def tiers(self) -> Tiers | None:
        """Tiers above the leaves that flows leave or enter; None when the fabric has no three tiers.

        Always None when candidate paths may be detours, because a detour crosses the tiers in another order."""
        crossing = [flow for flow in self.flows if flow.src_leaf != flow.dst_leaf and not self.paths.stretch]
        return find_tiers(self.paths, {leaf for flow in crossing for leaf in (flow.src_leaf, flow.dst_leaf)})

    @cached_property
    def has_equal_subflows(self) -> bool:
        """Whether a job has divided one of its flows into equal subflows, each of which is a flow of this problem."""
        return any(flow.id.subflow for flow in self.flows)

    def candidates(self, flow: Flow) -> tuple[Path, ...]:
        """Return the paths that the flow may take: only the empty path when both of its ends are at the same switch."""
        return self.paths.between(flow.src_leaf, flow.dst_leaf)

    def reachable(self, flow: Flow) -> bool:
        """Return whether the flow has a candidate path, without computing all of them."""
        return self.paths.connected(flow.src_leaf, flow.dst_leaf)

    @cached_property
    def in_force(self) -> frozenset[FlowId]:
        """Flows that are pinned to paths that still exist."""
        return frozenset(flow.id for flow in self.flows if self.is_in_force(flow))

    @cached_property
    def runs(self) -> bool:
        """Whether a flow has a current route."""
        return any(flow.current for flow in self.flows)

    @property
    def broken(self) -> bool:
        """Whether a flow is pinned to a path that no longer exists."""
        return any(flow.current is not None and flow.id not in self.in_force for flow in self.flows)

    def with_routes(self, routes: Routes) -> Problem:
        """Return this problem with ``routes`` as the running routes."""
        return self.with_flows(replace(flow, current=routes.get(flow.id)) for flow in self.flows)

    def moves(self, routes: Routes) -> int:
        """Return the number of flows that have a valid current route and a different route in ``routes``."""
        pinned = [flow for flow in self.flows if flow.current is not None]
        left = [flow.id for flow in pinned if routes.get(flow.id, flow.current) != flow.current]
        return sum(flow in self.in_force for flow in left)

    def is_in_force(self, flow: Flow) -> bool:
        """Return whether the flow is pinned, and each of its paths still leads from its source to its destination."""
        return flow.current is not None and all(
            self.paths.leads(subflow.path, flow.src_leaf, flow.dst_leaf) for subflow in flow.current
        )


@dataclass(frozen=True, slots=True)
class PlanLimits:
    """Limits of one planning run."""

    time_limit_s: float = 2.0
    """Time for all searches of the run together, in seconds."""
    max_moves: int | None = None
    """Number of pinned flows that may change their route; None for no limit.

    A flow whose current path is lost does not count."""
    ecmp_draws: int = 200
    """Number of random draws in the comparison with ECMP; 0 skips it."""
    seed: int = 1
    deterministic: bool = False
    """Whether the time limit is ignored.

    Searches then end only by their own counts of steps, so that the plan does not depend on the machine."""
    sharing: SharingRules = SharingRules()
    until: float = math.inf
    """Time (``time.perf_counter``) at which searches are cut off; set by ``begun``."""
    left_out: list[str] = field(default_factory=list, compare=False)
    """Stages that were skipped for lack of time."""

    def begun(self) -> PlanLimits:
        """Return these limits with the end of the run set in ``until``; unchanged when ``until`` is set already.

        Deterministic limits are returned unchanged too: their runs skip no stage, so they can share ``left_out``."""
        if self.deterministic or math.isfinite(self.until):
            return self
        return replace(self, until=time.perf_counter() + self.time_limit_s, left_out=[])

    def sooner(self, seconds: float) -> PlanLimits:
        """Return these limits with an end that is ``seconds`` earlier."""
        return replace(self, until=self.until - seconds)

    def part(self, share: float) -> PlanLimits:
        """Return these limits for a share of the time that is left; deterministic limits are returned unchanged."""
        return self.within(share * self.left_s)

    def within(self, seconds: float) -> PlanLimits:
        """Return these limits for at most ``seconds`` from now; deterministic limits are returned unchanged."""
        if self.deterministic:
            return self
        seconds = max(0.0, seconds)
        until = min(self.until, time.perf_counter() + seconds)
        return replace(self, until=until, time_limit_s=min(self.time_limit_s, seconds))

    def allows(self, stage: str, seconds: float) -> bool:
        """Return whether there is time for a stage that takes about ``seconds`` and cannot be cut off.

        A stage without time is added to ``left_out``."""
        if self.left_s > seconds:
            return True
        self.left_out.append(stage)
        return False

    @property
    def left_s(self) -> float:
        return self.until - time.perf_counter()


# ---- problems as arrays


_DENSE, _SMALL = 8, 65_536
"""Limit on the size of the table that ``distinct`` uses: ``_DENSE`` entries per key plus ``_SMALL`` entries.

The table has one entry for each number up to the largest key. If the table would exceed the limit, ``distinct`` sorts
the keys instead, which is then cheaper."""


class Links:
    """Links of a problem as arrays. Raises ``KeyError`` with the link when a link between switches has no capacity.

    - ``number``: the number of each link, which is its position in ``capacity_bps``; links of NICs included.
    - ``fabric``: link numbers of the links between switches, in the order of ``CandidatePaths.far_end``.
    - ``tail``, ``head``: numbers (``switch``) of the switches where each link of ``fabric`` begins and ends."""

    def __init__(self, capacity_bps: Mapping[LinkId, float], paths: CandidatePaths) -> None:
        far_end = paths.far_end
        self.number: Mapping[LinkId, int] = dict(zip(capacity_bps, itertools.count()))
        self.capacity_bps: Floats = np.fromiter(capacity_bps.values(), np.float64, len(self.number))
        self.fabric: Ints = _ints(map(self.number.__getitem__, far_end), len(far_end))
        tails = list(map(attrgetter("dpid"), far_end))
        self.switch: Mapping[Dpid, int] = {dpid: n for n, dpid in enumerate(sorted({*tails, *far_end.values()}))}
        self.tail: Ints = _ints(map(self.switch.__getitem__, tails), len(tails))
        self.head: Ints = _ints(map(self.switch.__getitem__, far_end.values()), len(tails))
        self._far_end = far_end
        self._around: dict[tuple[tuple[Dpid, ...], bool], Around] = {}

    @cached_property
    def ids(self) -> Sequence[LinkId]:
        """Links in the order of their numbers (``number``)."""
        return list(self.number)

    @cached_property
    def dpids(self) -> Sequence[Dpid]:
        """Switches in the order of their numbers (``switch``)."""
        return list(self.switch)

    def around(self, leaves: Sequence[Dpid], *, outward: bool) -> Around:
        """Return the links between switches that lead out of ``leaves``, or into ``leaves``.

        Rows are sorted by switch, then by the switch at the other end, then by capacity (fastest first), then by
        port."""
        found = self._around.get((tuple(leaves), outward))
        if found is None:
            found = self._around[tuple(leaves), outward] = self._find_around(leaves, outward)
        return found

    def _find_around(self, leaves: Sequence[Dpid], outward: bool) -> Around:
        here, there = (self.tail, self.head) if outward else (self.head, self.tail)
        place = np.full(len(self.switch), -1)
        for number, leaf in enumerate(leaves):
            if leaf in self.switch:
                place[self.switch[leaf]] = number
        rows = np.flatnonzero(place[here] >= 0)
        pairs = place[here[rows]] * len(self.switch) + there[rows]
        keys = [self._port[rows], -self.capacity_bps[self.fabric[rows]]] if self._has_parallel_cables else []
        order = np.lexsort((*keys, pairs))
        at, other = np.divmod(pairs[order], len(self.switch))
        return Around(at, other, run_ranks(pairs[order]), self.fabric[rows[order]])

    @cached_property
    def _has_parallel_cables(self) -> bool:
        return len(distinct(self.tail * len(self.switch) + self.head)[0]) < len(self.tail)

    @cached_property
    def _port(self) -> Ints:
        return _ints((link.port for link in self._far_end), len(self._far_end))


class Around(NamedTuple):
    """Links out of some switches, or into some switches; one link per row."""

    at: Ints
    """Position of the switch in the argument ``leaves``."""
    other: Ints
    """Number of the switch at the other end."""
    cable: Ints
    """Index of the cable among the cables between the same two switches."""
    link: Ints
    """Number of the link."""


class Numbers:
    """Flows and demands of a problem as arrays. Raises ``KeyError`` with the link when a host's link has no capacity.

    Links have the numbers of ``Links.number``, flows their position in ``Problem.flows``, jobs their position in the
    sorted ``job_ids``. An *entry* is one flow in one phase, a *cell* one job in one phase.

    - ``capacity_bps``: per link.
    - ``leaves``: the switches at which flows begin or end, ascending.
    - ``src``, ``dst``: per flow the positions of its leaves in ``leaves``.
    - ``job``, ``nics``, ``peak_bps``, ``most``: per flow its job, its two NIC links, its largest demand, its
      ``max_subflows``.
    - ``entry_flow``, ``entry_bps``, ``entry_cell``: per entry its flow, its demand, its cell.
    - ``cell_job``, ``cell_phase``: per cell its job and phase, ascending."""

    def __init__(self, flows: Sequence[Flow], links: Links) -> None:
        number, count = links.number, len(flows)
        self.capacity_bps = links.capacity_bps
        sources, targets = [flow.src_leaf for flow in flows], [flow.dst_leaf for flow in flows]
        self.leaves = sorted({*sources, *targets})
        leaf_number = {leaf: index for index, leaf in enumerate(self.leaves)}
        self.src = _ints(map(leaf_number.__getitem__, sources), count)
        self.dst = _ints(map(leaf_number.__getitem__, targets), count)
        jobs = [flow.job_id for flow in flows]
        self.job_ids = sorted(set(jobs))
        job_number = {job: index for index, job in enumerate(self.job_ids)}
        self.job = _ints(map(job_number.__getitem__, jobs), count)
        nics = itertools.chain.from_iterable([flow.nic_links for flow in flows])
        self.nics = _ints(map(number.__getitem__, nics), 2 * count).reshape(-1, 2)
        self.most = np.array([flow.max_subflows for flow in flows], np.int64)
        demands = [flow.demand_bps for flow in flows]
        self._entries = _ints(map(len, demands), count)
        self._first = np.cumsum(self._entries) - self._entries
        self._single = bool((self._entries == 1).all())
        self.entry_flow = np.repeat(np.arange(count), self._entries)
        entries = [*itertools.chain.from_iterable(demands)]
        self.entry_bps = np.fromiter(map(itemgetter(1), entries), np.float64, len(entries))
        self.peak_bps = np.zeros(count)
        np.fmax.at(self.peak_bps, self.entry_flow, self.entry_bps)
        phases = _ints(map(itemgetter(0), entries), len(entries))
        width = int(phases.max(initial=0)) + 1
        used, self.entry_cell = distinct(self.job[self.entry_flow] * width + phases)
        self.cell_job, self.cell_phase = used // width, used % width

    def entries_of(self, flows: Ints) -> tuple[Ints, Ints]:
        """Return (index into ``flows``, number of the entry), with one row per entry of each of these flows."""
        if self._single:
            return np.arange(len(flows)), flows
        times = self._entries[flows]
        row = np.repeat(np.arange(len(flows)), times)
        return row, self._first[flows[row]] + np.arange(len(row)) - np.repeat(np.cumsum(times) - times, times)

    @cached_property
    def crossing(self) -> Ints:
        """Indices of the flows whose ends are at different leaves."""
        return np.flatnonzero(self.src != self.dst)


class NumberedRoutes(NamedTuple):
    """Routes of a problem's flows as arrays, one row per subflow of each flow between different leaves.

    The rows of one flow are adjacent. Flows within one leaf have no row."""

    flow: Ints
    links: Ints
    """Link numbers on each subflow's path; shape (rows, hops)."""
    share: Floats

    @classmethod
    def joined(cls, parts: Iterable[NumberedRoutes]) -> NumberedRoutes:
        """Return the rows of all parts, one after the other. There must be at least one part."""
        return cls(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def link_rows(paths: Sequence[Path], number: Mapping[LinkId, int]) -> Ints:
    """Return the link numbers of each path; shape (paths, links of the longest path).

    Shorter paths repeat their last link."""
    longest = max(map(len, paths), default=0)
    filled = ((*path, *path[-1:] * (longest - len(path))) for path in paths)
    return np.array([[number[link] for link in path] for path in filled], np.int64)


def distinct(keys: Ints) -> tuple[Ints, Ints]:
    """Return the distinct keys in ascending order, and the position of each key among them.

    The result is that of ``np.unique``; small keys are not sorted, which is faster. Keys must be at least 0."""
    size = int(keys.max(initial=-1)) + 1
    if size > _DENSE * len(keys) + _SMALL:
        return _distinct_by_sorting(keys, size)
    there = np.zeros(size, bool)
    there[keys] = True
    found = np.flatnonzero(there)
    place = np.empty(size, np.int64)
    place[found] = np.arange(len(found))
    return found, place[keys]


def _distinct_by_sorting(keys: Ints, size: int) -> tuple[Ints, Ints]:
    bits = len(keys).bit_length()
    if bits + size.bit_length() > 63:  # the bits of an np.int64 without its sign
        return np.unique(keys, return_inverse=True)
    # Sorting keys that carry their positions is faster than "argsort".
    packed = np.sort((keys << bits) | np.arange(len(keys)))
    ascending = packed >> bits
    first = np.diff(ascending, prepend=-1) != 0
    place = np.empty(len(keys), np.int64)
    place[packed & ((1 << bits) - 1)] = np.cumsum(first) - 1
    return ascending[first], place


def run_starts(keys: Ints) -> Ints:
    """Return the positions at which a run of equal keys begins."""
    begins = np.ones(len(keys), bool)
    np.not_equal(keys[1:], keys[:-1], out=begins[1:])
    return np.flatnonzero(begins)


def run_ranks(keys: Ints) -> Ints:
    """Return the position of each key within its run of equal keys."""
    first = run_starts(keys)
    ranks: Ints = np.arange(len(keys)) - np.repeat(first, np.diff(first, append=len(keys)))
    return ranks


def _ints(values: Iterable[int], count: int) -> Ints:
    return np.fromiter(values, np.int64, count)


# ---- three tiers


_Switches = tuple[Dpid, ...]
TierLinks = tuple[LinkId, ...]


@dataclass(frozen=True, slots=True)
class Tiers:
    """Pods and planes of a fabric, by number.

    Planes are in descending order of their number of common core links; planes without common core links are left
    out."""

    pod: Mapping[Dpid, int]
    """Pod of each leaf."""
    plane: tuple[int, ...]
    """Plane to which each common edge link leads, ascending."""
    up: Mapping[Dpid, TierLinks]
    """Links from each leaf to aggregation switches, by common edge link."""
    down: Mapping[Dpid, TierLinks]
    """Links from aggregation switches to each leaf, by common edge link."""
    core_up: Sequence[Sequence[TierLinks]]
    """Links to cores, indexed by plane, then pod, then common core link."""
    core_down: Sequence[Sequence[TierLinks]]
    """Links from cores, indexed by plane, then pod, then common core link."""

    @property
    def core_links(self) -> list[int]:
        """Number of common core links of each plane."""
        return [len(pods[0]) for pods in self.core_up]


def find_tiers(paths: CandidatePaths, leaves: Iterable[Dpid]) -> Tiers | None:
    """Return the tiers above ``leaves``, which must lie in at least two pods; None when there are no three tiers."""
    pods = _pods(paths, sorted(leaves))
    planes = _planes(paths, pods)
    if not planes:
        return None
    plane_of = {agg: plane for plane, aggs in enumerate(planes.values()) for agg in aggs}
    common: set[tuple[int, ...]] = set()

    def outward(switch: Dpid, number: Mapping[Dpid, int]) -> TierLinks:
        return by_number((number.get(paths.far_end[link], -1), link) for link in paths.links_from(switch))

    def inward(switch: Dpid, number: Mapping[Dpid, int]) -> TierLinks:
        return by_number((number.get(link.dpid, -1), link) for link in paths.links_into(switch))

    def by_number(links: Iterable[tuple[int, LinkId]]) -> TierLinks:
        """Return the links in the order of their numbers, without links whose number is -1.

        ``links``: pairs (number, link)."""
        ordered = sorted(link for link in links if link[0] >= 0)
        common.add(tuple([number for number, _ in ordered]))
        return tuple([link for _, link in ordered])

    up, down = ({leaf: way(leaf, plane_of) for leaf in pods} for way in (outward, inward))
    if len(common) > 1:
        return None
    plane = common.pop()
    core_up, core_down = (
        [[way(agg, dict(zip(cores, cores, strict=True))) for agg in aggs] for cores, aggs in planes.items()]
        for way in (outward, inward)
    )
    number = {aggs: pod for pod, aggs in enumerate(dict.fromkeys(pods.values()))}
    return Tiers({leaf: number[aggs] for leaf, aggs in pods.items()}, plane, up, down, core_up, core_down)


def _pods(paths: CandidatePaths, leaves: Sequence[Dpid]) -> dict[Dpid, _Switches]:
    pods = {leaf: tuple(sorted({paths.far_end[link] for link in paths.links_from(leaf)})) for leaf in leaves}
    aggs = [agg for of_pod in set(pods.values()) for agg in of_pod]
    apart = len(set(aggs)) == len(aggs) and pods.keys().isdisjoint(aggs)
    into = all({link.dpid for link in paths.links_into(leaf)} == set(of_pod) for leaf, of_pod in pods.items())
    return pods if apart and into else {}


def _planes(paths: CandidatePaths, pods: Mapping[Dpid, _Switches]) -> dict[_Switches, list[Dpid]]:
    """Return the aggregation switches of each plane, one per pod; empty when the cores do not form planes.

    The key of a plane is the sorted tuple of its cores, in which each core occurs once per cable to a pod."""
    aggs = {agg: pod for pod, of_pod in enumerate(dict.fromkeys(pods.values())) for agg in of_pod}
    above = {agg: [paths.far_end[link] for link in paths.links_from(agg)] for agg in aggs}
    reached: defaultdict[Dpid, set[int]] = defaultdict(set)
    for agg, switches in above.items():
        for switch in switches:
            reached[switch].add(aggs[agg])
    cores = {switch for switch, of_pods in reached.items() if len(of_pods) > 1}
    planes: defaultdict[_Switches, list[Dpid]] = defaultdict(list)
    for agg, switches in above.items():
        own = tuple(sorted(switch for switch in switches if switch in cores))
        if own != tuple(sorted(link.dpid for link in paths.links_into(agg) if link.dpid in cores)):
            return {}
        if own:
            planes[own].append(agg)
    pod_count = len(set(aggs.values()))
    whole = all([aggs[agg] for agg in those] == list(range(pod_count)) for those in planes.values())
    shared = [core for own in planes for core in set(own)]
    if not whole or len(set(shared)) < len(shared) or not aggs.keys().isdisjoint(reached):
        return {}
    return dict(sorted(planes.items(), key=lambda plane: (-len(plane[0]), plane[0])))
