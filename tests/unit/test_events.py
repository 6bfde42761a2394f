"""The event history: bounded, in order, kept over a restart."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from controller.events import KEPT, LEFT_OUT, ROOM, Event, EventHistory
from controller.serving import event_file
from controller.serving.event_file import FILE, EventFile
from controller.serving.event_log import not_over
from controller.serving.kept_events import KeptEvents
from signalbox.words import AlarmKind, EventKind

OUT_OF_RANGE = [
    f'\n[{number}, {at}, "plan", "what", {{{detail}}}]'.encode()
    for number, at, detail in [
        ("1e999", 1.0, ""),
        (2**64, 1.0, ""),
        (-1, 1.0, ""),
        (5, "NaN", ""),
        (5, 1e300, ""),
        (5, 1.0, r'"a": "\ud800"'),
        (5, 1.0, '"left_out": "many"'),
    ]
]


def events_in(directory: Path | None) -> KeptEvents:
    return KeptEvents(EventFile(directory))


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
    assert KEPT - ROOM < len(history.after(0, 10**9)) <= KEPT + 1
    assert history.after(0, 10**9)[-1].details["job"] == f"{KEPT + 6}"
    assert [event.what for event in history.after(0, 5, [EventKind.DRAIN])] == ["drained"]


Flood = Callable[[int], tuple[str, dict[str, str]]]
"""Words and details of the n-th event of a flood."""


def alarm(n: int, kind: AlarmKind, subject: str, **more: str) -> tuple[str, dict[str, str]]:
    return "alarm over" if n % 2 else "alarm", {"kind": kind, "subject": subject, "text": f"{n}", **more}


def turns(*whats: str) -> Callable[[int], str]:
    return lambda n: whats[n % len(whats)]


FLOODS: dict[str, tuple[EventKind, Flood]] = {
    "a switch leaves and returns": (EventKind.ALARM, lambda n: alarm(n, AlarmKind.SWITCH_DOWN, "bad")),
    "LLDP at each port of a switch": (EventKind.ALARM, lambda n: alarm(n, AlarmKind.LLDP_FORGED, f"bad:{n // 2}")),
    "cables of a switch": (
        EventKind.FABRIC,
        lambda n: (turns("link down", "link up again")(n), {"count": "1", "names": f"leaf{n // 2 % 64}:9>bad"}),
    ),
    "hosts of a switch go down": (
        EventKind.FABRIC,
        lambda n: (turns("host down", "host up again")(n), {"count": "1", "names": f"10.6.{n // 2}", "at": "bad"}),
    ),
    "hosts of a switch are found": (EventKind.FABRIC, lambda n: ("host found", {"ip": f"10.6.{n}", "at": "bad:1"})),
    "two hosts claim an address": (EventKind.FABRIC, lambda n: ("host moved", {"ip": "10.6.1", "at": f"bad:{n % 2}"})),
    "rules that others change": (
        EventKind.RULES,
        lambda n: ("foreign change to rules undone", {"switch": "bad", "count": f"{n}"}),
    ),
    "jobs of a tenant": (
        EventKind.JOB,
        lambda n: (turns("job registered", "job ended")(n), {"job": f"new{n // 2}", "tenant": "bad"}),
    ),
    "hosts of a job that go and return": (EventKind.JOB, lambda n: ("job", {"job": f"job{n % 100}"})),
    "jobs of a tenant on missing hosts": (
        EventKind.JOB_ALARM,
        lambda n: alarm(n, AlarmKind.HOSTS_MISSING, f"new{n // 2}", tenant="bad"),
    ),
    "a drain that a switch contradicts": (
        EventKind.DRAIN,
        lambda n: (turns("safe to pull", "drained, but carries packets")(n), {"part": "bad"}),
    ),
    "plans": (EventKind.PLAN, lambda n: (f"plan adopted: {turns('pins', 'moves')(n)} {n} flows", {"ms": f"{n}"})),
}


@pytest.mark.parametrize("name", FLOODS)
def test_a_flood_of_events_of_one_part_takes_no_place_of_other_parts(name: str) -> None:
    kind, flood = FLOODS[name]
    history = EventHistory()
    others = [("alarm", {"kind": AlarmKind.LINK_DOWN, "subject": f"spine{n}:1>leaf1"}) for n in range(400)]
    others += [("job registered", {"job": f"other{n}", "tenant": f"tenant{n // 50}"}) for n in range(400)]
    for what, details in others:
        history.add(kind, what, details, 1.0)
    for n in range(2 * KEPT):
        history.add(kind, *flood(n), 2.0)
    found = history.after(0, 10**9)
    assert len(found) <= KEPT
    assert numbers(found) == sorted({*numbers(found)})
    assert [(event.what, event.details) for event in found if event.at == 1.0] == others
    of_flood = [event for event in found if event.at == 2.0]
    left_out = sum(int(event.details.get(LEFT_OUT, 0)) for event in of_flood)
    assert len(of_flood) + left_out == 2 * KEPT
    assert (of_flood[0].what, of_flood[-1].what) == (flood(0)[0], flood(2 * KEPT - 1)[0])


def test_of_each_alarm_of_a_noisy_switch_the_first_and_the_present_state_stay(tmp_path: Path) -> None:
    file = events_in(tmp_path)
    kinds = (AlarmKind.MASTERSHIP_LOST, AlarmKind.SWITCH_DOWN, AlarmKind.FOREIGN_RULES)
    file.history.add(EventKind.ALARM, *alarm(0, AlarmKind.SWITCH_FLOODS, "bad"), 1.0)
    for n in range(KEPT + 1):
        for of in kinds:
            file.history.add(EventKind.ALARM, *alarm(n, of, "bad"), float(2 + n))
    file.close()
    after = events_in(tmp_path).history.after(0, 10**9)
    assert after == file.history.after(0, 10**9)
    for of in kinds:
        texts = [event.details["text"] for event in after if event.details["kind"] == of]
        assert (texts[0], texts[-1]) == ("0", f"{KEPT}")
    assert not_over(after) == {(of, "bad"): 2.0 + KEPT for of in kinds} | {(AlarmKind.SWITCH_FLOODS, "bad"): 1.0}


def test_the_history_of_a_fabric_without_floods_is_its_latest_events() -> None:
    history = EventHistory()
    for n in range(2 * KEPT):
        history.add(EventKind.JOB, "job registered", {"job": f"job{n}"}, 1.0)
    found = history.after(0, 10**9)
    assert [event.details for event in found] == [{"job": f"job{n}"} for n in range(2 * KEPT - len(found), 2 * KEPT)]


def test_events_are_there_after_a_restart_and_numbers_go_on(tmp_path: Path) -> None:
    before = events_in(tmp_path)
    before.history.add(EventKind.FABRIC, "links lost", {"links": "leaf1:3>spine2"}, 1e9)
    before.close()
    after = events_in(tmp_path)
    after.history.add(EventKind.FABRIC, "links found", {}, 1.0)
    after.close()
    lost, found = events_in(tmp_path).history.after(0, 10)
    assert (lost.what, lost.details, found.what) == ("links lost", {"links": "leaf1:3>spine2"}, "links found")
    assert lost.number < found.number
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600


def test_changes_of_the_mode_are_read_from_files_of_earlier_versions(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text('\n[7, 1e9, "strategy", "strategy set", {"strategy": "shadow"}]')
    (event,) = events_in(tmp_path).history.after(0, 10)
    assert (event.number, event.kind, event.details) == (7, EventKind.MODE, {"strategy": "shadow"})


@pytest.mark.parametrize("damage", [b"", b"\n[1, 2", b"\nnull\n{}\n[1,2,3,4,5]", b"\n\xff\xfe\x00", *OUT_OF_RANGE])
def test_lines_that_cannot_be_read_are_left_out_and_take_no_other_along(tmp_path: Path, damage: bytes) -> None:
    first = events_in(tmp_path)
    first.history.add(EventKind.PLAN, "one", {}, 1.0)
    first.close()
    with (tmp_path / FILE).open("ab") as file:
        file.write(damage)
    second = events_in(tmp_path)
    second.history.add(EventKind.PLAN, "two", {}, 2.0)
    second.close()
    assert [event.what for event in events_in(tmp_path).history.after(0, 10)] == ["one", "two"]


def test_a_file_without_room_has_fewer_of_the_repeated_events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_file, "MOST_BYTES", 100_000)
    file = events_in(tmp_path)
    for n in range(100):
        file.history.add(EventKind.ALARM, *alarm(0, AlarmKind.LINK_DOWN, f"leaf{n}:1>spine1"), 1.0)
    for n in range(KEPT):
        file.history.add(EventKind.ALARM, *alarm(n, AlarmKind.SWITCH_DOWN, "bad"), 2.0)
    file.close()
    found = events_in(tmp_path).history.after(0, 10**9)
    assert sum(event.at == 1.0 for event in found) == 100
    assert found[-1].details["text"] == f"{KEPT - 1}"


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
def test_a_full_disk_or_a_pipe_in_place_of_the_file_costs_the_file_not_the_history(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    make(tmp_path / FILE)
    file = events_in(tmp_path)
    file.history.add(EventKind.PLAN, "one", {}, 1.0)
    file.close()
    assert [event.what for event in file.history.after(0, 10)] == ["one"]


def test_numbers_go_on_where_none_were_kept() -> None:
    """The last number after a restart is at least the number before it, with which a watch may resume."""
    before = events_in(None)
    before.history.add(EventKind.PLAN, "one", {}, time.time())
    before.close()
    assert events_in(None).history.last >= before.history.last


def test_the_file_is_bounded_in_bytes_and_keeps_the_newest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_file, "MOST_BYTES", 10_000)
    for turn in range(20):
        file = events_in(tmp_path)
        for n in range(5):
            file.history.add(EventKind.JOB, "job", {"n": 5 * turn + n, "text": "x" * 500}, 1.0)
        file.close()
        assert (tmp_path / FILE).stat().st_size <= 10_000
    found = events_in(tmp_path).history.after(0, 10**9)
    assert [int(event.details["n"]) for event in found] == list(range(100 - len(found), 100))
    assert len(found) >= 5


def test_of_a_file_that_is_too_large_the_end_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = events_in(tmp_path)
    file.history.add(EventKind.JOB, "old", {"text": "x" * 20_000}, 1.0)
    file.history.add(EventKind.JOB, "new", {}, 1.0)
    file.close()
    monkeypatch.setattr(event_file, "MOST_BYTES", 10_000)
    after = events_in(tmp_path)
    assert [event.what for event in after.history.after(0, 10)] == ["new"]
    after.history.add(EventKind.JOB, "newer", {}, 2.0)
    after.close()
    assert (tmp_path / FILE).stat().st_size <= 10_000


def test_the_file_is_bounded_in_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_file, "MOST_LINES", 2 * KEPT)
    for _ in range(3):
        file = events_in(tmp_path)
        for n in range(KEPT):
            file.history.add(EventKind.JOB, "job", {"job": n}, 1.0)
        file.close()
    assert 0 < (tmp_path / FILE).read_text().count("\n") <= 2 * KEPT
    assert KEPT - ROOM < len(events_in(tmp_path).history.after(0, 10**9)) <= KEPT


@pytest.mark.parametrize("name", [FILE, "events.new"])
def test_a_link_is_not_followed(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_file, "MOST_LINES", 1)  # the file is written anew each time
    other = tmp_path / "other"
    other.write_text('\n[5, 1.0, "job", "theirs", {}]')
    (tmp_path / name).symlink_to(other)
    file = events_in(tmp_path)
    for what in ("one", "two"):
        file.history.add(EventKind.JOB, what, {}, 1.0)
    file.close()
    assert "theirs" not in [event.what for event in file.history.after(0, 10)]
    assert other.read_text() == '\n[5, 1.0, "job", "theirs", {}]'
