"""The message to the service manager that the controller is ready."""

import socket
from pathlib import Path

import pytest

from controller.serving import readiness


def told(address: str, monkeypatch: pytest.MonkeyPatch) -> bytes:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(address.replace("@", "\0"))
        manager.settimeout(60)
        monkeypatch.setenv("NOTIFY_SOCKET", address)
        readiness.ready("stands by")
        return manager.recv(100)


def test_it_hears_of_it_at_a_socket_of_either_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for address in (str(tmp_path / "notify"), f"@{tmp_path.name}-notify"):
        assert told(address, monkeypatch) == b"READY=1\nSTATUS=stands by"


def test_without_one_nothing_happens_and_one_that_is_gone_does_not_stop_the_controller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    readiness.ready("stands by")
    assert capsys.readouterr().out == ""
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "gone"))
    readiness.ready("stands by")
    assert "cannot notify the service manager" in capsys.readouterr().out
