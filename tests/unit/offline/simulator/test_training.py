"""Jobs that train on one fabric, on cases that can be computed by hand."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.fabric.topology import Dpid
from controller.planning.efficiency import job_slowdowns, outweighed
from controller.planning.plan import NoPlan, Plan
from controller.planning.planner import plan
from controller.planning.problem import Flow, PathShare, PlanLimits, Problem, Route, whole
from offline.scenarios.fabrics import spine_links, without, without_random_links
from offline.scenarios.scenario import problem_of
from offline.scenarios.workloads import WorkloadJob
from offline.simulator.options import Options, Replan, Sharing
from offline.simulator.routing import Scheme
from offline.simulator.training import Outcome, Stage, simulate
from signalbox.jobs.spec import Striping
from tests.support.simulator_scenes import STEP_BYTES, STEP_S, every_flow, fabric_of, greedy, job, over, plan_of, stage

ONE = Options(iterations=1, replan=Replan.NEVER)
"""Options of one iteration with fixed routes."""


def run(stages: list[Stage], jobs: list[WorkloadJob], scheme: Scheme, options: Options = ONE) -> Outcome:
    return simulate(stages, jobs, scheme, options)


def test_compute_phases_lie_between_all_reduces() -> None:
    fabric = fabric_of(leaves=2, spines=1)
    alone = job(fabric, "a", [[(0, 0), (1, 0)]], start_s=3.0, compute_s=0.5)
    outcome = run([stage(fabric, [alone])], [alone], over(0), replace(ONE, iterations=3))
    assert [i.start_s for i in outcome.jobs[0].iterations] == pytest.approx([3.0, 3.7, 4.4])
    assert outcome.jobs[0].slowdowns == pytest.approx((1, 1, 1))
    assert outcome.jobs[0].ideal_s == pytest.approx(2 * STEP_S)
    assert outcome.end_s == pytest.approx(4.6)


def test_parts_of_an_iteration_follow_each_other_and_what_is_no_ring_has_one_step() -> None:
    """A ring of two takes 2 x 0.1 s. Then its bytes in one step take 0.2 s, beside a transfer of 0.3 s."""
    fabric = fabric_of(leaves=2, spines=1)
    ring = job(fabric, "a", [[(0, 0), (1, 0)]], compute_s=0.5)
    more = replace(ring.virtual_links[0], src_ip=list(fabric.hosts)[1], phase=1, bytes=3 * STEP_BYTES)
    again = [replace(link, phase=1) for link in ring.virtual_links]
    links = (*ring.virtual_links, *again, more)
    of_both = replace(ring, virtual_links=links, rings=((0, 1), (2, 3), (4,)), steps=(2, 1, 1), parts=(0, 1, 1))
    outcome = run([stage(fabric, [of_both])], [of_both], over(0), replace(ONE, iterations=2))
    # Two flows to one host share its NIC: 0.2 s of each until 0.4 s, then the rest of the longer one, 0.1 s.
    assert [i.all_reduce_s for i in outcome.jobs[0].iterations] == pytest.approx([0.7, 0.7])
    assert [i.start_s for i in outcome.jobs[0].iterations] == pytest.approx([0.0, 1.2])


def test_a_flow_of_two_parts_is_moved_in_both() -> None:
    fabric = fabric_of(leaves=2, spines=2)
    first = job(fabric, "a", [[(0, 0), (1, 0)]])
    again = tuple(replace(link, phase=1) for link in first.virtual_links)
    links = first.virtual_links + again
    twice = replace(first, virtual_links=links, rings=((0, 1), (2, 3)), steps=(2, 2), parts=(0, 1))
    failed = without(fabric, spine_links(fabric, [0]))
    stages = [stage(fabric, [twice]), stage(failed, [twice], from_s=0.1)]
    outcome = run(stages, [twice], over(0))
    assert [i.all_reduce_s for i in outcome.jobs[0].iterations] == pytest.approx([0.4])


def test_a_ring_waits_for_its_slowest_flow_and_the_job_for_its_slowest_ring() -> None:
    """Each of the two rings of a job sends one flow out of leaf 0.

    Only these two share a link; all other flows have their links alone."""
    fabric = fabric_of(leaves=7, spines=2)
    meet = job(fabric, "meet", [[(0, 0), (1, 0), (2, 0)], [(0, 1), (3, 0), (4, 0)]])
    free = job(fabric, "free", [[(5, 0), (6, 0)]])

    def route(problem: Problem, flow: Flow) -> Route:
        """Route flows into leaf 0 apart, and everything else over one spine."""
        apart = flow.dst_leaf == Dpid(1) and flow.src_leaf == Dpid(3)
        return whole(problem.candidates(flow)[apart])

    outcome = run([stage(fabric, [meet, free])], [meet, free], every_flow(route))
    assert [j.slowdowns for j in outcome.jobs] == [pytest.approx((2.0,)), pytest.approx((1.0,))]
    assert outcome.mean_slowdown == pytest.approx(1.5)


# ---- subflows


def uneven(problem: Problem) -> Plan:
    """Route the first flow of each pair of leaves whole over spine 0, the second one mostly over spine 1."""
    routes = {}
    for flow in problem.flows:
        zero, one = problem.candidates(flow)
        second = flow.id.src_ip.endswith(".2")
        routes[flow.id] = (PathShare(zero, 0.1), PathShare(one, 0.9)) if second else whole(zero)
    return plan_of(problem, routes)


def test_subflows_keep_in_step_or_race() -> None:
    """Spine 0 carries a load of 1.1.

    In step the small subflow takes a tenth of the rate of the whole flow: 1.1 steps for both. On its own it takes half
    the link until it has finished: 0.2 steps at half speed. The whole flow takes 1.1 steps all the same. Bytes that the
    small subflow sends early do not help its flow."""
    fabric = fabric_of(leaves=2, spines=2)
    jobs = [job(fabric, "a", [[(0, 0), (1, 0)]]), job(fabric, "b", [[(0, 1), (1, 1)]])]
    on = [stage(fabric, jobs)]
    paced = run(on, [replace(one, striping=Striping.PACED) for one in jobs], uneven)
    by_share = run(on, [replace(one, striping=Striping.BY_SHARE) for one in jobs], uneven)
    assert [j.mean_slowdown for j in paced.jobs] == pytest.approx([1.1, 1.1])
    assert [j.mean_slowdown for j in by_share.jobs] == pytest.approx([1.1, 1.0])


def with_subflows(jobs: list[WorkloadJob], striping: Striping, subflows: int = 2) -> list[WorkloadJob]:
    return [replace(one, max_subflows=subflows, striping=striping) for one in jobs]


def two_and_one(problem: Problem) -> Plan:
    """Return two subflows of every flow: for ``a`` over two spines, for ``b`` both over spine 0."""
    return every_flow(lambda p, f: whole(p.candidates(f)[f.job_id == "a" and f.id.subflow]))(problem)


@pytest.mark.parametrize(
    ("striping", "slowdowns"),
    [
        # Spine 0 has three connections, each with a third of it: all end after 3/2 steps. The half of a over spine 1
        # ends after half a step, because its NIC gives it the two thirds that the other half leaves.
        (Striping.EVEN, [1.5, 1.5]),
        # The rates are the same, but what spine 1 could take is not left for spine 0. So a has 1/3 + 2/3 and ends after
        # one step, when b has sent two thirds; b has the rest of its step to itself.
        (Striping.COMMON_QUEUE, [1.0, 4 / 3]),
    ],
)
def test_equal_parts_wait_for_the_slowest_a_common_queue_does_not(striping: Striping, slowdowns: list[float]) -> None:
    fabric = fabric_of(leaves=2, spines=2)
    jobs = with_subflows([job(fabric, "a", [[(0, 0), (1, 0)]]), job(fabric, "b", [[(0, 1), (1, 1)]])], striping)
    assert job_slowdowns(problem_of(fabric, jobs), two_and_one(problem_of(fabric, jobs)).routes) == {"a": 1.5, "b": 1.5}
    outcome = run([stage(fabric, jobs)], jobs, two_and_one)
    assert [j.mean_slowdown for j in outcome.jobs] == pytest.approx(slowdowns)


@pytest.mark.parametrize("striping", [Striping.EVEN, Striping.COMMON_QUEUE])
def test_a_subflow_that_moves_in_the_middle_of_a_step_keeps_what_it_sent(striping: Striping) -> None:
    """A spine that carries one half of each flow is lost. The other spine carries both from then on."""
    intact = fabric_of(leaves=2, spines=2)
    broken = without(intact, spine_links(intact, ["1"]))
    (alone,) = with_subflows([job(intact, "a", [[(0, 0), (1, 0)]])], striping)
    stages = [stage(intact, [alone]), stage(broken, [alone], from_s=STEP_S / 2)]
    outcome = run(stages, [alone], greedy, Options(iterations=1, replan=Replan.NEVER))
    assert outcome.moves == 2, "one half each way"
    assert outcome.jobs[0].slowdowns == pytest.approx((1.0,)), "one spine carries one flow"


@pytest.mark.parametrize(("sharing", "slowdown"), [(Sharing.WEIGHTED, 1.0), (Sharing.EQUAL, 1.25)])
def test_weights_give_the_busy_host_what_it_needs(sharing: Sharing, slowdown: float) -> None:
    """A host sends twice as much as each of two others; all together send just what the uplink carries.

    In equal shares (2/3 each) the others finish after 0.15 s. The rest of 0.2 s cannot be sent faster than the NIC
    sends."""
    fabric = fabric_of(leaves=2, spines=1, hosts=3, uplink=2.0)
    busy = job(fabric, "a", [[(0, 0), (1, 0)]])
    others = job(fabric, "a", [[(0, 1), (1, 1)], [(0, 2), (1, 2)]], step_bytes=STEP_BYTES // 2)
    links = (*busy.virtual_links, *others.virtual_links)
    together = replace(busy, virtual_links=links, rings=((0, 1), (2, 3), (4, 5)))
    outcome = run([stage(fabric, [together])], [together], over(0), replace(ONE, sharing=sharing))
    assert outcome.mean_slowdown == pytest.approx(slowdown)


# ---- the controller


def test_published_plans_see_only_who_sends_and_are_always_adopted() -> None:
    fabric = fabric_of(leaves=2, spines=2)
    a = job(fabric, "a", [[(0, 0), (1, 0)]], compute_s=0.05)
    b = job(fabric, "b", [[(0, 1), (1, 1)]], start_s=0.1, compute_s=0.35)
    seen: list[set[str]] = []

    def watch(problem: Problem) -> Plan:
        seen.append({flow.job_id for flow in problem.flows})
        assert all(flow.current is None for flow in problem.flows)
        return greedy(problem)

    options = Options(iterations=2, replan=Replan.PUBLISHED)
    outcome = run([stage(fabric, [a, b])], [a, b], watch, options)
    assert seen == [{"a"}, {"a", "b"}, {"b"}]
    assert outcome.plans == 3
    assert outcome.mean_slowdown == pytest.approx(1.0)


def test_hysteresis_plans_for_all_jobs_and_moves_only_for_a_gain() -> None:
    """The first plan sends all flows over spine 0, the later ones over spine 1, which is no better."""
    fabric = fabric_of(leaves=2, spines=2)
    jobs = [job(fabric, "a", [[(0, 0), (1, 0)]], compute_s=0.3)]
    answers = iter([over(0), over(1)])
    options = Options(iterations=3, replan=Replan.HYSTERESIS)
    outcome = run([stage(fabric, jobs)], jobs, lambda problem: next(answers)(problem), options)
    assert (outcome.plans, outcome.adopted, outcome.moves) == (2, 1, 0)


@pytest.mark.parametrize(("min_gain", "slowdown"), [(0.02, 1.0), (0.6, 2.0)])
def test_hysteresis_adopts_a_gain(min_gain: float, slowdown: float) -> None:
    """Each ring gets its own spine from the second plan on, which is made when the first iteration ends."""
    fabric = fabric_of(leaves=2, spines=2)
    both = job(fabric, "a", [[(0, 0), (1, 0)], [(0, 1), (1, 1)]])
    answers = iter([over(0), *[greedy] * 9])
    options = Options(iterations=3, min_gain=min_gain)
    outcome = run([stage(fabric, [both])], [both], lambda problem: next(answers)(problem), options)
    assert outcome.jobs[0].slowdowns == pytest.approx((2.0, slowdown, slowdown))


@pytest.mark.parametrize(("lose_sent", "all_reduce_s"), [(False, 0.2), (True, 0.225)])
def test_a_flow_that_moves_in_the_middle_of_a_step_keeps_what_it_sent(lose_sent: bool, all_reduce_s: float) -> None:
    """The second job's all-reduce runs from 0.02 to 0.07 s. It moves the first job to another idle spine and back.

    The first step of this all-reduce ends at 0.045 s. In the published simulation the first job loses what it has sent
    since then, when it moves back."""
    fabric = fabric_of(leaves=3, spines=2)
    a = job(fabric, "a", [[(0, 0), (1, 0)]])
    b = job(fabric, "b", [[(2, 0), (2, 1)]], start_s=0.02, step_bytes=STEP_BYTES // 4)

    def scheme(problem: Problem) -> Plan:
        return over(len({flow.job_id for flow in problem.flows}) - 1)(problem)

    options = Options(iterations=1, replan=Replan.PUBLISHED, lose_sent=lose_sent)
    outcome = run([stage(fabric, [a, b])], [a, b], scheme, options)
    assert outcome.moves == 4
    assert outcome.jobs[0].iterations[0].all_reduce_s == pytest.approx(all_reduce_s)


# ---- failures


@pytest.mark.parametrize("replan", Replan)
def test_when_a_spine_fails_its_flows_go_over_the_other_one(replan: Replan) -> None:
    """Two rings have a spine each; a spine fails in the middle of the first of two steps.

    The flows have full speed for 0.05 s, and half for the rest."""
    intact = fabric_of(leaves=2, spines=2)
    broken = without(intact, spine_links(intact, ["1"]))
    two = job(intact, "a", [[(0, 0), (1, 0)], [(0, 1), (1, 1)]])
    stages = [stage(intact, [two]), stage(broken, [two], from_s=0.05)]
    outcome = run(stages, [two], greedy, Options(iterations=1, replan=replan))
    assert outcome.jobs[0].iterations[0].all_reduce_s == pytest.approx(0.05 + 2 * 0.15)


def test_a_job_without_a_path_stops_and_the_others_go_on() -> None:
    intact = fabric_of(leaves=3, spines=1)
    cut = without(intact, [link.id for link in intact.links.values() if intact.name(link.src.dpid) == "leaf2"])
    off = job(intact, "off", [[(0, 0), (2, 0)]])
    on = job(intact, "on", [[(0, 1), (1, 1)]])
    stages = [stage(intact, [off, on]), stage(cut, [off, on], from_s=0.25)]
    outcome = run(stages, [off, on], greedy, Options(iterations=3))
    assert [(j.cut_off, len(j.iterations)) for j in outcome.jobs] == [(True, 0), (False, 3)]
    from_the_start = run([stage(cut, [off, on])], [off, on], greedy, ONE)
    assert [j.cut_off for j in from_the_start.jobs] == [True, False]
    assert from_the_start.mean_slowdown == pytest.approx(1.0)


# ---- in general


@given(st.data())
@settings(max_examples=20)
def test_no_job_is_slower_than_its_planned_slowdown(data: st.DataObject) -> None:
    """Demands are equal, routes fixed, and jobs overlap in any way in time.

    An all-reduce takes at least the ideal time, and at most the ideal time times the job's slowdown. That holds for
    split flows too, when their subflows keep in step."""
    fabric = fabric_of(leaves=3, spines=3, hosts=3)
    hosts = data.draw(st.permutations([(leaf, host) for leaf in range(3) for host in range(3)]))
    jobs = [
        job(fabric, name, [hosts[3 * n : 3 * n + 3]], data.draw(st.floats(0.0, 0.5)), data.draw(st.floats(0.0, 0.3)))
        for n, name in enumerate("abc")
    ]
    jobs = [replace(one, striping=Striping.PACED) for one in jobs]
    problem = problem_of(fabric, jobs)
    routes = {}
    for flow in problem.flows:
        paths = data.draw(st.permutations(problem.candidates(flow)))
        share = data.draw(st.sampled_from([1.0, 0.5, 0.97]))
        cut = (PathShare(paths[0], share), PathShare(paths[-1], 1 - share))
        routes[flow.id] = whole(paths[0]) if share == 1.0 or len(paths) == 1 else cut
    outcome = run([Stage(0.0, problem)], jobs, lambda p: plan_of(p, routes), replace(ONE, iterations=3))
    predicted = job_slowdowns(problem, routes)
    for times in outcome.jobs:
        assert all(1 - 1e-6 <= slowdown <= predicted[times.job_id] + 1e-6 for slowdown in times.slowdowns)


@given(st.data())
@settings(max_examples=20, deadline=None)
def test_of_jobs_striped_in_several_ways_only_the_outweighed_are_slower_than_planned(data: st.DataObject) -> None:
    """The plans are for a leaf-spine with failed cables."""
    intact = fabric_of(leaves=3, spines=3, hosts=4)
    hosts = data.draw(st.permutations([(leaf, host) for leaf in range(3) for host in range(4)]))
    jobs = []
    for n, name in enumerate("abc"):
        striping = data.draw(st.sampled_from([Striping.PACED, Striping.EVEN, Striping.COMMON_QUEUE]))
        one = job(intact, name, [hosts[4 * n : 4 * n + 4]], data.draw(st.floats(0.0, 0.5)))
        jobs += with_subflows([one], striping, data.draw(st.sampled_from([1, 2, 4])))
    problem = problem_of(without_random_links(intact, 2, data.draw(st.integers(0, 9))), jobs)
    planned = plan(problem, PlanLimits(ecmp_draws=0, deterministic=True, time_limit_s=0.1))
    assert isinstance(planned, Plan)
    outcome = run([Stage(0.0, problem)], jobs, lambda _: planned, replace(ONE, iterations=2))
    slower = outweighed(problem, planned.routes)
    for times in outcome.jobs:
        if times.job_id not in slower:
            assert max(times.slowdowns) <= planned.job_slowdown[times.job_id] + 1e-6


@pytest.mark.parametrize(("striping", "slower"), [(Striping.PACED, True), (Striping.EVEN, False)])
def test_a_ring_is_slower_than_its_slowdown_beside_more_connections(striping: Striping, slower: bool) -> None:
    """All rings go over one spine; the other jobs have four connections per flow, some of which begin later."""
    fabric = fabric_of(leaves=4, spines=1)
    ring = replace(job(fabric, "ring", [[(leaf, 0) for leaf in range(4)]]), max_subflows=4, striping=striping)
    others = [job(fabric, f"b{leaf}", [[(leaf, 1), (leaf + 1, 1)]], 0.05 * leaf, 0.1) for leaf in (0, 2)]
    jobs = [ring, *with_subflows(others, Striping.EVEN, 4)]
    problem = problem_of(fabric, jobs)
    routes = {flow.id: whole(problem.candidates(flow)[0]) for flow in problem.flows}
    outcome = run([Stage(0.0, problem)], jobs, lambda p: plan_of(p, routes), replace(ONE, iterations=5))
    assert outweighed(problem, routes) == ({"ring"} if slower else set())
    assert (max(outcome.jobs[0].slowdowns) > job_slowdowns(problem, routes)[ring.id] * 1.01) == slower


@given(st.integers(0, 5), st.sampled_from([1, 2, 3]))
@settings(max_examples=10)
def test_hashed_flows_stay_where_they_are(seed: int, iterations: int) -> None:
    """No plan is made: every flow is hashed once, and every iteration of a job alone is like its first."""
    fabric = fabric_of(leaves=4, spines=4, hosts=4)
    a = job(fabric, "a", [[(leaf, host) for leaf in range(4)] for host in range(4)])
    options = Options(iterations=iterations, seed=seed)
    outcome = run([stage(fabric, [a])], [a], lambda problem: NoPlan(problem.generation, "no answer"), options)
    assert outcome.moves == 0
    first = outcome.jobs[0].slowdowns[0]
    assert outcome.jobs[0].slowdowns == pytest.approx([first] * iterations)
