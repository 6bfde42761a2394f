"""Output about routes, alarms, jobs and optical switches, and tables on narrow terminals."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from rich.console import Console, Group, RenderableType

from controller.alarms import Alarm
from controller.api import convert, convert_fabric
from signalbox.commands import connecting, describe, optical, printing, printing_jobs
from signalbox.commands.output import ALL_COLUMNS, Column, Fitted, fields
from signalbox.mapping import timestamp
from signalbox.v1 import signalbox_pb2 as pb
from signalbox.words import AlarmKind
from tests.support import status_example
from tests.support.circuit_messages import WIRED, optical_switches, rings, unwired_job, wired_job

LEASED = pb.JobSpec(job_id="ring", lease=Duration(seconds=60))


def shown(table: RenderableType) -> list[list[str]]:
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
    found = pb.WatchRoutesResponse(generation=7, routes=[route("10.0.1.2", (1.0, "spine3", 0, 0)), route("10.0.1.3")])
    lines = shown(printing_jobs.routes(found))
    assert ["10.0.1.2", "10.0.2.1", "leaf1", ">", "spine3", ">", "leaf2"] in lines
    assert ["10.0.1.3", "10.0.2.1", "ecmp"] in lines, "whole routes need no columns for subflows"


def status(*alarms: Alarm) -> pb.GetStatusResponse:
    return pb.GetStatusResponse(alarms=[convert.alarm_message(alarm, 0.0) for alarm in alarms])


def test_the_status_counts_what_is_there_and_served_of_what_there_should_be() -> None:
    found = pb.GetStatusResponse(
        switches=6, known_switches=7, switches_in_sync=6, links=28, known_links=32, hosts=12, hosts_down=1
    )
    lines = text(printing.status(found))
    assert {"switches 6 of 7, 6 in sync", "links 28 of 32 directed", "hosts 12, 1 down"} <= set(lines)
    older = pb.GetStatusResponse(switches=6, switches_in_sync=6, links=28, hosts=12)
    lines = text(printing.status(older))
    assert {"switches 6, 6 in sync", "links 28 directed", "hosts 12"} <= set(lines)
    assert "optical" not in " ".join(lines)
    found = pb.GetStatusResponse(switches=6, switches_in_sync=6, optical_switches=3)
    assert "optical switches 3" in text(printing.status(found))
    found.optical_switches_down = 1
    assert "optical switches 3, 1 not connected" in text(printing.status(found))
    found = pb.GetStatusResponse(network_efficiency=0.0, jobs=5, jobs_pending=1, jobs_without_path=2)
    said = "network efficiency 0.0%; jobs not served: 1 pending, 2 with flows without a path"
    assert said in text(printing.status(found))
    assert "network efficiency -" in text(printing.status(status()))
    found = pb.GetStatusResponse(jobs=5, jobs_learning=1, jobs_unconfirmed=2, jobs_differing=1)
    said = "5, 0 pending, 1 being learnt, 2 not yet confirmed by counters, 1 announced wrongly"
    assert said in " ".join(text(printing.status(found)))


def test_the_status_names_the_leader_of_several_members_and_of_no_single_controller() -> None:
    assert "leader b" in text(printing.status(pb.GetStatusResponse(leader="b")))
    assert not any("leader" in line for line in text(printing.status(pb.GetStatusResponse())))


def test_the_fabric_lists_what_is_down_and_dropped_and_only_then() -> None:
    link = pb.Link(name="leaf1:2>spine1")
    part = pb.DownPart(kind=pb.PART_KIND_LINK, name="leaf1:3>spine2", down_time=timestamp(1e9))
    lines = text(printing.fabric(pb.GetFabricResponse(links=[link], parts_down=[part])))
    assert "1 of 3 directed links" in lines
    assert "link leaf1:3>spine2 2001-09-09 01:46:40 UTC" in lines
    assert not any("down" in line for line in text(printing.fabric(pb.GetFabricResponse(links=[link]))))
    circuits = rings(5, (1, 2))
    circuits.parts_down.append(part)
    assert "10 of 12 directed links, 10 circuits among them" in text(printing.fabric(circuits))
    found = convert_fabric.fabric_message(status_example.status())
    listed = [line for line in shown(printing.fabric(found)) if line[:1] == ["leaf1"]][-2:]
    assert listed == [["leaf1", "ipv6", "12"], ["leaf1", "dhcp", "3"]]
    found.ClearField("dropped")
    assert "dropped" not in " ".join(text(printing.fabric(found)))


def test_critical_alarms_come_first_and_many_of_a_kind_are_a_line_with_the_first_subjects() -> None:
    found = status(
        Alarm(AlarmKind.FOREIGN_RULES, "leaf1", {"rules": 2}),
        Alarm(AlarmKind.STATE_NOT_SAVED, "state", {"why": "No space left on device"}),
        Alarm(AlarmKind.FOREIGN_RULES, "leaf2", {"rules": 3}),
    )
    assert text(printing.status(found))[-3:] == [
        "critical state_not_saved: changes of jobs cannot be saved and are refused: No space left on device",
        "warning foreign_rules: leaf1 holds 2 foreign rules, which Signalbox did not make",
        "warning foreign_rules: leaf2 holds 3 foreign rules, which Signalbox did not make",
    ]
    silence = pb.Silence(by="ops", comment="new optic")
    known = pb.Alarm(severity=pb.SEVERITY_WARNING, kind=pb.ALARM_KIND_LINK_DOWN, text="link a is down", silence=silence)
    lines = text(Group(*printing.alarms([known])))
    assert lines == ["warning link_down: link a is down (acknowledged by ops: new optic)"], "unsilence needs the kind"
    waiting = [Alarm(AlarmKind.HOSTS_MISSING, f"f{i}", {"hosts": ["10.0.0.1"]}) for i in range(235)]
    forged = [Alarm(AlarmKind.LLDP_FORGED, f"leaf1:{i}") for i in range(4)]
    lines = text(printing.status(status(*waiting, *forged)))
    assert lines[-2:] == [
        "critical lldp_forged, 4 alarms: leaf1:0, leaf1:1, leaf1:2 and 1 more (signalbox alarms list prints all)",
        "warning hosts_missing, 235 alarms: f0, f1, f2 and 232 more (signalbox alarms list prints all)",
    ]
    assert "hosts_missing" not in "".join(lines[:-1])
    every = list(printing.alarms(status(*waiting, *forged).alarms, 239))
    assert len(every) == 239
    assert "job f234 waits for" in every[-1]


def test_the_list_says_of_a_pinned_job_that_flows_have_no_path_or_that_it_sends_nothing() -> None:
    job = pb.Job(spec=LEASED, lease_left=LEASED.lease, state=pb.JOB_STATE_PINNED, pinned=8, flows_without_path=2)
    assert "no path" in " ".join(text(printing_jobs.jobs([job])))
    job.demand.findings.extend([pb.DEMAND_FINDING_SILENT, pb.DEMAND_FINDING_OTHER_TRAFFIC])
    job.flows_without_path = 0
    assert "pinned, silent " in " ".join(text(printing_jobs.jobs([job])))
    job.demand.window.FromSeconds(6)
    job.demand.difference = "10.0.1.1 > 10.0.2.1 carries nothing"
    said = "traffic 0 bit/s of payload; it sends nothing now; 10.0.1.1 > 10.0.2.1 carries nothing"
    assert said in text(printing_jobs.job(job))


def test_what_is_down_is_not_said_to_be_unknown() -> None:
    down = [
        pb.DownPart(kind=pb.PART_KIND_SWITCH, name="spine3", id="0x103", down_time=timestamp(1e9)),
        pb.DownPart(kind=pb.PART_KIND_LINK, name="leaf1:5>spine1", id="0x1:5 0x101:1"),
    ]
    for kind, names, said in (
        (connecting.SWITCH, ("spine3", "0x103"), "switch spine3 is down since 2001-09-09 01:46:40 UTC"),
        (connecting.LINK, ("leaf1:5>spine1", "leaf1:5", "leaf1:spine1"), "link leaf1:5>spine1 is down;"),
    ):
        for name in names:
            assert str(connecting.none_such(kind, name, down)).startswith(said)
    assert str(connecting.none_such(connecting.SWITCH, "spine4", down)).startswith("there is no switch 'spine4'")


@pytest.mark.parametrize(("source", "learning", "in_row", "said"), [
    (pb.DEMAND_SOURCE_DECLARED, False, "unconfirmed",
     "declared: what it announced, which counters have not yet confirmed"),
    (pb.DEMAND_SOURCE_CONFIRMED, True, "confirmed, learning",
     "confirmed: what it announced, confirmed by counters; the controller looks for other pairs"),
    (pb.DEMAND_SOURCE_MEASURED, False, "measured", "measured: what switches count"),
    (pb.DEMAND_SOURCE_MEASURED, True, "measured, learning",
     "measured: what switches count; the controller looks for other pairs"),
    (pb.DEMAND_SOURCE_PROVISIONAL, True, "provisional",
     "provisional: pairs that send, with bytes that counters have not yet confirmed"),
    (pb.DEMAND_SOURCE_LEARNING, True, "learning",
     "learning: nothing yet: counters have not yet confirmed any of its traffic"),
])  # fmt: skip
def test_a_job_says_whether_counters_confirm_what_it_is_planned_for(
    source: pb.DemandSource, learning: bool, in_row: str, said: str
) -> None:
    demand = pb.Demand(source=source, learning=learning)
    job = pb.Job(spec=LEASED, state=pb.JOB_STATE_ECMP, lease_left=LEASED.lease, demand=demand)
    assert f"planned for {said}" in text(printing_jobs.job(job))
    assert f"ring ecmp 0 0 0 {in_row} - - - 0 60 s" in text(printing_jobs.jobs([job]))


UNCONFIRMED, CONFIRMED = pb.DEMAND_SOURCE_PROVISIONAL, pb.DEMAND_SOURCE_CONFIRMED


@pytest.mark.parametrize(("measured", "source", "in_row", "said"), [
    (None, CONFIRMED, " - ", "not measured yet with these routes and bytes"),
    (0.97, CONFIRMED, "97.0% ", "97.0% measured"),
    (1.62, CONFIRMED, "162.0% ! ",
     "162.0% measured, which is not possible: it announced too much, or reports its iterations as too short"),
    (0.27, UNCONFIRMED, "27.0% ? ", "27.0% measured, for bytes that counters have not yet confirmed"),
])  # fmt: skip
def test_a_measured_efficiency_is_of_these_routes_and_bytes_and_possible(
    measured: float | None, source: pb.DemandSource, in_row: str, said: str
) -> None:
    demand = pb.Demand(source=source)
    job = pb.Job(spec=LEASED, lease_left=LEASED.lease, efficiency_measured=measured, iterations=5, demand=demand)
    lines = text(printing_jobs.jobs([job]))
    assert any(line.startswith("ring ") and in_row in line for line in lines)
    legends = [line for line in lines if line.startswith(("!: it announced", "?: counters have not yet"))]
    assert [line[0] for line in legends] == [mark for mark in "!?" if mark in in_row]
    assert f"efficiency not predicted, {said}" in text(printing_jobs.job(job))


def test_of_many_hosts_and_groups_the_first_are_named_in_the_order_of_their_numbers() -> None:
    names = [f"data-{number}" for number in range(64)]
    all_reduce = pb.Collective(algorithm=pb.ALGORITHM_ALL_REDUCE, groups=names)
    spec = pb.JobSpec(job_id="gpt3", collectives=[all_reduce], lease=Duration(seconds=60))
    hosts = sorted(f"10.0.0.{number}" for number in range(1, 33))
    found = pb.Job(spec=spec, state=pb.JOB_STATE_PENDING, missing_hosts=hosts, lease_left=Duration(seconds=60))
    said = " ".join(text(printing_jobs.registered(found)))
    first = "10.0.0.1, 10.0.0.2, 10.0.0.3, 10.0.0.4, 10.0.0.5, 10.0.0.6, 10.0.0.7, 10.0.0.8 and 24 more"
    assert f"hosts not found {first} " in said
    assert f"Waiting for {first}: the controller looks for them" in said
    assert "data-0, data-1, data-2, data-3, data-4, data-5, data-6, data-7 and 56 more" in said


def test_a_plan_says_whether_it_was_cut_short_how_far_its_goal_is_and_what_others_reach() -> None:
    message = pb.Plan(solver="lp", certificate=pb.PLAN_CERTIFICATE_GAP, moves=8, plan_time=Duration())
    assert "moves 8" in text(printing.plan(message))
    message.MergeFrom(pb.Plan(cut_short=True, moves_left=20, goal=pb.GoalPlan(max_slowdown=1.25)))
    lines = text(printing.plan(message))
    assert "planned by lp, in 0 ms, cut short by the time limit" in lines
    assert "moves 8" in lines
    assert "goal worst slowdown 1.250, after 20 more moves in the next cycles" in lines
    message.blocked_flows = 300
    together = "goal worst slowdown 1.250; 300 of its moves must be made together, too many for one cycle"
    assert together in text(printing.plan(message))
    plan = pb.Plan()
    assert "other schemes not compared" in text(printing.plan(plan))
    for scheme, slowdown in ((pb.ROUTING_SCHEME_ECMP, 2.0), (pb.ROUTING_SCHEME_EDGE_COLORING, 1.0), (0, 1.5)):
        plan.schemes.add(scheme=scheme, slowdown=slowdown)
    assert "other schemes edge-coloring 1.000, - 1.500" in text(printing.plan(plan))


def test_a_job_says_its_circuits_or_why_it_has_none() -> None:
    fabric = rings(5, (1, 2))
    assert ["circuits", *f"10 circuits {WIRED}".split()] in shown(printing_jobs.job(wired_job(fabric)))
    unwired = unwired_job("waits for servers that other jobs use: ring")
    none = "circuits none: waits for servers that other jobs use: ring"
    assert none.split() in shown(printing_jobs.job(unwired))
    route = pb.ListedRoute(src="10.0.1.1", dst="10.0.2.1")
    assert ["10.0.1.1", "10.0.2.1", "no", "circuits"] in shown(describe.routes_table([route], unwired))
    assert ["10.0.1.1", "10.0.2.1", "ecmp"] in shown(describe.routes_table([route], wired_job(fabric)))
    jobs = [wired_job(fabric), *[unwired_job("waits for servers that other jobs use: ring")] * 10]
    lines = text(printing_jobs.jobs(jobs))
    assert lines[-9:] == [
        *["waits has no circuits: waits for servers that other jobs use: ring"] * 8,
        "2 more (--json prints all)",
    ]
    assert "no circuits" not in " ".join(text(printing_jobs.jobs(jobs[:1])))


def test_a_job_with_parallelizations_says_whose_its_flows_are_and_that_another_one_may_be_chosen() -> None:
    parallelizations = [pb.Parallelization(name=name) for name in ("data", "hybrid", "pipeline")]
    unwired = unwired_job("circuits are being worked out")
    unwired.spec.parallelizations.extend(parallelizations)
    registered = " ".join(text(printing_jobs.registered(unwired)))
    assert "in 0 subflows; those of parallelization data, the first of 3 may be" in registered
    assert registered.endswith(
        "It has no circuits yet: circuits are being worked out. "
        "Flows are those of parallelization data, the first of 3. "
        "Where optical switches connect its servers, the controller chooses parallelization and circuits together."
    )
    unwired.ClearField("wiring")  # the controller still looks for its hosts
    assert "Where optical switches connect" in " ".join(text(printing_jobs.registered(unwired)))
    wired = wired_job(rings(5, (1,)))
    wired.spec.parallelizations.extend(parallelizations)
    registered = " ".join(text(printing_jobs.registered(wired)))
    assert "those of parallelization hybrid, chosen from 3" in registered
    assert "Where optical switches connect" not in registered


def test_circuits_are_told_at_the_ports_of_their_servers_and_of_the_optical_switch_that_makes_them() -> None:
    found = fabric()
    found.switches[0].ports.extend(pb.Port(number=n, name=f"eth{n}", up=True) for n in (1, 2, 3))
    lines = text(describe.ports_table(found.switches[0], found.links, found.hosts[:1]))
    assert "port name up leads to comes from capacity out use in use" in lines
    assert "3 eth3 yes server3 server4:3 1 Gbit/s 250 Mbit/s 25% 250 Mbit/s 25%" in lines
    link = next(each for each in found.links if each.name == "server4:3>server1")
    assert str(optical.through(link, found)) == "optical2, from its port 4 to port 1"
    del found.optical_switches[:]
    assert optical.through(link, found) is None
    link.one_way = False
    assert optical.through(link, fabric()) is None


def fabric() -> pb.GetFabricResponse:
    found = rings(5, (1, 2))
    optical_switches(found)
    return found


def described(found: pb.GetFabricResponse, *jobs: pb.Job) -> list[list[str]]:
    names = optical.Names(found)
    return shown(optical.panel({**optical.described(found.optical_switches[0], jobs, names), "alarms": []}, names))


def test_optical_switches_are_listed_with_ports_and_circuits_and_completed_where_they_are_taken() -> None:
    found = fabric()
    found.optical_switches[0].fibres[3].ClearField("out_port")
    found.optical_switches[0].fibres[3].up = False
    found.optical_switches[1].connected = False
    (table,) = optical.tables(found.optical_switches)
    assert "2 optical switches" in text(table)
    assert text(table)[-2:] == ["optical1 0x101 yes 4 of 5 4", "optical2 0x102 no - of 5 5"]
    assert optical.tables(rings(5, (1, 2)).optical_switches) == []
    client: Any = SimpleNamespace(get_fabric=fabric)
    servers = [f"server{n}" for n in range(1, 6)]
    assert connecting.all_switch_names(client) == [*servers, "optical1", "optical2"]
    assert connecting.switch_names(client) == servers
    assert connecting.part_names(client) == servers, "circuits cannot be drained"


def test_each_port_says_where_its_light_goes_and_for_which_job() -> None:
    found = fabric()
    job = wired_job(found)
    del job.wiring.circuits[0]  # the circuit of interface 1 of server 1
    found.optical_switches[0].fibres[1].out_port = 9
    found.optical_switches[0].fibres[2].ClearField("out_port")
    found.optical_switches[0].fibres[2].up = False
    rows = described(found, pb.Job(), job)
    assert ["circuits", "3,", "of", "which", "jobs", "own", "2"] in rows
    assert rows[-5:] == [
        ["1", "server1:2", "yes", "server2", "-"],
        ["2", "server2:2", "yes", "port", "9,", "which", "has", "no", "fibre", "-"],
        ["3", "server3:2", "no", "-", "-"],
        ["4", "server4:2", "yes", "server5", "ring"],
        ["5", "server5:2", "yes", "server1", "ring"],
    ]


def test_of_one_that_is_not_connected_it_says_what_was_read_last_and_of_servers_that_are_down_their_names() -> None:
    found = fabric()
    found.optical_switches[0].connected = False
    for fibre in found.optical_switches[0].fibres:
        fibre.up = False
    rows = described(found)
    assert ["connected", "no;", "circuits", "as", "of", "the", "last", "reading"] in rows
    assert rows[-1] == ["5", "server5:2", "-", "server1", "-"]
    found = fabric()
    del found.switches[:2]
    found.parts_down.add(kind=pb.PART_KIND_SWITCH, name="server2", id="0x2")
    rows = described(found)
    assert ["1", "0x1:2", "yes", "server2", "-"] in rows, "an unknown server has its dpid"
    assert ["2", "server2:2", "yes", "server3", "-"] in rows


NAME = "a-job-with-a-rather-long-name"
COLUMNS = (Column("job"), Column("flows", 2, number=True), Column("path", 1, wraps=True), Column("lease", 3))
ROWS = [(NAME, 12, "leaf1 > spine1 > leaf2", "60 s"), ("b", 3, "leaf3 > spine2 > leaf4", "5 s")]


def printed(width: int, columns: Sequence[Column] = COLUMNS, rows: Sequence[tuple[object, ...]] = ROWS) -> list[str]:
    console = Console(width=width, no_color=True)
    with console.capture() as capture:
        console.print(Fitted(columns, rows, title="jobs"))
    return [line.rstrip() for line in capture.get().splitlines()]


def test_a_wide_terminal_has_all_columns_and_what_is_always_there_wraps() -> None:
    lines = printed(ALL_COLUMNS)
    assert lines[:3] == ["", "jobs", "job                            flows  path                    lease"]
    assert lines[4:] == [
        "a-job-with-a-rather-long-name     12  leaf1 > spine1 > leaf2  60 s",
        "b                                  3  leaf3 > spine2 > leaf4  5 s",
    ]
    lines = printed(20, (Column("job"), Column("flows"), Column("path"), Column("lease")))
    assert max(map(len, lines)) <= 20
    assert "a-job-with-a-rather-long-name" in "".join(line.split(" ")[0] for line in lines)


@pytest.mark.parametrize(
    ("width", "left_out"), [(67, ""), (63, "lease"), (56, "flows, lease"), (50, "flows, path, lease")]
)
def test_the_least_important_columns_are_left_out_and_named(width: int, left_out: str) -> None:
    lines = printed(width)
    assert max(map(len, lines)) <= width
    assert any(line.startswith(NAME) for line in lines), "no name is cut"
    assert ([line for line in lines if "-o wide" in line] or [""])[0].partition(": ")[2] == left_out


def test_names_give_a_terminal_no_orders_markup_is_text_and_an_empty_table_says_so() -> None:
    """Control sequences, which could set the title, clear the screen or fill the clipboard, are made harmless.

    A control sequence begins with CSI, or begins with ESC ] and ends with BEL."""
    lines = printed(40, [Column("job")], [("a\x1b]0;owned\x07b\x9b2J\u202e[red]",)])
    assert lines[-1] == "a\ufffd]0;owned\ufffdb\ufffd2J\ufffd[red]"
    assert printed(40, rows=[]) == ["jobs: none"]


@pytest.mark.parametrize("width", [60, 80, 100])
def test_a_line_ends_between_words_and_no_word_is_cut(width: int) -> None:
    match = "ip, nw_src=10.0.100.101, nw_dst=10.0.200.201, tp_src=0x4000/0xc000"
    actions = "group:3735928559, goto_table:2"
    names = (("for", 0), ("match", 2), ("actions", 4))
    columns = (Column("table"), *(Column(name, leaves, wraps=True) for name, leaves in names))
    lines = printed(width, columns, [(1, "pin 10.0.100.101 > 10.0.200.201", match, actions)] * 2)
    assert max(map(len, lines)) <= width
    found = " ".join(lines)
    shown = [match, *([] if "actions" in found.partition("-o wide")[2] else [actions])]
    assert {word for text in shown for word in text.split()} <= {*found.split()}


def test_a_time_that_no_calendar_has_is_a_number() -> None:
    """A hostile API server may send any number."""
    assert fields(pb.JobEnd(end_time=Timestamp(seconds=1 << 62)))["end_time"] == str(1 << 62)
