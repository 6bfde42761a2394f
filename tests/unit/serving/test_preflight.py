"""Errors that ``signalbox serve --check`` finds beyond the form of the file, and the division of file descriptors."""

from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from controller.config import ApiConfig, Config, JobsConfig, OpenFlowConfig
from controller.jobs.messages import Registration, SavedState
from controller.serving import preflight
from controller.serving.descriptors import LEAST, OWN, within
from controller.store import lease_secret
from controller.store.records import changes
from controller.store.sqlite_store import SqliteStore
from signalbox.errors import InvalidInput
from tests.support.by_id import registered
from tests.support.fake_fabric import ring_job


def problems(**sections: Any) -> dict[str, str]:
    with pytest.raises(InvalidInput) as error:
        preflight.check(Config.model_validate(sections))
    return {problem.path: problem.message for problem in error.value.problems}


def test_the_defaults_and_directories_that_can_be_made_are_fine_and_not_made(tmp_path: Path) -> None:
    preflight.check(Config())
    listen = [f"unix:{tmp_path}/run/api.sock"]
    preflight.check(Config.model_validate({"state_dir": tmp_path / "a" / "b", "api": {"listen": listen}}))
    assert list(tmp_path.iterdir()) == []


def test_everything_is_reported_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    found = problems(
        state_dir=tmp_path / "file",
        openflow={"host": "no host"},
        api={"listen": ["127.0.0.1:0", "no.host.invalid:1", f"unix:{tmp_path}/file/api.sock"]},
        fabric={"inventory": tmp_path / "none.toml"},
    )
    assert found == {
        "state_dir": f"cannot write in {tmp_path}/file: Not a directory",
        "openflow.host": "'no host' cannot be resolved to an address",
        "api.listen[1]": "'no.host.invalid' cannot be resolved to an address",
        "api.listen[2]": f"cannot write in {tmp_path}/file: Not a directory",
        f"fabric.inventory: {tmp_path}/none.toml": "No such file or directory",
    }
    why = "this file system stores no files (No such file or directory)"
    assert problems(state_dir=Path("/proc/no/state")) == {"state_dir": f"cannot write in /proc/no/state: {why}"}


def doubts(**api: Any) -> list[str]:
    return [*preflight.doubts(Config.model_validate({"api": api}))]


def test_a_state_directory_beside_etcd_has_no_effect(tmp_path: Path) -> None:
    config = {"state_dir": tmp_path, "store": "etcd://127.0.0.1:2379"}
    assert "state_dir: has no effect, because the state is saved in etcd://127.0.0.1:2379" in preflight.doubts(
        Config.model_validate(config)
    )


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    (tmp_path / "tokens.toml").touch(0o600)
    return tmp_path / "tokens.toml"


def test_a_quota_for_nobody_is_told_and_allowed(tokens: Path) -> None:
    quota = '[[tenant]]\nname = "bleu"\nmax_jobs = 1\n'
    tokens.write_text(f'{quota}[[token]]\nname = "scheduler"\nsha256 = "{"0" * 64}"\nrole = "operator"\n')
    preflight.check(Config.model_validate({"api": {"tokens": tokens}}))
    (said,) = doubts(tokens=tokens)
    assert said == f"{tokens}: no token or certificate has tenant 'bleu', so its quota has no effect"


def test_tenants_that_may_name_any_host_are_told(tokens: Path) -> None:
    names = ("red", "blue", "green")
    certificates = [f'[[certificate]]\nname = "{name}"\nrole = "tenant"\ntenant = "{name}"\n' for name in names]
    blue = '[[tenant]]\nname = "blue"\nhost_prefixes = ["10.0.1.0/24"]\n'
    tokens.write_text("".join(certificates) + blue + '[[tenant]]\nname = "red"\nmax_jobs = 1\n')
    said = [
        f"{tokens}: tenant '{name}' has no host_prefixes, so its jobs may name any host" for name in ("green", "red")
    ]
    assert doubts(tokens=tokens, certificate="c.pem", private_key="c.key", ca_certificates="ca.pem") == said
    said.append(f"{tokens}: [[certificate]] entries have no effect without api.ca_certificates")
    assert doubts(tokens=tokens) == said


def test_tokens_that_give_a_role_to_no_one_are_refused(tokens: Path) -> None:
    found = problems(api={"tokens": tokens})
    assert found[f"api.tokens: {tokens}"].startswith("gives no caller a role")


def test_what_opens_the_api_is_checked_with_its_files(tokens: Path, tmp_path: Path) -> None:
    tokens.chmod(0o644)
    (tmp_path / "empty").touch()
    files = {"certificate": tmp_path / "empty", "private_key": tmp_path / "none"}
    found = problems(api={"listen": ["0.0.0.0:0"], "tokens": tokens}, metrics=files)
    assert set(found) == {"api.listen[0]", f"api.tokens: {tokens}", "metrics.certificate", "metrics.private_key"}
    assert "chmod 600" in found[f"api.tokens: {tokens}"]
    assert "api.insecure = true" in found["api.listen[0]"]


def test_a_state_that_others_can_read_or_replace_is_a_problem(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir(0o755)
    preflight.check(Config(state_dir=state))
    for name in ("state.db", "lease.key"):
        (state / name).touch(0o600)
    preflight.check(Config(state_dir=state))
    (state / "state.db").chmod(0o644)
    (state / "lease.key").chmod(0o660)
    state.chmod(0o775)
    where = "other users"
    assert problems(state_dir=state) == {
        "state_dir": f"{where} can write in {state} (mode 0775): chmod go-w {state}; or name a directory in it, which "
        "the controller creates",
        f"state_dir: {state}/state.db": f"{where} have access to it (mode 0644): chmod 600 {state}/state.db",
        f"state_dir: {state}/lease.key": f"{where} have access to it (mode 0660): chmod 600 {state}/lease.key",
    }


def test_a_socket_in_a_directory_of_everybody_is_doubted_and_allowed(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o1777)
    listen = [f"unix:{tmp_path}/open/api.sock", f"unix:{tmp_path}/none/api.sock", "127.0.0.1:0"]
    preflight.check(Config.model_validate({"api": {"listen": listen}}))
    (doubt,) = doubts(listen=listen)
    assert doubt.startswith(f"{listen[0]}: other users could replace the socket and receive tokens: ")
    assert doubt.endswith(f"(mode 1777): chmod go-w {tmp_path}/open")


def test_jobs_that_are_saved_and_could_not_be_accepted_are_found_while_another_controller_runs(tmp_path: Path) -> None:
    config = Config(state_dir=tmp_path / "state")
    store = SqliteStore(tmp_path / "state")
    store.load()
    store.begin()
    done: Future[int | OSError] = Future()
    jobs = registered(Registration(ring_job("a", ["10.0.0.1", "10.0.0.2"])))
    store.commit(changes(SavedState(), SavedState(jobs)), done.set_result)
    assert isinstance(done.result(60), int)
    with pytest.raises(InvalidInput, match=r"lease\.key is missing, and without it"):
        preflight.check_saved(config)
    key = tmp_path / "state" / "lease.key"
    assert not key.exists()
    lease_secret.secret_in(tmp_path / "state", in_use=False)
    preflight.check_saved(config)
    right = key.read_bytes()
    key.write_bytes(bytes([right[0] ^ 1]) + right[1:])
    with pytest.raises(InvalidInput, match=r"lease\.key is damaged"):
        preflight.check_saved(config)
    key.write_bytes(right)
    with pytest.raises(InvalidInput, match=r"jobs\.max_virtual_links 1"):
        preflight.check_saved(config.model_copy(update={"jobs": JobsConfig(max_virtual_links=1)}))
    store.close()
    preflight.check_saved(Config(state_dir=tmp_path / "none"))
    (tmp_path / "state" / "state.db").write_bytes(b"x" * 5000)
    with pytest.raises(InvalidInput, match="state_dir"):
        preflight.check_saved(config)


@pytest.mark.parametrize(
    ("file", "problem"), [("/dev/zero", "is not a regular file"), ("large", "has more than 4 MiB")]
)
def test_a_file_that_does_not_end_or_is_too_large_is_no_certificate(tmp_path: Path, file: str, problem: str) -> None:
    (tmp_path / "large").write_bytes(b"\0" * (5 << 20))
    names = ("certificate", "private_key", "ca_certificates")
    for field in names:
        files = {name: tmp_path / name for name in names} | {field: tmp_path / file}
        assert problems(api=files)[f"api.{field}"] == f"cannot read {tmp_path / file}: {problem}"


@pytest.mark.parametrize(("listen", "ports", "found"), [
    (["127.0.0.1:1", "127.0.0.1:1"], (2, 3), {"api.listen[1]": "api.listen[0]"}),
    (["127.0.0.1:1", "localhost:1"], (2, 3), {"api.listen[1]": "api.listen[0]"}),
    (["127.0.0.1:1", "[::]:1"], (2, 3), {"api.listen[1]": "api.listen[0]"}),
    (["127.0.0.1:2"], (2, 2), {"api.listen[0]": "openflow.port", "metrics.port": "openflow.port"}),
])  # fmt: skip
def test_listeners_with_one_port_are_refused(listen: list[str], ports: tuple[int, int], found: dict[str, str]) -> None:
    said = problems(api={"listen": listen, "insecure": True}, openflow={"port": ports[0]}, metrics={"port": ports[1]})
    assert said.keys() == found.keys()
    assert all(said[field].endswith(f"of this address is also the port of {first}") for field, first in found.items())


def test_ports_of_other_addresses_and_free_ones_may_be_equal() -> None:
    listen = ["127.0.0.1:0", "127.0.0.1:0", "127.0.0.2:7001"]
    metrics = {"host": "127.0.0.3", "port": 7001}
    preflight.check(Config.model_validate({"api": {"listen": listen}, "openflow": {"port": 7001}, "metrics": metrics}))


def test_a_socket_in_place_of_another_file_and_one_socket_twice_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    found = problems(api={"listen": [f"unix:{tmp_path}", f"unix:{tmp_path}/file"]})
    said = "exists and is not a socket; name a free path"
    assert found == {"api.listen[0]": f"{tmp_path} {said}", "api.listen[1]": f"{tmp_path}/file {said}"}
    (tmp_path / "d").mkdir()
    (tmp_path / "link").symlink_to(tmp_path)
    for other in (f"{tmp_path}/./api", f"{tmp_path}/d/../api", f"{tmp_path}/link/api"):
        found = problems(api={"listen": [f"unix:{tmp_path}/api", f"unix:{other}"]})
        assert found == {"api.listen[1]": "is the address of api.listen[0] too"}


def test_what_haproxy_cannot_do_is_a_problem_and_its_socket_is_none_of_the_others(tmp_path: Path) -> None:
    sock = tmp_path / "api.sock"
    api = {"listen": ["127.0.0.1:0", f"unix:{sock}"], "proxy_socket": sock}
    found = problems(api=api)
    assert found["api.listen[0]"].startswith("127.0.0.1:0: HAProxy needs a port")
    assert found["api.proxy_socket"] == "is the address of api.listen[1] too"
    sock.write_text("")
    found = problems(api={"listen": ["127.0.0.1:1"], "proxy_socket": sock})
    assert found["api.proxy_socket"] == f"{sock} exists and is not a socket; name a free path"


@pytest.mark.parametrize("limit", [LEAST, 1024, 4096, 20_000, 1_000_000])
def test_all_shares_together_fit_and_nobody_is_left_without(limit: int) -> None:
    config = within(Config(), limit)
    api, switches = config.api, config.openflow.max_connections
    left = limit - OWN - config.metrics.max_connections
    assert min(left // 2, Config().openflow.max_connections) <= switches
    assert switches + min(api.max_connections, left // 2) <= left


def test_configured_limits_are_kept_where_descriptors_are_plenty() -> None:
    config = Config(api=ApiConfig(max_connections=100), openflow=OpenFlowConfig(max_connections=50))
    assert within(config, 20_000) == config


def test_too_few_descriptors_are_refused_with_the_remedy() -> None:
    """Connections that HAProxy may open have to fit."""
    with pytest.raises(InvalidInput, match=r"may open 100 files; at least 256 are needed \(ulimit -n\)"):
        within(Config(), 100)
    api = ApiConfig(max_connections=400, proxy_socket=Path("/p"))
    with pytest.raises(InvalidInput, match=r"at most 56 fit into 256 open files: lower it, or raise the limit"):
        within(Config(api=api), LEAST)
    assert within(Config(api=api), 4096).api.max_connections == 400
