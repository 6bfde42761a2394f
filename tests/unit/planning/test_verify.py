"""The checker of plans and proofs, on files written by hand: what it accepts, and what it refuses."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from controller.planning.verify import read, slowdowns_of, verify
from tests.support.doc_pages import ROOT

WHOLE = 1000
RATE = 100
DOC = ROOT / "docs" / "verify_plan.py"


def flow(job: int, number: int, route: list[tuple[int, int]], subflows: int = 1) -> dict[str, Any]:
    """Return a flow from host a<number> to host b<number>; ``route``: (share, spine) of each subflow."""
    nics = [4 + 2 * number, 5 + 2 * number]
    return {
        "job": job,
        "from": f"a{number}",
        "to": f"b{number}",
        "hops": 4,
        "demand": [[0, RATE]],
        "max_subflows": subflows,
        "route": [[share, [nics[0], spine, 2 + spine, nics[1]]] for share, spine in route],
    }


def plan(flows: list[dict[str, Any]], slowdowns: list[int]) -> dict[str, Any]:
    """Return a plan on two leaves and two spines that claims no proof.

    Links 0 and 1 leave the first leaf, 2 and 3 enter the second; NICs follow."""
    links: list[list[Any]] = [["l", "s", RATE], ["l", "t", RATE], ["s", "m", RATE], ["t", "m", RATE]]
    for number in range(len(flows)):
        links += [[f"a{number}", "l", RATE], ["m", f"b{number}", RATE]]
    return {
        "denominator": WHOLE,
        "tolerance": 0,
        "links": links,
        "jobs": [{"name": f"job{number}", "slowdown": slowdown} for number, slowdown in enumerate(slowdowns)],
        "flows": flows,
        "cuts": [],
        "proofs": [],
        "proven": 0,
        "searched": 0,
    }


def cut(plan: dict[str, Any], unit: int = 0, links: tuple[int, ...] = (0, 1)) -> dict[str, Any]:
    flows = list(range(len(plan["flows"])))
    return {"prices": [[link, 1] for link in links], "phases": [], "flows": flows, "unit": unit}


def proof(jobs: int, bound: int, members: list[int], least: int) -> dict[str, Any]:
    return {"jobs": jobs, "bound": bound, "groups": [{"cut": 0, "jobs": members, "least": least, "weight": 1}]}


@pytest.fixture
def whole() -> dict[str, Any]:
    """Return a plan with three whole flows of two jobs over two links.

    Two flows share one of the links, and either job may be on it alone."""
    made = plan([flow(0, 0, [(WHOLE, 0)]), flow(0, 1, [(WHOLE, 0)]), flow(1, 2, [(WHOLE, 1)])], [2000, 1000])
    made["cuts"] = [cut(made, unit=RATE)]
    made["proofs"] = [proof(1, 2000, [0, 1], 1)]
    made["proven"] = 2
    return made


@pytest.fixture
def split() -> dict[str, Any]:
    """Return a plan of the three flows of ``whole``, with the last flow divided evenly.

    Both links have one and a half flows, so both jobs have slowdown 1.5. Other routes would not lower it."""
    flows = [flow(0, 0, [(WHOLE, 0)], 2), flow(0, 1, [(WHOLE, 1)], 2), flow(1, 2, [(500, 0), (500, 1)], 2)]
    made = plan(flows, [1500, 1500])
    made["cuts"] = [cut(made)]
    made["proofs"] = [proof(2, 1500, [0, 1], 2)]
    made["proven"] = 2
    return made


def refusal(plan: Any) -> str:
    with pytest.raises(ValueError) as refused:
        verify(plan)
    return str(refused.value)


def test_whole_flows_are_counted_in_units(whole: dict[str, Any]) -> None:
    assert verify(whole) == ("worst slowdown 2, at least 2 with any routes; 2 of 2 slowdowns proven", 0)
    whole["cuts"][0]["unit"] = 0
    assert refusal(whole) == "cut 0 does not prove the bound 2 for 1 of 2 jobs"
    whole["cuts"][0]["unit"] = RATE
    whole["flows"][2]["max_subflows"] = 2
    assert "does not prove" in refusal(whole), "one may be split"


def few_subflows(flows: int, spines: int) -> dict[str, Any]:
    """Return a plan of flows of two subflows, each flow on two links of its own as far as there are enough links.

    A flow fills two links; the claimed bound is the plan's worst slowdown."""
    made = plan([flow(0, number, [(WHOLE // 2, 0), (WHOLE // 2, 1)], 2) for number in range(flows)], [])
    first = len(made["links"])
    for spine in range(2, spines):
        made["links"] += [["l", f"s{spine}", RATE], [f"s{spine}", "m", RATE]]
    up = [0, 1, *range(first, len(made["links"]), 2)]
    down = [2, 3, *range(first + 1, len(made["links"]), 2)]
    for number, of in enumerate(made["flows"]):
        (_, _, _, target), nic = of["route"][0][1], 4 + 2 * number
        made["links"][nic][2] = made["links"][target][2] = of["demand"][0][1] = 3 * RATE
        pair = [(2 * number + part) % spines for part in (0, 1)]
        of["route"] = [[WHOLE // 2, [nic, up[spine], down[spine], target]] for spine in pair]
    worst = max(slowdowns_of(made | {"jobs": [{}]}))
    made["jobs"] = [{"name": "job0", "slowdown": worst}]
    made["cuts"] = [cut(made, 3 * RATE, tuple(up)) | {"subflows": 2}]
    return made


def test_flows_of_few_subflows_use_few_links() -> None:
    """A flow has two of three links. When three flows have five links, two of the flows share three links."""
    one = few_subflows(1, 3)
    one["proofs"], one["proven"] = [proof(1, 1500, [0], 1)], 1
    assert verify(one)[0].startswith("worst slowdown 1.5, at least 1.5 with any routes")
    for wrong in ({"subflows": 3}, {"unit": 3 * RATE + 1}, {"unit": 0}, {"subflows": 1}, {"phases": [[0, 0, 0, 1]]}):
        assert refusal(one | {"cuts": [one["cuts"][0] | wrong]})
    one["flows"][0]["max_subflows"] = 3
    assert "does not prove" in refusal(one)
    wide = few_subflows(1, 2)
    wide["flows"][0]["route"][0][0], wide["flows"][0]["route"][1][0] = 900, 100
    wide["jobs"][0]["slowdown"], wide["cuts"][0]["subflows"] = 2700, 3
    wide["proofs"] = [proof(1, 1500, [0], 1)]
    assert "at least 1.5 with any routes" in verify(wide)[0]
    wide["proofs"] = [proof(1, 1501, [0], 1)]
    assert "does not prove" in refusal(wide), "a flow may have more subflows than there are links"
    three = few_subflows(3, 5)
    three["proofs"] = [proof(1, 2000, [0], 1)]
    assert "at least 2 with any routes" in verify(three)[0]
    three["proofs"] = [proof(1, 2001, [0], 1)]
    assert "does not prove" in refusal(three)


def test_a_proof_for_one_job_says_nothing_of_the_second(split: dict[str, Any]) -> None:
    split["proofs"] = [proof(1, 1500, [0, 1], 2)]
    assert refusal(split).endswith("number 2 from the worst is 1.5, but the proofs show only that it is at least 1")
    split["proven"] = 1
    assert verify(split) == ("worst slowdown 1.5, at least 1.5 with any routes; 1 of 2 slowdowns proven", 0)
    split["proofs"].append(proof(2, 1400, [0, 1], 2))
    split["proven"] = 2
    assert refusal(split).endswith("is 1.5, but the proofs show only that it is at least 1.4"), "only what is lower"


def test_the_smallest_share_is_one() -> None:
    flows = [flow(0, 0, [(WHOLE, 0)], 2), flow(0, 1, [(WHOLE, 1)], 2), flow(1, 2, [(1, 0), (WHOLE - 1, 1)], 2)]
    assert verify(plan(flows, [1999, 1999]))[0].startswith("worst slowdown 1.999,")


def test_prices_are_paid_on_the_cheapest_walk(split: dict[str, Any]) -> None:
    """A price on a link proves nothing while another walk is free: over the second spine, or over a parallel cable."""
    split["cuts"] = [cut(split, links=(0,))]
    assert "does not prove" in refusal(split)
    split["cuts"] = [cut(split, links=(0, 3))]
    assert verify(split) == ("worst slowdown 1.5, at least 1.5 with any routes; 2 of 2 slowdowns proven", 0)
    split["links"].append(["l", "s", RATE])
    assert "does not prove" in refusal(split)


def test_a_link_has_one_load_for_all_its_jobs() -> None:
    """Two jobs that share a NIC both have its slowdown, so one cut of the NIC proves both."""
    made = plan([flow(0, 0, [(WHOLE, 0)]), flow(1, 0, [(WHOLE, 0)])], [2000, 2000])
    made["cuts"] = [cut(made, links=(4,))]
    made["proofs"] = [proof(2, 1800, [0, 1], 2)]
    assert verify(made)[0].startswith("worst slowdown 2, at least 1.8 with any routes")


def test_a_job_divides_the_price_of_a_link_among_its_phases(split: dict[str, Any]) -> None:
    """Two flows in different phases never send together, so only one of them counts on a link."""
    split["flows"][1]["demand"] = [[1, RATE]]
    split["flows"][1]["route"] = [[WHOLE, [6, 0, 2, 7]]]
    split["proofs"], split["proven"] = [proof(1, 1000, [0, 1], 1)], 0
    assert verify(split)[0].startswith("worst slowdown 1.5, at least 1 with any routes;")
    split["cuts"][0]["phases"] = [[0, phase, link, 1] for link in (0, 1) for phase in (0, 1)]
    assert refusal(split) == "the prices of the phases of a link add up to more than the price of the link"
    split["cuts"][0]["prices"] = [[0, 2], [1, 2]]
    assert verify(split)[0].startswith("worst slowdown 1.5, at least 1 with any routes;")
    split["cuts"][0]["phases"].pop()
    assert "does not prove" in refusal(split)


def test_what_a_search_has_proven_is_not_accepted_as_proof(whole: dict[str, Any]) -> None:
    whole |= {"cuts": [], "proofs": [], "proven": 0, "searched": 1}
    text, searched = verify(whole)
    assert searched == 1
    assert text.startswith("worst slowdown 2, at least 1 with any routes; 1 of 2 slowdowns proven, 1 more by a search")
    whole |= {"proven": 1, "searched": 0}
    assert refusal(whole).endswith("number 1 from the worst is 2, but the proofs show only that it is at least 1")


def test_weighted_groups_need_more_jobs_together() -> None:
    """Each pair of three jobs shares a NIC and needs one slow job, so two jobs are slow in total; not three."""
    flows = [flow(job, number, [(WHOLE, number % 2)]) for number, job in enumerate((0, 1, 1, 2, 2, 0))]
    made = plan(flows, [3000, 3000, 3000])
    pairs = [cut(made, unit=RATE) | {"flows": of} for of in ([0, 1, 2], [2, 3, 4], [0, 4, 5])]
    groups = [
        {"cut": number, "jobs": jobs, "least": 1, "weight": 1} for number, jobs in enumerate(([0, 1], [1, 2], [0, 2]))
    ]
    made |= {"cuts": pairs, "proofs": [{"jobs": 2, "bound": 2000, "groups": groups}]}
    assert verify(made)[0].startswith("worst slowdown 3, at least 2 with any routes")
    made["proofs"][0]["jobs"] = 3
    assert refusal(made) == "the groups of a proof show fewer than the 3 slow jobs that the proof claims"
    made["proofs"][0] |= {"jobs": 2, "groups": groups[:1]}
    assert refusal(made) == "the groups of a proof show fewer than the 2 slow jobs that the proof claims"


def at(*place: Any, value: Any) -> Callable[[Any], None]:
    def change(plan: Any) -> None:
        for step in place[:-1]:
            plan = plan[step]
        plan[place[-1]] = value

    return change


def over(*links: int) -> Callable[[Any], None]:
    return at("flows", 0, "route", value=[[WHOLE, [*links]]])


BOUND = "the bound of a proof is below 1 or above slowdown number"
CHANGES = {
    "a slowdown too small": (at("jobs", 0, "slowdown", value=1999), "job job0 has slowdown 2 by its routes, but"),
    "a slowdown too large": (at("jobs", 1, "slowdown", value=1001), "job job1 has slowdown 1"),
    "a demand": (at("flows", 0, "demand", value=[[0, 50]]), "job job0 has slowdown 1.5"),
    "no demand": (at("flows", 0, "demand", value=[[0, 0]]), "the route of flow 0 is not valid"),
    "a capacity": (at("links", 0, value=["l", "s", 99]), "job job0 has slowdown 2.021"),
    "no capacity": (at("links", 9, value=["m", "b2", 0]), "a link has no capacity"),
    "another path": (over(4, 1, 3, 5), "job job1 has slowdown 2"),
    "a path with a gap": (over(4, 0, 3, 5), "the route of flow 0"),
    "a path to elsewhere": (over(4, 0, 2, 7), "the route of flow 0"),
    "a path from elsewhere": (over(6, 0, 2, 5), "the route of flow 0"),
    "a link counted from the end": (over(4, 0, 2, -5), "the route of flow 0"),
    "a link that is not there": (over(4, 0, 2, 99), "the file is not a plan with its proofs: IndexError"),
    "no route": (at("flows", 0, "route", value=[]), "the route of flow 0"),
    "a longer walk allowed": (at("flows", 0, "hops", value=5), "the route of flow 0"),
    "shares that do not add up": (at("flows", 0, "route", 0, 0, value=999), "the route of flow 0"),
    "no subflows": (at("flows", 0, "max_subflows", value=0), "the route of flow 0"),
    "a job that is not there": (at("flows", 0, "job", value=2), "the route of flow 0"),
    "a job counted from the end": (at("flows", 0, "job", value=-1), "the route of flow 0"),
    "a bound above the plan": (at("proofs", 0, "bound", value=2001), f"{BOUND} 1 from the worst"),
    "a bound below": (at("proofs", 0, "bound", value=1999), "slowdown number 1 from the worst is 2, but"),
    "a bound for more jobs": (at("proofs", 0, "jobs", value=2), f"{BOUND} 2 from the worst"),
    "a bound for no job": (at("proofs", 0, "jobs", value=0), f"{BOUND} 0"),
    "a larger least": (
        at("proofs", 0, "groups", 0, "least", value=2),
        "cut 0 does not prove the bound 2 for 2 of 2 jobs",
    ),
    "no least": (
        at("proofs", 0, "groups", 0, "least", value=0),
        "a group of a proof needs a weight above 0, jobs and a cut",
    ),
    "a job too few": (
        at("proofs", 0, "groups", 0, "jobs", value=[1]),
        "cut 0 does not prove the bound 2 for 1 of 1 jobs",
    ),
    "no weight": (
        at("proofs", 0, "groups", 0, "weight", value=0),
        "a group of a proof needs a weight above 0, jobs and a cut",
    ),
    "a cut that is not there": (
        at("proofs", 0, "groups", 0, "cut", value=1),
        "the file is not a plan with its proofs: IndexError",
    ),
    "a cut counted from the end": (
        at("proofs", 0, "groups", 0, "cut", value=-1),
        "a group of a proof needs a weight above 0, jobs and a cut",
    ),
    "a flow not counted": (at("cuts", 0, "flows", value=[0, 1]), "cut 0 does not prove"),
    "a flow counted twice": (at("cuts", 0, "flows", value=[0, 1, 1, 0]), "cut 0 does not prove"),
    "a price": (at("cuts", 0, "prices", value=[[0, 1], [1, 2]]), "cut 0 does not prove"),
    "a negative price": (
        at("cuts", 0, "prices", value=[[0, -1], [1, 1]]),
        "the unit and the prices of a cut must not be negative",
    ),
    "another link": (at("cuts", 0, "prices", value=[[0, 1], [2, 1]]), "cut 0 does not prove"),
    "another unit": (at("cuts", 0, "unit", value=50), "cut 0 does not prove"),
    "a negative unit": (at("cuts", 0, "unit", value=-RATE), "the unit and the prices of a cut must not be negative"),
    "more slowdowns than jobs": (at("proven", value=3), "the plan claims more proven slowdowns than it has"),
    "a large tolerance": (at("tolerance", value=1), "the tolerance must be from 0 to 1/10,000"),
    "a negative tolerance": (at("tolerance", value=-1), "the tolerance must be from 0 to 1/10,000"),
    "no denominator": (at("denominator", value=0), "a link has no capacity"),
    "a missing part": (lambda plan: plan.pop("cuts"), "the file is not a plan with its proofs: KeyError 'cuts'"),
    "a text for a number": (
        at("flows", 0, "demand", value=[[0, "100"]]),
        "the file is not a plan with its proofs: TypeError",
    ),
    "no object": (at("flows", 0, value=None), "the file is not a plan with its proofs: TypeError"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_refused(name: str, whole: dict[str, Any]) -> None:
    change, sentence = CHANGES[name]
    changed = deepcopy(whole)
    change(changed)
    assert refusal(changed).startswith(sentence)


@pytest.mark.parametrize("text", ["1.0", "NaN", "[1e3]", "{", "[Infinity]"])
def test_numbers_are_integers(text: str, tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    file.write_text(text)
    with pytest.raises(ValueError):
        read(file)


@pytest.mark.parametrize("data", [None, [], {}, 3, "plan"])
def test_what_is_no_plan_is_refused(data: Any) -> None:
    assert refusal(data).startswith("the file is not a plan with its proofs")


# ---- as a program


def test_the_checker_needs_nothing_but_python() -> None:
    tree = ast.parse(DOC.read_text())
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    imported |= {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    assert {name and name.partition(".")[0] for name in imported} <= sys.stdlib_module_names
    assert DOC.resolve() == ROOT / "controller" / "planning" / "verify.py", "one place"


NO_PLAN = '{"jobs": [], "flows": []}'


@pytest.mark.parametrize(
    ("change", "status", "said"),
    [
        ({}, 0, "worst slowdown 2, at least 2 with any routes; 2 of 2 slowdowns proven\n"),
        ({"proven": 0, "searched": 2}, 4, "2 more by a search, which cannot be checked\n"),
        ({"cuts": []}, 1, "error: the file is not a plan with its proofs: IndexError list index out of range\n"),
        ('job_id = "a"', 1, "the file is not JSON: Expecting value: line 1 column 1"),
        ("[]", 1, "a plan with its proofs is a JSON object, but this is a list"),
        (NO_PLAN, 1, "the file is not a plan with its proofs; it has no links, cuts, proofs"),
    ],
)
def test_it_runs_as_a_program(
    change: dict[str, Any] | str, status: int, said: str, whole: dict[str, Any], tmp_path: Path
) -> None:
    file = tmp_path / "plan.json"
    file.write_text(change if isinstance(change, str) else json.dumps(whole | change))
    run = subprocess.run([sys.executable, "-S", str(DOC), str(file)], capture_output=True, text=True, check=False)
    assert run.returncode == status
    assert said in run.stdout + run.stderr
