"""Questions from LIBRA's public inputs: Won et al., "LIBRA", ISPASS 2024, repository astra-sim/libra.

The input is the folder ``inputs`` of that repository. Its files have bandwidths in GB/s per NPU, costs per GB/s, and
times in nanoseconds. In a layer of a workload three phases follow each other without overlap; each has a compute time
and a collective. The size of an ALLGATHER in the files is the size of one rank's part.

Two choices of ours:

- Every dimension counts as a switch, because LIBRA's code ignores that data of an ALLTOALL take several hops in a ring.
- Each phase of DLRM spans all dimensions, because DLRM has no file of communicators.

The cost of a dimension is the cost per NPU of its links, and for a dimension with a switch also of switch and NIC.
"""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from offline.design.jobs import GIGABITS
from offline.design.loads import collective_bytes
from offline.design.question import Limits, Question, Term
from offline.design.shape import Dimension, Kind
from signalbox.errors import InvalidInput
from signalbox.jobs.spec import Algorithm

WORKLOADS = ("GPT_3", "MSFT_1T", "Turing_NLG", "ResNet_50", "DLRM")
NETWORKS = (3, 4)
GBPS = 8
TOTAL = 500 * GBPS
"""Total bandwidth in LIBRA's file ``total_bw_500gbps.py``, in Gbit/s."""

_ALGORITHMS = {
    "ALLREDUCE": Algorithm.ALL_REDUCE,
    "ALLGATHER": Algorithm.ALL_GATHER,
    "REDUCESCATTER": Algorithm.REDUCE_SCATTER,
    "ALLTOALL": Algorithm.ALL_TO_ALL,
}
_PHASES = ("Forward", "InputGrad", "WeightGrad")


class LibraCase(NamedTuple):
    workload: str
    question: Question

    def communication_s(self, gbps: Sequence[float]) -> float:
        return self.question.time_s(gbps) - sum(term.weight * term.floor_s for term in self.question.terms)


def cases(inputs: Path) -> list[LibraCase]:
    """Return a case for every workload on both networks. Raises ``InvalidInput`` or ``OSError``."""
    return [LibraCase(f"{name} {size}-D", _question(inputs, name, size)) for name in WORKLOADS for size in NETWORKS]


def _question(inputs: Path, workload: str, size: int) -> Question:
    network = _yaml(inputs / "network" / f"{size}d_network.yml")
    costs = _yaml(inputs / "cost_model" / f"{size}d_cost_model.yml")
    names, sizes = network["CostDimension"], network["NpusCount"]
    cost = [
        sum(costs[name][part] for part in (("Link", "Switch", "Nic") if kind == "Switch" else ("Link",)))
        for name, kind in zip(names, network["Topology"], strict=True)
    ]
    lines = (inputs / "workload" / f"{workload}.txt").read_text().splitlines()
    limits = Limits(
        least=(0.0,) * len(names),
        most=(math.inf,) * len(names),
        cost=tuple(each / GBPS * math.prod(sizes) for each in cost),
        total=TOTAL,
    )
    dimensions = [Dimension(name=name, kind=Kind.SWITCH, size=n) for name, n in zip(names, sizes, strict=True)]
    terms = _terms(lines, _communicators(inputs, workload, sizes), dimensions)
    return Question(tuple(names), tuple(terms), limits)


def _communicators(inputs: Path, workload: str, sizes: Sequence[int]) -> list[list[int]]:
    """Return, for each phase, over how many ranks of each dimension a collective extends."""
    wanted = f"{workload}_{len(sizes)}d.yml".lower()
    file = next((file for file in (inputs / "communicator").iterdir() if file.name.lower() == wanted), None)
    if file is None:
        return [list(sizes)] * len(_PHASES)
    found = _yaml(file)
    return [[max(1, span) for span in found[phase]] for phase in _PHASES]


def _terms(lines: Sequence[str], spans: Sequence[Sequence[int]], dimensions: Sequence[Dimension]) -> Iterator[Term]:
    nothing = (0.0,) * len(dimensions)
    for line in lines:
        _, _, *columns = line.split()
        for phase, of_phase in enumerate(spans):
            compute_ns, kind, size = columns[3 * phase : 3 * phase + 3]
            if int(compute_ns):
                yield Term(1.0, nothing, int(compute_ns) * 1e-9)
            if kind == "NONE":
                continue
            if kind not in _ALGORITHMS:
                raise InvalidInput.of(line.split()[0], f"'{kind}' is not a collective; give {', '.join(_ALGORITHMS)}")
            own = math.prod(of_phase) if kind == "ALLGATHER" else 1
            sent = collective_bytes(_ALGORITHMS[kind], int(size) * own, of_phase, dimensions)
            yield Term(1.0, tuple(GIGABITS * each for each in sent))


def _yaml(file: Path) -> Any:
    return yaml.safe_load(file.read_text())
