"""``signalbox rules`` and ``plan diff`` against a real server that holds the rules of a real controller."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from controller.api import pages
from controller.fabric.topology import Dpid, LinkId, PortNo
from controller.planning.plan import GoalPlanLeft
from controller.planning.problem import FlowId, whole
from controller.status import Status
from controller.tables.rules import is_ours
from signalbox.client import Client
from signalbox.commands import output
from signalbox.errors import NotKnownYet
from signalbox.jobs.spec import JobId
from signalbox.v1 import signalbox_pb2 as pb
from tests.support.command_line import Result, Signalbox, api, signalbox
from tests.support.fake_fabric import FakeFabric
from tests.support.three_rings import started
from tests.support.wire.control_stand_in import Running

__all__ = ("api", "signalbox")


def published(api: Running, *jobs: int) -> FakeFabric:
    """Return a fabric with these pinned jobs; the server publishes the status of the fabric's controller."""
    fabric = started(FakeFabric(), *jobs)
    api.control.board.publish(fabric.status)
    return fabric


@pytest.fixture
def fabric(api: Running) -> FakeFabric:
    return published(api, 0, 1, 2)


def test_all_rules_are_listed_whatever_the_size_of_a_page_and_a_pin_names_its_job_and_flow(
    api: Running, fabric: FakeFabric, signalbox: Signalbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = signalbox("rules", "leaf1", "--json").json
    assert len(found["rules"]) == len(fabric.status.rules[Dpid(1)])
    assert all(is_ours(int(rule["cookie"])) for rule in found["rules"] if rule["kind"] == "flow")
    monkeypatch.setattr(pages, "MAX_PAGE", 7)
    with Client(api.addresses[0]) as client:
        assert len(client.list_rules(1)) == len(found["rules"])
    assert signalbox("rules", "0x1", "--json").json == found
    job_id, job = min(fabric.status.jobs.items())
    flow = next(flow for flow in job.routes if fabric.hosts[flow.src_ip].dpid == 1)
    shown = signalbox("rules", "leaf1", "--job", job_id)
    assert any(["pin", flow.src_ip, ">", flow.dst_ip, job_id] == row[2:7] for row in shown.rows)
    assert "acknowledgements" in shown.out
    assert not any("lldp" in row for row in shown.rows)
    assert "lldp" in signalbox("rules", "leaf1").out


@pytest.mark.usefixtures("fabric")
def test_on_a_narrow_terminal_each_rule_has_its_match(signalbox: Signalbox, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = io.StringIO()
    monkeypatch.setattr(output, "console", lambda: Console(file=shown, width=80))
    assert signalbox("rules", "leaf1").status == 0
    lines = shown.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].split() == ["table", "for", "job", "match"]
    matches = [rule["match"] for rule in signalbox("rules", "leaf1", "--json").json["rules"]]
    whole = {word.rstrip(",") for word in shown.getvalue().split()}
    assert {field for match in matches for field in match.split(",") if field} <= whole, "no field is cut"
    assert "-o wide also shows: priority, actions, cookie" in lines


def test_foreign_rules_are_counted_but_not_listed_and_a_switch_that_is_not_read_yet_is_refused(
    api: Running, fabric: FakeFabric, signalbox: Signalbox
) -> None:
    status = fabric.status
    other = replace(status.switches[Dpid(1)], foreign_rules=2)
    api.control.board.publish(replace(status, switches={**status.switches, Dpid(1): other}))
    assert signalbox("rules", "leaf1").out.rstrip().endswith("; 2 foreign rules not listed")
    api.control.board.publish(replace(status, rules={}))
    refused = signalbox("rules", "leaf1")
    assert (refused.status, refused.err) == (
        8,
        "error: switch 0x1 is not connected, or the controller has not read its rules yet; try again later\n",
    )
    assert signalbox("rules", "leaf99").status == 5
    with Client(api.addresses[0]) as client, pytest.raises(NotKnownYet):
        client.list_rules(99)


@pytest.fixture
def two_rings(api: Running) -> FakeFabric:
    return published(api, 0, 1)


def other_plan(status: Status) -> tuple[Status, FlowId]:
    """Return a status whose newest plan moves one flow to the next spine, and that flow."""
    assert status.plan
    flow = min(status.jobs[JobId("job0")].routes)
    ((up, down), _), *_ = status.plan.routes[flow]
    beside = LinkId(up.dpid, PortNo(up.port % 4 + 1))
    path = beside, LinkId(status.fabric.links[beside].dst.dpid, down.port)
    return replace(status, plan=replace(status.plan, routes={**status.plan.routes, flow: whole(path)})), flow


@pytest.mark.usefixtures("api")
def test_without_a_plan_there_is_nothing_to_get_or_to_compare(signalbox: Signalbox) -> None:
    for command in (("plan", "diff"), ("get", "plan")):
        assert signalbox(*command) == Result(0, "There is no plan yet.\n", "")
        assert signalbox(*command, "--json").json is None
    assert signalbox("get", "plan", "ring", "-o", "yaml").yaml is None


def test_a_plan_changes_nothing_where_the_switches_hold_it_and_all_flows_in_shadow(
    two_rings: FakeFabric, signalbox: Signalbox, api: Running
) -> None:
    assert signalbox("plan", "diff", "--json").json["routes"] == []
    shown = signalbox("plan", "diff")
    assert "The switches hold the routes of the plan." in shown.out
    assert ["flows", "0", "would", "move", "now,", "0", "would", "be", "pinned"] in shown.rows
    assert two_rings.status.plan_installed
    assert signalbox("plan", "diff", "--now").status == 2
    assert signalbox("plan", "dif").status == 2
    status = two_rings.status
    jobs = {key: replace(job, routes=dict.fromkeys(job.routes)) for key, job in status.jobs.items()}
    api.control.board.publish(replace(status, jobs=jobs, plan_installed=False))
    found = signalbox("plan", "diff", "--json").json
    assert (found["installed"], found["moved"], found["pinned"]) == (False, 0, 8)
    assert found["max_slowdown_planned"] == 1


def test_a_flow_that_would_move_is_shown_with_both_paths(
    api: Running, two_rings: FakeFabric, signalbox: Signalbox
) -> None:
    status, flow = other_plan(two_rings.status)
    api.control.board.publish(status)
    found = signalbox("plan", "diff", "--json").json
    assert [(route["job_id"], route["src"], route["dst"]) for route in found["routes"]] == [("job0", *flow.pair)]
    assert [(job["job_id"], job["moved"], job["pinned"]) for job in found["jobs"]] == [("job0", 1, 0), ("job1", 0, 0)]
    held, planned = (found["routes"][0][key][0]["switches"] for key in ("held", "planned"))
    assert held != planned
    shown = signalbox("plan", "diff")
    assert ["job0", *flow.pair, *" > ".join(held).split(), *" > ".join(planned).split()] in shown.rows
    assert "job1" not in shown.out


def test_the_goal_is_shown_with_its_meaning_for_each_job(
    api: Running, two_rings: FakeFabric, signalbox: Signalbox
) -> None:
    assert "goal none flows" in signalbox("plan", "diff").text
    goal = GoalPlanLeft(1, 512, 0, {JobId("job0"): 1.0, JobId("job1"): 0.75})
    plan = two_rings.status.plan
    assert plan
    api.control.board.publish(replace(two_rings.status, plan=replace(plan, generation=8), goal=goal))
    found = signalbox("plan", "diff", "--json").json
    assert (found["max_slowdown_goal"], found["moves_left"]) == (1.0, 512)
    assert [job["slowdown_goal"] for job in found["jobs"]] == [1.0, 0.75]
    shown = signalbox("plan", "diff")
    assert "goal worst slowdown 1.000, after 512 more moves in the next cycles" in shown.text
    assert ["job1", "1.000", "1.000", "0.750", "0", "0"] in shown.rows
    assert "job0" not in shown.out, "its slowdown stays"
    assert "The switches hold the routes of the plan." in shown.out
    assert "goal worst slowdown 1.000, after 512 more moves" in signalbox("plan").text


def test_plan_and_routes_have_one_generation(
    api: Running, two_rings: FakeFabric, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client requests plan and routes again when the plan is replaced between the two calls."""
    status = two_rings.status
    assert status.plan
    generation = status.plan.generation + 1
    newer = replace(status, plan=replace(status.plan, generation=generation))
    with Client(api.addresses[0]) as client:
        ask = client.get_plan

        def asked() -> pb.Plan | None:
            found = ask()
            api.control.board.publish(newer)
            return found

        monkeypatch.setattr(client, "get_plan", asked)
        changes = client.plan_changes()
    assert changes
    assert changes[0].generation == generation
