"""A defect in a handler logs a traceback, which contains no token of the call in any log format."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from controller.api.lease_tokens import LeaseTokens
from controller.observability import logs
from signalbox.client import Client
from signalbox.credentials import Credentials
from signalbox.errors import SignalboxError
from tests.support.wire.control_stand_in import running_api
from tests.support.wire.secured import secret_file

LEASE_TOKEN, TOKEN = "uid.lease-token-of-somebody", "sbx_token-of-somebody"


class Stderr(io.StringIO):
    def __init__(self, terminal: bool) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


@pytest.mark.usefixtures("logging_as_before")
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
    file = secret_file(tmp_path / "token", TOKEN)
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
