"""A controller that waits for the end of another one, and can be stopped while it waits."""

import os
import signal
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

import pytest

from controller.config import Config
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
    with pytest.raises(InvalidInput, match="state_dir: is missing; --standby needs it"):
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


def test_a_directory_that_takes_no_mark_is_waited_for_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
