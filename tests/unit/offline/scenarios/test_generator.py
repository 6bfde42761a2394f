"""Generated workloads: the published models, at the requested places, the same for the same seed."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offline.scenarios.fabric_options import Placement
from offline.scenarios.fabrics import leaf_spine
from offline.scenarios.generator import MODELS, Workload, generate, jobs_of
from offline.scenarios.workloads import Line, read_workload, write_workload
from signalbox.errors import InvalidInput

FABRIC = leaf_spine(16, 8, 32, 100e9, 100e9)
PLACEMENTS = st.sampled_from(Placement)


def rings(lines: Sequence[Line]) -> list[list[Line]]:
    found: defaultdict[int, list[Line]] = defaultdict(list)
    for line in lines:
        found[line.stage_index].append(line)
    return list(found.values())


def flat(workload: Workload) -> list[Line]:
    return [line for lines in workload.values() for line in lines]


@pytest.mark.parametrize(("name", "ring_size", "flow_bytes"), [
    ("BLOOM", 2, 7333333334), ("BLOOM", 4, 3666666667), ("BLOOM", 8, 1833333334), ("LLaMA2_70B", 2, 1093750000),
    ("LLaMA2_70B", 4, 546875000), ("GPT_3", 4, 2734375000), ("GPT_3", 8, 1367187500),
])  # fmt: skip
def test_steps_have_the_bytes_of_the_published_files(name: str, ring_size: int, flow_bytes: int) -> None:
    (model,) = (model for model in MODELS if model.name == name)
    assert model.flow_bytes(ring_size) == flow_bytes


@settings(max_examples=25)
@given(jobs=st.integers(1, 2), ring_size=st.sampled_from([2, 4, 8]), placement=PLACEMENTS, seed=st.integers(0, 99))
def test_rings_are_closed_share_no_host_and_are_whole_models(
    jobs: int, ring_size: int, placement: Placement, seed: int
) -> None:
    workload = generate(FABRIC, jobs, ring_size, placement, seed)
    assert len(workload) == jobs
    for name, lines in workload.items():
        (model,) = (model for model in MODELS if name.endswith(f"-{model.name}"))
        sizes = {len(ring) for ring in rings(lines)}
        assert len(rings(lines)) == model.rings
        assert len(sizes) == 1
        assert sizes <= {2, 4, 8}
        assert max(sizes) <= ring_size
        assert {(line.flow_size, line.compute_time) for line in lines} == {
            (model.flow_bytes(max(sizes)), model.compute_ns)
        }
        for ring in rings(lines):
            assert [line.dst for line in ring] == [line.src for line in (*ring[1:], ring[0])]
    assert set(Counter(line.src for line in flat(workload)).values()) == {1}


def test_a_seed_names_a_workload_and_what_is_written_is_read_again(tmp_path: Path) -> None:
    workload = generate(FABRIC, 2, 2, Placement.FRAGMENTED, seed=5)
    assert workload == generate(FABRIC, 2, 2, Placement.FRAGMENTED, seed=5)
    assert workload != generate(FABRIC, 2, 2, Placement.FRAGMENTED, seed=6)
    write_workload(tmp_path / "new", workload)
    assert read_workload(tmp_path / "new", FABRIC, max_subflows=3) == jobs_of(workload, FABRIC, max_subflows=3)


@given(seed=st.integers(0, 999))
def test_whole_leaves_are_filled_and_only_the_last_of_a_replica_in_part(seed: int) -> None:
    """A replica has 48, 64 or 128 hosts on leaves of 32."""
    workload = generate(FABRIC, 1, 2, Placement.WHOLE_LEAF, seed)
    for end in (0, 1):
        replica = Counter(ring[end].src_tor for ring in rings(flat(workload)))
        assert sorted(replica.values())[1:] == [32] * (len(replica) - 1)


def test_fragmented_replicas_are_everywhere() -> None:
    workload = generate(FABRIC, 1, 2, Placement.FRAGMENTED, seed=1)
    assert len({line.src_tor for line in flat(workload)}) > 12


def test_a_job_that_does_not_fit_has_smaller_rings() -> None:
    """The 512 hosts are fewer than two jobs in rings of eight need (at least 2 * 8 * 48)."""
    workload = generate(FABRIC, 2, 8, Placement.WHOLE_LEAF, seed=3)
    sizes = [len(rings(lines)[0]) for lines in workload.values()]
    assert min(sizes) < 8
    assert sum(map(len, workload.values())) <= 512


def test_small_fabrics_take_fewer_rings_or_say_how_many_hosts_they_lack() -> None:
    small = leaf_spine(4, 2, 4, 100e9, 100e9)
    workload = generate(small, 2, 4, Placement.FRAGMENTED, seed=1, max_rings=2)
    assert [len(rings(lines)) for lines in workload.values()] == [2, 2]
    with pytest.raises(InvalidInput, match=r"at least (96|128|256) hosts, the fabric has 16"):
        generate(small, 1, 4, Placement.FRAGMENTED, seed=1)


@pytest.mark.parametrize(("jobs", "ring_size", "max_rings"), [(0, 2, None), (1, 1, None), (1, 2, 0)])
def test_numbers_that_make_no_sense_are_refused(jobs: int, ring_size: int, max_rings: int | None) -> None:
    with pytest.raises(InvalidInput, match="at least"):
        generate(FABRIC, jobs, ring_size, Placement.FRAGMENTED, 1, max_rings)
