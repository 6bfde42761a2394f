"""A controller that waits for the end of another one, and can be stopped while it waits."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest

from controller.config import Config
from controller.serving.serve import serve
from controller.serving.standby import wait_for_turn
from controller.store.directory_claim import MARK
from controller.store.sqlite_store import SqliteStore
from mininet_topos.lab.record import wait_for
from signalbox.errors import InvalidInput


def test_a_free_directory_is_taken_at_once(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    assert wait_for_turn(store)
    assert not SqliteStore(tmp_path).claim()
    store.close()


def test_without_a_directory_there_is_nothing_to_wait_for() -> None:
    with pytest.raises(InvalidInput, match="state_dir: is missing; --standby needs it"):
        serve(Config(), stand_by=True)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_wait_and_changes_nothing(tmp_path: Path, number: signal.Signals) -> None:
    active, handler = SqliteStore(tmp_path), signal.getsignal(number)
    assert active.claim()
    timer = threading.Timer(0.1, os.kill, (os.getpid(), number))
    timer.start()
    assert not wait_for_turn(SqliteStore(tmp_path))
    timer.join()
    assert active.owner() == str(os.getpid())
    assert signal.getsignal(number) is handler
    active.close()


def test_the_end_of_the_other_is_noticed_at_once(tmp_path: Path) -> None:
    active, waiting = SqliteStore(tmp_path), SqliteStore(tmp_path)
    assert active.claim()
    timer = threading.Timer(0.1, active.close)
    timer.start()
    assert wait_for_turn(waiting)
    timer.join()
    waiting.close()


def test_the_active_sees_who_waits_and_only_while_it_does(tmp_path: Path) -> None:
    active, waiting = SqliteStore(tmp_path), SqliteStore(tmp_path)
    assert not SqliteStore(tmp_path / "none").has_standby()
    assert active.claim()
    assert not active.has_standby()
    seen = threading.Event()

    def watch() -> None:
        wait_for(lambda: active.has_standby() and active.has_standby(), "the standby", 60, 0.01)
        seen.set()
        active.close()

    thread = threading.Thread(target=watch)
    thread.start()
    assert wait_for_turn(waiting)
    thread.join()
    assert seen.is_set()
    assert not active.has_standby()
    waiting.close()


def test_a_directory_that_takes_no_mark_is_waited_for_all_the_same(tmp_path: Path) -> None:
    active, waiting = SqliteStore(tmp_path), SqliteStore(tmp_path)
    (tmp_path / MARK).mkdir()
    assert active.claim()
    timer = threading.Timer(0.1, active.close)
    timer.start()
    assert wait_for_turn(waiting)
    timer.join()
    waiting.close()
