from contextlib import ExitStack
from pathlib import Path

import pytest

from mininet_topos.lab import record
from mininet_topos.lab.record import LabError
from mininet_topos.probe import queues
from mininet_topos.probe.queues import BUFFER_BYTES, large_socket_buffers

SMALL = "212992\n"


@pytest.fixture
def setting(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    setting = tmp_path / "wmem_default"
    setting.write_text(SMALL)
    monkeypatch.setattr(queues, "BUFFER_SETTINGS", (setting,))
    monkeypatch.setattr(record, "RECORDS", tmp_path / "labs")
    return setting


def test_buffers_stay_large_until_the_last_of_several_users_ends(setting: Path) -> None:
    first, second = ExitStack(), ExitStack()
    for user in (first, second, first):
        user.enter_context(large_socket_buffers())
    first.close()
    assert int(setting.read_text()) == BUFFER_BYTES
    second.close()
    assert setting.read_text() == SMALL


def test_buffers_that_were_large_before_stay_large(setting: Path) -> None:
    setting.write_text(str(2 * BUFFER_BYTES))
    with large_socket_buffers():
        pass
    assert int(setting.read_text()) == 2 * BUFFER_BYTES


@pytest.mark.usefixtures("setting")
def test_buffers_that_cannot_be_raised_are_an_error_that_names_the_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(Path, "write_text", refuse)
    with pytest.raises(LabError, match=r"run 'sysctl -w net\.core\.wmem_default="), large_socket_buffers():
        pass
