"""Shape of a network of several dimensions, read from a file, with its limits and costs.

docs/reference/file-formats.md#network describes the file. The result is a frozen ``Shape``; ``InvalidInput`` names the
place of each error. NPUs (accelerators) are numbered so that the coordinate in the first dimension changes fastest.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Container, Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from offline.design.question import Limits, Rates, Relation
from signalbox.errors import FieldProblem, InvalidInput, validated
from signalbox.files import called
from signalbox.jobs.spec import Frozen, Number, Whole
from signalbox.spec_files import PlaceOf, data_in, placed

MAX_DIMENSIONS = 8
MAX_NPUS = 1 << 20
LEAST_GBPS, MOST_GBPS = 1e-6, 1e9
COMPUTE = "compute"
"""Name that reports use in place of a dimension for a step that waits for computing."""

Ints = NDArray[np.int64]


class Kind(StrEnum):
    """Connection of the NPUs of a dimension: to two neighbours, to every other NPU, or to a switch."""

    RING = "ring"
    FULLY_CONNECTED = "fully_connected"
    SWITCH = "switch"


Rate = Annotated[Number, Field(ge=LEAST_GBPS, le=MOST_GBPS, allow_inf_nan=False)]
Cost = Annotated[Number, Field(ge=0, le=1e15, allow_inf_nan=False)]


class Dimension(Frozen):
    """Dimension of a network: groups of ``size`` NPUs, each group connected as ``kind`` says."""

    name: str = Field(min_length=1, max_length=63)
    kind: Kind
    size: Whole = Field(ge=2, le=MAX_NPUS)
    gbps: Rate | None = None
    """Bandwidth of each NPU in Gbit/s, in a network that exists."""
    min_gbps: Rate | None = None
    max_gbps: Rate | None = None
    cost_per_gbps: Cost = 0.0
    """Cost of one Gbit/s at one NPU."""

    @property
    def links(self) -> int:
        """Number of links of one NPU. A ring of two NPUs has two cables between them."""
        return {Kind.RING: 2, Kind.FULLY_CONNECTED: self.size - 1, Kind.SWITCH: 1}[self.kind]


Factor = Annotated[Number, Field(ge=-1e6, le=1e6, allow_inf_nan=False)]
Sum = Annotated[Number, Field(ge=-MOST_GBPS, le=MOST_GBPS, allow_inf_nan=False)]


class Related(Frozen):
    """Limits ``min_gbps`` and ``max_gbps`` of a weighted sum of bandwidths.

    The sum is over the dimensions in ``factors``: factor times the bandwidth of an NPU in Gbit/s."""

    factors: dict[str, Factor] = Field(min_length=1)
    min_gbps: Sum | None = None
    max_gbps: Sum | None = None


class Shape(Frozen):
    """Network of several dimensions."""

    dimensions: tuple[Dimension, ...] = Field(min_length=1, max_length=MAX_DIMENSIONS)
    total_gbps: Rate | None = None
    """Largest allowed sum of one NPU's bandwidths over all dimensions, in Gbit/s."""
    budget: Annotated[Cost, Field(gt=0)] | None = None
    """Largest allowed cost of the network, in the unit of ``cost_per_gbps``."""
    relations: tuple[Related, ...] = ()

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(dimension.size for dimension in self.dimensions)

    @property
    def npus(self) -> int:
        return math.prod(self.sizes)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(dimension.name for dimension in self.dimensions)

    @property
    def rates(self) -> Rates | None:
        """Bandwidth of each dimension in a network that exists; None when some bandwidth is missing."""
        known = tuple(dimension.gbps for dimension in self.dimensions if dimension.gbps is not None)
        return known if len(known) == len(self.dimensions) else None

    @property
    def limits(self) -> Limits:
        return Limits(
            least=tuple(each.min_gbps or 0.0 for each in self.dimensions),
            most=tuple(each.max_gbps or math.inf for each in self.dimensions),
            cost=tuple(each.cost_per_gbps * self.npus for each in self.dimensions),
            total=self.total_gbps,
            budget=self.budget,
            relations=tuple(
                Relation(
                    tuple(each.factors.get(name, 0.0) for name in self.names),
                    -math.inf if each.min_gbps is None else each.min_gbps,
                    math.inf if each.max_gbps is None else each.max_gbps,
                )
                for each in self.relations
            ),
        )

    def coordinates(self, npus: Ints) -> list[Ints]:
        """Return the coordinates of the NPUs, one array for each dimension."""
        found = []
        for size in self.sizes:
            npus, at = np.divmod(npus, size)
            found.append(at)
        return found


def shape_in(path: Path, exists: bool = False) -> tuple[Shape, PlaceOf]:
    """Return the network in the file, and a function that returns the place of a field in the file.

    ``exists``: the network exists already, so all bandwidths must be given. Raises ``InvalidInput``."""
    name = called(path)
    found = data_in(path, name)
    if len(found) != 1:
        raise InvalidInput.of(name, f"must describe one network (given: {len(found)})")
    ((data, place_of),) = found
    with placed(place_of):
        shape = shape_of(data)
        InvalidInput.refuse(
            FieldProblem(f"dimensions[{d}].gbps", "is missing: the bandwidth of an NPU in this dimension")
            for d, dimension in enumerate(shape.dimensions)
            if exists and dimension.gbps is None
        )
    return shape, place_of


def with_rates(shape: Shape, gbps: Sequence[float]) -> str:
    """Return the network with these bandwidths as a JSON file. A dimension with bandwidth 0 gets no ``gbps``."""
    dimensions = tuple(
        each.model_copy(update={"gbps": rate or None}) for each, rate in zip(shape.dimensions, gbps, strict=True)
    )
    return shape.model_copy(update={"dimensions": dimensions}).model_dump_json(indent=2, exclude_none=True) + "\n"


def shape_of(data: object) -> Shape:
    """Return the network that plain data describe. Raises ``InvalidInput``."""
    shape = validated(Shape, data)
    InvalidInput.refuse(_misfits(shape))
    return shape


def _misfits(shape: Shape) -> Iterator[FieldProblem]:
    names = Counter(shape.names)
    for d, dimension in enumerate(shape.dimensions):
        if names[dimension.name] > 1:
            message = (
                f"'{dimension.name}' is the name of {names[dimension.name]} dimensions; each needs a name of its own"
            )
            yield FieldProblem(f"dimensions[{d}].name", message)
        if dimension.name == COMPUTE:
            message = f"must not be '{COMPUTE}', the name for steps that wait for computing"
            yield FieldProblem(f"dimensions[{d}].name", message)
        if (dimension.min_gbps or 0.0) > (dimension.max_gbps or math.inf):
            message = f"must be at most max_gbps, {dimension.max_gbps:g} (given: {dimension.min_gbps:g})"
            yield FieldProblem(f"dimensions[{d}].min_gbps", message)
    for r, relation in enumerate(shape.relations):
        yield from _misfits_of(relation, f"relations[{r}]", names)
    if shape.npus > MAX_NPUS:
        yield FieldProblem("dimensions", f"make {shape.npus:,} NPUs; at most {MAX_NPUS:,} are allowed")
    if shape.budget is not None and not any(each.cost_per_gbps for each in shape.dimensions):
        yield FieldProblem("budget", "needs the cost_per_gbps of dimensions")


def _misfits_of(relation: Related, path: str, names: Container[str]) -> Iterator[FieldProblem]:
    for name in relation.factors:
        if name not in names:
            yield FieldProblem(f"{path}.factors", f"there is no dimension '{name}'")
    if not any(relation.factors.values()):
        yield FieldProblem(f"{path}.factors", "must not all be 0")
    least, most = relation.min_gbps, relation.max_gbps
    if least is None and most is None:
        yield FieldProblem(path, "needs min_gbps or max_gbps")
    elif least is not None and most is not None and least > most:
        yield FieldProblem(f"{path}.min_gbps", f"must be at most max_gbps, {most:g} (given: {least:g})")
