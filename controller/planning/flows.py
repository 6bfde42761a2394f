"""What the planner routes: flows of jobs, and their routes.

A *flow* is a virtual link of one job with known ends: all bytes that the job sends from one host to another. A *route*
is how it travels: whole on one path, or in *subflows* with a share each. A flow may take part in several phases of its
job, with a demand in each:

- T0 of a phase: the job's communication time alone on an idle fabric, set by its busiest NIC.
- Demand of a flow in a phase: its bits / T0, in bit/s; sent at this rate, all flows of the phase end together.

Phases never overlap, so a link's load counts only the job's largest phase on it (``efficiency``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from controller.fabric.topology import Dpid, LinkId, Path
from signalbox.jobs.spec import JobId
from signalbox.jobs.subflows import Dividing


class FlowId(NamedTuple):
    """Source and destination address; at most one job without an owner announces a pair. ``owner`` and ``piece``: of
    flows that have the same addresses, see ``signalbox.jobs.subflows``."""

    src_ip: str
    dst_ip: str
    owner: str = ""
    piece: int = 0

    @property
    def pair(self) -> tuple[str, str]:
        return self.src_ip, self.dst_ip

    @property
    def back(self) -> FlowId:
        """The same the other way."""
        return self._replace(src_ip=self.dst_ip, dst_ip=self.src_ip)

    @property
    def joined(self) -> FlowId:
        """The same for all pieces."""
        return FlowId(self.src_ip, self.dst_ip, self.owner) if self.piece else self


def flow_ids(dividing: Dividing, pair: tuple[str, str]) -> tuple[FlowId, ...]:
    """Of a job's flows from one address to another: one, or one per piece."""
    return tuple(FlowId(*pair, dividing.owner, piece) for piece in range(len(dividing.pieces(pair).weights)))


class Subflow(NamedTuple):
    """A piece of a flow: ``share`` of its bytes, in (0, 1], on one path."""

    path: Path
    share: float


Route = tuple[Subflow, ...]
"""The pieces of one flow, in the order of their source-port classes. Their shares add up to 1."""

Routes = Mapping[FlowId, Route]


def whole(path: Path) -> Route:
    """The route of a flow that is not split."""
    return (Subflow(path, 1.0),)


@dataclass(frozen=True, slots=True)
class Flow:
    """``demand_bps``: per phase, bytes of the phase / T0 of the phase (bit/s), in ascending phase order.

    ``nic_links``: the source's link in and the destination's link out, loaded whatever the path.
    ``current``: how the flow is pinned now, None under ECMP. ``max_subflows``: into how many pieces its job can
    divide it; 1 is whole. ``paced``: each of these pieces is sent at its own steady rate. ``idle_phases``: of its job,
    which are not sent now and will not be for some time: other traffic patterns have them.
    """

    id: FlowId
    job_id: JobId
    src_leaf: Dpid
    dst_leaf: Dpid
    nic_links: tuple[LinkId, LinkId]
    demand_bps: tuple[tuple[int, float], ...]
    current: Route | None = None
    max_subflows: int = 1
    paced: bool = False
    idle_phases: frozenset[int] = frozenset()
