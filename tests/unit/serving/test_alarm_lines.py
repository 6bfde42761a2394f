"""Alarms that begin and end again and again have few lines in the log, and the last line tells the truth."""

from itertools import count

from controller.serving.alarm_lines import AGAIN_S, AlarmLines
from controller.serving.event_log import ALARM, OVER, Event

FULL = {"kind": "table_nearly_full", "subject": "leaf1:meters", "text": "it is full"}


def test_an_alarm_that_begins_and_ends_has_two_lines_and_is_forgotten() -> None:
    lines = AlarmLines()
    assert [*lines.of(ALARM, FULL, 0.0)] == [(ALARM, FULL)]
    assert [*lines.of(OVER, FULL, 1.0)] == [(OVER, FULL)]
    assert [*lines.due(AGAIN_S)] == []
    assert [*lines.of(ALARM, FULL, AGAIN_S)] == [(ALARM, FULL)]


def test_an_alarm_that_flaps_has_few_lines_of_which_the_last_one_is_its_state() -> None:
    lines, numbers, logged = AlarmLines(), count(), list[Event]()
    for number in range(301):
        logged += lines.of(OVER if number % 2 else ALARM, FULL | {"text": f"{next(numbers)} rules"}, float(number))
        logged += lines.due(float(number))
    logged += lines.due(1000.0)
    assert [event for event, _ in logged][:2] == [ALARM, OVER]
    assert len(logged) <= 2 * (301 / AGAIN_S + 1)
    event, details = logged[-1]
    assert (event, details["text"]) == (ALARM, "300 rules")


def test_a_line_says_how_many_were_left_out_before_it() -> None:
    lines = AlarmLines()
    for number, event in enumerate((ALARM, OVER, ALARM, OVER, ALARM)):
        _ = [*lines.of(event, FULL, float(number))]
    assert [*lines.due(AGAIN_S)] == [(ALARM, FULL | {"left_out": 2})]


def test_another_alarm_is_not_delayed_and_one_that_stays_has_one_line() -> None:
    lines = AlarmLines()
    other = FULL | {"subject": "leaf2:meters"}
    assert [*lines.of(ALARM, FULL, 0.0), *lines.of(ALARM, other, 0.0)] == [(ALARM, FULL), (ALARM, other)]
    assert [*lines.due(AGAIN_S)] == []
    assert [*lines.of(OVER, FULL, 2 * AGAIN_S)] == [(OVER, FULL)]
