"""``Following``, a client's copy of fabric, jobs and plan, and ``signalbox top`` in terminals of two sizes."""

import asyncio
import os
import pty
import re
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from textual.pilot import Pilot

from controller.api import watches
from controller.jobs.messages import RegisterJob
from signalbox.client import Client
from signalbox.jobs.spec import JobSpec
from signalbox.live.following import Following
from signalbox.live.state import Kind
from signalbox.top.app import HELP, Details, Table, Top
from tests.support.command_line import Signalbox
from tests.support.waiting import DEADLINE_S, read_until
from tests.support.wire.api_calls import ring
from tests.support.wire.control_stand_in import running_api
from tests.support.wire.served_fabric import ServedFabric

SMALL, LARGE = (80, 24), (200, 60)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Run the API of a fabric where two jobs train, a cable is down, and a third job waits for a host."""
    fabric = ServedFabric.of_four_leaves()
    fabric.train_examples()
    fabric.send(RegisterJob(JobSpec.parse({"job_id": "waits", "endpoints": ["10.0.1.1", "10.9.9.9"]})))
    fabric.run(5)
    fabric.cut_first_cable()
    fabric.carry(10)
    with fabric.served() as address:
        yield address


def screen(pilot: Pilot[None]) -> str:
    strips = pilot.app.screen._compositor.render_strips()
    return "\n".join("".join(segment.text for segment in strip).rstrip() for strip in strips)


async def until(pilot: Pilot[None], shows: Callable[[str], bool]) -> str:
    end = time.monotonic() + DEADLINE_S
    while not shows(found := screen(pilot)):
        assert time.monotonic() < end, found
        await pilot.pause(0.05)
    return found


def at(address: str, size: tuple[int, int], do: Callable[[Pilot[None]], Awaitable[None]]) -> None:
    async def run() -> None:
        async with Top(lambda: Client(address)).run_test(size=size) as pilot:
            await do(pilot)

    asyncio.run(run())


@pytest.mark.parametrize("size", [SMALL, LARGE])
def test_what_matters_is_on_the_screen(address: str, size: tuple[int, int]) -> None:
    async def look(pilot: Pilot[None]) -> None:
        said = ["planned, efficiency", "8/8 switches", "language", "vision", "waits", "10.9.9.9", "link_down"]
        said += ["plan: worst slowdown", "q quit"]
        shown = await until(
            pilot, lambda text: all(word in text for word in said) and bool(re.search(r":\d>spine\d ", text))
        )
        lines = shown.split("\n")  # the last line may still be empty
        assert len(lines) == size[1]
        assert "30/32 links, 2 alarms" in lines[0]
        assert shown.index("waits") < shown.index("language")

    at(address, size, look)


def test_a_job_and_a_link_are_explained_and_jobs_found(address: str) -> None:
    async def ask(pilot: Pilot[None]) -> None:
        await until(pilot, lambda text: "language" in text)
        await pilot.press("slash", *"lang", "enter")
        await until(pilot, lambda text: "vision" not in text)
        await pilot.press("enter")
        shown = await until(pilot, lambda text: "The network does not slow job 'language'" in text)
        assert "10.0.1.1 > 10.0.2.1: leaf1 > spine" in shown
        await pilot.press("escape")
        await pilot.press("escape")
        await until(pilot, lambda text: "vision" in text)
        await pilot.press("tab", "enter")
        await until(pilot, lambda text: "language: 10.0." in text or "vision: 10.0." in text)
        await pilot.press("q", "tab")
        await until(pilot, lambda text: "link_down" in text)
        await pilot.press("enter")
        shown = await until(pilot, lambda text: "alarm " in text)
        assert "10.9.9.9" in shown[shown.index("─ alarm ") :]
        await pilot.press("q", "question_mark")
        await until(pilot, lambda text: "quits" not in text and "Shift+Tab" in text)

    at(address, LARGE, ask)


def test_an_answer_that_comes_at_once_is_shown(address: str) -> None:
    async def ask(pilot: Pilot[None]) -> None:
        for turn in range(4):
            pilot.app.push_screen(Details("link", lambda turn=turn: f"answer {turn}"))  # type: ignore[misc]
            await until(pilot, lambda text, turn=turn: f"answer {turn}" in text)  # type: ignore[misc]
            await pilot.press("escape")

    at(address, SMALL, ask)


class _LateTick(Top):
    """Top whose timer fires once more while it ends, after its widgets are removed."""

    async def _close_all(self) -> None:
        await super()._close_all()
        self._following.changes_to_show = lambda: frozenset(Kind)  # type: ignore[method-assign]
        self._take()


def test_a_change_that_arrives_while_top_ends_is_not_shown(address: str) -> None:
    async def run() -> None:
        async with _LateTick(lambda: Client(address)).run_test(size=SMALL):
            pass

    asyncio.run(run())


def test_the_help_fits_a_small_terminal(address: str) -> None:
    async def ask(pilot: Pilot[None]) -> None:
        await pilot.press("question_mark")
        shown = await until(pilot, lambda text: "Times are in UTC" in text)
        for line in HELP.partition("\n\n")[0].splitlines():
            assert line in shown

    at(address, SMALL, ask)


def test_only_what_differs_is_drawn_and_the_cursor_stays_on_its_row(address: str) -> None:
    async def change(pilot: Pilot[None]) -> None:
        await until(pilot, lambda text: "vision" in text)
        table = pilot.app.query_one("#jobs", Table)
        drawn: list[object] = []
        update = table.update_cell_at
        table.update_cell_at = lambda *a, **more: (drawn.append(a), update(*a, **more))[1]  # type: ignore[method-assign, func-returns-value]
        rows = [("a", *"123456"), ("b", *"123456"), ("c", *"123456")]
        table.show(rows)
        table.move_cursor(row=1)
        await pilot.pause()
        drawn.clear()
        table.show([rows[0], ("b", *"123457"), rows[2]])
        assert drawn == [((1, 6), drawn[0][1])]  # type: ignore[index]
        table.show([rows[1], rows[0]])
        await pilot.pause()
        assert (table.chosen, table.row_count) == ("b", 2)
        table.show([("[red]x[/]\x1b", *"123456")])
        await until(pilot, lambda text: "[red]x[/]�" in text)

    at(address, SMALL, change)


def test_without_a_controller_it_says_so_and_follows_one_that_comes(address: str, tmp_path: Path) -> None:
    later = tmp_path / "api"

    async def wait(pilot: Pilot[None]) -> None:
        await until(pilot, lambda text: "OUT OF DATE: no answer from the controller" in text)
        relay = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.live.relay", str(later), address.rpartition(":")[2]]
        )
        try:
            await until(pilot, lambda text: "language" in text and "switches in sync" in text)
        finally:
            relay.kill()
            relay.wait()
        await until(pilot, lambda text: "OUT OF DATE: " in text and "language" in text)

    at(f"unix:{later}", SMALL, wait)


class Terminal(NamedTuple):
    """Terminal with the command: both ends, and the attributes before the command started."""

    process: subprocess.Popen[bytes]
    ours: int
    theirs: int
    before: list[Any]


@contextmanager
def in_terminal(address: str) -> Iterator[Terminal]:
    """Run the command in a terminal, and yield it when it shows jobs."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(ours, (24, 80))
    before = termios.tcgetattr(theirs)
    words = [sys.executable, "-m", "signalbox", "top", "--address", address]
    environment = {**os.environ, "TERM": "xterm-256color"}
    process = subprocess.Popen(words, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    try:
        assert read_until(ours, b"language").endswith(b"language")
        yield Terminal(process, ours, theirs, before)
    finally:
        process.kill()
        process.wait()
        os.close(theirs)


@pytest.mark.parametrize("end", [b"q", signal.SIGTERM, pytest.param(b"\x03", marks=pytest.mark.long)])
def test_the_terminal_is_as_before(address: str, end: bytes | signal.Signals) -> None:
    with in_terminal(address) as (process, ours, theirs, before):
        if isinstance(end, bytes):
            os.write(ours, end)
        else:
            process.send_signal(end)
        assert read_until(ours, b"\x1b[?1049l").endswith(b"\x1b[?1049l")
        assert process.wait(DEADLINE_S) == 0
        assert termios.tcgetattr(theirs) == before
        os.close(ours)


@pytest.mark.parametrize("number", [signal.SIGHUP, pytest.param(signal.SIGQUIT, marks=pytest.mark.long)])
def test_it_ends_on_a_terminal_that_takes_nothing(address: str, number: signal.Signals) -> None:
    with in_terminal(address) as (process, ours, theirs, _):
        termios.tcflow(theirs, termios.TCOOFF)
        process.send_signal(number)
        assert process.wait(DEADLINE_S) == 128 + number
        local_flags = termios.tcgetattr(theirs)[3]
        assert local_flags & termios.ECHO
        assert local_flags & termios.ICANON
        os.close(ours)


def test_it_ends_when_its_terminal_closes_although_nobody_sends_a_signal(address: str) -> None:
    with in_terminal(address) as (process, ours, _, _):
        os.close(ours)
        process.wait(DEADLINE_S)


def test_it_needs_a_terminal(signalbox: Signalbox) -> None:
    result = signalbox("top")
    assert (result.status, result.out) == (1, "")
    assert (
        result.err == "error: top needs a terminal; signalbox events --watch and signalbox status print without one\n"
    )


def test_a_terminal_that_cannot_move_its_cursor_is_none(monkeypatch: pytest.MonkeyPatch, signalbox: Signalbox) -> None:
    monkeypatch.setenv("TERM", "dumb")
    for stream in (sys.stdin, sys.stdout):
        monkeypatch.setattr(stream, "isatty", lambda: True)
    assert "top needs a terminal" in signalbox("top").err


def changes_until(following: Following, found: Callable[[], object]) -> frozenset[Kind]:
    changed, end = frozenset[Kind](), time.monotonic() + DEADLINE_S
    while not found():
        assert time.monotonic() < end
        changed |= following.changes(0.05)
    return changed


def test_following_has_what_the_api_has_and_follows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watches, "SPACING_S", 0.01)
    with (
        running_api() as api,
        Following(lambda: Client(api.addresses[0])) as following,
        Client(api.addresses[0]) as client,
    ):
        state = following.state
        changed = changes_until(following, lambda: state.status and state.switches and state.alarms)
        assert {Kind.SHAPE, Kind.STATUS, Kind.ALARMS, Kind.REACHED} <= changed
        assert {switch.name for switch in state.switches.values()} == {"leaf1", "leaf2", "spine1"}
        assert state.lost == ""
        client.register_job(ring())
        assert Kind.JOBS in changes_until(following, lambda: "ring" in state.jobs)
        client.replan()
        assert Kind.PLAN in changes_until(following, lambda: state.plan)


def test_following_says_why_there_is_no_controller_and_goes_on() -> None:
    with Following(lambda: Client("127.0.0.1:1")) as following:
        assert Kind.REACHED in changes_until(following, lambda: following.state.lost)
        assert "no answer from the controller at 127.0.0.1:1" in (following.state.lost or "")
