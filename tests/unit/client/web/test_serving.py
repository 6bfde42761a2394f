"""The page for browsers: its shared state, the requests that it answers, and its log."""

from __future__ import annotations

import asyncio
import logging
from itertools import count, product
from typing import Any

import pytest
from starlette.responses import PlainTextResponse
from starlette.types import Message

from signalbox.live.state import Kind, State
from signalbox.web.asking import Newest
from signalbox.web.board import MOST_MADE, REST, Board
from signalbox.web.serving import MOST_LINES, MOST_WARNING_CHARS, PERIOD_S, Guard, Terminal, _Few, _Lines


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
    assert "cannot update a viewer's page" in caplog.text


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


OPENED = {"host": "127.0.0.1:8080"}


def answered(kind: str, headers: dict[str, str], names: tuple[str, ...] = ()) -> tuple[int, dict[str, str], str]:
    found: list[Message] = []

    async def send(message: Message) -> None:
        found.append(message)

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    scope: dict[str, Any] = {"type": kind, "headers": [(k.encode(), v.encode()) for k, v in headers.items()]}
    asyncio.run(Guard(PlainTextResponse("shown"), names)(scope, receive, send))
    told = {key.decode(): value.decode() for key, value in found[0]["headers"]}
    return found[0]["status"], told, found[1]["body"].decode()


@pytest.mark.parametrize("host", ["127.0.0.1:8080", "[::1]:8080", "10.1.2.3", "localhost:8080", "Fabric.example"])
def test_addresses_and_known_names_are_answered(host: str) -> None:
    origin = {"origin": f"https://{host}"}
    for kind, headers in product(("http", "websocket"), ({"host": host}, {"host": host, **origin})):
        assert answered(kind, headers, ("fabric.example",))[0] == 200


REFUSED_HOSTS = [
    *(None, "", "[::1", "elsewhere.example", "127.0.0.1.elsewhere.example", "evil.com@127.0.0.1", "127.0.0.1:8080/"),
    *("127.0.0.1\x1b[31m", "127.0.0.1:123456"),
]
REFUSED_ORIGINS = [
    *("http://elsewhere.example", "http://127.0.0.1:9999", "null", "http://evil.com//127.0.0.1:8080"),
    *("http://evil.com@127.0.0.1:8080", "127.0.0.1:8080", "ftp://127.0.0.1:8080", "http://127.0.0.1:8080/path", ""),
]


@pytest.mark.parametrize(
    "headers",
    [{} if host is None else {"host": host} for host in REFUSED_HOSTS]
    + [{**OPENED, "origin": origin} for origin in REFUSED_ORIGINS],
    ids=str,
)
def test_names_that_are_not_known_and_other_sites_are_refused(headers: dict[str, str]) -> None:
    assert [answered(kind, headers)[0] for kind in ("http", "websocket")] == [400, 400]


def test_ports_and_proxies_are_allowed_for_and_a_refusal_says_what_makes_the_name_known() -> None:
    for host, origin, status in (
        ("10.1.2.3", "http://10.1.2.3:80", 200),
        ("10.1.2.3:443", "https://10.1.2.3", 200),
        ("10.1.2.3:443", "http://10.1.2.3", 400),
        ("10.1.2.3", "http://10.1.2.3:8080", 400),
    ):
        assert answered("http", {"host": host, "origin": origin})[0] == status
    headers = {**OPENED, "origin": "https://fabric.example"}
    assert answered("websocket", headers, ("fabric.example",))[0] == 200
    assert answered("websocket", headers)[0] == 400
    assert answered("websocket", {**OPENED, "origin": "http://127.0.0.1:9999"}, ("127.0.0.1", "localhost"))[0] == 400
    status, _, said = answered("http", {"host": "myhost:8080"})
    assert (status, said) == (400, "myhost is not a known name of this page; allow it with signalbox web --name NAME\n")
    assert answered("http", OPENED)[1]["content-security-policy"] == "frame-ancestors 'none'"


def test_it_says_once_where_the_page_is_and_each_time_that_the_controller_goes_and_comes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    terminal = Terminal("http://127.0.0.1:8080/", clock=count(100.0, 10.0).__next__)

    def said(listens: bool, lost: str | None) -> str:
        terminal.tell(listens, lost)
        return capsys.readouterr().err

    assert said(False, None) == ""
    assert said(True, None) == "The page is at http://127.0.0.1:8080/ until Ctrl-C.\n"
    assert said(True, "") == ""
    assert said(True, "a: cannot be reached") == "warning: a: cannot be reached\n"
    assert said(True, "a: timed out") == ""
    assert said(True, "") == "The controller answers again.\n"


def record(message: object, *args: object, error: BaseException | None = None) -> logging.LogRecord:
    raised = (type(error), error, error.__traceback__) if error else None
    return logging.LogRecord("nicegui", logging.ERROR, "page.py", 1, message, args, raised)


@pytest.mark.parametrize(
    ("message", "line"),
    [
        ("\x1b[31mred\nerror: forged", r"error: nicegui: \x1b[31mred\nerror: forged"),
        ("x" * 100_000, f"error: nicegui: {'x' * 497}..."),
        ({"a": 1}, "error: nicegui: {'a': 1}"),
    ],
)
def test_a_record_is_one_short_line_without_escapes(message: object, line: str) -> None:
    assert _Lines().format(record(message)) == line


def test_an_exception_is_told_by_kind_and_place_and_arguments_that_do_not_fit_are_left_out() -> None:
    assert _Lines().format(record("%d jobs", "\x07")) == "error: nicegui: %d jobs"
    try:
        int("\x1b[31m")
    except ValueError as error:
        line = _Lines().format(record("Task failed\nfuture: <Task>", error=error))
    assert line.startswith("error: nicegui: Task failed (ValueError: invalid literal")
    assert __file__ in line
    assert line.isprintable()


def test_few_lines_are_written_in_a_period_and_the_next_says_how_many_were_not() -> None:
    now = [0.0]
    few = _Few(lambda: now[0])
    assert sum(few.filter(record("a")) for _ in range(100)) == MOST_LINES
    now[0] += PERIOD_S + 1
    following = record("b")
    assert few.filter(following)
    assert following.getMessage() == f"({100 - MOST_LINES} lines were left out) b"
