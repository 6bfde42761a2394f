"""Generator of workloads like the published ones, for any fabric. The same input and seed give the same workload.

In: a fabric, the number and sizes of jobs, and a seed. Out: lines of workload files, for ``write_workload`` or
``jobs_of``. The published files are those of arXiv 2503.05324 (docs/reference/file-formats.md#workload).

Ring i of a model joins the i-th hosts of all replicas. In each step of a ring of n hosts a flow carries one of n chunks
of a host's gradients, 4 bytes per parameter. Start times are our own choice, uniform over 15 s; the published start
times lie between 2 and 12.4 s.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from controller.public.problems import Fabric
from offline.scenarios.fabric_options import Placement
from offline.scenarios.workloads import Line, Numbering, WorkloadJob, to_job
from signalbox.errors import InvalidInput
from signalbox.jobs.spec import Striping

BYTES_PER_PARAMETER = 4
START_SPREAD_NS = 15_000_000_000
"""Upper end of the start times in nanoseconds; they are uniform from 0."""
Workload = Mapping[str, Sequence[Line]]
"""Lines of each job, by its name."""


class Model(NamedTuple):
    """Model of the published workloads, with its parallelism and its computing time per iteration."""

    name: str
    parameters: int
    tensor: int
    pipeline: int
    compute_ns: int

    @property
    def rings(self) -> int:
        return self.tensor * self.pipeline

    def flow_bytes(self, ring_size: int) -> int:
        """Return the bytes of a flow in one step of a ring of ``ring_size`` hosts."""
        return -(-BYTES_PER_PARAMETER * self.parameters // (self.rings * ring_size))


MODELS = (
    Model("GPT_3", 175_000_000_000, 8, 8, 1_009_615_385),
    Model("BLOOM", 176_000_000_000, 4, 12, 1_238_769_231),
    Model("LLaMA2_70B", 70_000_000_000, 8, 16, 2_692_307_693),
)
"""Models of the published workloads: parameters, tensor and pipeline parallelism, nanoseconds of computing."""


def generate(
    fabric: Fabric, jobs: int, ring_size: int, placement: Placement, seed: int, max_rings: int | None = None
) -> Workload:
    """Return the lines of ``jobs`` jobs that share no host; their models are drawn from ``MODELS`` with repetition.

    - ``ring_size``: number of hosts of a ring; where a ring does not fit, the number is halved, down to two.
    - ``max_rings``: largest number of rings of a job, for fabrics that are too small for all rings of a model.

    Raises ``InvalidInput`` when not even rings of two hosts fit, and for numbers that are too small."""
    if jobs < 1 or ring_size < 2 or (max_rings is not None and max_rings < 1):
        message = "at least one job, rings of at least two hosts and at least one ring are needed"
        raise InvalidInput.of("workload", message)
    numbering = Numbering(fabric)
    rng = random.Random(seed)
    models = rng.choices(MODELS, k=jobs)
    rings = [min(model.rings, max_rings or model.rings) for model in models]
    sizes = _ring_sizes(rings, ring_size, len(numbering.ips))
    places = _Places(numbering, placement, rng)
    workload = {}
    for number, (model, count, size) in enumerate(zip(models, rings, sizes, strict=True)):
        replicas = [places.take(count) for _ in range(size)]
        start_ns = rng.randrange(START_SPREAD_NS)
        numbers = (start_ns, model.flow_bytes(size), model.compute_ns)
        lines = [
            line
            for ring, hosts in enumerate(zip(*replicas, strict=True))
            for line in ring_lines(hosts, ring, *numbers, numbering)
        ]
        workload[f"job_{number}-{model.name}"] = lines
    return workload


def jobs_of(
    workload: Workload, fabric: Fabric, max_subflows: int = 1, striping: Striping = Striping.BY_SHARE
) -> tuple[WorkloadJob, ...]:
    """Return the jobs of these lines, as ``read_workload`` would read them from files."""
    numbering = Numbering(fabric)
    return tuple(to_job(name, lines, numbering, max_subflows, striping) for name, lines in sorted(workload.items()))


class _Places:
    """Hosts that no replica uses yet, by leaf."""

    def __init__(self, numbering: Numbering, placement: Placement, rng: random.Random) -> None:
        self._placement = placement
        self._rng = rng
        free: defaultdict[int, list[int]] = defaultdict(list)
        for host, switch in enumerate(numbering.switch_of, start=numbering.first_host):
            free[switch].append(host)
        self._leaves = list(free.values())
        rng.shuffle(self._leaves)

    def take(self, count: int) -> list[int]:
        """Return the hosts of one replica, in the order of its rings, and mark them as used."""
        if self._placement is Placement.FRAGMENTED:
            taken = self._rng.sample([host for leaf in self._leaves for host in leaf], count)
        else:
            self._leaves.sort(key=len, reverse=True)
            taken = [host for leaf in self._leaves for host in leaf][:count]
        gone = set(taken)
        self._leaves = [[host for host in leaf if host not in gone] for leaf in self._leaves]
        return taken


def _ring_sizes(rings: Sequence[int], wanted: int, hosts: int) -> list[int]:
    """Return the size of the rings of each job.

    The size is ``wanted`` if the hosts suffice. If not, the size is halved until at least rings of two hosts fit for
    all later jobs. ``rings``: number of rings of each job. Raises ``InvalidInput`` if rings of two hosts do not fit."""
    least = 2 * sum(rings)
    if least > hosts:
        message = f"the jobs need at least {least} hosts, the fabric has {hosts}; fewer jobs or rings would fit"
        raise InvalidInput.of("workload", message)
    sizes = []
    spare = hosts - least
    for count in rings:
        size = wanted
        while size > 2 and count * (size - 2) > spare:
            size = max(2, size // 2)
        spare -= count * (size - 2)
        sizes.append(size)
    return sizes


def ring_lines(
    hosts: Sequence[int], ring: int, start_ns: int, flow_bytes: int, compute_ns: int, numbering: Numbering
) -> list[Line]:
    """Return the lines of one ring: every host sends to the next, the last to the first."""
    switch = [numbering.switch_of[host - numbering.first_host] for host in hosts]
    return [
        Line(hosts[i - 1], hosts[i], switch[i - 1], switch[i], start_ns, flow_bytes, compute_ns, ring)
        for i in (*range(1, len(hosts)), 0)
    ]
