"""Parallelizations on their wirings: times known by hand, refusals, and files that planner and simulator read."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given

from controller.circuits.wiring import evaluation
from controller.circuits.wiring.circuits import Wiring
from controller.circuits.wiring.evaluation import Offer, Rates, Way, answers, evaluated_on
from controller.circuits.wiring.finder import ranked
from controller.circuits.wiring.traffic import traffic_of
from controller.planning.efficiency import all_slowdowns
from controller.planning.plan import answered
from controller.planning.planner import plan
from controller.planning.problem import PlanLimits
from mininet_topos.graph import Graph
from offline.design.parallelizations import offers_in
from offline.design.wiring_report import exported, wiring_report
from offline.scenarios.fabrics import fabric_of
from offline.scenarios.graph_file import graph_file, graph_topology
from offline.scenarios.scenario import problem_of
from offline.scenarios.topologies import OFFLINE, direct_connect
from offline.scenarios.workloads import announced, read_workload
from offline.simulator.options import Options, Replan
from offline.simulator.training import Stage, simulate
from signalbox.errors import InvalidInput
from signalbox.file_forms import job_in
from signalbox.jobs.spec import JobSpec
from signalbox.models import Model, Parallelism, traffic
from tests.support.command_line import Signalbox, signalbox
from tests.unit.circuits.wiring.test_circuits import wirings

__all__ = ("signalbox",)

LIMITS = PlanLimits(ecmp_draws=0, time_limit_s=0.2)
RATES = Rates(1.0, 1.25)
"""Rates of an interface, and of a server with four interfaces on a switch that costs 3.2 times as much."""
ALL = "{name: all, ranks: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]}"
JOB = f"""
job_id: dlrm
parallelizations:
  - name: data
    groups: [{ALL}]
    collectives: [{{algorithm: all_reduce, groups: [all], bytes_per_iteration: 1200 MB}}]
    compute: [{{seconds: 1}}]
  - name: hybrid
    groups: [{ALL}]
    collectives:
      - {{algorithm: all_to_all, groups: [all], bytes_per_iteration: 120 MB}}
      - {{algorithm: all_reduce, groups: [all], bytes_per_iteration: 120 MB, phase: 1}}
    compute: [{{seconds: 0.5}}, {{seconds: 2, phase: 1}}]
"""
ONE_TO_ONE = """
job_id: pair
transfers: [{src: 0, dst: 1, bytes_per_iteration: 100 MB}]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "job.yaml").write_text(JOB)
    (tmp_path / "pair.yaml").write_text(ONE_TO_ONE)
    return tmp_path


def test_each_parallelization_has_its_wiring_and_the_fastest_is_taken(folder: Path) -> None:
    (answer,) = answers(offers_in([folder / "job.yaml"], 12), 4, RATES, LIMITS)
    data, hybrid = answer.parallelizations
    assert sorted(data.found.wiring.steps or ()) == [1, 5, 7, 11]
    all_reduce_s = 8 * 2 * 11 / 12 * 1.2 / 4
    assert data.planned_s == data.bound_s == pytest.approx(1 + all_reduce_s)
    assert data.other_s == pytest.approx(1 + 3.2 * all_reduce_s)
    exchange, reduce = hybrid.phases
    assert exchange.ideal_s == pytest.approx(8 * 0.11 / 4)
    assert exchange.bound_s == pytest.approx(exchange.ideal_s * 20 / 11)
    assert exchange.bound_s <= exchange.planned_s <= 1.21 * exchange.bound_s
    assert reduce.planned_s == pytest.approx(all_reduce_s / 10)
    assert hybrid.planned_s == pytest.approx(0.5 + exchange.planned_s + 2)
    assert answer.best is answer.other is hybrid
    assert not answer.refused
    even = hybrid.break_even
    assert even.ratio == pytest.approx(0.11 / 0.22)
    assert even.hops == pytest.approx(20 / 11)


def test_a_job_is_refused_when_all_circuits_cannot_carry_what_is_forwarded(tmp_path: Path) -> None:
    """An all-to-all over 24 servers with two interfaces needs about 4 hops, more than 3.2 times the rate allows."""
    group = {"name": "all", "ranks": list(range(24))}
    sends = {"algorithm": "all_to_all", "groups": ["all"], "bytes_per_iteration": 240_000_000}
    (tmp_path / "job.json").write_text(json.dumps({"job_id": "a", "groups": [group], "collectives": [sends]}))
    (answer,) = answers(offers_in([tmp_path / "job.json"], 24), 2, Rates(1.0, 2 / 3.2), LIMITS)
    even = answer.best.break_even
    assert even.ratio == float("inf")
    assert even.time_ratio == pytest.approx(answer.best.found.pair_hops / 3.2)
    assert even.loses
    assert answer.refused
    assert answer.best.planned_s > answer.other.other_s


def test_of_several_wirings_the_one_that_is_best_as_planned_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """The wiring with the longest expected time is planned first.

    Its circuits carry whole flows between pipeline stages over more hops, so that no routes on it are as fast."""
    way = Way("", pipelined(), ())
    worst_first = ranked(traffic_of(way.spec), 3, 1e9, evaluation.MOST_PLANNED)[::-1]
    monkeypatch.setattr(evaluation, "ranked", lambda *_: worst_first)
    (answer,) = answers([Offer("pipelined", 8, (way,))], 3, Rates(1.0, 2 / 3.2), LIMITS)
    assert evaluated_on(worst_first[0], way, Rates(1.0, 2 / 3.2), LIMITS).bound_s > answer.best.planned_s
    assert not answer.refused


def pipelined() -> JobSpec:
    """Return the spec of four replicas of GPT-2, each in two pipeline stages."""
    sizes = {"layers": 12, "hidden": 768, "heads": 12, "vocabulary": 50_257, "sequence": 1024, "global_batch": 12}
    addresses = [f"10.0.0.{number}" for number in range(1, 9)]
    found = traffic(Model.model_validate(sizes), Parallelism(tensor=1, pipeline=2, data=4), addresses)
    names = ("groups", "collectives", "transfers")
    sent = {name: [each.model_dump() for each in getattr(found, name)] for name in names}
    return JobSpec.parse({"job_id": "pipelined", "endpoints": addresses, **sent})


def test_no_routing_is_faster_than_the_bound_when_groups_send_different_bytes(tmp_path: Path) -> None:
    """Two groups have two servers each; the second group reduces hardly anything.

    Both directions of its two circuits carry 100 MB of transfers."""
    groups = [{"name": "a", "ranks": [0, 1]}, {"name": "b", "ranks": [2, 3]}]
    reduced = [
        {"algorithm": "all_reduce", "groups": [name], "bytes_per_iteration": size}
        for name, size in (("a", 100_000_000), ("b", 1000))
    ]
    sent = [{"src": src, "dst": dst, "bytes_per_iteration": 100_000_000} for src, dst in ((2, 3), (3, 2))]
    spec = {"job_id": "a", "groups": groups, "collectives": reduced, "transfers": sent}
    (tmp_path / "job.json").write_text(json.dumps(spec))
    (answer,) = answers(offers_in([tmp_path / "job.json"], 4), 2, Rates(25.0, 50 / 3.2), LIMITS)
    assert answer.best.bound_s == pytest.approx(0.032, rel=1e-3)
    assert answer.best.planned_s == pytest.approx(0.032, rel=1e-3)
    assert not answer.refused


def test_rings_without_an_interface_count_as_what_is_forwarded(tmp_path: Path) -> None:
    groups = [{"name": f"each {step}", "ranks": list(range(0, 12, step))} for step in (1, 3, 2)]
    sends = [{"algorithm": "all_reduce", "groups": [g["name"]], "bytes_per_iteration": 10_000_000} for g in groups]
    (tmp_path / "job.json").write_text(json.dumps({"job_id": "a", "groups": groups, "collectives": sends}))
    (answer,) = answers(offers_in([tmp_path / "job.json"], 12), 1, Rates(1.0, 1 / 3.2), LIMITS)
    assert answer.best.break_even.time_ratio == pytest.approx(answer.best.found.bandwidth_tax / 3.2)


@given(wirings())
@example(Wiring(300, (tuple((server + 1) % 300 for server in range(300)), (None,) * 300)))
def test_a_wiring_is_evaluated_on_the_fabric_that_is_exported(wiring: Wiring) -> None:
    written = fabric_of(direct_connect(wiring.peers, 2.5e9, OFFLINE))
    assert evaluation.fabric_of(wiring, 2.5) == written


def test_what_is_exported_is_planned_and_trained_as_it_was_found(folder: Path) -> None:
    offers = offers_in([folder / "job.yaml"], 12)
    found = answers(offers, 4, RATES, LIMITS)
    partly = exported(folder / "out", found, 12, 4, RATES)
    assert partly == ["dlrm"]
    fabric = graph_file(folder / "out" / "fabric.json")
    spec = JobSpec.parse(json.loads((folder / "out" / "jobs" / "dlrm.json").read_text()))
    best = found[0].best
    job = announced(spec, fabric, compute_s=0.5)
    problem = problem_of(fabric, [job])
    made = answered(plan(problem, LIMITS))
    peak = all_slowdowns(problem, made.routes).peak
    assert peak[job.id] >= best.phases[0].bound_s / best.phases[0].ideal_s - 1e-9
    outcome = simulate([Stage(0.0, problem)], [job], lambda _: best.plan, Options(iterations=2, replan=Replan.NEVER))
    expected_s = sum(phase.planned_s for phase in best.phases)
    assert [i.all_reduce_s for i in outcome.jobs[0].iterations] == pytest.approx([expected_s] * 2, rel=1e-6)
    (rings,) = read_workload(folder / "out" / "workload", fabric)
    assert len(rings.rings) == 4
    assert rings.compute_s == 0.5
    assert rings.ideal_s == pytest.approx(best.phases[1].planned_s, rel=1e-6)
    assert answered(plan(problem_of(fabric, [rings]), LIMITS)).max_slowdown == pytest.approx(1)


def test_jobs_beside_each_other_share_no_port(folder: Path) -> None:
    (folder / "small.yaml").write_text(JOB.replace("dlrm", "small").replace(", 6, 7, 8, 9, 10, 11]", "]"))
    text = (folder / "small.yaml").read_text().replace("job_id: small", "job_id: small\nhosts: 10.9.0.1-6")
    (folder / "small.yaml").write_text(text)
    (folder / "other.yaml").write_text(text.replace("small", "other"))
    found = answers(offers_in([folder / "small.yaml", folder / "other.yaml"], 14), 2, Rates(1.0, 0.1), LIMITS)
    exported(folder / "out", found, 14, 2, Rates(1.0, 0.1))
    topology = graph_topology(folder / "out" / "fabric.json")
    ends = {(int(c.src[6:]) // 6, int(c.dst[6:]) // 6) for c in topology.circuits}
    assert ends == {(0, 0), (1, 1)}
    assert len(topology.hosts) == 14
    fabric = fabric_of(topology)
    specs = [JobSpec.parse(json.loads(file.read_text())) for file in sorted((folder / "out" / "jobs").iterdir())]
    problem = problem_of(fabric, [announced(spec, fabric) for spec in specs])
    assert not answered(plan(problem, LIMITS)).unrouted
    with pytest.raises(InvalidInput, match="is a directed graph"):
        Graph(folder / "out" / "fabric.json")


def test_the_best_steps_are_told_for_few_servers(folder: Path) -> None:
    found = answers(offers_in([folder / "job.yaml"], 12), 3, RATES, LIMITS)
    exact = wiring_report(found, 12, 3, RATES, exact=True)["jobs"][0]["exact"]
    assert exact["proven"]
    assert exact["pair_hops"] <= found[0].best.found.pair_hops
    assert wiring_report(found, 12, 3, RATES, exact=False)["jobs"][0]["exact"] is None


@pytest.mark.parametrize(("text", "problem"), [
    ("job_id: a", "job.yaml:1:1: the job has no traffic"),
    (ONE_TO_ONE + "rails: [{hosts: 10.0.0.1-2}]", "rails: does not apply to a direct-connect fabric"),
    (JOB + "compute: [{seconds: 1}]", "compute: cannot be combined with parallelizations"),
    (JOB.replace("hybrid", "data"), "parallelizations[0].name: 'data' is the name of several"),
    (JOB.replace("[all], bytes_per_iteration: 120 MB, phase", "[none], bytes_per_iteration: 120 MB, phase"),
     "parallelizations[1].collectives[1].groups[0]: no group is called 'none'"),
    (ONE_TO_ONE + "hosts: 10.0.0.1-20", "hosts: must be from 2 to 12 servers, the number in the fabric (given: 20)"),
    (ONE_TO_ONE + "hosts: 10.0.0.1\nranks_per_host: 2", "hosts: must be from 2 to 12 servers"),
    (ONE_TO_ONE + "endpoints: [10.0.0.1, 10.0.0.2, 10.0.0.1]",
     "endpoints: must list the ranks server by server"),
    (ONE_TO_ONE + "---" + ONE_TO_ONE, "'pair' is the id of 2 jobs"),
    (ONE_TO_ONE + "---" + ONE_TO_ONE.replace("pair", "b"), "--servers: must be at least 24"),
    ("[]", "there is no job in this file"),
])  # fmt: skip
def test_wrong_jobs_are_refused_by_field(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "job.yaml").write_text(text)
    with pytest.raises(InvalidInput) as error:
        offers_in([tmp_path / "job.yaml"], 12)
    assert problem in str(error.value)


def test_a_parallelization_may_have_a_model(tmp_path: Path) -> None:
    """The model is placed on all servers of the fabric; four servers hold one copy."""
    model = "{layers: 4, hidden: 64, heads: 4, vocabulary: 100, sequence: 8, global_batch: 12}"
    parallelization = f"  - {{name: tensors, model: {model}, parallelism: {{tensor: 4}}, compute: [{{seconds: 3}}]}}\n"
    (tmp_path / "job.yaml").write_text(JOB + parallelization)
    *_, way = offers_in([tmp_path / "job.yaml"], 12)[0].ways
    assert (way.name, way.compute[0].seconds, len(way.spec.endpoints)) == ("tensors", 3, 12)
    assert {len(group.ranks) for group in way.spec.groups} == {3, 4}
    (tmp_path / "job.yaml").write_text(JOB + parallelization.replace("tensor: 4", "tensor: 5"))
    with pytest.raises(InvalidInput, match=r"job.yaml:14:\d+: parallelizations\[2\].parallelism"):
        offers_in([tmp_path / "job.yaml"], 12)


def test_limits_of_all_parallelizations_together_are_those_of_a_controller_alone(tmp_path: Path) -> None:
    compute = [{"seconds": 0.001}] * 1000
    transfers = [{"src": 0, "dst": 1, "bytes_per_iteration": 1}]
    ways = [{"name": str(n), "transfers": transfers, "compute": compute} for n in range(5)]
    data = {"job_id": "a", "hosts": "10.0.0.1-12", "parallelizations": ways}
    (tmp_path / "job.json").write_text(json.dumps(data))
    assert [len(way.compute) for way in offers_in([tmp_path / "job.json"], 12)[0].ways] == [1000] * 5
    with pytest.raises(InvalidInput, match="at most 4000 times of computing"):
        job_in(data)


# ---- the command


FABRIC = ("--servers", 12, "--interfaces", 4, "--gbps", 1, "--time-limit", 0.2)
PAIR = ("design", "wiring", "pair.yaml", "--servers", 2, "--interfaces", 4, "--gbps", 1)


@pytest.fixture
def _in_folder(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.chdir(folder)


@pytest.mark.usefixtures("_in_folder")
def test_the_command_names_parallelization_wiring_and_bound_and_what_it_writes_is_planned(signalbox: Signalbox) -> None:
    found: dict[str, Any] = signalbox("design", "wiring", "job.yaml", *FABRIC, "--json").json
    (job,) = found["jobs"]
    assert (job["parallelization"], job["refused"]) == ("hybrid", False)
    assert found["alternative_gbps"] == 1.25
    data, hybrid = job["parallelizations"]
    assert (data["ratio"], data["most_ratio"]) == (0.0, None)
    assert hybrid["bound_s"] <= hybrid["iteration_s"] < hybrid["alternative_s"]
    out = signalbox("design", "wiring", "job.yaml", *FABRIC, "--export", "out").out
    assert "parallelization hybrid" in out
    assert "4 of rings, steps 1 5 11 7" in out
    assert "the written workload has only the ring traffic of dlrm" in out
    # Another circuit carries the flow of the failed one beside its own.
    given = ("--graph", "out/fabric.json", "--workload", "out/workload", "--fail-links", "server0:server1")
    assert signalbox("plan-file", *given, "--proof", "proof.json", "--json").json["max_slowdown"] == 2
    assert signalbox("verify", "proof.json").status == 0


@pytest.mark.usefixtures("_in_folder")
def test_the_command_refuses_with_the_figure_and_the_alternative(signalbox: Signalbox) -> None:
    refused = signalbox(*PAIR, "--export", "out")
    assert refused.status == 3
    assert "nothing is written to out, since all jobs are refused" in refused.out
    assert not Path("out").exists()
    words = " ".join(refused.out.split())
    assert "refused: one switch with 1.25 Gbit/s per server is better, with parallelization as given: 0.64 s" in words
    assert "takes 1.25 times as long; sending the same bytes takes at least 0.3125 times as long on circuits" in words
    assert signalbox(*PAIR, "--alternative-gbps", 0.5).status == 0
