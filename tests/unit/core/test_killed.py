"""A controller is killed after any single rule change: the next one finishes the work and changes nothing else."""

from __future__ import annotations

import pytest

from controller.jobs.messages import DeregisterJob, RegisterJob
from controller.tables.rules import FlowRule, GroupRule, RuleMod, RuleSet
from signalbox.jobs.spec import JobId
from tests.support.fake_fabric import FakeFabric, ring_job
from tests.support.fake_switch import FakeSwitch
from tests.support.three_rings import CONFIG, RINGS, assert_no_collision


class Killed(BaseException):
    """End of the controller as by SIGKILL: it finishes and announces nothing."""


def jobs(fabric: FakeFabric) -> None:
    for number, ring in enumerate(RINGS):
        fabric.send(RegisterJob(ring_job(f"job{number}", ring, lease_s=600)))
    fabric.run(3)


def held(fabric: FakeFabric) -> dict[str, RuleSet]:
    return {switch.name: switch.rules() for switch in fabric.switches.values()}


def started() -> FakeFabric:
    fabric = FakeFabric()
    fabric.start(CONFIG)
    fabric.run(3)
    return fabric


def end(fabric: FakeFabric) -> dict[str, RuleSet]:
    """End all jobs, and return the rules that are left."""
    for number in range(len(RINGS)):
        fabric.send(DeregisterJob(JobId(f"job{number}")))
    fabric.run(CONFIG.jobs.orphan_lease_s, step=0.5)
    return held(fabric)


def undisturbed() -> tuple[int, dict[str, RuleSet]]:
    """Return the number of rule changes without a kill, and the rules that are left in the end."""
    fabric = started()
    fabric.forget_mods()
    jobs(fabric)
    return len(fabric.mods), end(fabric)


CHANGES, END = undisturbed()


@pytest.mark.parametrize("after", range(1, CHANGES, 13))
def test_killed_after_any_change_the_next_controller_finishes_the_work(
    after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    fabric = started()
    fabric.forget_mods()

    def kill() -> None:
        if len(fabric.mods) == after:
            raise Killed

    fabric.after_each_mod = kill
    with pytest.raises(Killed):
        jobs(fabric)
    fabric.after_each_mod = lambda: None
    monkeypatch.setattr(FakeSwitch, "apply", only_changes)
    fabric.start(CONFIG)
    assert not any(fabric.loop.state.sync.foreign.values()), "also what leads to switches that connected later is ours"
    fabric.run(CONFIG.discovery.adoption_patience_s + 4, step=0.5)
    status = fabric.status
    assert {job.state for job in status.jobs.values()} == {"pinned"}
    assert all(switch.in_sync for switch in status.switches.values())
    assert_no_collision(fabric)
    assert end(fabric) == END


apply = FakeSwitch.apply


def only_changes(switch: FakeSwitch, mod: RuleMod) -> str | None:
    """Apply a rule change, and assert that it changes something: no rule that is already right is sent again."""
    rule = mod.rule
    if isinstance(rule, FlowRule):
        assert (mod.op == "delete") == (switch.flows.get(rule.key) == rule), f"{mod.op} of a rule that is right"
    elif isinstance(rule, GroupRule):
        assert (mod.op == "delete") == (switch.groups.get(rule.group_id) == rule), f"{mod.op} of a group that is right"
    return apply(switch, mod)
