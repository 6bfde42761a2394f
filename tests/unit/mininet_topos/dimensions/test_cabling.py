"""How a network of several dimensions is cabled, and which jobs can be emulated on it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from mininet_topos.dimensions.cabling import LabStep, channels, lab_steps, segments
from mininet_topos.dimensions.collective import Channel
from offline.design.jobs import designed_jobs
from offline.design.shape import Shape, shape_of
from signalbox.errors import InvalidInput

SHAPE = shape_of(
    {
        "dimensions": [
            {"name": "board", "kind": "fully_connected", "size": 3},
            {"name": "box", "kind": "ring", "size": 2},
            {"name": "pod", "kind": "switch", "size": 2},
        ]
    }
)


def test_an_npu_has_as_many_links_as_its_dimensions_say() -> None:
    cabling = segments(SHAPE)
    links = Counter((end.npu, segment.dimension) for segment in cabling for end in segment.ends)
    assert links == {(npu, d): dimension.links for npu in range(12) for d, dimension in enumerate(SHAPE.dimensions)}
    assert sum(segment.switched for segment in cabling) == 6


def test_names_and_addresses_are_given_once() -> None:
    ends = [end for segment in segments(SHAPE) for end in segment.ends]
    assert len({end.address for end in ends}) == len({(end.npu, end.interface) for end in ends}) == len(ends)


def test_a_ring_of_two_has_a_cable_for_each_way() -> None:
    first = channels(segments(SHAPE))[0]
    assert first[Channel(1, 1)].npu == first[Channel(1, -1)].npu == 3
    assert first[Channel(1, 1)].interface == "d1b1"
    assert first[Channel(1, -1)].interface == "d1f1"


def steps(tmp_path: Path, shape: Shape = SHAPE, **job: Any) -> list[LabStep]:
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump({"job_id": "a", **job}))
    return lab_steps([way for (way,) in designed_jobs([path], shape)], shape)


def test_a_collective_is_emulated_in_the_dimensions_in_which_its_ranks_differ(tmp_path: Path) -> None:
    groups = [{"name": f"g{n}", "ranks": [n, n + 3, n + 6, n + 9]} for n in range(3)]
    reduced = {"algorithm": "all_reduce", "groups": ["g0", "g1", "g2"], "bytes_per_iteration": 1000}
    alone, found = steps(tmp_path, groups=groups, collectives=[reduced], compute=[{"seconds": 2}])
    assert (alone.dimensions, alone.step.floor_s) == ((), 2)
    assert (found.dimensions, found.size) == ((1, 2), 1000)
    assert found.groups[1] == (1, 4, 7, 10)


@pytest.mark.parametrize(
    ("ranks", "algorithm", "problem"),
    [
        ([0, 1], "all_reduce", "must fill the same dimensions"),
        ([0, 4], "all_reduce", "must fill the same dimensions"),
        ([0, 1, 2], "all_to_all", "must be one all-reduce"),
    ],
)
def test_what_is_not_emulated_is_refused(tmp_path: Path, ranks: list[int], algorithm: str, problem: str) -> None:
    collective = {"algorithm": algorithm, "groups": ["g"], "bytes_per_iteration": 1000}
    with pytest.raises(InvalidInput, match=problem):
        steps(tmp_path, groups=[{"name": "g", "ranks": ranks}], collectives=[collective])
