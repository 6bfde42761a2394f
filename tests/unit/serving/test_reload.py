"""Settings that a reload applies, even while a controller waits, and settings that need a restart."""

from concurrent.futures import Future
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from controller.config import Config, with_settings
from controller.core.messages import NewSettings
from controller.jobs.messages import Registration, SavedState
from controller.serving.loaded import Loaded
from controller.serving.reload import Prepare, Reload
from controller.status import StatusBoard
from controller.store.configured import NothingSaved, store_of
from controller.store.records import changes
from controller.store.sqlite_store import SqliteStore
from signalbox.errors import FieldProblem, InvalidInput
from tests.support.by_id import registered
from tests.support.captured_logs import captured_logs
from tests.support.fake_fabric import ring_job

TLS = {"certificate": "c.pem", "private_key": "c.key"}


def refuse(*fields: str) -> Prepare:
    def prepare(_: Config) -> Any:
        raise InvalidInput(tuple(FieldProblem(field, "is wrong") for field in fields))

    return prepare


def keeper(taken: list[str]) -> Prepare:
    return lambda new: lambda: taken.append(new.log.level)


def config(**sections: Any) -> Config:
    return Config.model_validate(sections)


def test_files_and_log_level_change_and_limits_are_raised_and_nothing_else() -> None:
    running = config(api={**TLS, "tokens": "t"}, metrics=TLS, log={"level": "info"})
    wanted = config(
        api={"certificate": "d.pem", "private_key": "d.key", "tokens": "u", "listen": ["127.0.0.1:1"]},
        metrics={**TLS, "port": 1},
        log={"level": "debug", "json_lines": True},
        jobs={"max_jobs": 1},
    )
    found = with_settings(running, wanted)
    assert found.api.certificate == Path("d.pem")
    assert found.api.tokens == Path("u")
    assert found.log.level == "debug"
    assert (found.api.listen, found.metrics.port) == (running.api.listen, running.metrics.port)
    assert (found.log.json_lines, found.jobs) == (False, running.jobs)
    running = config(jobs={"max_jobs": 100, "max_learning_rules": 10, "max_virtual_links": 1000})
    wanted = config(jobs={"max_jobs": 99, "max_learning_rules": 11, "max_virtual_links": 1000})
    found = with_settings(running, wanted)
    assert (found.jobs.max_jobs, found.jobs.max_learning_rules, found.jobs.max_virtual_links) == (100, 11, 1000)


def test_tls_authorities_and_tokens_are_neither_introduced_nor_dropped() -> None:
    plain = config()
    secured = config(api={**TLS, "tokens": "t"}, openflow={**TLS, "ca_certificates": "ca"}, metrics=TLS)
    assert with_settings(plain, secured) == plain
    assert with_settings(secured, plain) == secured
    mutual = config(metrics={**TLS, "ca_certificates": "ca"})
    assert with_settings(config(metrics=TLS), mutual) == config(metrics=TLS)


def test_files_and_user_for_etcd_change_but_neither_its_addresses_nor_keys() -> None:
    files = {"ca_certificates": "ca", **TLS}
    running = config(store="etcd://a:1", etcd={**files, "user": "one", "password_file": "p", "lease_s": 3})
    changed = {"ca_certificates": "da", "certificate": "d.pem", "private_key": "d.key", "user": "two"}
    wanted = config(store="etcd://b:1", etcd={**changed, "password_file": "q", "lease_s": 4, "prefix": "/x/"})
    found = with_settings(running, wanted)
    assert found.etcd == running.etcd.model_copy(
        update={"user": "two", **{name: Path(file) for name, file in changed.items() if name != "user"}}
        | {"password_file": Path("q")}
    )
    assert found.store == running.store
    assert with_settings(running, config(store="etcd://a:1", etcd=files)) == running


def test_who_takes_over_reloads_what_is_not_wrong(tmp_path: Path) -> None:
    """A withdrawn token must not become valid again because another file is broken."""
    file = tmp_path / "signalbox.toml"
    taken: list[str] = []
    refused: list[bool] = []

    for text, level in (("[log]\nlevel = 'debug'\n", "debug"), ("[[log", "info")):
        file.write_text(text)
        with captured_logs() as lines:
            reload = Reload(file, config(), [refuse("fabric.inventory"), keeper(taken)], refused.append)
            reload.once(partly=True)
        assert taken.pop() == level
        assert "fabric.inventory: is wrong" in str(lines)
    assert refused == [True, True]


def test_when_one_owner_refuses_no_other_takes_anything_over(tmp_path: Path) -> None:
    file = tmp_path / "signalbox.toml"
    file.write_text("[log]\nlevel = 'debug'\n")
    taken: list[str] = []
    refused: list[bool] = []

    with captured_logs() as lines:
        Reload(file, config(), [keeper(taken), refuse("api.private_key")], refused.append).once()
        assert taken == []
        Reload(file, config(), [keeper(taken)], refused.append).once()
    assert taken == ["debug"]
    assert refused == [True, False]
    assert [line["event"] for line in lines] == ["not reloaded: nothing has changed", "setting changed", "reloaded"]
    assert lines[0]["problems"] == ["api.private_key: is wrong"]


def test_the_log_has_what_is_wrong_once_whoever_finds_it_and_what_is_different() -> None:
    with captured_logs() as lines:
        Reload(None, config(), [refuse("api.private_key"), refuse("metrics.private_key", "api.private_key")]).once()
    assert lines[0]["problems"] == ["api.private_key: is wrong", "metrics.private_key: is wrong"]
    with captured_logs() as lines:
        Reload(None, config(), [lambda _: lambda: {"tokens": 1}, lambda _: lambda: None]).once()
    assert (lines[0]["event"], lines[0]["tokens"]) == ("reloaded", 1)


def test_settings_change_and_the_log_has_each_with_both_values(tmp_path: Path) -> None:
    file = tmp_path / "signalbox.toml"
    file.write_text("[planning]\ninterval_s = 5\nmax_moves = 9\nmax_paths = 3\n[jobs]\nmax_jobs = 3000\n")
    taken: list[Config] = []
    reload = Reload(file, config(), [lambda new: lambda: taken.append(new)])
    with captured_logs() as lines:
        reload.once()
        reload.once()
    assert [(line["key"], line["change"]) for line in lines if line["event"] == "setting changed"] == [
        ("jobs.max_jobs", "2000 → 3000"),
        ("planning.interval_s", "10.0 → 5.0"),
        ("planning.max_moves", "256 → 9"),
    ]
    assert [line["keys"] for line in lines if "keys" in line] == [["planning.max_paths"]] * 2
    assert (taken[0].planning.interval_s, taken[0].planning.max_moves, taken[0].planning.max_paths) == (5, 9, 64)
    assert taken[0] == taken[1]


def test_what_needs_a_restart_is_named_each_time(tmp_path: Path) -> None:
    file = tmp_path / "signalbox.toml"
    file.write_text("[jobs]\nmax_jobs = 7\n[api]\nlisten = ['127.0.0.1:1']\n[metrics]\nport = 9464\n")
    reload = Reload(file, config(), [])
    for _ in range(2):
        with captured_logs() as lines:
            reload.once()
        assert lines[-1]["keys"] == ["api.listen", "jobs.max_jobs"]


pytestmark = pytest.mark.usefixtures("logging_as_before")

HOST = '[[host]]\nip = "10.0.0.1"\nswitch = "leaf1"\nport = "leaf1-eth1"\n'


def reload(loaded: Loaded, config: Config) -> None:
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


def test_who_waits_for_etcd_reloads_although_the_saved_jobs_cannot_be_read() -> None:
    config = Config.model_validate({"store": "etcd://127.0.0.1:1"})
    loaded = Loaded(config, StatusBoard())
    with closing(store_of(config)) as store, loaded.waiting(store), captured_logs() as logged:
        reload(loaded, config)
    (line,) = logged
    assert line["event"] == "the saved jobs were not checked against the new settings"
    assert line["why"].startswith("store: etcd at 127.0.0.1:1, below /signalbox/: ")


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
