"""Settings that change while the controller runs apply to later events, and change no existing state."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from controller.config import Config, reloaded_settings, with_settings
from controller.core.messages import NewSettings
from controller.fabric.topology import Dpid
from controller.planning.messages import SolvePlan
from controller.tables.messages import TablesRead
from controller.tables.rules import OtherTable, Table
from controller.tables.switch_sync import TableUse
from signalbox.words import AlarmKind
from tests.support.fake_fabric import FakeFabric
from tests.support.three_rings import CONFIG, register, started


@pytest.fixture
def fabric() -> FakeFabric:
    """Return a fabric with one pinned job."""
    return started(FakeFabric(), 0)


def other(**sections: Mapping[str, object]) -> Config:
    """Return ``CONFIG`` with ``sections`` replaced."""
    return Config.model_validate({**CONFIG.model_dump(), **sections})


def plans(fabric: FakeFabric, seconds: float) -> list[SolvePlan]:
    """Return the plans requested within ``seconds``."""
    asked: list[SolvePlan] = []
    answers = fabric.planner.answers

    def noted(command: SolvePlan) -> object:
        asked.append(command)
        return answers(command)

    fabric.planner.answers = noted  # type: ignore[assignment, method-assign]
    fabric.run(seconds)
    fabric.planner.answers = answers  # type: ignore[method-assign]
    return [command for command in asked if isinstance(command, SolvePlan)]


def test_a_shorter_interval_and_fewer_moves_count_from_the_next_plan_on(fabric: FakeFabric) -> None:
    fabric.forget_mods()
    planning = {"interval_s": 2.0, "max_moves": 7, "min_gain": 0.5, "time_limit_s": 1.0, "ecmp_draws": 3}
    fabric.send(NewSettings(other(planning=planning)))
    found = plans(fabric, 4.5)
    assert len(found) == 2, "the period that had begun is shortened too"
    limits = found[0].limits
    assert (limits.max_moves, limits.time_limit_s, limits.ecmp_draws, found[0].min_gain) == (7, 1.0, 3, 0.5)
    assert fabric.mods == [], "what runs stays"


def test_every_setting_that_is_marked_reaches_its_owner(fabric: FakeFabric) -> None:
    """Settings of the log are applied elsewhere."""
    wanted = other(
        planning={"time_limit_s": 9.0, "interval_s": 8.0, "debounce_s": 7.0, "min_gain": 0.6, "max_moves": 5}
        | {"ecmp_draws": 4},
        counters={"noise_fraction": 0.3, "table_alarm_fraction": 0.4},
        openflow={"audit_interval_s": 33.0},
        jobs={"max_jobs": 3000, "max_virtual_links": 300_000, "max_learning_rules": 5000},
    )
    marked = {f"{section}.{name}" for section, name, _ in reloaded_settings()} - {"log.level"}
    assert with_settings(CONFIG, wanted) == wanted, "each of the marked ones is different here, and no other"
    assert {
        f"{section}.{name}"
        for section, name, _ in reloaded_settings()
        if getattr(getattr(wanted, section), name) != getattr(getattr(CONFIG, section), name)
    } == marked
    fabric.send(NewSettings(wanted))
    s = fabric.loop.state
    assert s.load.noise_fraction == 0.3
    assert s.sync.audit_interval_s == 33.0
    assert (s.jobs.max_jobs, s.jobs.max_virtual_links, s.demand.max_learning_rules) == (3000, 300_000, 5000)
    register(fabric, 1)
    assert plans(fabric, 6.5) == []
    assert len(plans(fabric, 1.0)) == 1, "the changed debounce_s"


def test_another_share_of_entries_raises_and_ends_the_alarm_of_a_table_at_once(fabric: FakeFabric) -> None:
    fabric.send(TablesRead(Dpid(1), {Table.PINNED: 120}, {Table.PINNED: 200, OtherTable.METERS: 8}))
    assert TableUse(Table.PINNED, 120, 200) in fabric.status.switches[Dpid(1)].tables
    assert TableUse(OtherTable.METERS, 7, 8) in fabric.status.switches[Dpid(1)].tables
    raised = []
    for fraction in (0.9, 0.5, 0.7):
        counters = {**CONFIG.counters.model_dump(), "table_alarm_fraction": fraction}
        fabric.send(NewSettings(other(counters=counters)))
        raised.append({(alarm.kind, alarm.subject) for alarm in fabric.status.alarms.values()})
    pins, meters = ((AlarmKind.TABLE_NEARLY_FULL, f"leaf1:{name}") for name in ("table1", OtherTable.METERS))
    assert raised == [set(), {pins, meters}, {meters}]
