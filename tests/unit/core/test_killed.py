"""A controller is killed after any single rule change: the next one finishes the work and changes nothing else."""

from __future__ import annotations

from functools import cache
from itertools import product

import pytest

from controller.jobs.messages import DeregisterJob, UpdateJob, UpdateJobs
from controller.tables.rules import FlowRule, GroupRule, RuleMod, RuleSet
from signalbox.jobs.spec import JobId
from tests.support.fake_fabric import FakeFabric, ring_job
from tests.support.fake_switch import FakeSwitch
from tests.support.long_cases import with_long
from tests.support.three_rings import CONFIG, RINGS, assert_no_collision, register, started

REGISTER, EXCHANGE = "jobs register", "jobs exchange their hosts"
QUICK = [*product([REGISTER], range(0, 100, 12)), *product([EXCHANGE], (0, 48, 96))]
"""Work, and after which part of its rule changes the controller is killed, in per cent."""


class Killed(BaseException):
    """End of the controller as by SIGKILL: it finishes and announces nothing."""


def before(work: str) -> FakeFabric:
    """Return a fabric on which the work has not begun."""
    fabric = started(FakeFabric(), *((0, 1, 2) if work == EXCHANGE else ()), lease_s=600)
    fabric.forget_mods()
    return fabric


def do(work: str, fabric: FakeFabric) -> None:
    if work == REGISTER:
        register(fabric, 0, 1, 2, lease_s=600)
    else:
        fabric.send(UpdateJobs(tuple(UpdateJob(ring_job(f"job{n}", RINGS[1 - n], lease_s=600)) for n in (0, 1))))
    fabric.run(3)


def end(fabric: FakeFabric) -> dict[str, RuleSet]:
    """End all jobs, and return the rules that are left."""
    for number in range(len(RINGS)):
        fabric.send(DeregisterJob(JobId(f"job{number}")))
    fabric.run(CONFIG.jobs.orphan_lease_s, step=0.5)
    return {switch.name: switch.rules() for switch in fabric.switches.values()}


@cache
def undisturbed(work: str) -> tuple[int, dict[str, RuleSet]]:
    """Return the number of rule changes of the work without a kill, and the rules that are left in the end."""
    fabric = before(work)
    do(work, fabric)
    return len(fabric.mods), end(fabric)


@pytest.mark.parametrize(("work", "percent"), with_long(QUICK, product([REGISTER, EXCHANGE], range(0, 100, 4))))
def test_killed_after_any_change_the_next_controller_finishes_the_work(
    work: str, percent: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes, rules_left = undisturbed(work)
    fabric = before(work)

    def kill() -> None:
        if len(fabric.mods) == 1 + changes * percent // 100:
            raise Killed

    fabric.after_each_mod = kill
    with pytest.raises(Killed):
        do(work, fabric)
    fabric.after_each_mod = lambda: None
    monkeypatch.setattr(FakeSwitch, "apply", only_changes)
    fabric.start(CONFIG)
    assert not any(fabric.loop.state.sync.foreign.values()), "also what leads to switches that connected later is ours"
    fabric.run(CONFIG.discovery.adoption_patience_s + 4, step=0.5)
    status = fabric.status
    assert {job.state for job in status.jobs.values()} == {"pinned"}
    assert all(switch.in_sync for switch in status.switches.values())
    assert_no_collision(fabric)
    assert end(fabric) == rules_left


apply = FakeSwitch.apply


def only_changes(switch: FakeSwitch, mod: RuleMod) -> str | None:
    """Apply a rule change, and assert that it changes something: no rule that is already right is sent again."""
    rule = mod.rule
    if isinstance(rule, FlowRule):
        assert (mod.op == "delete") == (switch.flows.get(rule.key) == rule), f"{mod.op} of a rule that is right"
    elif isinstance(rule, GroupRule):
        assert (mod.op == "delete") == (switch.groups.get(rule.group_id) == rule), f"{mod.op} of a group that is right"
    return apply(switch, mod)
