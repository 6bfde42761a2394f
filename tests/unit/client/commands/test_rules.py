"""``signalbox rules`` against a real server that holds the rules of a real controller."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from controller.api import pages
from controller.fabric.topology import Dpid
from controller.tables.rules import is_ours
from signalbox.client import Client
from signalbox.commands import output
from signalbox.errors import NotKnownYet
from tests.support.command_line import Signalbox, api, signalbox
from tests.support.fake_fabric import FakeFabric
from tests.support.three_rings import CONFIG, register
from tests.support.wire.control_stand_in import Running

__all__ = ("api", "signalbox")


@pytest.fixture
def fabric(api: Running) -> FakeFabric:
    """Return a fabric with three pinned jobs; the server publishes the status of the fabric's controller."""
    fabric = FakeFabric()
    fabric.start(CONFIG)
    fabric.run(3)
    register(fabric, 0, 1, 2)
    fabric.run(3)
    api.control.board.publish(fabric.status)
    return fabric


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
