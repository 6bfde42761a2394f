"""The state that viewers share, and their questions to the controller."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from signalbox.live.state import Kind, State
from signalbox.web.asking import Newest
from signalbox.web.board import MOST_MADE, REST, Board
from signalbox.web.serving import MOST_WARNING_CHARS, Terminal


class Changing:
    """Follower of a controller in which everything changes all the time."""

    def __init__(self) -> None:
        self.state = State()
        self.taken = 0

    def changes_to_show(self) -> frozenset[Kind]:
        self.taken += 1
        return frozenset(Kind)


def test_a_viewer_whose_page_fails_does_not_keep_changes_from_others(caplog: pytest.LogCaptureFixture) -> None:
    changing: Any = Changing()
    board = Board(changing)
    shown: list[frozenset[Kind]] = []

    def fails(_: frozenset[Kind]) -> None:
        raise KeyError("gone")

    board.tell("one", fails)
    board.tell("other", shown.append)
    with caplog.at_level(logging.ERROR):
        board.take()
    assert shown == [frozenset(Kind)]
    assert "a viewer's page could not be changed" in caplog.text


def test_it_rests_after_changes_that_took_long_to_show() -> None:
    changing: Any = Changing()
    now = [100.0]
    board = Board(changing, clock=lambda: now[0])

    def slow(_: frozenset[Kind]) -> None:
        now[0] += 2.0

    board.tell("viewer", slow)
    taken = []
    for _ in range(2 * REST + 2):
        board.take()
        taken.append(changing.taken)
        now[0] += 1.0
    assert taken == [1] * (2 * REST) + [2, 2]


def test_what_is_made_for_all_viewers_is_bounded_between_changes() -> None:
    changing: Any = Changing()
    board = Board(changing)
    for number in range(10 * MOST_MADE):
        board.once(number, lambda number=number: number)  # type: ignore[misc]
        assert len(board._made) <= MOST_MADE


def test_calls_during_an_action_repeat_it_once() -> None:
    async def run() -> list[str]:
        done, goes = [], asyncio.Event()

        async def action() -> None:
            done.append("begun")
            await goes.wait()
            done.append("ended")

        newest = Newest(action)
        first = asyncio.create_task(newest())
        await asyncio.sleep(0)
        for _ in range(5):
            await newest()
        assert done == ["begun"]
        goes.set()
        await first
        return done

    assert asyncio.run(run()) == ["begun", "ended"] * 2


def test_a_controller_that_comes_and_goes_fills_no_log(capsys: pytest.CaptureFixture[str]) -> None:
    now = [100.0]
    terminal = Terminal("http://127.0.0.1:8080/", clock=lambda: now[0])
    for turn in range(100):
        terminal.tell(True, "down\n\x1b[31m" * 1000 if turn % 2 else "")
        now[0] += 0.1
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "The page is at http://127.0.0.1:8080/ until Ctrl-C."
    assert 2 < len(lines) <= 7
    assert all(line.isprintable() for line in lines)
    assert max(map(len, lines)) < 5 * MOST_WARNING_CHARS
