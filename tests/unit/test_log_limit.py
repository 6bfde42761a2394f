"""Limits of the log lines that clients can cause."""

from __future__ import annotations

from typing import Any

from controller.log_limit import LINES, LimitedLog


class _Lines:
    def __init__(self) -> None:
        self.lines: list[tuple[str, dict[str, Any]]] = []

    def warning(self, event: str, **details: Any) -> None:
        self.lines.append((event, details))


def test_each_event_has_so_many_lines_in_a_period_and_then_a_count() -> None:
    lines, now = _Lines(), [0.0]
    log = LimitedLog(lines, lambda: now[0], period_s=10.0)
    for number in range(LINES + 5):
        log.warning("refused", peer=number)
    log.warning("something else")
    assert len(lines.lines) == LINES + 1
    log.summarise()
    assert len(lines.lines) == LINES + 1
    now[0] = 9.9
    log.warning("refused", peer="late")
    assert len(lines.lines) == LINES + 1
    now[0] = 10.0
    log.warning("refused", peer="next")
    assert lines.lines[LINES + 1 :] == [
        ("lines left out", {"of": "refused", "count": 6}),
        ("refused", {"peer": "next"}),
    ]


def test_the_count_is_written_also_when_the_event_does_not_come_again() -> None:
    lines, now = _Lines(), [0.0]
    log = LimitedLog(lines, lambda: now[0])
    for _ in range(4):
        log.warning("refused")
    now[0] = 2.0
    log.summarise()
    log.summarise()
    assert lines.lines == [("refused", {}), ("lines left out", {"of": "refused", "count": 3})]


def test_a_line_is_written_once_in_a_period_however_many_lines_are_between() -> None:
    """A switch that comes and goes repeats several lines in turn."""
    lines = _Lines()
    log = LimitedLog(lines, lambda: 0.0)
    for _ in range(5):
        log.warning("switch left", dpid="0x1")
        log.warning("switch left", dpid="0x2")
    assert [details for _, details in lines.lines] == [{"dpid": "0x1"}, {"dpid": "0x2"}]
