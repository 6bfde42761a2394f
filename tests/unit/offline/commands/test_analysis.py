"""``what-if`` and ``explain`` as a user runs them: they agree with ``plan-file``, and name what is wrong."""

from pathlib import Path

import pytest

from tests.support.command_line import Signalbox, signalbox

__all__ = ("signalbox",)


LEAVES, SPINES, HOSTS = 4, 4, 4
FABRIC = ("--leaves", LEAVES, "--spines", SPINES, "--hosts-per-leaf", HOSTS)


def write_job(folder: Path, name: str, hosts_of_rings: list[list[tuple[int, int]]]) -> None:
    rows = []
    for index, hosts in enumerate(hosts_of_rings):
        ends = [(LEAVES + SPINES + leaf * HOSTS + host, leaf) for leaf, host in hosts]
        for (src, src_leaf), (dst, dst_leaf) in zip(ends, [*ends[1:], ends[0]], strict=True):
            rows.append(f"{src} {dst} {src_leaf} {dst_leaf} 7 1000 9 {index}")
    (folder / f"{name}.txt").write_text("\n".join(rows))


@pytest.fixture
def workload(tmp_path: Path) -> Path:
    """Return a workload where job A fills leaves 0 and 1.

    Job B has one ring on leaves 2 and 3, which have room to spare."""
    folder = tmp_path / "workload"
    folder.mkdir()
    write_job(folder, "A", [[(0, host), (1, host)] for host in range(4)])
    write_job(folder, "B", [[(2, 0), (3, 0)]])
    return folder


# ---- what-if


@pytest.mark.parametrize(
    ("failures", "split"),
    [(("--fail-links", "leaf0:spine2,leaf2:spine0"), ()), (("--fail-spines", "1"), ("--max-subflows", 2))],
)
def test_every_row_is_what_plan_file_says_of_that_failure(
    signalbox: Signalbox, workload: Path, failures: tuple[str, ...], split: tuple[object, ...]
) -> None:
    fabric = (*FABRIC, "--workload", workload, *split)
    found = signalbox("what-if", *fabric, *failures, "--json", "--top", 0)
    assert found.status == 0
    assert found.json["cases"] == len(found.json["outcomes"]) > 1
    given = dict(zip(failures[::2], failures[1::2], strict=True))
    for outcome in found.json["outcomes"]:
        option = "--fail-spines" if outcome["kind"] == "spine" else "--fail-links"
        broken = {**given, option: ",".join(filter(None, (given.get(option), outcome["failures"][-1])))}
        options = [part for pair in broken.items() for part in pair]
        planned = signalbox("plan-file", *fabric, *options, "--json").json
        assert outcome["slowdown"] == pytest.approx(planned["max_slowdown"], rel=0.01 if split else 1e-6)
        assert outcome["bound"] == pytest.approx(planned["fluid_bound"])
        assert outcome["integer_bound"] == pytest.approx(planned["integer_bound"])
        assert outcome["ecmp_slowdown"]["mean"] == pytest.approx(planned["ecmp_slowdown"]["mean"], rel=0.15)


def test_the_table_tells_what_is_left_out(signalbox: Signalbox, workload: Path) -> None:
    found = signalbox("what-if", *FABRIC, "--workload", workload, "--top", 1)
    assert found.status == 0
    assert "The worst failure is that of spine" in found.text, "of equal slowdowns that with most flows to re-route"
    assert "4 more cases have equal or smaller slowdowns; --top 0 prints all." in found.text
    assert "No failure leaves a flow without a path." in found.text


def test_flows_that_are_cut_off_are_named(signalbox: Signalbox, workload: Path) -> None:
    """Leaf 3 has cables to spine 3 alone."""
    cut = "leaf3:spine0,leaf3:spine1,leaf3:spine2"
    found = signalbox("what-if", *FABRIC, "--workload", workload, "--fail-links", cut, "--json")
    worst = found.json["outcomes"][0]
    assert worst["example"] == "spine3"
    assert worst["lost"] == [
        {"src": "16", "dst": "20", "src_leaf": "leaf2", "dst_leaf": "leaf3"},
        {"src": "20", "dst": "16", "src_leaf": "leaf3", "dst_leaf": "leaf2"},
    ]
    assert (worst["rerouted_fewest"], worst["rerouted_most"]) == (2, 2), "those of A that ran over spine 3"
    none_left = signalbox("what-if", *FABRIC, "--workload", workload, "--fail-links", f"{cut},leaf3:spine3", "--json")
    assert (none_left.status, len(none_left.json["now"]["unrouted"])) == (3, 2)


# ---- explain


def test_a_job_that_a_failed_spine_or_hashing_slows(signalbox: Signalbox, workload: Path) -> None:
    common = ("--workload", workload, "--fail-spines", "2", "--json")
    found = signalbox("explain", "A", *FABRIC, *common).json
    planned = signalbox("plan-file", *FABRIC, *common).json
    split = signalbox("plan-file", *FABRIC, *common, "--max-subflows", 8).json
    assert found["slowdown"] == pytest.approx(planned["job_slowdown"]["A"]) == 2
    assert found["split"]["slowdown"] == pytest.approx(split["job_slowdown"]["A"])
    assert (found["verdict"], found["cut"]["links"], found["cut"]["failed"]) == ("fabric", 3, 1)
    assert "4 whole flows over 3 links (1 more has failed)" in " ".join(found["answer"])
    assert found["fullest_links"][0]["load"] == pytest.approx(2)
    hashed = signalbox("explain", "A", *FABRIC, "--workload", workload, "--scheme", "ecmp", "--json").json
    assert (hashed["verdict"], hashed["best"]["slowdown"]) == ("routing", 1)


def test_flows_without_a_path_make_it_exit_3(signalbox: Signalbox, workload: Path) -> None:
    cut = ",".join(f"leaf3:spine{spine}" for spine in range(SPINES))
    found = signalbox("explain", "B", *FABRIC, "--workload", workload, "--fail-links", cut)
    assert found.status == 3
    assert "The network stops job 'B': 2 flows have no path." in found.text
    other = signalbox("explain", "A", *FABRIC, "--workload", workload, "--fail-links", cut)
    assert (other.status, "The network does not slow job 'A'" in other.text) == (0, True)


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (("explain", "nix"), 5, "there is no job 'nix'; jobs: A, B"),
        (("explain", "A", "--scheme", "best"), 2, "there is no scheme 'best'"),
        (("what-if", "--fail", "leaves"), 2, "there is no kind 'leaves'"),
    ],
)
def test_what_is_wrong_is_said(
    signalbox: Signalbox, workload: Path, arguments: tuple[str, ...], status: int, message: str
) -> None:
    found = signalbox(*arguments, *FABRIC, "--workload", workload)
    assert found.status == status
    assert message in " ".join(found.err.split())
