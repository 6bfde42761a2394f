"""Effects of messages: the effects of many messages add up to one value, from which the due work follows."""

from __future__ import annotations

from controller.core.messages import MAX_DEBOUNCES, NOTHING, Effects, Work, at_once, commands, when_quiet
from controller.fabric.messages import ProbePorts


def due_at(effects: Effects, work: Work) -> float:
    """Return the first tenth of a second at which the work is due."""
    return next(now / 10 for now in range(1000) if effects.has_due(work, now / 10))


def test_work_waits_for_the_longest_quiet_time_since_it_was_asked_for_last() -> None:
    assert not any(NOTHING.has_due(work, 1e9) for work in Work)
    for earlier, quiet_s, due in ((1.4, 0.5, 1.9), (1.0, 0.2, 1.5)):
        effects = when_quiet(Work.PLAN, 1.0, 0.5) | when_quiet(Work.PLAN, earlier, quiet_s)
        assert due_at(effects, Work.PLAN) == due


def test_work_that_is_asked_for_again_and_again_is_done_after_ten_quiet_times() -> None:
    effects = NOTHING
    for tenth in range(100):
        effects |= when_quiet(Work.PLAN, tenth / 10, 0.5)
    assert due_at(effects, Work.PLAN) == MAX_DEBOUNCES * 0.5 == 5.0


def test_work_at_once_does_not_wait_for_quiet_whatever_comes_first() -> None:
    for effects in (
        at_once(Work.RULES) | when_quiet(Work.RULES, 1.0, 0.5),
        when_quiet(Work.RULES, 1.0, 0.5) | at_once(Work.RULES),
    ):
        assert effects.has_due(Work.RULES, 1.0)


def test_kinds_of_work_do_not_delay_each_other_and_what_was_done_is_not_due() -> None:
    effects = at_once(Work.RULES, Work.SAVE) | when_quiet(Work.PLAN, 1.0, 0.5)
    assert effects.has_due(Work.RULES, 1.0)
    assert effects.has_due(Work.SAVE, 1.0)
    assert not effects.has_due(Work.PLAN, 1.4)
    effects = effects.without(Work.RULES)
    assert not effects.has_due(Work.RULES, 1e9)
    assert effects.has_due(Work.SAVE, 0.0)


def test_commands_keep_their_order() -> None:
    first, second = ProbePorts(frozenset({1})), ProbePorts(frozenset({2}))  # type: ignore[arg-type]
    assert (commands(first) | at_once(Work.RULES) | commands(second)).commands == (first, second)
    assert (commands(first) | NOTHING).commands == (first,)
