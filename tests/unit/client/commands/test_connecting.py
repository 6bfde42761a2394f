"""Every command that talks to a controller takes the options for the credentials of the caller."""

from pathlib import Path

import pytest

from signalbox.credentials import NO_CREDENTIALS, Credentials
from tests.support.repository_names import commands, options_of

OPTIONS = {"--tls-ca", "--tls-certificate", "--tls-key", "--token-file"}


def test_where_there_is_an_address_there_are_credentials() -> None:
    of_commands = {path: options_of(command) for path, command in commands().items()}
    asking = {path for path, options in of_commands.items() if "--address" in options}
    assert {"status", "jobs renew", "what-if", "mode", "run"} <= asking
    asking.remove("run")  # ``run`` and the program that it starts read the credentials from the environment
    assert {path for path, options in of_commands.items() if options >= OPTIONS} == asking


def test_programs_take_them_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Credentials.of_environment() == NO_CREDENTIALS
    for name in ("TLS_CA", "TLS_CERTIFICATE", "TLS_KEY", "TOKEN_FILE"):
        monkeypatch.setenv(f"SIGNALBOX_{name}", f"/{name}")
    names = [Path("/TLS_CA"), Path("/TLS_CERTIFICATE"), Path("/TLS_KEY"), Path("/TOKEN_FILE")]
    assert Credentials.of_environment() == Credentials(*names)
