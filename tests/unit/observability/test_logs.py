import json
import logging
import re

import pytest
import structlog

from controller.observability import logs

pytestmark = pytest.mark.usefixtures("logging_as_before")


def test_json_lines_carry_event_fields_logger_and_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure(json=True)
    try:
        raise ValueError("broken cable")
    except ValueError:
        structlog.get_logger("controller.x").exception("link lost", link="leaf1:2>spine1")
    captured = capsys.readouterr()
    line = json.loads(captured.err)
    assert captured.out == ""
    assert (line["event"], line["level"], line["logger"]) == ("link lost", "error", "controller.x")
    assert line["link"] == "leaf1:2>spine1"
    assert "broken cable" in line["exception"]


def test_without_a_terminal_lines_are_key_value_and_lists_are_words(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure()
    log = structlog.get_logger("controller.x")
    log.info("plan adopted", slowdown_after=1.0)
    line = capsys.readouterr().err
    assert 'level=info logger=controller.x event="plan adopted" slowdown_after=1.0' in line
    assert line.count("\n") == 1
    log.info("API listens", addresses=("127.0.0.1:1", "unix:/a\x1b"), tenants=("blue",), problems=["log: is wrong"])
    line = capsys.readouterr().err
    assert 'addresses="127.0.0.1:1, unix:/a\\\\x1b" tenants=blue problems="log: is wrong"' in line


def test_libraries_log_from_warning_on_and_the_level_is_the_controllers(capsys: pytest.CaptureFixture[str]) -> None:
    """Configuring twice does not double the lines."""
    logs.configure(json=True)
    logging.getLogger("ryu.base.app_manager").info("loading app")
    logging.getLogger("ryu.controller").warning("unsupported version %d", 1)
    logs.configure(json=True, level="error")
    structlog.get_logger("controller.x").warning("not this")
    structlog.get_logger("controller.x").error("this")
    lines = capsys.readouterr().err.splitlines()
    assert [json.loads(line)["event"] for line in lines] == ["unsupported version 1", "this"]


@pytest.mark.parametrize("terminal", [False, True])
def test_lines_control_no_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, terminal: bool
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: terminal)
    logs.configure()
    name = "\x07red\u202e\r\nerror: forged"
    structlog.get_logger("controller.x").warning(f"switch {name}", name=name, why=ValueError(name))
    logging.getLogger("controller.y").warning("switch %s", name)
    said = capsys.readouterr().err
    assert len(said.splitlines()) == 2
    assert re.search(r"\\x07red\\+u202e\\+r\\+nerror: forged", said)
    assert not {"\x07", "\u202e", "\r"} & {*said}
