"""The event history: bounded, in order, kept over a restart."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from controller.events import KEPT, Event, EventHistory
from controller.serving import event_file
from controller.serving.event_file import FILE, EventFile
from signalbox.words import EventKind

OUT_OF_RANGE = [
    f'\n[{number}, {at}, "plan", "what", {{{detail}}}]'.encode()
    for number, at, detail in [
        ("1e999", 1.0, ""),
        (2**64, 1.0, ""),
        (-1, 1.0, ""),
        (5, "NaN", ""),
        (5, 1e300, ""),
        (5, 1.0, r'"a": "\ud800"'),
    ]
]


def numbers(events: list[Event]) -> list[int]:
    return [event.number for event in events]


def test_events_come_in_order_with_growing_numbers_and_in_pages() -> None:
    history = EventHistory()
    for at in (5.0, 5.0, 4.0, 6.0):
        history.add(EventKind.PLAN, "plan", {"ms": 1.5}, at)
    found = history.after(0, 10)
    assert numbers(found) == sorted({*numbers(found)})
    assert [event.at for event in found] == [5.0, 5.0, 4.0, 6.0]
    assert found[0].details == {"ms": "1.5"}
    assert history.after(found[1].number, 1) == [found[2]]
    assert history.after(found[3].number, 10) == []


def test_what_happens_often_takes_no_place_of_other_kinds() -> None:
    history = EventHistory()
    history.add(EventKind.DRAIN, "drained", {}, 1.0)
    for n in range(KEPT + 7):
        history.add(EventKind.JOB, "job registered", {"job": n}, 2.0)
    assert len(history.after(0, 10**9)) == KEPT + 1
    assert [event.what for event in history.after(0, 5, [EventKind.DRAIN])] == ["drained"]


def test_events_are_there_after_a_restart_and_numbers_go_on(tmp_path: Path) -> None:
    before = EventFile(tmp_path)
    before.history.add(EventKind.FABRIC, "links lost", {"links": "leaf1:3>spine2"}, 1e9)
    before.close()
    after = EventFile(tmp_path)
    after.history.add(EventKind.FABRIC, "links found", {}, 1.0)
    after.close()
    lost, found = EventFile(tmp_path).history.after(0, 10)
    assert (lost.what, lost.details, found.what) == ("links lost", {"links": "leaf1:3>spine2"}, "links found")
    assert lost.number < found.number
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("damage", [b"", b"\n[1, 2", b"\nnull\n{}\n[1,2,3,4,5]", b"\n\xff\xfe\x00", *OUT_OF_RANGE])
def test_lines_that_cannot_be_read_are_left_out_and_take_no_other_along(tmp_path: Path, damage: bytes) -> None:
    first = EventFile(tmp_path)
    first.history.add(EventKind.PLAN, "one", {}, 1.0)
    first.close()
    with (tmp_path / FILE).open("ab") as file:
        file.write(damage)
    second = EventFile(tmp_path)
    second.history.add(EventKind.PLAN, "two", {}, 2.0)
    second.close()
    assert [event.what for event in EventFile(tmp_path).history.after(0, 10)] == ["one", "two"]


def test_the_file_does_not_grow_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_file, "MOST_LINES", 2 * KEPT)
    for _ in range(3):
        file = EventFile(tmp_path)
        for n in range(KEPT):
            file.history.add(EventKind.JOB, "job", {"n": n}, 1.0)
        file.close()
    assert len((tmp_path / FILE).read_text().split()) > 0
    assert (tmp_path / FILE).read_text().count("\n") <= 2 * KEPT
    assert len(EventFile(tmp_path).history.after(0, 10**9)) == KEPT


def test_a_full_disk_costs_the_file_not_the_history(tmp_path: Path) -> None:
    file = EventFile(tmp_path)
    (tmp_path / FILE).mkdir()
    file.history.add(EventKind.PLAN, "one", {}, 1.0)
    file.close()
    assert [event.what for event in file.history.after(0, 10)] == ["one"]


def test_without_a_directory_nothing_is_written() -> None:
    file = EventFile(None)
    file.history.add(EventKind.PLAN, "one", {}, 1.0)
    file.close()
    assert len(file.history.after(0, 10)) == 1


def test_numbers_go_on_where_none_were_kept() -> None:
    """A watch that resumes before the first event after a restart knows a number of before."""
    before = EventFile(None)
    before.history.add(EventKind.PLAN, "one", {}, time.time())
    assert EventFile(None).history.last >= before.history.last
