from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, get_args

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.field_mask_pb2 import FieldMask
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.api import convert, convert_fabric, convert_plan, pages
from controller.api.pages import page_token
from controller.circuits.optical_switches import FibreStatus, OpticalStatus
from controller.demand.job_demand import DemandSource
from controller.fabric.topology import Dpid, Fabric, Host, Link, LinkId, PortNo, PortRef, Switch
from controller.jobs.job import Reported, Vitals
from controller.jobs.messages import Registration
from controller.planning.efficiency import EcmpSlowdown
from controller.planning.messages import ReplanOutcome
from controller.planning.plan import Circle, CommonLinks, GoalPlanLeft, Plan, PlanTimes, Sharing, Slot
from controller.planning.problem import FlowId, PathShare, Route, whole
from controller.status import ExtensionStatus, JobState, JobStatus, Status, SwitchStatus
from controller.tables.flow_tables import Dropped
from signalbox.errors import InvalidInput
from signalbox.jobs.reports import IterationTime
from signalbox.jobs.spec import Algorithm, JobId, JobSpec, Library, Striping, Transport
from signalbox.jobs.subflows import Dividing
from signalbox.mapping import duration, job_spec, message_of, number_of, seconds, seconds_or_none, spec_message, word_of
from signalbox.v1 import signalbox_pb2 as pb
from signalbox.words import Mode, SharingObjective
from tests.support import status_example


def port(dpid: int, number: int) -> PortRef:
    return PortRef(Dpid(dpid), PortNo(number))


FLOW = FlowId("10.0.1.1", "10.0.2.1")
UP, DOWN = LinkId(Dpid(1), PortNo(1)), LinkId(Dpid(11), PortNo(2))
FABRIC = Fabric(
    generation=3,
    switches={Dpid(d): Switch(Dpid(d), name, {}) for d, name in ((1, "leaf1"), (2, "leaf2"), (11, "spine1"))},
    links={UP: Link(port(1, 1), port(11, 1), 1e9), DOWN: Link(port(11, 2), port(2, 1), 1e9)},
    hosts={FLOW.src_ip: Host(FLOW.src_ip, None, port(1, 5), 1e9)},
)

TWO_SPINES = replace(
    FABRIC,
    switches={**FABRIC.switches, Dpid(12): Switch(Dpid(12), "spine2", {})},
    links={
        **FABRIC.links,
        LinkId(Dpid(1), PortNo(2)): Link(port(1, 2), port(12, 1), 1e9),
        LinkId(Dpid(12), PortNo(2)): Link(port(12, 2), port(2, 2), 1e9),
    },
)

groups = st.permutations(range(4)).map(lambda ranks: pb.ParallelGroup(name="dp", ranks=ranks))
collectives = st.builds(
    pb.Collective,
    algorithm=st.sampled_from([getattr(pb, f"ALGORITHM_{a.name}") for a in Algorithm]),
    groups=st.just(["dp"]),
    bytes_per_iteration=st.integers(1, 1 << 50),
    phase=st.integers(0, 1000),
)
transfers = st.builds(
    pb.Transfer, src=st.integers(0, 1), dst=st.integers(2, 3), bytes_per_iteration=st.integers(1, 1 << 50),
    phase=st.integers(0, 1000), step=st.integers(0, 1000),
)  # fmt: skip
rails = st.sampled_from([[f"10.{rail}.{n}.1" for n in range(4)] for rail in (1, 2, 3)])
phases = st.integers(0, 1000)
compute = st.builds(pb.Compute, seconds=st.floats(0, 1e6), phase=st.none() | phases) | st.builds(
    pb.Compute, seconds=st.floats(0, 1e6), before=phases
)
parallelizations = st.builds(
    pb.Parallelization, name=st.text("ab ", min_size=1, max_size=3), groups=groups.map(lambda group: [group]),
    collectives=st.lists(collectives, max_size=3), transfers=st.lists(transfers, min_size=1, max_size=3),
    compute=st.lists(compute, max_size=3),
)  # fmt: skip
plain_specs = st.builds(
    pb.JobSpec,
    job_id=st.just("job"),
    endpoints=st.just([f"10.0.{n}.1" for n in range(4)]),
    groups=groups.map(lambda group: [group]),
    collectives=st.lists(collectives, max_size=5),
    transfers=st.lists(transfers, max_size=5),
    library=st.sampled_from([pb.LIBRARY_GENERIC, pb.LIBRARY_GLOO, pb.LIBRARY_NCCL]),
    rails=st.lists(rails, unique_by=tuple).map(lambda found: [pb.Rail(endpoints=rail) for rail in found]),
    striping=st.sampled_from([pb.STRIPING_PACED, pb.STRIPING_BY_SHARE, pb.STRIPING_EVEN, pb.STRIPING_COMMON_QUEUE]),
    reports_connections=st.booleans(),
    lease=st.floats(1.0, 86_400.0).map(duration),
    max_subflows=st.integers(1, 16),
    transport=st.sampled_from([pb.TRANSPORT_TCP, pb.TRANSPORT_ROCE_V2]),
    compute=st.lists(compute, max_size=2),
    gpus=st.none() | st.integers(1, 64),
    work_per_iteration=st.none() | st.floats(1e-3, 1e30),
    weight=st.none() | st.floats(1e-3, 1e6),
    keeps_slots=st.booleans(),
)


def offering(spec: pb.JobSpec, ways: list[pb.Parallelization]) -> pb.JobSpec:
    found = pb.JobSpec(parallelizations=ways)
    found.MergeFrom(spec)
    for name in ("groups", "collectives", "transfers", "compute"):
        found.ClearField(name)
    return found


offers = st.builds(
    offering,
    plain_specs,
    st.lists(parallelizations, min_size=1, max_size=4, unique_by=lambda parallelization: parallelization.name),
)
specs = plain_specs | offers


def job_status(**changes: Any) -> JobStatus:
    spec = JobSpec.parse(
        {
            "job_id": "job",
            "endpoints": FLOW.pair,
            "groups": [{"name": "dp", "ranks": [0, 1]}],
            "collectives": [{"algorithm": "broadcast", "groups": ["dp"], "bytes_per_iteration": 1}],
        }
    )
    fields: dict[str, Any] = {
        "registration": Registration(spec, "uid-1", "red", 1e9), "state": "ecmp", "missing_hosts": (),
        "vitals": Vitals(160.0, Reported(3, 5.0, (4.0,))), "slowdown": 2.0, "ideal_communication_s": 1.0,
        "prediction_withheld": "", "routes": {FLOW: None}, "routes_generation": 9,
        "dividing": Dividing(),
    }  # fmt: skip
    return JobStatus(**{**fields, **changes})


def refused(convert: Callable[..., object], *given: Any) -> InvalidInput:
    with pytest.raises(InvalidInput) as error:
        convert(*given)
    return error.value


def paths_of(error: InvalidInput) -> list[str]:
    return [problem.path for problem in error.problems]


@settings(max_examples=60)
@given(specs)
def test_a_spec_survives_the_way_to_our_types_and_back(message: pb.JobSpec) -> None:
    assert spec_message(job_spec(message)) == message


def test_while_no_slowdown_is_known_there_is_no_efficiency_and_no_reason_why_it_is_withheld() -> None:
    message = convert.job_message(job_status(is_undiscovered=True), 0.0)
    assert message.prediction_withheld.startswith("discovery is not complete")
    assert not message.HasField("efficiency_predicted")
    withheld = {"prediction_withheld": "trees"}
    assert convert.job_message(job_status(**withheld), 0.0).prediction_withheld == "trees"
    assert convert.job_message(job_status(slowdown=0.0, **withheld), 0.0).prediction_withheld == ""
    jobs = {JobId("a"): job_status(slowdown=0.0, state="pinned")}
    assert not convert.status_message(Status(jobs=jobs), 1.0, 1.0, "1").HasField("network_efficiency")
    jobs[JobId("b")] = job_status(slowdown=2.0)
    assert convert.status_message(Status(jobs=jobs), 1.0, 1.0, "1").network_efficiency == 0.5


def test_a_job_with_flows_that_have_no_path_is_at_0_whatever_its_slowdown() -> None:
    cut_off = job_status(flows_without_path=1, prediction_withheld="trees")
    message = convert.job_message(cut_off, 0.0)
    assert message.HasField("efficiency_predicted")
    assert (message.efficiency_predicted, message.flows_without_path, message.prediction_withheld) == (0.0, 1, "")
    jobs = {JobId("a"): job_status(), JobId("b"): cut_off, JobId("c"): job_status(slowdown=0.0)}
    status = convert.status_message(Status(jobs=jobs), 1.0, 1.0, "1")
    assert status.HasField("network_efficiency")
    assert (status.network_efficiency, status.jobs_without_path, status.jobs_unplanned) == (0.0, 1, 1)


def test_fields_that_are_absent_have_their_defaults_and_a_lease_that_is_over_is_zero() -> None:
    message = spec_message(job_status().spec)
    for field in ("lease", "max_subflows", "transport", "library", "striping"):
        message.ClearField(field)
    spec = job_spec(message)
    assert (spec.lease_s, spec.max_subflows, spec.transport) == (60.0, 1, Transport.TCP)
    assert (spec.library, spec.striping) == (Library.GENERIC, Striping.BY_SHARE)
    assert duration(-3.0) == Duration()


def test_wrong_fields_are_named_as_in_the_proto_file() -> None:
    message = spec_message(job_status().spec)
    message.lease.seconds = 0
    message.groups[0].ranks[1] = 7
    assert paths_of(refused(job_spec, message)) == ["lease"]
    message.lease.seconds = 5
    message.collectives[0].algorithm = 77  # type: ignore[assignment]
    error = refused(job_spec, message)
    assert paths_of(error) == ["collectives[0].algorithm"]
    assert "ALGORITHM_BROADCAST" in str(error)
    message.collectives[0].algorithm = pb.ALGORITHM_BROADCAST
    assert paths_of(refused(job_spec, message)) == ["groups[0].ranks[1]"]


def test_a_spec_whose_virtual_links_are_not_known_is_refused_here() -> None:
    message = spec_message(job_status().spec)
    message.library = pb.LIBRARY_OPENMPI
    message.collectives[0].algorithm = pb.ALGORITHM_REDUCE_SCATTER
    message.endpoints.extend(["10.0.3.1", "10.0.4.1"])
    message.groups[0].ranks.extend([2, 3])
    error = refused(job_spec, message)
    assert "not known" in str(error)
    assert paths_of(error) == ["collectives[0].algorithm"]


def test_over_long_lists_are_counted_not_read() -> None:
    message = pb.JobSpec(
        endpoints=["x"] * 5000,
        collectives=[pb.Collective()] * 300,
        transfers=[pb.Transfer()] * 65_537,
        rails=[pb.Rail(endpoints=["x"] * 4000)] * 8,
    )
    assert list(map(str, refused(job_spec, message).problems)) == [
        "endpoints: at most 4096 endpoints are allowed (given: 5000)",
        "collectives: at most 256 collectives are allowed (given: 300)",
        "transfers: at most 65536 transfers are allowed (given: 65537)",
        "rails: at most 7 rails are allowed (given: 8)",
    ]


def test_iterations_survive_the_way() -> None:
    sent = (IterationTime(0, 2.0, 1.0), IterationTime(convert.MAX_INDEX, 1.5, 0.25, 99.5, 0.5, 0.125))
    ages = (None, Duration(nanos=500_000_000))
    request = pb.ReportIterationsRequest(
        iterations=[message_of(pb.Iteration, time, age=age) for time, age in zip(sent, ages, strict=True)]
    )
    assert convert.iterations(request, 100.0) == sent
    by_rounding = message_of(pb.Iteration, IterationTime(convert.MAX_INDEX, 1.0, 1.0 + 5e-7), age=None)
    assert len(convert.iterations(pb.ReportIterationsRequest(iterations=[by_rounding]), 100.0)) == 1


WEEK_S = 7 * 86_400


@pytest.mark.parametrize(("times", "problem"), [
    ([(1, WEEK_S + 1, 1.0)], "iterations[0].duration: must be more than 0 and at most 604800 s"),
    ([(1, 1.0, 1.0), (2, 0.0, 0.0)], "iterations[1].duration: must be more than 0"),
    ([(1, 1.0, 0.0)], "iterations[0].communication: must be more than 0"),
    ([(1, 1.0, -1.0)], "iterations[0].communication: must be more than 0"),
    ([(1, 1.0, 1.01)], "iterations[0].communication: must be at most the duration"),
    ([(1, 1.0, 1.0)] * 2, "iterations[1].index: must be greater than the previous index, 1 (given: 1)"),
    ([(convert.MAX_INDEX + 1, 1.0, 1.0)], "iterations[0].index: must be at most 9223372036854775807"),
    ([(n, 1.0, 1.0) for n in range(convert.MAX_REPORTED + 1)], "iterations: "),
])  # fmt: skip
def test_absurd_figures_are_refused(times: list[tuple[int, float, float]], problem: str) -> None:
    sent = [message_of(pb.Iteration, IterationTime(*time), age=None) for time in times]
    error = refused(convert.iterations, pb.ReportIterationsRequest(iterations=sent), 100.0)
    assert str(error).startswith(problem)


@pytest.mark.parametrize(
    ("times", "problem"),
    [
        (
            (0, 2.0, 1.0, None, 2.5),
            "iterations[0].until_communication: must be from 0 to the duration, 2 s (given: 2.5 s)",
        ),
        ((0, 2.0, 1.0, None, 1.0, WEEK_S + 1.0), "iterations[0].waited: must be from 0 to 604800 s"),
    ],
)
def test_times_of_a_slot_that_cannot_be_are_refused(times: tuple[Any, ...], problem: str) -> None:
    sent = message_of(pb.Iteration, IterationTime(*times), age=None)
    assert str(refused(convert.iterations, pb.ReportIterationsRequest(iterations=[sent]), 100.0)).startswith(problem)


@pytest.mark.parametrize("age", [Duration(seconds=-1), Duration(nanos=2_000_000_000), Duration(seconds=WEEK_S + 1)])
def test_an_age_that_cannot_be_is_refused(age: Duration) -> None:
    request = pb.ReportIterationsRequest(iterations=[message_of(pb.Iteration, IterationTime(0, 2.0, 1.0), age=age)])
    assert paths_of(refused(convert.iterations, request, 100.0)) == ["iterations[0].age"]


def test_every_mode_and_every_job_state_has_its_name_on_the_wire() -> None:
    for mode in Mode:
        assert convert.mode(number_of(pb.Mode.DESCRIPTOR, mode)) is mode
    for state in get_args(JobState):
        message = convert.job_message(job_status(state=state), now=0.0)
        assert pb.JobState.Name(message.state) == f"JOB_STATE_{state.upper()}"


def test_a_job_is_described_with_what_is_left_of_its_lease_its_efficiency_and_the_hosts_that_it_waits_for() -> None:
    message = convert.job_message(job_status(), now=100.0)
    assert message.lease_left.seconds == 60
    assert (message.efficiency_predicted, message.efficiency_measured) == (0.5, 0.25)
    assert (message.virtual_links, message.pinned, message.slowdown) == (1, 0, 2.0)
    message = convert.job_message(job_status(missing_hosts=("10.0.2.1",)), now=100.0)
    assert list(message.missing_hosts) == ["10.0.2.1"]
    assert message.HasField("efficiency_predicted")
    assert message.efficiency_predicted == 0


def test_routes_name_the_switches_of_pinned_paths_only() -> None:
    """A whole route is one subflow, which has every source port.

    A route inside one switch names this switch while its host is there."""
    ecmp = convert_plan.routes_message(job_status(), FABRIC)
    assert (ecmp.generation, ecmp.routes[0].pinned, list(ecmp.routes[0].switches)) == (9, False, [])
    pinned = convert_plan.routes_message(job_status(routes={FLOW: whole((UP, DOWN))}), FABRIC).routes[0]
    assert (pinned.pinned, list(pinned.switches)) == (True, ["leaf1", "spine1", "leaf2"])
    assert [*pinned.subflows] == [pb.Subflow(share=1.0, switches=pinned.switches)]
    local = job_status(routes={FLOW: whole(())})
    assert list(convert_plan.routes_message(local, FABRIC).routes[0].switches) == ["leaf1"]
    assert list(convert_plan.routes_message(local, Fabric()).routes[0].switches) == []


def test_a_split_route_tells_each_subflows_share_path_and_source_ports() -> None:
    over = (LinkId(Dpid(1), PortNo(2)), LinkId(Dpid(12), PortNo(2)))
    route = (PathShare((UP, DOWN), 0.75), PathShare(over, 0.25))
    split = job_status(routes={FLOW: route}, dividing=Dividing(max_subflows=3))
    (message,) = convert_plan.routes_message(split, TWO_SPINES).routes
    assert (message.pinned, list(message.switches)) == (True, [])
    assert [(s.share, list(s.switches), s.port_value, s.port_mask) for s in message.subflows] == [
        (0.75, ["leaf1", "spine1", "leaf2"], 0b000, 0b110),
        (0.25, ["leaf1", "spine2", "leaf2"], 0b010, 0b110),
    ]
    assert convert.job_message(split, 0.0).subflows == 2


@pytest.mark.parametrize(("field", "value", "told"), [
    ("max_subflows", 17, "16"), ("transport", 9, "TRANSPORT_ROCE_V2"), ("library", 9, "LIBRARY_OPENMPI"),
    ("striping", 9, "STRIPING_COMMON_QUEUE"),
])  # fmt: skip
def test_wrong_fields_of_one_value_are_named(field: str, value: int, told: str) -> None:
    message = spec_message(job_status().spec)
    setattr(message, field, value)
    error = refused(job_spec, message)
    assert told in str(error)
    assert paths_of(error) == [field]
    assert str(error).endswith(f" (given: {value})")


def a_plan(routes: Mapping[FlowId, Route]) -> Plan:
    return replace(
        status_example.plan(), generation=3, routes=routes, job_slowdown={}, certificate="optimal", solver="greedy",
        ecmp=EcmpSlowdown(1.5, 2.5), times=PlanTimes(1, 2, 3),
    )  # fmt: skip


def plan_message(plan: Plan, status: Status, installed: bool) -> pb.Plan:
    answer = pb.GetPlanResponse.FromString(convert_plan.plan_bytes(pb.GetPlanResponse(), plan, status, installed))
    return answer.plan


def test_a_plan_carries_how_jobs_share_links() -> None:
    a, b = JobId("a"), JobId("b")
    circle = Circle(2.0, {b: (Slot(1.5, 0.5),), a: (Slot(0.0, 1.0),)}, {a: 1, b: 2})
    sharing = Sharing(
        (circle,), {a: 2}, {a: 2.1, b: 1.1}, {a: 3.0}, 1.05, 1.0, 1.02, SharingObjective.GPU_SECONDS,
        without_slots_s={a: 2.5}, without_classes_s={a: 2.2}, alone_s={a: 2.0},
        links=(CommonLinks((LinkId(Dpid(1), PortNo(2)),), (a, b), 0.75),),
    )  # fmt: skip
    plan = a_plan({})
    found = plan_message(plan, Status(plan=plan, extension=ExtensionStatus(sharing=sharing)), installed=True).sharing
    assert (found.objective, found.guaranteed, found.bound, found.searched) == (
        pb.SHARING_OBJECTIVE_GPU_SECONDS,
        *(1.05, 1.0, 1.02),
    )
    assert [(circle.period.ToSeconds(), [*circle.job_ids]) for circle in found.circles] == [(2, ["a", "b"])]
    jobs = [
        (job.job_id, job.traffic_class, job.start, seconds(job.guaranteed), seconds_or_none(job, "promised"))
        for job in found.jobs
    ]
    assert jobs == [("a", 2, 0.0, 2.1, 3.0), ("b", 1, 0.75, 1.1, None)]
    assert [[(part.start, part.length) for part in job.slots] for job in found.jobs] == [[(0.0, 0.5)], [(0.75, 0.25)]]
    assert [job.turns for job in found.jobs] == [1, 2]
    fields = ("without_slots", "without_classes", "alone")
    assert [seconds_or_none(found.jobs[0], field) for field in fields] == [2.5, 2.2, 2.0]
    (links,) = found.links
    assert ([*links.links], [*links.job_ids], links.average_load) == (["0x1:2>?"], ["a", "b"], 0.75)
    assert not plan_message(plan, Status(plan=plan), installed=True).HasField("sharing")


def test_a_job_carries_its_timing_and_its_stream_its_slot() -> None:
    timing = status_example.timing()
    message = convert.job_message(job_status(), 0.0, timing=timing).timing
    assert (message.state, message.traffic_class, message.jitter) == (pb.TIMING_STATE_KEEPING, 2, 0.05)
    times = (message.period, message.until_communication, message.drift, message.waited, message.guaranteed)
    assert [*map(seconds, (*times, message.promised, message.ideal))] == [4.0, 2.0, 0.03, 1.5, 4.1, 6.0, 4.0]
    assert [(part.start, part.length) for part in message.slots] == [(0.0, 0.5)]
    assert not convert.job_message(job_status(), 0.0).HasField("timing")
    told = convert.slot_message(timing, 91.0)
    assert (seconds(told.slot.period), seconds(told.slot.until), seconds(told.slot.max_wait)) == (4.0, 3.0, 0.08)
    assert (told.slot.number, told.dscp) == (1, 18)
    free = convert.slot_message(replace(timing, slot=None, dscp=None), 91.0)
    assert free == pb.WatchRoutesResponse()


def test_a_plan_carries_its_certificate_and_whose_flows_it_routes() -> None:
    plan = a_plan({FLOW: whole((UP, DOWN))})
    status = Status(fabric=FABRIC, jobs={job_status().spec.job_id: job_status()}, plan=plan)  # type: ignore[dict-item]
    message = plan_message(plan, status, installed=True)
    assert (message.certificate, message.ecmp_slowdown.mean) == (pb.PLAN_CERTIFICATE_OPTIMAL, 1.5)
    assert seconds(message.plan_time) == 0.006
    assert [(r.job_id, list(r.route.switches)) for r in message.routes] == [("job", ["leaf1", "spine1", "leaf2"])]
    assert not message.schemes
    compared = replace(status, baseline_slowdowns={"edge-coloring": 2.0, "greedy": 3.0, "first-fit": 2.5, "ecmp": 4.0})
    schemes = plan_message(plan, compared, installed=True).schemes
    assert [(pb.RoutingScheme.Name(s.scheme), s.slowdown) for s in schemes] == [
        ("ROUTING_SCHEME_ECMP", 4.0),
        ("ROUTING_SCHEME_GREEDY", 3.0),
        ("ROUTING_SCHEME_EDGE_COLORING", 2.0),
        ("ROUTING_SCHEME_FIRST_FIT", 2.5),
    ]
    older = replace(plan, generation=2)
    assert not plan_message(older, compared, installed=False).schemes, "they are of the newest plan"
    before_the_first = convert_plan.plan_bytes(pb.GetPlanResponse(), None, status, False)
    assert not pb.GetPlanResponse.FromString(before_the_first).HasField("plan")


def test_a_plan_says_which_bytes_of_a_job_it_was_made_for() -> None:
    job_id = JobId("job")
    plan = replace(a_plan({}), job_slowdown={job_id: 1.5}, own_slowdown={job_id: 1.25})
    status = Status(fabric=FABRIC, plan=plan, plan_demand_source={job_id: DemandSource.MEASURED})
    (job,) = plan_message(plan, status, installed=True).jobs
    assert (job.job_id, job.slowdown, job.own_slowdown) == ("job", 1.5, 1.25)
    assert job.demand_source == pb.DEMAND_SOURCE_MEASURED
    (job,) = plan_message(replace(plan), status, installed=False).jobs
    assert job.demand_source == pb.DEMAND_SOURCE_UNSPECIFIED, "it is known of the newest plan alone"


def test_a_plan_says_whether_it_was_cut_short_and_how_far_its_goal_is() -> None:
    plan = replace(a_plan({FLOW: whole((UP, DOWN))}), cut_short=True)
    status = Status(fabric=FABRIC, plan=plan, goal=GoalPlanLeft(1, 7, 1, {JobId("b"): 1.5, JobId("a"): 1.25}))
    message = plan_message(plan, status, installed=True)
    assert (message.cut_short, message.moves_left, message.blocked_flows) == (True, 7, 1)
    assert message.goal.max_slowdown == 1.5
    assert [(job.job_id, job.slowdown) for job in message.goal.jobs] == [("a", 1.25), ("b", 1.5)]
    older = plan_message(replace(plan, cut_short=False), status, installed=False)
    assert (older.cut_short, older.moves_left, older.blocked_flows) == (False, 0, 0)
    assert not older.HasField("goal")


def test_the_answer_of_replan_has_the_plan_that_it_made() -> None:
    made = a_plan({FLOW: whole((UP, DOWN))})
    with_plan = pb.ReplanResponse.FromString(
        convert_plan.replan_bytes(ReplanOutcome("kept", "not worth it", made), Status(fabric=FABRIC))
    )
    assert (with_plan.outcome, with_plan.reason) == (pb.REPLAN_OUTCOME_KEPT, "not worth it")
    assert with_plan.plan == plan_message(made, Status(fabric=FABRIC), installed=False)
    nothing = convert_plan.replan_bytes(ReplanOutcome("no plan", "no path", None), Status(fabric=FABRIC))
    without = pb.ReplanResponse.FromString(nothing)
    assert (without.outcome, without.HasField("plan")) == (pb.REPLAN_OUTCOME_NO_PLAN, False)


def test_a_plan_of_any_size_has_all_its_routes_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    flows = [FlowId("10.0.1.1", f"10.0.2.{n}") for n in range(1, 8)]
    plan = a_plan({flow: whole((UP, DOWN)) for flow in reversed(flows)})
    jobs = {
        JobId("b"): job_status(routes={flow: whole((UP, DOWN)) for flow in flows[1:3]}),
        JobId("a"): job_status(routes={flow: whole((UP, DOWN)) for flow in reversed(flows[3:5])}),
    }
    expected = [("a", "4"), ("a", "5"), ("b", "2"), ("b", "3"), ("", "7"), ("", "6"), ("", "1")]
    for together in (1, 3, 7, 100):
        monkeypatch.setattr(convert_plan, "ROUTES_TOGETHER", together)
        message = plan_message(plan, Status(fabric=FABRIC, plan=plan, jobs=jobs), installed=True)
        assert [(route.job_id, route.route.dst.rpartition(".")[2]) for route in message.routes] == expected
        assert (message.generation, message.solver, message.installed) == (3, "greedy", True)


def test_the_status_adds_up_and_knows_no_age_before_the_first_counters() -> None:
    status = Status(fabric=FABRIC, switches={Dpid(1): SwitchStatus(True, 5, 0), Dpid(2): SwitchStatus(False, 4, 0)})
    message = convert.status_message(status, now=50.0, unix_now=1e9, version="1")
    assert (message.switches, message.switches_in_sync, message.rules) == (3, 1, 9)
    assert not message.HasField("counters_age")


def test_a_job_is_counted_either_as_unconfirmed_or_as_announced_wrongly() -> None:
    wrong = status_example.demand()
    right = replace(wrong, difference=None)
    states = [
        *(replace(wrong, source=source) for source in (DemandSource.MEASURED, DemandSource.PROVISIONAL)),
        *(replace(right, source=source) for source in (DemandSource.DECLARED, DemandSource.CONFIRMED)),
    ]
    status = Status(demands={JobId(str(number)): demand for number, demand in enumerate(states)})
    message = convert.status_message(status, 0.0, 0.0, "1")
    assert (message.jobs_differing, message.jobs_unconfirmed) == (2, 1)


MASKS = st.lists(st.sampled_from([name for name in pb.JobSpec.DESCRIPTOR.fields_by_name if name != "job_id"]))


@settings(max_examples=40)
@given(plain_specs, plain_specs, MASKS)
def test_an_update_has_named_fields_of_the_new_spec_and_other_ones(
    old: pb.JobSpec, new: pb.JobSpec, mask: list[str]
) -> None:
    current = job_spec(old)
    request = pb.UpdateJobRequest(spec=new, update_mask=FieldMask(paths=mask))
    message = spec_message(convert.updated_spec(request, current))
    for name in pb.JobSpec.DESCRIPTOR.fields_by_name:
        assert getattr(message, name) == getattr(new if name in mask or not mask else old, name)


def test_a_mask_names_fields_of_a_spec_but_its_id() -> None:
    paths = ["lease", "job_id", "transfers.src", "*"]
    error = refused(convert.check_mask, pb.UpdateJobRequest(update_mask=FieldMask(paths=paths)))
    assert paths_of(error) == ["update_mask.paths[1]", "update_mask.paths[2]"]
    assert "job_id cannot change" in str(error)
    assert "reports_connections" in str(error)
    current = job_status().spec
    new = spec_message(current)
    new.max_subflows = 3
    request = pb.UpdateJobRequest(spec=new, update_mask=FieldMask(paths=["*"]))
    assert convert.updated_spec(request, current) == job_spec(new), "a star is all fields"


@settings(max_examples=20)
@given(offers, offers)
def test_an_update_may_give_other_parallelizations(old: pb.JobSpec, new: pb.JobSpec) -> None:
    request = pb.UpdateJobRequest(spec=new, update_mask=FieldMask(paths=["parallelizations"]))
    message = spec_message(convert.updated_spec(request, job_spec(old)))
    assert (message.parallelizations, message.lease) == (new.parallelizations, old.lease)


def test_what_is_merged_is_checked_as_a_whole() -> None:
    """An update is checked together with the fields that it keeps.

    A job that keeps its groups and collectives cannot get parallelizations. A job that keeps its collectives cannot
    lose the groups that they name."""
    way = pb.Parallelization(name="a", transfers=[pb.Transfer(src=0, dst=1, bytes_per_iteration=1)])
    mask = FieldMask(paths=["parallelizations"])
    request = pb.UpdateJobRequest(spec=pb.JobSpec(parallelizations=[way]), update_mask=mask)
    assert paths_of(refused(convert.updated_spec, request, job_status().spec)) == ["groups", "collectives"]
    request.update_mask.paths.extend(["groups", "collectives", "transfers"])
    assert convert.updated_spec(request, job_status().spec).parallelizations[0].name == "a"
    request = pb.UpdateJobRequest(spec=pb.JobSpec(), update_mask=FieldMask(paths=["groups"]))
    assert "no group is called 'dp'" in str(refused(convert.updated_spec, request, job_status().spec))


@pytest.mark.parametrize(("mask", "given", "expected"), [
    ([], 0, set()), ([], 3, {3}), (["*"], 0, set()), (["lease", "*"], 3, {3}), (["lease"], 0, {5}), (["lease"], 5, {5}),
    (["lease"], 3, {3, 5}),
])  # fmt: skip
def test_an_update_needs_the_revisions_that_it_names_or_merges(mask: list[str], given: int, expected: set[int]) -> None:
    """The controller has merged the update into revision 5; the caller may name a later revision."""
    request = pb.UpdateJobRequest(update_mask=FieldMask(paths=mask), revision=given)
    assert convert.required_revisions(request, 5) == expected


def test_a_page_of_jobs_ends_before_it_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    specs = [job_status().spec.model_copy(update={"job_id": f"a{number}"}) for number in range(3)]
    jobs = [(job_status(registration=replace(job_status().registration, spec=named)), None, None) for named in specs]
    size = len(convert.jobs_bytes(jobs[:1], 0.0, 9))
    monkeypatch.setattr(pages, "MAX_PAGE_BYTES", 2 * size + 10)
    found = [pb.ListJobsResponse.FromString(convert.jobs_bytes(jobs[at:], 0.0, 9)) for at in (0, 2)]
    assert [[job.spec.job_id for job in page.jobs] for page in found] == [["a0", "a1"], ["a2"]]
    assert [page.next_page_token for page in found] == [page_token("a1"), ""]
    monkeypatch.setattr(pages, "MAX_PAGE_BYTES", 1)
    (alone,) = pb.ListJobsResponse.FromString(convert.jobs_bytes(jobs, 0.0, 9)).jobs
    assert alone.spec.job_id == "a0", "a page has one job at least"


def test_optical_switches_are_given_with_their_fibres_in_order() -> None:
    fibres = (
        FibreStatus(PortNo(1), PortRef(Dpid(1), PortNo(2)), True, PortNo(2)),
        FibreStatus(PortNo(2), PortRef(Dpid(2), PortNo(2)), False, None),
    )
    optical = {Dpid(0x102): OpticalStatus("0x102", False, ()), Dpid(0x101): OpticalStatus("optical1", True, fibres)}
    status = Status(extension=ExtensionStatus(optical))
    first, second = convert_fabric.fabric_message(status).optical_switches
    assert (second.dpid, second.name, second.connected) == (0x102, "0x102", False)
    assert (first.dpid, first.name, first.connected) == (0x101, "optical1", True)
    found = [(fibre.port, fibre.interface.dpid, fibre.interface.port, fibre.up) for fibre in first.fibres]
    assert found == [(1, 1, 2, True), (2, 2, 2, False)]
    assert [f.out_port if f.HasField("out_port") else None for f in first.fibres] == [2, None]
    counts = convert.status_message(status, 0.0, 0.0, "1")
    assert (counts.switches, counts.optical_switches, counts.optical_switches_down) == (0, 2, 1)


def test_what_was_dropped_is_given_by_switch_and_kind() -> None:
    dropped = convert_fabric.fabric_message(status_example.status()).dropped
    found = [(one.dpid, one.switch_name, one.kind, one.packets) for one in dropped]
    assert found == [(1, "leaf1", pb.DROPPED_KIND_IPV6, 12), (1, "leaf1", pb.DROPPED_KIND_DHCP, 3)]
    assert [word_of(pb.DroppedKind.DESCRIPTOR, number) for number in pb.DroppedKind.values()] == [None, *Dropped]
