"""Remembered parts: which of them are down, since when and why, and which are forgotten."""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass, field, replace

import pytest

from controller.fabric.parts import (
    CAUSE_S,
    Declared,
    DeclaredBundle,
    DeclaredCable,
    DeclaredSwitch,
    KnownParts,
    Part,
    PartKey,
    PartKind,
)
from controller.fabric.topology import Dpid, Fabric, Host, Link, LinkId, Port, PortNo, PortRef, Switch
from controller.fabric.topology_state import DeclaredHost
from signalbox.errors import Conflict, InvalidInput

PATIENCE_S = 15.0
EPOCH = 1e9
"""Seconds since 1970 at the monotonic second 0."""
LEAF1, LEAF2, SPINE1, SPINE2 = 1, 2, 257, 258
NAMES = {LEAF1: "leaf1", LEAF2: "leaf2", SPINE1: "spine1", SPINE2: "spine2"}
CABLES = (((1, 1), (257, 1)), ((1, 2), (258, 1)), ((2, 1), (257, 2)), ((2, 2), (258, 2)))
HOSTS = {"10.0.1.1": (1, 5), "10.0.2.1": (2, 5)}
ALL = {"leaf1", "leaf2", "spine1", "spine2", "leaf1:1>spine1", "leaf1:2>spine2", "leaf2:1>spine1", "leaf2:2>spine2"}

Cable = tuple[tuple[int, int], tuple[int, int]]


def fabric(
    switches: Iterable[int] = NAMES,
    cables: Iterable[Cable] = CABLES,
    hosts: dict[str, tuple[int, int]] = HOSTS,
    dark: Iterable[tuple[int, int]] = (),
) -> Fabric:
    """Return a fabric with the ``cables`` whose switches both exist; ``dark``: ports that are down."""
    there, down = set(switches), set(dark)
    ports = {n: {PortNo(p): Port(PortNo(p), f"{NAMES[n]}-eth{p}", "", (n, p) not in down, 1e9) for p in range(1, 7)}
             for n in there}  # fmt: skip
    ends = [pair for cable in cables if {cable[0][0], cable[1][0]} <= there for pair in (cable, cable[::-1])]
    links = [Link(PortRef(Dpid(a), PortNo(x)), PortRef(Dpid(b), PortNo(y)), 1e9) for (a, x), (b, y) in ends]
    return Fabric(
        switches={Dpid(n): Switch(Dpid(n), NAMES[n], ports[n]) for n in there},
        links={LinkId(*link.src): link for link in links},
        hosts={ip: Host(ip, None, PortRef(Dpid(at[0]), PortNo(at[1])), 1e9) for ip, at in hosts.items()},
    )


@dataclass
class Scene:
    """Remembered parts, a clock, and the fabrics that the test shows to the parts one after the other."""

    declared: Declared = field(default_factory=Declared)
    saved: dict[PartKey, Part] = field(default_factory=dict)
    now: float = 100.0

    def __post_init__(self) -> None:
        self.parts = KnownParts(self.declared, self.saved, PATIENCE_S, self.now)
        self._dpids: set[Dpid] = set()

    def show(self, shown: Fabric, after_s: float = 0.0) -> None:
        self.now += after_s
        for dpid in shown.switches.keys() - self._dpids:
            self.parts.switch_connected(dpid, self.now)
        self._dpids = set(shown.switches)
        self.shown = shown
        self.parts.follow(shown, self.now, EPOCH + self.now)

    def wait(self, seconds: float) -> None:
        self.show(self.shown, seconds)

    @property
    def down(self) -> dict[str, float]:
        """Time at which each part went down, in seconds on the clock of ``now``, by the name of the part."""
        parts = self.parts.parts.values()
        return {part.name: part.down_since - EPOCH for part in parts if part.down_since is not None}

    @property
    def faults(self) -> set[str]:
        """Names of the parts that are down and whose failure no other part explains."""
        parts = self.parts.parts.values()
        return {p.name for p in parts if p.down_since is not None and p.key not in self.parts.explained}


@pytest.fixture
def scene() -> Scene:
    scene = Scene()
    scene.show(fabric())
    scene.wait(60)
    return scene


def restarted(scene: Scene, declared: Declared | None = None) -> Scene:
    return Scene(declared or scene.declared, dict(scene.parts.parts), scene.now)


def test_a_switch_that_goes_is_down_and_explains_its_cables_and_hosts(scene: Scene) -> None:
    scene.show(fabric(switches={LEAF1, SPINE1, SPINE2}), 1)
    assert scene.down == dict.fromkeys(("leaf2", "leaf2:1>spine1", "leaf2:2>spine2", "10.0.2.1"), 161)
    scene.wait(100)
    assert scene.faults == {"leaf2"}
    assert scene.parts.absent == {PartKind.SWITCH: 1, PartKind.LINK: 2, PartKind.HOST: 1}


def test_of_a_switch_without_cables_and_hosts_that_goes_nothing_is_kept(scene: Scene) -> None:
    indices = (scene.parts._connected, scene.parts._hosts, scene.parts._plugged, scene.parts._cables)
    before = deepcopy(indices)
    visitor = Switch(Dpid(0x999), "visitor", {})
    scene.show(replace(scene.shown, switches={**scene.shown.switches, visitor.dpid: visitor}), 1)
    scene.show(fabric(), 1)
    assert indices == before


def test_a_switch_that_returns_is_up_and_its_cables_have_time_to_follow(scene: Scene) -> None:
    scene.show(fabric(switches={LEAF1, LEAF2, SPINE1}), 1)
    scene.wait(10)
    scene.show(fabric(cables=CABLES[:2]), 1)
    assert scene.down.keys() == {"leaf2:1>spine1", "leaf2:2>spine2"}
    assert scene.faults == set(), "of the one cable the switch has just returned, of the other it has just gone"
    scene.wait(CAUSE_S)
    assert scene.faults == {"leaf2:1>spine1"}
    scene.wait(PATIENCE_S)
    assert scene.faults == {"leaf2:1>spine1", "leaf2:2>spine2"}
    scene.show(fabric())
    assert scene.down == {}


def test_a_switch_that_connects_again_at_once_is_not_down_nor_are_its_cables_a_fault(scene: Scene) -> None:
    scene.parts.switch_connected(Dpid(SPINE1), scene.now)
    scene.show(fabric(cables=CABLES[1::2]))
    scene.wait(PATIENCE_S / 2)
    assert scene.down.keys() == {"leaf1:1>spine1", "leaf2:1>spine1"}
    assert scene.faults == set()


def test_a_cable_that_has_come_back_after_its_switch_and_goes_again_is_a_fault(scene: Scene) -> None:
    scene.show(fabric(switches={LEAF1, LEAF2, SPINE1}), 1)
    scene.show(fabric(), 1)
    scene.show(fabric(cables=CABLES[:3]), 3)
    scene.wait(CAUSE_S)
    assert scene.faults == {"leaf2:2>spine2"}


def test_a_cable_that_goes_is_a_fault_a_moment_later_and_keeps_its_time(scene: Scene) -> None:
    """The switch of the cable may fail next: a dying switch takes down the ports of its neighbours first."""
    scene.show(fabric(cables=CABLES[1:]), 1)
    assert (scene.down, scene.faults) == ({"leaf1:1>spine1": 161}, set())
    scene.show(fabric(switches={LEAF1, LEAF2, SPINE2}), CAUSE_S / 2)
    scene.wait(CAUSE_S)
    assert scene.faults == {"spine1"}
    assert scene.down["leaf1:1>spine1"] == 161
    scene.show(fabric())
    scene.show(fabric(cables=CABLES[1:]), 60)
    scene.wait(CAUSE_S)
    assert scene.faults == {"leaf1:1>spine1"}


def test_a_host_is_down_with_its_port_and_moves_with_its_address(scene: Scene) -> None:
    scene.show(fabric(dark=[(1, 5)]))
    assert scene.down.keys() == {"10.0.1.1"}
    scene.wait(CAUSE_S)
    assert scene.faults == {"10.0.1.1"}
    scene.show(fabric(dark=[(1, 5)], hosts=HOSTS | {"10.0.1.1": (2, 6)}))
    assert scene.down == {}
    scene.show(fabric(dark=[(2, 6)], hosts=HOSTS | {"10.0.1.1": (2, 6)}))
    assert scene.down.keys() == {"10.0.1.1"}


def test_a_host_that_becomes_known_at_a_port_that_is_down_is_down() -> None:
    """A restarted controller finds the route of the host on the switch."""
    scene = Scene()
    scene.show(fabric(dark=[(1, 5)]))
    assert scene.down.keys() == {"10.0.1.1"}


def test_a_cable_in_other_ports_of_the_same_switches_takes_the_place_of_the_old_one(scene: Scene) -> None:
    scene.show(fabric(cables=CABLES[1:]))
    scene.show(fabric(cables=(*CABLES[1:], ((1, 3), (257, 1)))), 5)
    assert scene.down == {}
    names = {part.name for part in scene.parts.parts.values() if part.kind is PartKind.LINK}
    assert names == ALL - set(NAMES.values()) - {"leaf1:1>spine1"} | {"leaf1:3>spine1"}


def test_a_host_at_the_port_of_a_cable_does_not_take_its_place(scene: Scene) -> None:
    scene.show(fabric(cables=CABLES[1:], hosts=HOSTS | {"10.0.1.9": (1, 1)}))
    assert scene.down.keys() == {"leaf1:1>spine1"}


def test_a_switch_into_which_nothing_was_ever_plugged_is_not_remembered(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any program that reaches the port can connect as a switch."""
    monkeypatch.setitem(NAMES, 99, "invented")
    scene.show(fabric())
    scene.show(fabric(switches={LEAF1, LEAF2, SPINE1, SPINE2}))
    assert scene.down == {}
    assert "invented" not in {part.name for part in scene.parts.parts.values()}


def test_there_is_a_limit_to_what_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controller.fabric.parts.MOST_OF_A_KIND", 3)
    scene = Scene()
    scene.show(fabric(hosts={f"10.0.1.{n}": (1, 5) for n in range(1, 9)}))
    scene.show(fabric(hosts={f"10.0.1.{n}": (1, 5) for n in range(1, 9)}, dark=[(1, 5)]))
    kinds = [part.kind for part in scene.parts.parts.values()]
    assert kinds.count(PartKind.HOST) == kinds.count(PartKind.LINK) == 3


def test_nothing_changes_while_the_fabric_stays(scene: Scene) -> None:
    scene.show(fabric(cables=CABLES[1:]))
    scene.wait(60)
    before = scene.parts.parts, scene.parts.explained
    scene.wait(60)
    scene.show(fabric(cables=CABLES[1:]))
    assert all(a is b for a, b in zip(before, (scene.parts.parts, scene.parts.explained), strict=True))


# ---- restarts


def test_nothing_that_was_there_is_down_before_it_had_the_time_to_come(scene: Scene) -> None:
    again = restarted(scene)
    again.show(Fabric())
    again.wait(PATIENCE_S - 1)
    assert again.down == {}
    assert again.parts.absent == {PartKind.SWITCH: 4, PartKind.LINK: 4, PartKind.HOST: 2}
    again.show(fabric(switches={LEAF1}))
    again.wait(PATIENCE_S - 1)
    assert again.down == {}, "what comes lets the others hope"
    again.wait(1)
    assert again.down.keys() == {part.name for part in again.parts.parts.values()} - {"leaf1", "10.0.1.1"}
    assert set(again.down.values()) == {scene.now}, "since the start: it was there when the other controller ended"
    assert again.faults == {"leaf2", "spine1", "spine2"}


def test_parts_that_appear_after_a_restart_as_they_were_saved_are_not_absent(scene: Scene) -> None:
    again = restarted(scene)
    again.show(fabric(cables=()))
    again.wait(1)
    assert again.parts.absent[PartKind.LINK] == 4
    again.show(fabric(), 1)
    again.wait(1)
    assert set(again.parts.absent.values()) == {0}


def test_what_was_down_stays_down_since_then_across_a_restart(scene: Scene) -> None:
    scene.show(fabric(switches={LEAF1, LEAF2, SPINE1}), 7)
    down = scene.down
    scene.now += 1000
    again = restarted(scene)
    assert again.down == down
    again.show(fabric(switches={LEAF1, LEAF2, SPINE1}))
    again.wait(60)
    assert again.down == down
    again.show(fabric())
    assert again.down == {}


def test_a_cable_that_was_down_is_a_fault_all_the_time_across_a_restart(scene: Scene) -> None:
    scene.show(fabric(cables=CABLES[1:]))
    scene.wait(CAUSE_S)
    assert scene.faults == {"leaf1:1>spine1"}
    again = restarted(scene)
    assert again.faults == {"leaf1:1>spine1"}
    for step in (Fabric(), fabric(switches={LEAF1}), fabric(cables=()), fabric(cables=CABLES[1:])):
        again.show(step, 1)
        assert again.faults == {"leaf1:1>spine1"}


def test_cables_of_a_switch_that_was_down_before_a_restart_have_time_to_follow_it_too(scene: Scene) -> None:
    scene.show(fabric(switches={LEAF1, LEAF2, SPINE1}))
    again = restarted(scene)
    again.show(fabric(switches={LEAF1, LEAF2, SPINE1}), 1)
    again.wait(60)
    assert again.faults == {"spine2"}
    again.show(fabric(cables=CABLES[::2]))
    assert again.faults == set()
    again.wait(PATIENCE_S - 1)
    assert again.faults == set()
    again.wait(1)
    assert again.faults == {"leaf1:2>spine2", "leaf2:2>spine2"}


# ---- declarations

DECLARED = Declared(
    hosts=(DeclaredHost("10.0.1.1", None, "leaf1", "leaf1-eth5"),),
    switches=(DeclaredSwitch("spine1", Dpid(SPINE1)),),
    cables=(DeclaredCable(("leaf1", "leaf1-eth1"), ("spine1", "spine1-eth1")),),
    bundles=(DeclaredBundle("leaf2", "spine2", 2),),
)


def test_a_declared_part_that_was_never_seen_is_down_since_the_start() -> None:
    scene = Scene(DECLARED)
    scene.show(Fabric())
    scene.wait(PATIENCE_S)
    switches = {"leaf1", "leaf2", "spine1", "spine2"}
    cables = {"leaf1:leaf1-eth1>spine1", "leaf2>spine2 (cable 1)", "leaf2>spine2 (cable 2)"}
    assert scene.down == dict.fromkeys(switches | cables | {"10.0.1.1"}, 100)
    assert scene.faults == switches


def test_what_comes_is_what_was_declared() -> None:
    declared = Scene(DECLARED)
    declared.show(fabric())
    declared.wait(PATIENCE_S)
    assert declared.down.keys() == {"leaf2>spine2 (cable 2)"}
    assert declared.faults == {"leaf2>spine2 (cable 2)"}
    names = {part.name for part in declared.parts.parts.values()}
    assert names == ALL | HOSTS.keys() | {"leaf2>spine2 (cable 2)"}
    assert declared.parts.absent[PartKind.LINK] == 1


def test_a_declared_switch_is_one_with_that_dpid_where_the_file_has_it() -> None:
    scene = Scene(Declared(switches=(DeclaredSwitch("leaf1", Dpid(77)), DeclaredSwitch("leaf2"))))
    scene.show(fabric())
    scene.wait(PATIENCE_S)
    assert [part.key.id for part in scene.parts.parts.values() if part.down_since is not None] == ["0x4d"]


def test_a_declared_cable_whose_port_leads_elsewhere_is_missing(scene: Scene) -> None:
    declared = restarted(scene, DECLARED)
    declared.show(fabric())
    declared.show(fabric(cables=(((1, 1), (258, 4)), *CABLES[1:])), 60)
    assert {"leaf1:leaf1-eth1>spine1"} < declared.down.keys()


def test_of_saved_parts_that_were_never_seen_only_those_stay_that_are_declared_still() -> None:
    scene = Scene(DECLARED)
    scene.show(Fabric())
    scene.wait(PATIENCE_S)
    scene.now += 500
    again = restarted(scene, Declared(bundles=DECLARED.bundles))
    assert again.down == dict.fromkeys(("leaf2", "spine2", "leaf2>spine2 (cable 1)", "leaf2>spine2 (cable 2)"), 100) | {
        "spine1": 100,  # the dpid of the switch is known, so it may have been seen
    }


# ---- forget


def test_a_switch_that_is_down_is_forgotten_with_what_was_plugged_into_it(scene: Scene) -> None:
    scene.show(fabric(switches={LEAF1, SPINE1, SPINE2}))
    gone = scene.parts.forget(["leaf2"], scene.now)
    assert {part.name for part in gone} == {"leaf2", "leaf2:1>spine1", "leaf2:2>spine2", "10.0.2.1"}
    assert scene.down == {}
    scene.wait(1)
    assert {part.name for part in scene.parts.parts.values()}.isdisjoint(part.name for part in gone)
    scene.show(fabric())
    assert {part.name for part in scene.parts.parts.values()} == ALL | HOSTS.keys(), "it has come all the same"


@pytest.mark.parametrize("name", ["leaf1:1", "spine1:1", "leaf1:1>spine1"])
def test_a_cable_is_forgotten_by_either_port_or_its_name(scene: Scene, name: str) -> None:
    scene.show(fabric(cables=CABLES[1:]))
    assert [part.name for part in scene.parts.forget([name], scene.now)] == ["leaf1:1>spine1"]
    assert scene.down == {}


def test_a_host_that_is_forgotten_comes_back_with_its_port_only(scene: Scene) -> None:
    scene.show(fabric(dark=[(1, 5)]))
    scene.parts.forget(["10.0.1.1"], scene.now)
    scene.show(fabric(dark=[(1, 5), (1, 6)]))
    assert "10.0.1.1" not in {part.name for part in scene.parts.parts.values()}
    scene.show(fabric())
    assert "10.0.1.1" in {part.name for part in scene.parts.parts.values()}


@pytest.mark.parametrize(
    ("names", "error", "said"),
    [
        ([], InvalidInput, "names: 1 to 1000 names are needed"),
        (["leaf1:2", "nothing"], InvalidInput, r"names\[1\]: no remembered part of the fabric .* 'nothing'"),
        (["leaf2"], Conflict, "leaf2 is not down"),
        (["leaf1:1", "leaf1"], Conflict, "leaf1 is not down"),
        (["leaf2>spine2 (cable 2)"], Conflict, "is declared in the inventory file"),
        (["leaf1:1"], Conflict, "leaf1:1 is declared in the inventory file"),
    ],
)
def test_what_is_there_or_declared_is_not_forgotten(
    names: list[str], error: type[Exception], said: str, scene: Scene
) -> None:
    declared = restarted(scene, DECLARED)
    declared.show(fabric(cables=CABLES[2:]))
    declared.wait(PATIENCE_S)
    before = declared.down
    assert {"leaf1:1>spine1", "leaf1:2>spine2"} < before.keys()
    with pytest.raises(error, match=said):
        declared.parts.forget(names, declared.now)
    declared.wait(1)
    assert declared.down == before


def test_of_two_switches_with_one_name_the_dpid_says_which(monkeypatch: pytest.MonkeyPatch) -> None:
    for leaf in (LEAF1, LEAF2):
        monkeypatch.setitem(NAMES, leaf, "br0")
    scene = Scene()
    scene.show(fabric())
    scene.show(fabric(switches={SPINE1, SPINE2}), 60)
    with pytest.raises(InvalidInput, match=r"'br0' is the name of 2 parts; name one of 0x1, 0x2"):
        scene.parts.forget(["br0"], scene.now)
    scene.parts.forget(["0x2"], scene.now)
    assert [part.key.id for part in scene.parts.parts.values() if part.name == "br0"] == ["0x1"]


def test_what_could_not_be_saved_as_forgotten_is_down_again_unless_it_came_back(scene: Scene) -> None:
    scene.show(fabric(switches={LEAF1, SPINE1, SPINE2}), 1)
    before = scene.down
    gone = scene.parts.forget(["leaf2"], scene.now)
    scene.parts.restore(gone, scene.now)
    assert scene.down == before
    gone = scene.parts.forget(["leaf2"], scene.now)
    scene.show(fabric())
    scene.parts.restore(gone, scene.now)
    assert scene.down == {}
