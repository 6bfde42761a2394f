"""Settings that are read and checked again while a controller waits, and no longer when it runs."""

from concurrent.futures import Future
from pathlib import Path

import pytest

from controller.config import Config
from controller.core.messages import NewSettings
from controller.jobs.messages import Registration, SavedState
from controller.serving.loaded import Loaded
from controller.status import StatusBoard
from controller.store.configured import NothingSaved
from controller.store.records import changes
from controller.store.sqlite_store import SqliteStore
from signalbox.errors import InvalidInput
from tests.support.by_id import registered
from tests.support.fake_fabric import ring_job

pytestmark = pytest.mark.usefixtures("logging_as_before")

HOST = '[[host]]\nip = "10.0.0.1"\nswitch = "leaf1"\nport = "leaf1-eth1"\n'


def reload(loaded: Loaded, config: Config) -> None:
    """Reload the configuration; raise ``InvalidInput`` when it is wrong."""
    for take in [prepare(config) for prepare in loaded.prepare]:
        take()


def test_who_waits_reads_the_inventory_again_and_keeps_the_last_that_was_good(tmp_path: Path) -> None:
    inventory = tmp_path / "inventory.toml"
    inventory.write_text("")
    config = Config.model_validate({"fabric": {"inventory": inventory}})
    loaded = Loaded(config, StatusBoard())
    with loaded.waiting(NothingSaved()):
        inventory.write_text(HOST)
        reload(loaded, config)
        inventory.write_text("[[host")
        with pytest.raises(InvalidInput, match=r"fabric\.inventory: .*inventory\.toml: not TOML"):
            reload(loaded, config)
    assert [host.ip for host in loaded.declared.hosts] == ["10.0.0.1"]
    reload(loaded, config)


def test_who_waits_says_that_it_could_not_take_what_is_saved_by_now(tmp_path: Path) -> None:
    active = SqliteStore(tmp_path)
    active.load()
    active.begin()
    config = Config.model_validate({"state_dir": tmp_path, "jobs": {"max_virtual_links": 1}})
    loaded, waiting = Loaded(config, StatusBoard()), SqliteStore(tmp_path)
    with loaded.waiting(waiting):
        reload(loaded, config)
        done: Future[int | OSError] = Future()
        jobs = registered(Registration(ring_job("a", ["10.0.0.1", "10.0.0.2"])))
        active.commit(changes(SavedState(), SavedState(jobs)), done.set_result)
        assert isinstance(done.result(60), int)
        with pytest.raises(InvalidInput, match=r"jobs\.max_virtual_links 1"):
            reload(loaded, config)
    active.close()


def test_settings_that_change_reach_the_control_loop_whenever_it_begins() -> None:
    """Settings that a standby has read before it takes over reach the loop too."""
    loaded = Loaded(Config(), StatusBoard())
    first, second = (Config.model_validate({"planning": {"max_moves": moves}}) for moves in (7, 8))
    reload(loaded, first)
    told: list[NewSettings] = []
    assert loaded.controlling(told.append) == first
    assert told == []
    reload(loaded, second)
    assert told == [NewSettings(second)]
