"""A controller that waits for the end of another one, and tells the service manager."""

import os
import signal
import socket
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

import pytest

from controller.config import Config
from controller.serving import preflight, readiness
from controller.serving.alone import Alone
from controller.serving.loaded import Loaded
from controller.serving.serve import serve
from controller.serving.standby import forwarding, wait_for_turn
from controller.status import StatusBoard
from controller.store.directory_claim import MARK
from controller.store.sqlite_store import SqliteStore
from signalbox.errors import InvalidInput
from tests.support.known_members import only_member
from tests.support.waiting import DEADLINE_S, beside, until


def once(condition: Callable[[], object], act: Callable[[], object]) -> Future[object]:
    def acts() -> object:
        until(condition)
        return act()

    return beside(acts)


def test_a_free_directory_is_taken_at_once(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    assert wait_for_turn(store)
    assert not SqliteStore(tmp_path).claim()
    store.close()


@pytest.mark.parametrize(("config", "problem"), [
    (Config(), "state_dir: is missing; --standby needs state_dir or etcd"),
    (Config(store="etcd://127.0.0.1:1"), "members.api: is missing; with the state in etcd, --standby needs an address"),
])  # fmt: skip
def test_a_standby_needs_a_state_that_another_controller_can_use(config: Config, problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        serve(config, stand_by=True)
    with pytest.raises(InvalidInput, match=problem):
        preflight.check(config, stand_by=True)
    preflight.check(config)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_wait_and_changes_nothing(tmp_path: Path, number: signal.Signals) -> None:
    active, handler = SqliteStore(tmp_path), signal.getsignal(number)
    assert active.claim()
    acted = once(active.has_standby, lambda: os.kill(os.getpid(), number))
    assert not wait_for_turn(SqliteStore(tmp_path))
    acted.result(DEADLINE_S)
    assert active.owner() == str(os.getpid())
    assert signal.getsignal(number) is handler
    active.close()


def test_the_end_of_the_other_is_noticed_and_the_active_sees_who_waits_only_while_it_does(tmp_path: Path) -> None:
    active, waiting = SqliteStore(tmp_path), SqliteStore(tmp_path)
    assert not SqliteStore(tmp_path / "none").has_standby()
    assert active.claim()
    assert not active.has_standby()
    seen: list[bool] = []

    def end() -> None:
        seen.append(active.has_standby())
        active.close()

    ended = once(active.has_standby, end)
    assert wait_for_turn(waiting)
    ended.result(DEADLINE_S)
    assert seen == [True]
    assert not active.has_standby()
    waiting.close()


def test_a_directory_that_takes_no_mark_is_waited_for_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    active, waiting = SqliteStore(tmp_path), SqliteStore(tmp_path)
    (tmp_path / MARK).mkdir()
    assert active.claim()
    claims: list[bool] = []
    claim = waiting.claim

    def claimed(wait: bool = False) -> bool:
        claims.append(wait)
        return claim(wait)

    monkeypatch.setattr(waiting, "claim", claimed)
    closed = once(lambda: claims == [False, True], active.close)
    assert wait_for_turn(waiting)
    closed.result(DEADLINE_S)
    waiting.close()


def test_only_a_member_opens_ports_while_it_waits(tmp_path: Path) -> None:
    shared = {"api": {"listen": [f"unix:{tmp_path / 'api.sock'}"]}, "metrics": {"port": 0}}
    config = Config.model_validate(shared)
    board = StatusBoard()
    loaded = Loaded(config, board)

    async def beside() -> None:
        pass

    for waits, opens in (
        (Alone(config, loaded.openflow_tls, lambda: False).standing_by(), False),
        (forwarding(config, loaded, board, only_member(), beside), True),
    ):
        with waits:
            assert (board.stands_by, (tmp_path / "api.sock").exists()) == (opens, opens)
        assert not board.stands_by


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
