"""A defect in a handler logs a traceback, which contains no token of the call in any log format."""

from __future__ import annotations

import io
import logging
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from controller.api.lease_tokens import LeaseTokens
from controller.observability import logs
from signalbox.client import Client
from signalbox.credentials import Credentials
from signalbox.errors import SignalboxError
from tests.support.wire.control_stand_in import running_api

LEASE_TOKEN, TOKEN = "uid.lease-token-of-somebody", "sbx_token-of-somebody"


class Stderr(io.StringIO):
    def __init__(self, terminal: bool) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


@pytest.mark.parametrize(("json", "terminal"), [(True, False), (False, False), (False, True)])
def test_a_traceback_shows_no_values(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, json: bool, terminal: bool
) -> None:
    stderr = Stderr(terminal)
    monkeypatch.setattr(sys, "stderr", stderr)
    logs.configure(json=json, level="debug")

    def defect(_: LeaseTokens, token: str) -> str | None:
        raise LookupError(f"of {len(token)} characters")

    monkeypatch.setattr(LeaseTokens, "uid", defect)
    file = tmp_path / "token"
    file.touch(0o600)
    file.write_text(TOKEN)
    with (
        running_api() as api,
        Client(api.addresses[0], credentials=Credentials(token_file=file)) as client,
        pytest.raises(SignalboxError, match="INTERNAL: internal error"),
    ):
        client.renew_lease("job", LEASE_TOKEN)
    written = stderr.getvalue()
    assert "Traceback" in written
    assert f"of {len(LEASE_TOKEN)} characters" in written
    assert LEASE_TOKEN not in written
    assert TOKEN not in written
