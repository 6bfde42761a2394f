"""A controller that waits for the end of another one, tells the service manager, and ends itself for a standby."""

import os
import signal
import socket
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import cast
from unittest.mock import Mock

import pytest

from controller.config import Config
from controller.serving import readiness
from controller.serving.loaded import Loaded
from controller.serving.serve import hand_over, serve
from controller.serving.standby import forwarding, wait_for_turn
from controller.southbound.outbox import Outbox
from controller.status import StatusBoard
from controller.store.directory_claim import MARK
from controller.store.sqlite_store import SqliteStore
from signalbox.errors import InvalidInput
from tests.support.known_members import only_member
from tests.support.waiting import DEADLINE_S, beside, until


def once(condition: Callable[[], object], act: Callable[[], object]) -> Future[object]:
    """Act in another thread once the condition holds."""

    def acts() -> object:
        until(condition)
        return act()

    return beside(acts)


def test_a_free_directory_is_taken_at_once_and_without_one_there_is_nothing_to_wait_for(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    assert wait_for_turn(store)
    assert not SqliteStore(tmp_path).claim()
    store.close()
    with pytest.raises(InvalidInput, match="state_dir: is missing; --standby needs state_dir or etcd"):
        serve(Config(), stand_by=True)


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


def test_only_a_member_with_an_address_opens_ports_while_it_waits(tmp_path: Path) -> None:
    listen = f"unix:{tmp_path / 'api.sock'}"
    shared = {"store": "etcd://127.0.0.1:1", "api": {"listen": [listen]}, "metrics": {"port": 0}}
    member = Config.model_validate({**shared, "members": {"api": f"unix:{tmp_path / 'm.sock'}"}})
    for config, members, opens in (
        (Config.model_validate(shared), only_member(), False),
        (member, None, False),
        (member, only_member(), True),
    ):
        board = StatusBoard()
        with forwarding(config, Loaded(config, board), board, members):
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


@pytest.mark.parametrize(("settings", "in_etcd", "stands_by", "silent_s", "ends"), [
    ({}, True, True, 3.1, True),
    ({}, True, True, 2.9, False),
    ({}, True, False, 60.0, False),
    ({}, False, True, 60.0, False),
    ({"etcd": {"lease_s": 10}}, True, True, 9.0, False),
    ({"counters": {"interval_s": 4, "window_s": 8}}, True, True, 5.0, False),
    ({"counters": {"interval_s": 60, "window_s": 90}}, True, True, 7.6, True),
])  # fmt: skip
def test_a_controller_ends_when_no_switch_answers_and_another_one_can_take_over(
    settings: dict[str, object], in_etcd: bool, stands_by: bool, silent_s: float, ends: bool
) -> None:
    board, outbox = StatusBoard(), Mock()
    board.membership = Mock() if in_etcd else None
    board.has_standby = lambda: stands_by
    hand_over(Config.model_validate(settings), board, cast(Outbox, outbox), silent_s)
    assert outbox.fail.called == ends
