"""Output about routes and alarms."""

import pytest
from google.protobuf.duration_pb2 import Duration
from rich.console import Console, Group, RenderableType

from controller.alarms import Alarm
from controller.api import convert, convert_fabric
from signalbox.commands import describe, naming, printing, printing_jobs
from signalbox.commands.output import escape
from signalbox.mapping import timestamp
from signalbox.v1 import signalbox_pb2 as pb
from signalbox.words import AlarmKind
from tests.support import status_example
from tests.support.circuit_messages import WIRED, rings, unwired_job, wired_job

LEASED = pb.JobSpec(job_id="ring", lease=Duration(seconds=60))


def shown(table: RenderableType) -> list[list[str]]:
    """Return the words of each line."""
    console = Console(width=200, no_color=True)
    with console.capture() as capture:
        console.print(table)
    return [line.replace("│", " ").split() for line in capture.get().splitlines()]


def text(table: RenderableType) -> list[str]:
    return [" ".join(words) for words in shown(table)]


def route(src: str, *parts: tuple[float, str, int, int]) -> pb.Route:
    subflows = [
        pb.Subflow(share=share, switches=["leaf1", spine, "leaf2"], port_value=value, port_mask=mask)
        for share, spine, value, mask in parts
    ]
    return pb.Route(src=src, dst="10.0.2.1", pinned=bool(subflows), subflows=subflows)


def test_each_subflow_has_a_line_with_its_share_ports_and_path() -> None:
    split = route("10.0.1.1", (0.75, "spine1", 0, 2), (0.25, "spine2", 2, 2))
    whole = route("10.0.1.2", (1.0, "spine3", 0, 0))
    lines = shown(printing_jobs.routes(pb.WatchRoutesResponse(generation=7, routes=[split, whole, route("10.0.1.3")])))
    assert ["10.0.1.1", "10.0.2.1", "75.0%", "0x0/0x2", "leaf1", ">", "spine1", ">", "leaf2"] in lines
    assert ["10.0.1.1", "10.0.2.1", "25.0%", "0x2/0x2", "leaf1", ">", "spine2", ">", "leaf2"] in lines
    assert ["10.0.1.2", "10.0.2.1", "100.0%", "any", "leaf1", ">", "spine3", ">", "leaf2"] in lines
    assert ["10.0.1.3", "10.0.2.1", "any", "ecmp"] in lines


def test_routes_that_are_all_whole_have_no_columns_for_subflows() -> None:
    found = pb.WatchRoutesResponse(generation=7, routes=[route("10.0.1.2", (1.0, "spine3", 0, 0)), route("10.0.1.3")])
    lines = shown(printing_jobs.routes(found))
    assert ["10.0.1.2", "10.0.2.1", "leaf1", ">", "spine3", ">", "leaf2"] in lines
    assert ["10.0.1.3", "10.0.2.1", "ecmp"] in lines


def status(*alarms: Alarm) -> pb.GetStatusResponse:
    """Return the status of a controller without a network."""
    return pb.GetStatusResponse(alarms=[convert.alarm_message(alarm, 0.0) for alarm in alarms])


def test_the_status_counts_what_is_there_of_what_there_should_be() -> None:
    found = pb.GetStatusResponse(
        switches=6, known_switches=7, switches_in_sync=6, links=28, known_links=32, hosts=12, hosts_down=1
    )
    lines = text(printing.status(found))
    assert {"switches 6 of 7, 6 in sync", "links 28 of 32 directed", "hosts 12, 1 down"} <= set(lines)
    assert "6 of 7 switches in sync" in printing.status_line(found)
    older = pb.GetStatusResponse(switches=6, switches_in_sync=6, links=28, hosts=12)
    lines = text(printing.status(older))
    assert {"switches 6, 6 in sync", "links 28 directed", "hosts 12"} <= set(lines)


def test_the_status_counts_optical_switches_where_there_are_any() -> None:
    found = pb.GetStatusResponse(switches=6, switches_in_sync=6, optical_switches=3)
    assert "optical switches 3" in text(printing.status(found))
    found.optical_switches_down = 1
    assert "optical switches 3, 1 not connected" in text(printing.status(found))
    assert "6 of 6 switches in sync, 2 of 3 optical switches connected, 0 links" in printing.status_line(found)
    assert "optical" not in " ".join(text(printing.status(pb.GetStatusResponse())))
    assert "optical" not in printing.status_line(pb.GetStatusResponse())


def test_the_fabric_lists_what_is_down_and_only_then() -> None:
    link = pb.Link(name="leaf1:2>spine1")
    part = pb.DownPart(kind=pb.PART_KIND_LINK, name="leaf1:3>spine2", down_time=timestamp(1e9))
    lines = text(printing.fabric(pb.GetFabricResponse(links=[link], parts_down=[part])))
    assert "1 of 3 directed links" in lines
    assert "link leaf1:3>spine2 2001-09-09 01:46:40 UTC" in lines
    assert not any("down" in line for line in text(printing.fabric(pb.GetFabricResponse(links=[link]))))


def test_critical_alarms_come_first_with_their_kind() -> None:
    found = status(
        Alarm(AlarmKind.FOREIGN_RULES, "leaf1", {"rules": 2}),
        Alarm(AlarmKind.STATE_NOT_SAVED, "state", {"why": "No space left on device"}),
        Alarm(AlarmKind.FOREIGN_RULES, "leaf2", {"rules": 3}),
    )
    assert text(printing.status(found))[-3:] == [
        "critical state_not_saved: changes of jobs cannot be saved and are refused: No space left on device",
        "warning foreign_rules: leaf1 holds 2 foreign rules",
        "warning foreign_rules: leaf2 holds 3 foreign rules",
    ]
    assert printing.status_line(found).endswith("3 alarms, 1 of them critical")
    assert printing.status_line(status()).endswith("0 alarms")


def test_an_alarm_that_is_known_keeps_its_kind_which_unsilence_needs() -> None:
    silence = pb.Silence(by="ops", comment="new optic")
    known = pb.Alarm(severity=pb.SEVERITY_WARNING, kind=pb.ALARM_KIND_LINK_DOWN, text="link a is down", silence=silence)
    found = text(Group(*printing.alarms([known])))
    assert found == ["warning link_down: link a is down (acknowledged by ops: new optic)"]


def test_the_list_says_of_a_pinned_job_that_flows_have_no_path_or_that_it_sends_nothing() -> None:
    job = pb.Job(spec=LEASED, lease_left=LEASED.lease, state=pb.JOB_STATE_PINNED, pinned=8, flows_without_path=2)
    assert "no path" in " ".join(text(printing_jobs.jobs([job])))
    job.demand.findings.extend([pb.DEMAND_FINDING_SILENT, pb.DEMAND_FINDING_OTHER_TRAFFIC])
    job.flows_without_path = 0
    assert "pinned, silent " in " ".join(text(printing_jobs.jobs([job])))


def test_what_is_down_is_not_said_to_be_unknown() -> None:
    down = [
        pb.DownPart(kind=pb.PART_KIND_SWITCH, name="spine3", id="0x103", down_time=timestamp(1e9)),
        pb.DownPart(kind=pb.PART_KIND_LINK, name="leaf1:5>spine1", id="0x1:5 0x101:1"),
    ]
    for kind, names, said in (
        (naming.SWITCH, ("spine3", "0x103"), "switch spine3 is down since 2001-09-09 01:46:40 UTC"),
        (naming.LINK, ("leaf1:5>spine1", "leaf1:5", "leaf1:spine1"), "link leaf1:5>spine1 is down;"),
    ):
        for name in names:
            assert str(naming.none_such(kind, name, down)).startswith(said)
    assert str(naming.none_such(naming.SWITCH, "spine4", down)).startswith("there is no switch 'spine4'")


def test_many_alarms_of_a_kind_are_a_line_with_their_number_and_the_first_subjects() -> None:
    waiting = [Alarm(AlarmKind.HOSTS_MISSING, f"f{i}", {"hosts": ["10.0.0.1"]}) for i in range(235)]
    forged = [Alarm(AlarmKind.LLDP_FORGED, f"leaf1:{i}") for i in range(4)]
    lines = text(printing.status(status(*waiting, *forged)))
    assert lines[-2:] == [
        "critical lldp_forged, 4 alarms: leaf1:0, leaf1:1, leaf1:2 and 1 more (alarms list has all)",
        "warning hosts_missing, 235 alarms: f0, f1, f2 and 232 more (alarms list has all)",
    ]
    assert "hosts_missing" not in "".join(lines[:-1])
    found = status(*waiting, *forged).alarms
    every = list(printing.alarms(found, len(found)))
    assert len(every) == 239
    assert "job f234 waits for" in every[-1]


def test_an_efficiency_of_0_says_which_jobs_are_not_served_and_an_unknown_one_is_a_dash() -> None:
    found = pb.GetStatusResponse(network_efficiency=0.0, jobs=5, jobs_pending=1, jobs_without_path=2)
    said = "network efficiency 0.0%; jobs not served: 1 pending, 2 with flows without a path"
    assert said in text(printing.status(found))
    assert "network efficiency -" in text(printing.status(status()))


def test_a_job_that_is_learnt_is_said_to_be_learnt_once() -> None:
    job = pb.Job(spec=LEASED, state=pb.JOB_STATE_ECMP, lease_left=Duration(seconds=60))
    for source, learning, said in (
        (pb.DEMAND_SOURCE_LEARNING, True, ["learning"]),
        (pb.DEMAND_SOURCE_PROVISIONAL, True, ["provisional"]),
        (pb.DEMAND_SOURCE_MEASURED, True, ["measured,", "learning"]),
        (pb.DEMAND_SOURCE_MEASURED, False, ["measured"]),
        (pb.DEMAND_SOURCE_DECLARED, False, ["unconfirmed"]),
        (pb.DEMAND_SOURCE_CONFIRMED, False, ["confirmed"]),
    ):
        job.demand.CopyFrom(pb.Demand(source=source, learning=learning))
        (line,) = (line for line in shown(printing_jobs.jobs([job])) if line[:1] == ["ring"])
        assert line == ["ring", "ecmp", "0", "0", "0", *said, "-", "-", "-", "0", "60", "s"]


@pytest.mark.parametrize(("source", "said"), [
    (pb.DEMAND_SOURCE_DECLARED, "declared: what it announced, not yet confirmed by counters"),
    (pb.DEMAND_SOURCE_CONFIRMED, "confirmed: what it announced, confirmed by counters"),
    (pb.DEMAND_SOURCE_MEASURED, "measured: what switches count; other pairs are looked for"),
    (pb.DEMAND_SOURCE_PROVISIONAL, "provisional: pairs that send, with bytes that are not yet confirmed by counters"),
    (pb.DEMAND_SOURCE_LEARNING, "learning: nothing yet: no traffic of it is confirmed by counters"),
])  # fmt: skip
def test_a_job_says_whether_counters_confirm_what_it_is_planned_for(source: pb.DemandSource, said: str) -> None:
    job = pb.Job(spec=LEASED, lease_left=LEASED.lease, demand=pb.Demand(source=source, learning=True))
    lines = [" ".join(line) for line in shown(printing_jobs.job(job))]
    if source in (pb.DEMAND_SOURCE_DECLARED, pb.DEMAND_SOURCE_CONFIRMED):
        said += "; other pairs are looked for"
    assert f"planned for {said}" in lines


@pytest.mark.parametrize(("measured", "iterations", "in_row", "said"), [
    (None, 0, "-", "not measured"),
    (None, 5, "-", "not measured yet on these routes and bytes"),
    (0.97, 5, "97.0%", "97.0% measured"),
    (1.05, 5, "105.0%", "105.0% measured"),
    (1.62, 5, "162.0% !",
     "162.0% measured, which is not possible: it announced too much, or reports its iterations as too short"),
])  # fmt: skip
def test_a_measured_efficiency_is_of_these_routes_and_bytes_and_possible(
    measured: float | None, iterations: int, in_row: str, said: str
) -> None:
    job = pb.Job(spec=LEASED, lease_left=LEASED.lease, efficiency_measured=measured, iterations=iterations)
    row, *_ = (line for line in shown(printing_jobs.jobs([job])) if line[:1] == ["ring"])
    assert in_row in " ".join(row)
    legend = "!: it announced too much, or reports its iterations as too short." in text(printing_jobs.jobs([job]))
    assert legend is ("!" in in_row)
    assert f"not predicted, {said}" in " ".join(" ".join(line) for line in shown(printing_jobs.job(job)))


@pytest.mark.parametrize(("source", "is_marked"), [
    (pb.DEMAND_SOURCE_DECLARED, True), (pb.DEMAND_SOURCE_PROVISIONAL, True),
    (pb.DEMAND_SOURCE_CONFIRMED, False), (pb.DEMAND_SOURCE_MEASURED, False),
])  # fmt: skip
def test_a_measured_efficiency_of_unconfirmed_bytes_is_marked(source: pb.DemandSource, is_marked: bool) -> None:
    demand = pb.Demand(source=source)
    job = pb.Job(spec=LEASED, lease_left=LEASED.lease, efficiency_measured=0.27, iterations=5, demand=demand)
    table = " ".join(text(printing_jobs.jobs([job])))
    assert "27.0%" in table
    assert ("27.0% ?" in table) is ("?: counters have not yet confirmed the bytes." in table) is is_marked
    facts = " ".join(text(printing_jobs.job(job)))
    assert ("27.0% measured, of bytes that counters have not yet confirmed" in facts) is is_marked


def test_the_status_counts_jobs_that_counters_have_not_confirmed() -> None:
    found = pb.GetStatusResponse(jobs=5, jobs_learning=1, jobs_unconfirmed=2, jobs_differing=1)
    said = "5, 0 pending, 1 being learnt, 2 not yet confirmed by counters, 1 announced wrongly"
    assert said in " ".join(text(printing.status(found)))


def test_of_many_hosts_and_groups_the_first_are_named_in_the_order_of_their_numbers() -> None:
    names = [f"data-{number}" for number in range(64)]
    all_reduce = pb.Collective(algorithm=pb.ALGORITHM_ALL_REDUCE, groups=names)
    spec = pb.JobSpec(job_id="gpt3", collectives=[all_reduce], lease=Duration(seconds=60))
    hosts = sorted(f"10.0.0.{number}" for number in range(1, 33))
    found = pb.Job(spec=spec, state=pb.JOB_STATE_PENDING, missing_hosts=hosts, lease_left=Duration(seconds=60))
    said = " ".join(" ".join(line) for line in shown(printing_jobs.registered(found)))
    first = "10.0.0.1, 10.0.0.2, 10.0.0.3, 10.0.0.4, 10.0.0.5, 10.0.0.6, 10.0.0.7, 10.0.0.8 and 24 more"
    assert f"hosts not found {first} " in said
    assert f"Waiting for {first}: the controller looks for them" in said
    assert "data-0, data-1, data-2, data-3, data-4, data-5, data-6, data-7 and 56 more" in said


def test_published_schemes_have_the_names_of_the_option_scheme() -> None:
    plan = pb.Plan()
    assert "others instead not compared" in text(printing.plan(plan))
    for scheme, slowdown in ((pb.ROUTING_SCHEME_ECMP, 2.0), (pb.ROUTING_SCHEME_EDGE_COLORING, 1.0), (0, 1.5)):
        plan.schemes.add(scheme=scheme, slowdown=slowdown)
    assert "others instead edge-coloring 1.000, - 1.500" in text(printing.plan(plan))


def test_names_of_jobs_give_a_terminal_no_orders() -> None:
    """Control sequences, which could set the title, clear the screen or fill the clipboard, are made harmless.

    A control sequence begins with CSI, or begins with ESC ] and ends with BEL."""
    assert escape("a\x1b]0;owned\x07b\x9b2J\u202e[red]") == "a\ufffd]0;owned\ufffdb\ufffd2J\ufffd\\[red]"


def test_a_plan_says_whether_it_was_cut_short_and_how_far_its_goal_is() -> None:
    message = pb.Plan(solver="lp", certificate=pb.PLAN_CERTIFICATE_GAP, moves=8, plan_time=Duration())
    assert "moves 8" in text(printing.plan(message))
    message.MergeFrom(pb.Plan(cut_short=True, moves_left=20, goal=pb.GoalPlan(max_slowdown=1.25)))
    lines = text(printing.plan(message))
    assert "planned by lp, in 0 ms, cut short by the time limit" in lines
    assert "moves 8" in lines
    assert "goal worst slowdown 1.250, by 20 more moves in the next cycles" in lines
    message.blocked_flows = 300
    together = "goal worst slowdown 1.250; of the moves to it 300 would have to be made together"
    assert together in text(printing.plan(message))


def test_a_fabric_shows_what_was_dropped_if_anything_was() -> None:
    found = convert_fabric.fabric_message(status_example.status())
    listed = [line for line in shown(printing.fabric(found)) if line[:1] == ["leaf1"]][-2:]
    assert listed == [["leaf1", "ipv6", "12"], ["leaf1", "dhcp", "3"]]
    found.ClearField("dropped")
    assert "dropped" not in " ".join(text(printing.fabric(found)))


def test_circuits_are_counted_as_links_that_lead_one_way() -> None:
    fabric = rings(5, (1, 2))
    fabric.parts_down.add(kind=pb.PART_KIND_LINK, name="leaf1:1>spine1", id="x")
    assert "10 of 12 directed links, 10 circuits among them" in text(printing.fabric(fabric))


def test_a_job_says_its_circuits_or_why_it_has_none() -> None:
    fabric = rings(5, (1, 2))
    assert ["circuits", *f"10 circuits {WIRED}".split()] in shown(printing_jobs.job(wired_job(fabric)))
    unwired = unwired_job("waits for servers of ring")
    assert ["circuits", "none:", "waits", "for", "servers", "of", "ring"] in shown(printing_jobs.job(unwired))
    route = pb.ListedRoute(src="10.0.1.1", dst="10.0.2.1")
    assert ["10.0.1.1", "10.0.2.1", "no", "circuits"] in shown(describe.routes_table([route], unwired))
    assert ["10.0.1.1", "10.0.2.1", "ecmp"] in shown(describe.routes_table([route], wired_job(fabric)))


def test_the_list_says_below_which_jobs_have_no_circuits_and_why() -> None:
    fabric = rings(5, (1, 2))
    jobs = [wired_job(fabric), *[unwired_job("waits for servers of ring")] * 10]
    lines = text(printing_jobs.jobs(jobs))
    assert lines[-9:] == [*["waits has no circuits: waits for servers of ring"] * 8, "2 more (--json has all)"]
    assert "no circuits" not in " ".join(text(printing_jobs.jobs(jobs[:1])))


def with_parallelizations(job: pb.Job, *names: str) -> pb.Job:
    job.spec.parallelizations.extend(pb.Parallelization(name=name) for name in names)
    return job


def test_a_job_with_parallelizations_says_whose_its_flows_are_and_that_another_one_may_be_chosen() -> None:
    unwired = with_parallelizations(unwired_job("circuits are being worked out"), "data", "hybrid", "pipeline")
    registered = " ".join(text(printing_jobs.registered(unwired)))
    assert "in 0 subflows; those of parallelization data, the first of 3 may be" in registered
    assert registered.endswith(
        "It has no circuits yet: circuits are being worked out. "
        "Flows are those of parallelization data, the first of 3. "
        "Where optical switches connect its servers, the controller chooses parallelization and circuits together."
    )
    unwired.ClearField("wiring")  # the controller still looks for its hosts
    assert "Where optical switches connect" in " ".join(text(printing_jobs.registered(unwired)))
    wired = " ".join(text(printing_jobs.registered(with_parallelizations(wired_job(rings(5, (1,))), "data", "hybrid"))))
    assert "those of parallelization hybrid, chosen from 2" in wired
    assert "Where optical switches connect" not in wired


def test_the_ports_of_a_server_say_where_each_circuit_leads_and_where_the_other_comes_from() -> None:
    fabric = rings(5, (1, 2))
    fabric.switches[0].ports.extend(pb.Port(number=n, name=f"eth{n}", up=True) for n in (1, 2, 3))
    lines = text(describe.ports_table(fabric.switches[0], fabric.links, fabric.hosts[:1]))
    assert "port name up leads to comes from capacity out use in use" in lines
    assert "3 eth3 yes server3 server4:3 1 Gbit/s 250 Mbit/s 25% 250 Mbit/s 25%" in lines
