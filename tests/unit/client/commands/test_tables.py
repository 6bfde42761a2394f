"""Tables on narrow terminals."""

from collections.abc import Sequence

import pytest
from rich.console import Console

from signalbox.commands.output import ALL_COLUMNS
from signalbox.commands.tables import Column, Fitted

NAME = "a-job-with-a-rather-long-name"
COLUMNS = (Column("job"), Column("flows", 2, number=True), Column("path", 1, wraps=True), Column("lease", 3))
ROWS = [(NAME, 12, "leaf1 > spine1 > leaf2", "60 s"), ("b", 3, "leaf3 > spine2 > leaf4", "5 s")]


def printed(width: int, columns: Sequence[Column] = COLUMNS, rows: Sequence[tuple[object, ...]] = ROWS) -> list[str]:
    console = Console(width=width, no_color=True)
    with console.capture() as capture:
        console.print(Fitted(columns, rows, title="jobs"))
    return [line.rstrip() for line in capture.get().splitlines()]


def test_a_wide_terminal_has_all_columns_and_what_is_always_there_wraps() -> None:
    lines = printed(ALL_COLUMNS)
    assert lines[:3] == ["", "jobs", "job                            flows  path                    lease"]
    assert lines[4:] == [
        "a-job-with-a-rather-long-name     12  leaf1 > spine1 > leaf2  60 s",
        "b                                  3  leaf3 > spine2 > leaf4  5 s",
    ]
    lines = printed(20, (Column("job"), Column("flows"), Column("path"), Column("lease")))
    assert max(map(len, lines)) <= 20
    assert "a-job-with-a-rather-long-name" in "".join(line.split(" ")[0] for line in lines)


@pytest.mark.parametrize(
    ("width", "left_out"), [(67, ""), (63, "lease"), (56, "flows, lease"), (50, "flows, path, lease")]
)
def test_the_least_important_columns_are_left_out_and_named(width: int, left_out: str) -> None:
    lines = printed(width)
    assert max(map(len, lines)) <= width
    assert any(line.startswith(NAME) for line in lines), "no name is cut"
    assert ([line for line in lines if "-o wide" in line] or [""])[0].partition(": ")[2] == left_out


def test_names_give_a_terminal_no_orders_and_markup_is_text() -> None:
    """Control sequences, which could set the title, clear the screen or fill the clipboard, are made harmless.

    A control sequence begins with CSI, or begins with ESC ] and ends with BEL."""
    lines = printed(40, [Column("job")], [("a\x1b]0;owned\x07b\x9b2J\u202e[red]",)])
    assert lines[-1] == "a\ufffd]0;owned\ufffdb\ufffd2J\ufffd[red]"


def test_an_empty_table_says_so() -> None:
    assert printed(40, rows=[]) == ["jobs: nothing yet"]


@pytest.mark.parametrize("width", [60, 80, 100])
def test_a_line_ends_between_words_and_no_word_is_cut(width: int) -> None:
    match = "ip, nw_src=10.0.100.101, nw_dst=10.0.200.201, tp_src=0x4000/0xc000"
    actions = "group:3735928559, goto_table:2"
    names = (("for", 0), ("match", 2), ("actions", 4))
    columns = (Column("table"), *(Column(name, leaves, wraps=True) for name, leaves in names))
    lines = printed(width, columns, [(1, "pin 10.0.100.101 > 10.0.200.201", match, actions)] * 2)
    assert max(map(len, lines)) <= width
    found = " ".join(lines)
    shown = [match, *([] if "actions" in found.partition("-o wide")[2] else [actions])]
    assert {word for text in shown for word in text.split()} <= {*found.split()}
