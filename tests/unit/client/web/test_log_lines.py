"""Output and log lines of the process of the live page."""

import logging
from itertools import count

import pytest

from signalbox.web.serving import MOST_LINES, PERIOD_S, Terminal, _Few, _Lines


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
