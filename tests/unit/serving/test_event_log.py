"""What the log tells of a controller's life."""

from __future__ import annotations

from controller.fabric.messages import DrainParts, UndrainParts
from controller.fabric.topology import Dpid, PortNo
from controller.serving.event_log import events
from controller.status import Status
from tests.support.fake_fabric import FakeFabric
from tests.support.three_rings import CONFIG, register


def told(before: Status, after: Status) -> list[str]:
    return [what for _, what, _ in events(before, after)]


def test_a_life_in_lines() -> None:
    fabric = FakeFabric()
    fabric.start(CONFIG)
    fabric.run(3)
    empty, started = Status(adopting=True), fabric.status
    assert told(empty, started) == ["links found", "rules adopted"]
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
    fabric.cut(Dpid(1), PortNo(1))
    cut = fabric.status
    assert "links lost" in told(planned, cut)
    fabric.run(100)
    assert "job ended" in told(cut, fabric.status)
