"""The ``signalbox`` command, run in the process of the test, and a real server that answers it."""

import json
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import structlog
import yaml

from signalbox.cli import main
from tests.support.wire.control_stand_in import Running, running_api


@dataclass(frozen=True)
class Result:
    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def yaml(self) -> Any:
        return yaml.safe_load(self.out)

    @property
    def rows(self) -> list[list[str]]:
        return [line.split() for line in self.out.splitlines()]

    @property
    def text(self) -> str:
        """Output on one line, so that the width of the terminal does not matter."""
        return " ".join(self.out.split())


Command = Callable[..., Result]
Signalbox = Command


def runs(
    program: str, main: Callable[[], object], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Command:
    """Return a function that runs the main function of a program and returns its exit status and output."""

    def run(*arguments: object) -> Result:
        capsys.readouterr()
        monkeypatch.setattr(sys, "argv", [program, *map(str, arguments)])
        status = 0
        try:
            main()
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else int(bool(end.code))
        out, err = capsys.readouterr()
        return Result(status, out, err)

    return run


@contextmanager
def _logging_errors_only() -> Iterator[None]:
    """Hide audit lines and warnings of servers in this process. They would be in the output of the command."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    yield
    structlog.reset_defaults()


@pytest.fixture
def signalbox(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Signalbox]:
    with _logging_errors_only():
        yield runs("signalbox", main, capsys, monkeypatch)


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    """Run a server that the command calls."""
    with _logging_errors_only(), running_api() as running:
        monkeypatch.setenv("SIGNALBOX_ADDRESS", running.addresses[0])
        yield running
