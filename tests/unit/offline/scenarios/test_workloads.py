"""Workloads from files and from the generator."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offline.scenarios.fabric_options import Placement
from offline.scenarios.fabrics import leaf_spine
from offline.scenarios.generator import MODELS, Workload, generate, jobs_of
from offline.scenarios.workloads import HEADER, Line, WorkloadJob, read_workload, write_workload
from signalbox.errors import InvalidInput
from signalbox.jobs.collectives import VirtualLink

FABRIC = leaf_spine(2, 1, 4, 100e9, 100e9)
"""Leaves 0 and 1, spine 2, hosts 3 to 6 on leaf 0 and 7 to 10 on leaf 1."""

PAIR = "3 7 0 1 500 1000 70 0\n7 3 1 0 500 1000 70 0\n"


def folder(tmp_path: Path, **files: str) -> Path:
    for name, content in files.items():
        (tmp_path / f"{name}.txt").write_text(f"{HEADER}\n{content}")
    return tmp_path


def problems(tmp_path: Path, **files: str) -> list[str]:
    with pytest.raises(InvalidInput) as error:
        read_workload(folder(tmp_path, **files), FABRIC)
    return [str(problem).removeprefix(f"{tmp_path}/") for problem in error.value.problems]


def test_a_ring_sends_every_step_of_its_all_reduce(tmp_path: Path) -> None:
    """A ring of four has 2 * 3 steps; 6000 bytes take 480 ns at 100 Gbit/s."""
    ring = "3 7 0 1 5 1000 70 9\n7 4 1 0 5 1000 70 9\n4 8 0 1 5 1000 70 9\n8 3 1 0 5 1000 70 9\n"
    (job,) = read_workload(folder(tmp_path, Job_A=ring), FABRIC, max_subflows=2)
    ips = [("10.0.0.1", "10.0.1.1"), ("10.0.1.1", "10.0.0.2"), ("10.0.0.2", "10.0.1.2"), ("10.0.1.2", "10.0.0.1")]
    links = tuple(VirtualLink(src, dst, 0, 6000) for src, dst in ips)
    times: dict[str, Any] = {"start_s": 5e-9, "compute_s": 70e-9, "ideal_s": 8 * 6000 / 100e9}
    assert job == WorkloadJob(id=job.id, virtual_links=links, rings=((0, 1, 2, 3),), max_subflows=2, **times)
    assert (job.id, job.pairs) == ("Job_A", frozenset(ips))


def test_rings_are_distinguished_by_their_index_and_may_differ(tmp_path: Path) -> None:
    """The lines of two rings are mixed; the second has three hosts, so four steps, and its NICs set the ideal time."""
    lines = ["3 7 0 1 0 100 0 1", "4 8 0 1 0 90 0 5", "7 3 1 0 0 100 0 1", "8 9 1 1 0 90 0 5", "9 4 1 0 0 90 0 5"]
    (job,) = read_workload(folder(tmp_path, job="\n".join(lines)), FABRIC)
    assert job.rings == ((0, 2), (1, 3, 4))
    assert [link.bytes for link in job.virtual_links] == [200, 360, 200, 360, 360]
    assert job.ideal_s == pytest.approx(8 * 360 / 100e9)


def test_jobs_come_by_file_name_and_other_files_are_none(tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("no job")
    jobs = read_workload(folder(tmp_path, b=PAIR, a="4 8 0 1 1 1 1 0\n\n8 4 1 0 1 1 1 0\n"), FABRIC)
    assert [job.id for job in jobs] == ["a", "b"]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("3 7 0 1 500 1000 70", "has 7 columns; 8 are expected: src dst src_tor dst_tor start_time flow_size"),
        ("3 7 0 1 500 1e3 70 0", "flow_size is '1e3', which is not a whole number"),
        ("2 7 0 1 500 1000 70 0", "src is 2, which is no host of the fabric; the hosts are 3 to 10"),
        ("3 11 0 1 500 1000 70 0", "dst is 11, which is no host of the fabric"),
        ("3 7 1 1 500 1000 70 0", "src_tor is 1, but host 3 is on switch 0"),
        ("3 7 0 2 500 1000 70 0", "dst_tor is 2, but host 7 is on switch 1"),
        ("3 3 0 0 500 1000 70 0", "src and dst are both 3"),
        ("3 7 0 1 500 0 70 0", "flow_size is 0; it must be at least 1"),
        (f"3 7 0 1 500 {10**400} 70 0", "flow_size is too large; it must be at most 1000000000000000000"),
        ("3 7 0 1 -500 1000 70 0", "start_time is -500; it must not be negative"),
        ("3 7 0 1 500 1000 -70 0", "compute_time is -70; it must not be negative"),
        ("3 7 0 1 501 1000 70 0", "start_time is 501, but 500 on line 2; all lines must agree"),
        ("3 7 0 1 500 1000 70 1", "stage_index 1 is on this line only; a ring needs at least two lines"),
        ("7 3 1 0 500 1000 70 0", "7 > 3 is also on"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, line: str, problem: str) -> None:
    good = "7 3 1 0 500 1000 70 0\n4 7 0 1 500 1000 70 0\n"
    found = [text for text in problems(tmp_path, job=f"{good}{line}\n") if text.startswith("job.txt:4: ")]
    assert any(text.startswith(f"job.txt:4: {problem}") for text in found), found


def test_a_flow_of_two_jobs_names_both(tmp_path: Path) -> None:
    found = problems(tmp_path, a=PAIR, b="4 8 0 1 0 1 0 0\n" + PAIR.replace("500 1000 70", "0 1 0"))
    assert found[0] == f"b.txt:3: 3 > 7 is also on {tmp_path}/a.txt:2; a pair of hosts may have one flow"


def test_all_wrong_lines_are_reported_at_once_up_to_a_limit(tmp_path: Path) -> None:
    assert len(problems(tmp_path, job="3 7\n" * 5)) == 5
    assert len(problems(tmp_path, job="3 7 0 1 500 1000 70 0\n7 3 1 0 500 1000 70\n")) == 1, "and not what follows"
    found = problems(tmp_path, job="3 7\n" * 50)
    assert (len(found), found[-1]) == (21, f"{tmp_path}: 30 more problems")


def test_a_file_without_flows_is_refused(tmp_path: Path) -> None:
    assert problems(tmp_path, a=PAIR, b="") == ["b.txt: has no flows: a line per flow is expected"]


def test_a_folder_of_folders_names_them(tmp_path: Path) -> None:
    (tmp_path / "ring_size_4").mkdir()
    folder(tmp_path / "ring_size_4", job=PAIR)
    with pytest.raises(InvalidInput, match=r"no workload file .*; these folders below it do: .*/ring_size_4$"):
        read_workload(tmp_path, FABRIC)


def test_there_must_be_something_to_read(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"holds no workload file \(\*\.txt\)$"):
        read_workload(tmp_path, FABRIC)
    with pytest.raises(InvalidInput, match="missing: there is no such folder"):
        read_workload(tmp_path / "missing", FABRIC)
    (tmp_path / "file").touch()
    with pytest.raises(InvalidInput, match="file: is not a folder"):
        read_workload(tmp_path / "file", FABRIC)


def test_a_workload_is_not_written_among_other_jobs(tmp_path: Path) -> None:
    """The files of the other jobs would be read as part of the workload."""
    one = Line(3, 7, 0, 1, 500, 1000, 70, 0)
    write_workload(tmp_path, {"a": [one], "b": [one]})
    write_workload(tmp_path, {"a": [one._replace(src=4)], "b": [one]})
    with pytest.raises(InvalidInput, match=r"holds files of other jobs: b\.txt; give another folder"):
        write_workload(tmp_path, {"a": [one]})
    assert " ".join(map(str, one._replace(src=4))) in (tmp_path / "a.txt").read_text()


LARGE = leaf_spine(16, 8, 32, 100e9, 100e9)
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
    workload = generate(LARGE, jobs, ring_size, placement, seed)
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
    workload = generate(LARGE, 2, 2, Placement.FRAGMENTED, seed=5)
    assert workload == generate(LARGE, 2, 2, Placement.FRAGMENTED, seed=5)
    assert workload != generate(LARGE, 2, 2, Placement.FRAGMENTED, seed=6)
    write_workload(tmp_path / "new", workload)
    assert read_workload(tmp_path / "new", LARGE, max_subflows=3) == jobs_of(workload, LARGE, max_subflows=3)


@given(seed=st.integers(0, 999))
def test_whole_leaves_are_filled_and_only_the_last_of_a_replica_in_part(seed: int) -> None:
    """A replica has 48, 64 or 128 hosts on leaves of 32."""
    workload = generate(LARGE, 1, 2, Placement.WHOLE_LEAF, seed)
    for end in (0, 1):
        replica = Counter(ring[end].src_tor for ring in rings(flat(workload)))
        assert sorted(replica.values())[1:] == [32] * (len(replica) - 1)


def test_fragmented_replicas_are_everywhere() -> None:
    workload = generate(LARGE, 1, 2, Placement.FRAGMENTED, seed=1)
    assert len({line.src_tor for line in flat(workload)}) > 12


def test_a_job_that_does_not_fit_has_smaller_rings() -> None:
    """The 512 hosts are fewer than two jobs in rings of eight need (at least 2 * 8 * 48)."""
    workload = generate(LARGE, 2, 8, Placement.WHOLE_LEAF, seed=3)
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
        generate(LARGE, jobs, ring_size, Placement.FRAGMENTED, 1, max_rings)
