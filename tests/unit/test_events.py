"""The event history: bounded, in order, kept over a restart."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
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


def test_changes_of_the_mode_are_read_from_files_of_earlier_versions(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text('\n[7, 1e9, "strategy", "strategy set", {"strategy": "shadow"}]')
    (event,) = EventFile(tmp_path).history.after(0, 10)
    assert (event.number, event.kind, event.details) == (7, EventKind.MODE, {"strategy": "shadow"})


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


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
def test_a_full_disk_or_a_pipe_in_place_of_the_file_costs_the_file_not_the_history(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    make(tmp_path / FILE)
    file = EventFile(tmp_path)
    file.history.add(EventKind.PLAN, "one", {}, 1.0)
    file.close()
    assert [event.what for event in file.history.after(0, 10)] == ["one"]


def test_numbers_go_on_where_none_were_kept() -> None:
    """The last number after a restart is at least the number before it, with which a watch may resume."""
    before = EventFile(None)
    before.history.add(EventKind.PLAN, "one", {}, time.time())
    before.close()
    assert EventFile(None).history.last >= before.history.last


def test_the_file_is_bounded_in_bytes_and_keeps_the_newest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_file, "MOST_BYTES", 10_000)
    for turn in range(20):
        file = EventFile(tmp_path)
        for n in range(5):
            file.history.add(EventKind.JOB, "job", {"n": 5 * turn + n, "text": "x" * 500}, 1.0)
        file.close()
        assert (tmp_path / FILE).stat().st_size <= 10_000
    found = EventFile(tmp_path).history.after(0, 10**9)
    assert [int(event.details["n"]) for event in found] == list(range(100 - len(found), 100))
    assert len(found) >= 5


def test_of_a_file_that_is_too_large_the_end_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = EventFile(tmp_path)
    file.history.add(EventKind.JOB, "old", {"text": "x" * 20_000}, 1.0)
    file.history.add(EventKind.JOB, "new", {}, 1.0)
    file.close()
    monkeypatch.setattr(event_file, "MOST_BYTES", 10_000)
    after = EventFile(tmp_path)
    assert [event.what for event in after.history.after(0, 10)] == ["new"]
    after.history.add(EventKind.JOB, "newer", {}, 2.0)
    after.close()
    assert (tmp_path / FILE).stat().st_size <= 10_000


def test_the_file_is_bounded_in_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_file, "MOST_LINES", 2 * KEPT)
    for _ in range(3):
        file = EventFile(tmp_path)
        for n in range(KEPT):
            file.history.add(EventKind.JOB, "job", {"n": n}, 1.0)
        file.close()
    assert 0 < (tmp_path / FILE).read_text().count("\n") <= 2 * KEPT
    assert len(EventFile(tmp_path).history.after(0, 10**9)) == KEPT


@pytest.mark.parametrize("name", [FILE, "events.new"])
def test_a_link_is_not_followed(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_file, "MOST_LINES", 1)  # the file is written anew each time
    other = tmp_path / "other"
    other.write_text('\n[5, 1.0, "job", "theirs", {}]')
    (tmp_path / name).symlink_to(other)
    file = EventFile(tmp_path)
    for what in ("one", "two"):
        file.history.add(EventKind.JOB, what, {}, 1.0)
    file.close()
    assert "theirs" not in [event.what for event in file.history.after(0, 10)]
    assert other.read_text() == '\n[5, 1.0, "job", "theirs", {}]'
