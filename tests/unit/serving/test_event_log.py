"""What the log tells of a controller's life."""

from __future__ import annotations

from dataclasses import replace

from controller.fabric.messages import DrainParts, PortChanged, UndrainParts
from controller.fabric.topology import Dpid, PortNo
from controller.jobs.messages import DeregisterJob
from controller.jobs.spec import JobId
from controller.serving.event_log import events
from controller.status import Status
from tests.support.fake_fabric import FakeFabric
from tests.support.three_rings import CONFIG, register


def told(before: Status, after: Status) -> list[str]:
    return [what for _, what, _ in events(before, after)]


def details(before: Status, after: Status) -> list[tuple[str, dict[str, object]]]:
    return [(what, of_it) for _, what, of_it in events(before, after)]


def test_a_life_in_lines() -> None:
    fabric = FakeFabric()
    fabric.start(CONFIG)
    fabric.run(3)
    empty, started = Status(adopting=True), fabric.status
    assert told(empty, started) == ["link found", "switch found", "rules adopted"]
    register(fabric, 0)
    fabric.run(3)
    planned = fabric.status
    lines = told(started, planned)
    assert lines.count("host found") == 4
    assert "job registered" in lines
    assert any(line.startswith("plan adopted") for line in lines)
    assert told(planned, planned) == []
    (plan,) = (details for _, what, details in events(started, planned) if what.startswith("plan adopted"))
    assert (plan["worst_level"], plan["bound"]) == (1.0, 1.0)
    taken = {"level", "logger", "event", "timestamp"}
    assert not any(taken & details.keys() for _, _, details in events(started, planned))
    fabric.send(DrainParts(("spine4",)))
    fabric.run(1)
    assert told(planned, drained := fabric.status)[:1] == ["drained"]
    for _ in range(2):
        fabric.run(1)
        fabric.count({}, {})
    assert "safe to pull" in told(drained, safe := fabric.status)
    fabric.send(UndrainParts(("spine4",)))
    assert told(safe, fabric.status) == ["undrained"]
    assert told(planned, safe)[:2] == ["drained", "safe to pull"], "as of a part that is down already"
    fabric.cut(Dpid(1), PortNo(1))
    fabric.run(0.1)
    cut = fabric.status
    assert ("link down", {"count": 1, "names": "leaf1:1>spine1"}) in details(planned, cut)
    fabric.run(100)
    assert "job ended" in told(cut, fabric.status)


def test_what_goes_and_comes_back_has_a_line_with_its_name_and_no_other() -> None:
    fabric = FakeFabric()
    fabric.start(CONFIG)
    fabric.run(3)
    register(fabric, 0)
    fabric.run(3)
    before = fabric.status
    fabric.lose(Dpid(258))
    fabric.run(0.5)
    lost = fabric.status
    assert [line for line in details(before, lost) if line[0] in ("link down", "switch down", "links lost")] == [
        ("link down", {"count": 4, "names": "leaf1:2>spine2, leaf2:2>spine2, leaf3:2>spine2, leaf4:2>spine2"}),
        ("switch down", {"count": 1, "names": "spine2"}),
    ]
    assert told(lost, lost) == []
    fabric.connect(Dpid(258))
    fabric.run(10)
    back = told(lost, fabric.status)
    assert (back.count("link up again"), back.count("switch up again")) == (1, 1)
    assert not {"link found", "switch found"} & set(back)


def test_a_host_whose_cable_dies_has_a_line_also_if_no_job_names_it() -> None:
    fabric = FakeFabric()
    fabric.start(CONFIG)
    fabric.run(3)
    register(fabric, 0)
    fabric.run(3)
    fabric.send(DeregisterJob(JobId("job0")))
    fabric.run(1)
    before, at = fabric.status, fabric.hosts["10.0.1.1"]
    port = before.fabric.switches[at.dpid].ports[at.port]
    fabric.send(PortChanged(at.dpid, replace(port, up=False)))
    fabric.run(0.2)
    down = fabric.status
    assert details(before, down) == [("host down", {"count": 1, "names": "10.0.1.1"})]
    fabric.send(PortChanged(at.dpid, port))
    fabric.run(0.2)
    assert told(down, fabric.status) == ["host up again"]
