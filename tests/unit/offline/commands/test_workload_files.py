"""Commands on workload files: generation, plans and simulations."""

import csv
import json
from collections import defaultdict
from fractions import Fraction
from functools import partial
from itertools import pairwise
from pathlib import Path

import networkx as nx
import pytest

from offline.scenarios.workloads import HEADER
from tests.support.command_line import Signalbox, signalbox

__all__ = ("signalbox",)

LEAVES, SPINES, HOSTS = 4, 4, 4
FIRST_HOST = LEAVES + SPINES
FABRIC = ("--leaves", str(LEAVES), "--spines", str(SPINES), "--hosts-per-leaf", str(HOSTS))
JSON_KEYS = (
    "scheme", "striping", "flows", "subflows", "max_subflows_of_a_flow", "if_paced", "max_slowdown", "bound",
    "fluid_bound", "integer_bound", "gap", "slowdowns_proven", "slowdowns_proven_listed", "candidates_listed",
    "path_stretch", "certificate", "cut_short", "plan_ms", "job_slowdown", "objective",
    "own_slowdown", "sorted_slowdowns", "mean_job_slowdown", "max_job_slowdown", "ecmp_slowdown",
    "unrouted", "job_unrouted",
)  # fmt: skip


def ring(hosts: list[tuple[int, int]], index: int, first_host: int = FIRST_HOST, hosts_per_leaf: int = HOSTS) -> str:
    """Return the lines of a ring; ``hosts``: (leaf, host on it) in ring order."""
    ends = [(first_host + leaf * hosts_per_leaf + host, leaf) for leaf, host in hosts]
    rows = ((src, dst, a, b, 7, 1000, 9, index) for (src, a), (dst, b) in zip(ends, [*ends[1:], ends[0]], strict=True))
    return "".join(" ".join(map(str, row)) + "\n" for row in rows)


@pytest.fixture
def workload(tmp_path: Path) -> Path:
    """Return a workload of two jobs of two rings, with every host of four leaves in a ring of one host per leaf.

    A ring inside leaf 3 is then impossible, because all hosts are taken."""
    folder = tmp_path / "workload"
    folder.mkdir()
    for job, rings in (("job_0-A", (0, 1)), ("job_1-B", (2, 3))):
        lines = "".join(ring([(leaf, host) for leaf in range(LEAVES)], host) for host in rings)
        (folder / f"{job}.txt").write_text(f"#src dst ...\n{lines}")
    return folder


def rows(file: Path) -> list[dict[str, str]]:
    with file.open(newline="") as opened:
        return list(csv.DictReader(opened))


def job_slowdowns(found: list[dict[str, str]]) -> dict[str, float]:
    """Return the slowdown of each job from the CSV alone, for flows that each fill a NIC.

    The load of a hop is the sum of shares; a job has the load of its worst hop."""
    load: defaultdict[tuple[str, str], float] = defaultdict(float)
    hops = [(row, list(pairwise(row["path"].split(">")))) for row in found]
    for row, path in hops:
        for hop in path:
            load[hop] += float(row["share"])
    slowdowns: dict[str, float] = {}
    for row, path in hops:
        slowdowns[row["job"]] = max([slowdowns.get(row["job"], 1.0), *(load[hop] for hop in path)])
    return slowdowns


@pytest.mark.parametrize(
    ("options", "slowdown", "bound", "integer_bound"),
    [
        ((), Fraction(1), Fraction(1), 1),
        (("--fail-spines", "1"), Fraction(2), Fraction(4, 3), 2),
        (("--fail-spines", "1", "--max-subflows", "2"), Fraction(4, 3), Fraction(4, 3), 2),
        (("--fail-links", "leaf1:spine2", "--max-subflows", "2"), Fraction(4, 3), Fraction(4, 3), 2),
        (("--fail-spines", "1", "--max-subflows", "2", "--striping", "even"), Fraction(3, 2), Fraction(4, 3), 1.5),
    ],
)
def test_the_plan_that_is_written_is_the_plan_that_is_reported(
    signalbox: Signalbox,
    workload: Path,
    tmp_path: Path,
    options: tuple[str, ...],
    slowdown: Fraction,
    bound: Fraction,
    integer_bound: float,
) -> None:
    """Four flows leave every leaf: 4 / 3 is the best over three spines when they are split."""
    export = tmp_path / "plan.csv"
    result = signalbox("plan-file", *FABRIC, "--workload", workload, "--export", export, "--json", *options)
    assert result.status == 0, result.err
    found = result.json
    assert tuple(found) == JSON_KEYS
    assert export.read_text().startswith("flow_id,job,src_host,dst_host,subflow,share,path\n")
    written = rows(export)
    assert (found["flows"], found["unrouted"]) == (16, [])
    assert found["subflows"] == len(written)
    shares: defaultdict[str, list[float]] = defaultdict(list)
    for row in written:
        shares[row["flow_id"]].append(float(row["share"]))
        assert int(row["subflow"]) == len(shares[row["flow_id"]]) - 1
    assert list(map(int, shares)) == list(range(16))
    assert all(abs(sum(of_flow) - 1) <= 1e-9 for of_flow in shares.values())
    assert max(map(len, shares.values())) == found["max_subflows_of_a_flow"] <= 2
    assert job_slowdowns(written) == pytest.approx(found["job_slowdown"])
    worst = max(found["job_slowdown"].values())
    assert found["own_slowdown"].keys() == found["job_slowdown"].keys()
    assert found["sorted_slowdowns"] == sorted(found["job_slowdown"].values(), reverse=True)
    assert worst == found["max_slowdown"] == found["max_job_slowdown"] == pytest.approx(slowdown)
    assert found["fluid_bound"] == pytest.approx(bound)
    assert found["bound"] == pytest.approx(slowdown)
    assert (found["integer_bound"], found["certificate"], found["gap"]) == (integer_bound, "optimal", 0)
    assert found["slowdowns_proven"] == len(found["job_slowdown"]) == 2
    assert found["plan_ms"].keys() == {"build", "solve", "check", "total"}
    assert found["ecmp_slowdown"]["p95"] >= found["ecmp_slowdown"]["mean"] >= float(slowdown)


def test_rows_are_the_lines_of_the_files_in_order(signalbox: Signalbox, workload: Path, tmp_path: Path) -> None:
    export = tmp_path / "plan.csv"
    assert signalbox("plan-file", *FABRIC, "--workload", workload, "--export", export).status == 0
    files = {file.stem: file.read_text().splitlines()[1:] for file in sorted(workload.iterdir())}
    lines = [(job, *line.split()[:4]) for job, of_job in files.items() for line in of_job]
    written = [(row["job"], row["src_host"], row["dst_host"], *row["path"].split(">")[::2]) for row in rows(export)]
    assert written == [(job, src, dst, f"leaf{a}", f"leaf{b}") for job, src, dst, a, b in lines]


def test_what_cannot_be_routed_is_named_the_rest_planned(signalbox: Signalbox, workload: Path, tmp_path: Path) -> None:
    """Leaf 2 is cut off: two flows of every ring, to and from it, have no path; the other two have one."""
    cut = ",".join(f"leaf2:spine{spine}" for spine in range(SPINES))
    export = tmp_path / "plan.csv"
    common = ("plan-file", *FABRIC, "--workload", workload, "--fail-links", cut)
    result = signalbox(*common, "--json", "--export", export)
    assert result.status == 3
    assert (result.json["flows"], result.json["subflows"], len(result.json["unrouted"])) == (16, 8, 8)
    assert result.json["unrouted"][0] == "12>16 (leaf1>leaf2)"
    assert result.json["job_unrouted"] == {"job_0-A": 4, "job_1-B": 4}
    assert {row["flow_id"] for row in rows(export)} == {str(4 * n + k) for n in range(4) for k in (0, 3)}
    for_people = signalbox(*common)
    assert for_people.status == 3
    assert "12>16 (leaf1>leaf2)" in for_people.out
    jobs = [line.replace("│", " ").split() for line in for_people.out.splitlines() if "job_" in line]
    assert jobs == [[name, "1", "0.0%", "4"] for name in ("job_0-A", "job_1-B")]


def test_the_same_input_gives_the_same_plan_when_asked(signalbox: Signalbox, workload: Path, tmp_path: Path) -> None:
    files = [tmp_path / f"{run}.csv" for run in range(2)]
    for file in files:
        options = ("--fail-links", "leaf1:spine2", "--max-subflows", 2, "--deterministic", "--export", file)
        assert signalbox("plan-file", *FABRIC, "--workload", workload, *options).status == 0
    assert files[0].read_text() == files[1].read_text()


def test_a_written_plan_is_verified(signalbox: Signalbox, workload: Path, tmp_path: Path) -> None:
    """Whole flows of full leaves need slowdown 2 without one of four spines, and split flows 4/3."""
    file = tmp_path / "plan.json"
    for subflows, slowdown in ((1, "2"), (2, "1.33333")):
        options = ("--fail-spines", 3, "--max-subflows", subflows, "--proof", file)
        found = signalbox("plan-file", *FABRIC, "--workload", workload, *options, "--json").json
        said = signalbox("verify", file)
        assert (said.status, said.err) == (0, "")
        assert said.out == f"worst slowdown {slowdown}, at least {slowdown} with any routes; 2 of 2 slowdowns proven\n"
        assert found["slowdowns_proven"] == 2


def test_a_plan_that_does_not_follow_is_refused(signalbox: Signalbox, workload: Path, tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    signalbox("plan-file", *FABRIC, "--workload", workload, "--fail-spines", 3, "--proof", file)
    plan = json.loads(file.read_text())
    file.write_text(json.dumps(plan | {"proofs": []}))
    refused = signalbox("verify", file)
    assert refused.status == 1
    assert refused.err.startswith(f"error: {file}: slowdown number 1 from the worst is ")
    file.write_text(json.dumps(plan | {"proofs": [], "proven": 0, "searched": 2}))
    unchecked = signalbox("verify", file)
    assert unchecked.status == 4
    assert "0 of 2 slowdowns proven, 2 more by a search, which cannot be checked" in unchecked.out
    file.write_text('{"denominator": 1.5}')
    assert signalbox("verify", file).err.startswith(f"error: {file}: invalid literal for int()")


@pytest.fixture
def beside_a_slow_cable(tmp_path: Path) -> tuple[object, ...]:
    """Return options for a flow of 50 Gbit/s each way between a and b, which have a cable of 10, and 100 over c."""
    graph: nx.Graph[str] = nx.Graph()
    graph.add_nodes_from("abc", kind="switch")
    graph.add_nodes_from(("x", "y"), kind="host")
    for one, other, gbps in (("a", "b", 10), ("a", "c", 100), ("c", "b", 100), ("x", "a", 50), ("y", "b", 50)):
        graph.add_edge(one, other, capacity_gbps=gbps)
    file, folder = tmp_path / "fabric.json", tmp_path / "jobs"
    file.write_text(json.dumps(nx.node_link_data(graph, edges="edges")))
    folder.mkdir()
    (folder / "job_0-A.txt").write_text("3 4 0 1 7 1000 9 0\n4 3 1 0 7 1000 9 0\n")
    return ("--graph", file, "--workload", folder)


def test_longer_paths_than_the_shortest(signalbox: Signalbox, beside_a_slow_cable: tuple[object, ...]) -> None:
    for stretch, slowdown in ((0, 5.0), (1, 1.0)):
        options = (*beside_a_slow_cable, "--path-stretch", stretch, "--json")
        assert signalbox("plan-file", *options).json["max_slowdown"] == slowdown
        (trained,) = signalbox("simulate", *options, "--iterations", 1).json["schemes"]
        assert trained["mean_slowdown"] == pytest.approx(slowdown, rel=1e-3)
    longer = ("plan-file", *beside_a_slow_cable, "--path-stretch", 1)
    text = signalbox(*longer).text
    assert "1 of 1 slowdowns proven over all loop-free paths of up to 1 more links than the shortest" in text
    refused = signalbox(*longer, "--proof", "plan.json")
    assert (refused.status, "proofs are over shortest paths" in refused.err) == (2, True)


def test_efficiency_is_only_said_where_slowdowns_do_not_depend_on_pacing(signalbox: Signalbox, workload: Path) -> None:
    common = ("plan-file", *FABRIC, "--workload", workload, "--fail-spines", "1", "--max-subflows", 2)
    assert "efficiency" not in signalbox(*common).out
    assert "efficiency" in signalbox(*common, "--striping", "paced").out


# ---- wrong input


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (
            ("--fail-spines", "9"),
            "--fail-spines: there is no spine '9'; switches that can fail: spine0, spine1, spine2, spine3",
        ),
        (("--graph", "missing.json"), "missing.json: No such file or directory"),
    ],
)
def test_unknown_names_are_an_error(signalbox: Signalbox, workload: Path, options: tuple[str, ...], error: str) -> None:
    fabric = () if "--graph" in options else FABRIC
    result = signalbox("plan-file", *fabric, "--workload", workload, *options)
    assert (result.status, result.out) == (1, "")
    assert result.err.startswith("error: ")
    assert error in result.err


def test_wrong_lines_are_errors_with_file_and_line(signalbox: Signalbox, workload: Path) -> None:
    file = workload / "job_0-A.txt"
    file.write_text(file.read_text() + "8 12 0 1 7 1000 9\n99 12 0 1 7 1000 9 0\n")
    result = signalbox("plan-file", *FABRIC, "--workload", workload)
    assert result.status == 1
    seven, outside = result.err.splitlines()
    assert seven.startswith(f"error: {file}:10: has 7 columns; 8 are expected")
    assert outside.startswith(f"error: {file}:11: src is 99, which is no host of the fabric; the hosts are 8 to 23")


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ((*FABRIC,), "--workload: is missing: give --workload, --jobs or both"),
        ((*FABRIC, "--k", "4", "--workload", "x"), "--k: does not apply"),
        ((*FABRIC, "--workload", "x", "--scheme", "best"), "there is no scheme 'best'"),
        ((*FABRIC, "--workload", "x", "--fail-spines", "1,,2"), "empty item"),
        ((*FABRIC, "--workload", "x", "--max-subflows", "0"), "--max-subflows"),
        ((*FABRIC, "--workload", "x", "--seed", "one"), "'--seed': must be a whole number (given: 'one')"),
        ((*FABRIC, "--workload", "x", "--time-limit", "long"), "'--time-limit': must be a number (given: 'long')"),
        ((*FABRIC, "--workload", "x", "--fabric", "ring"), "'--fabric': 'ring' is not one of 'leaf-spine'"),
    ],
)
def test_wrong_usage_is_told_apart(signalbox: Signalbox, options: tuple[str, ...], error: str) -> None:
    result = signalbox("plan-file", *options)
    assert result.status == 2
    assert error in result.err


__all__ = ("signalbox",)

SIMULATED = ("--leaves", 2, "--spines", 2, "--hosts-per-leaf", 2)
"""Options of a fabric with leaves 0 and 1, spines 2 and 3, and hosts 4 to 7."""
STEP_BYTES = 1_250_000_000
"""Bytes of a step, which take 0.1 s at 100 Gbit/s."""


@pytest.fixture
def simulate(tmp_path: Path, signalbox: Signalbox) -> Signalbox:
    """Return ``simulate`` with a workload of two rings over all hosts of two leaves; the rings compute for 0.3 s."""
    rings = ((4, 6, 0, 1, 0), (6, 4, 1, 0, 0), (5, 7, 0, 1, 1), (7, 5, 1, 0, 1))
    lines = [f"{src} {dst} {up} {down} 0 {STEP_BYTES} 300000000 {ring}" for src, dst, up, down, ring in rings]
    (tmp_path / "job_0-TEST.txt").write_text("\n".join([HEADER, *lines]))
    return partial(signalbox, "simulate", "--workload", tmp_path, *SIMULATED)


def test_json_has_every_iteration_of_every_job_under_every_scheme(simulate: Signalbox) -> None:
    result = simulate("--scheme", "greedy,ecmp", "--scheme", "greedy", "--iterations", 2, "--json")
    found = result.json
    assert result.status == 0
    assert found | {"schemes": []} == {
        "iterations": 2, "replan": "hysteresis", "striping": "by_share", "sharing": "equal",
        "lose_sent": False, "max_moves": 256, "seed": 1, "bound": 1.0, "schemes": [],
    }  # fmt: skip
    assert [scheme["scheme"] for scheme in found["schemes"]] == ["greedy", "ecmp"]
    greedy = found["schemes"][0]
    assert list(greedy) == ["scheme", "mean_slowdown", "plans", "adopted", "moves", "end_s", "jobs"]
    (job,) = greedy["jobs"]
    assert (job["job"], job["cut_off"]) == ("job_0-TEST", False)
    assert job["ideal_s"] == pytest.approx(0.2)
    assert [list(iteration) for iteration in job["iterations"]] == [["start_s", "all_reduce_s", "slowdown"]] * 2
    assert [iteration["start_s"] for iteration in job["iterations"]] == pytest.approx([0.0, 0.5])
    assert greedy["end_s"] == pytest.approx(0.7)


def test_plans_for_jobs_that_share_links_are_compared(simulate: Signalbox) -> None:
    """The ring alone overfills the only spine. With every plan its iteration of 0.5 s takes 0.7 s."""
    wanted = ("--shared", "worst", "--jitter", 0.01, "--iterations", 3, "--fail-spines", 1)
    found = simulate(*wanted, "--json").json
    assert [found["shared"], found["jitter"]] == ["worst", 0.01]
    plans = {plan["plan"]: plan for plan in found["plans"]}
    assert [*plans] == ["ours", "today", "ecmp", "mltcp", "crux", "cassini", "foresight", "ideal"]
    assert plans["ideal"]["worst"] == pytest.approx(1.0)
    assert plans["ours"]["worst"] == pytest.approx(1.4, rel=0.02)
    job = {"job": "job_0-TEST", "way": 0, "class": 1, "start_s": None, "period_s": None}
    assert plans["ours"]["jobs"] == [job]
    assert "foresight" in simulate(*wanted).out
    assert simulate(*wanted, "--fail-links", "leaf0:spine0").status == 1
    assert simulate(*wanted, "--fail-at", 1).status == 2


def test_half_the_spines_take_whole_flows_and_split_ones_twice_as_long(simulate: Signalbox) -> None:
    one_left = ("--fail-spines", 1, "--json", "--iterations", 2)
    for found in (simulate(*one_left), simulate(*one_left, "--max-subflows", 2)):
        assert (found.status, found.json["bound"]) == (0, 2.0)
        assert found.json["schemes"][0]["mean_slowdown"] == pytest.approx(2.0)


def test_failures_may_come_and_go(simulate: Signalbox) -> None:
    """The spine fails at 0.5 s, when the second of three iterations begins, and returns before the third."""
    result = simulate("--fail-spines", 0, "--fail-at", 0.5, "--repair-at", 1.0, "--iterations", 3, "--json")
    (job,) = result.json["schemes"][0]["jobs"]
    assert [iteration["slowdown"] for iteration in job["iterations"]] == pytest.approx([1.0, 2.0, 1.0])


def test_a_job_without_a_path_is_cut_off(simulate: Signalbox) -> None:
    cut = ("--fail-links", "leaf0:spine0,leaf0:spine1")
    result = simulate(*cut, "--json")
    assert result.status == 3
    (job,) = result.json["schemes"][0]["jobs"]
    assert job == {"job": "job_0-TEST", "ideal_s": 0.2, "mean_slowdown": None, "cut_off": True, "iterations": []}
    later = simulate(*cut, "--fail-at", 0.25, "--json")
    assert later.status == 3
    assert len(later.json["schemes"][0]["jobs"][0]["iterations"]) == 1
    assert "cut off" in simulate(*cut).out


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--scheme", "shortest"), "there is no scheme 'shortest'; choose planned,"),
        (("--fail-at", "2", "--repair-at", "1"), "must be after --fail-at (2)"),
        (("--iterations", "0"), "--iterations"),
        (("--replan", "often"), "--replan"),
    ],
)
def test_wrong_usage_is_told(simulate: Signalbox, arguments: tuple[str, ...], complaint: str) -> None:
    result = simulate(*arguments)
    assert result.status == 2
    assert complaint in " ".join(result.err.replace("│", " ").split())


def test_a_short_phase_may_be_slower_for_a_long_one_unless_the_objective_is_the_phase(
    signalbox: Signalbox, tmp_path: Path
) -> None:
    """The long phase needs two of the three flows apart; then two flows of the short phase collide."""
    sent = ((0, 9_000_000, 0), (1, 4_500_000, 0), (0, 750_000, 1), (1, 750_000, 1), (2, 1_000_000, 1))
    transfers = [
        {"src": host, "dst": 3 + host, "bytes_per_iteration": size, "phase": phase} for host, size, phase in sent
    ]
    endpoints = [f"10.0.{leaf}.{host}" for leaf in (0, 1) for host in (1, 2, 3)]
    file = tmp_path / "jobs.json"
    file.write_text(json.dumps([{"job_id": "job", "endpoints": endpoints, "transfers": transfers}]))
    command = ("plan-file", "--leaves", "2", "--spines", "2", "--hosts-per-leaf", "3", "--jobs", file)
    for objective, slowdown in (("iteration", 1.075), ("phase", 1.5)):
        found = signalbox(*command, "--objective", objective, "--json").json
        assert found["objective"] == objective
        assert found["max_slowdown"] == found["own_slowdown"]["job"] == pytest.approx(slowdown)
    assert "worst slowdown 1.075" in " ".join(signalbox(*command).out.split())
