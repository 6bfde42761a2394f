"""Output of ``signalbox web`` in the terminal."""

import pytest

from signalbox.web.serving import Terminal


def test_it_says_once_where_the_page_is_and_each_time_that_the_controller_goes_and_comes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    terminal = Terminal("http://127.0.0.1:8080/")

    def said(listens: bool, lost: str | None) -> str:
        terminal.tell(listens, lost)
        return capsys.readouterr().err

    assert said(False, None) == ""
    assert said(True, None) == "The page is at http://127.0.0.1:8080/ until Ctrl-C.\n"
    assert said(True, "") == ""
    assert said(True, "a: cannot be reached") == "warning: a: cannot be reached\n"
    assert said(True, "a: timed out") == ""
    assert said(True, "") == "The controller answers again.\n"
