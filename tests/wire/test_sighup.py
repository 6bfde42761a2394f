"""SIGHUP to a real controller process: what it reloads, what it keeps, and its log."""

import os
import re
import signal
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from controller.api.identities import new_token
from mininet_topos.controller_process import ControllerProcess, reserve_port
from signalbox.client import Client, Unreachable
from signalbox.credentials import Credentials
from signalbox.errors import NotFound, SignalboxError, Unauthenticated, WrongLeaseToken
from signalbox.jobs.reports import IterationTime
from signalbox.jobs.spec import JobSpec
from tests.support.waiting import until
from tests.support.wire.certificates import Authority
from tests.support.wire.secured import secret_file, token_table

HERE = "IP:127.0.0.1"
REFUSED = 'event="not reloaded: nothing has changed"'


class Reloaded:
    """Controller with TLS on all its ports, and tokens.

    Its certificates and tokens are files that tests replace."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.first, self.second = Authority(folder, "first"), Authority(folder, "second")
        self.port, self.metrics_port = reserve_port(), reserve_port()
        self.tokens = folder / "tokens.toml"
        self.certify(self.first)
        self.accept("old")
        files = {"certificate": str(folder / "c.pem"), "private_key": str(folder / "c.key")}
        self.controller = ControllerProcess(
            folder,
            settings={
                "openflow": {**files, "ca_certificates": str(folder / "ca.pem")},
                "api": {
                    "listen": [f"unix:{folder / 'api.sock'}", f"127.0.0.1:{self.port}"],
                    "tokens": str(self.tokens),
                    **files,
                },
                "metrics": {"port": self.metrics_port, **files},
            },
        )

    def certify(self, authority: Authority) -> None:
        made = authority.sign("controller", also=HERE)
        (self.folder / "c.pem").write_bytes(made.certificate.read_bytes())
        secret_file(self.folder / "c.key", made.private_key.read_text())
        (self.folder / "ca.pem").write_bytes(authority.certificate.read_bytes())

    def accept(self, *tokens: str) -> None:
        secret_file(self.tokens, "\n".join(token_table(token, token) for token in tokens))

    def client(self, token: str, authority: Authority) -> Client:
        file = secret_file(self.folder / f"{token}.token", token)
        return Client(f"127.0.0.1:{self.port}", 5, Credentials(authority.certificate, token_file=file))

    def status(self, token: str, authority: Authority) -> Any:
        with self.client(token, authority) as client:
            return client.get_status()

    def hang_up(self, expected: str) -> None:
        assert self.controller.process is not None
        before = self.log().count(expected)
        os.kill(self.controller.process.pid, signal.SIGHUP)
        until(lambda: self.log().count(expected) > before, expected)

    def log(self) -> str:
        return self.controller.log.read_text()

    def metrics(self, authority: Authority) -> str:
        context = ssl.create_default_context(cafile=str(authority.certificate))
        with urlopen(f"https://127.0.0.1:{self.metrics_port}/metrics", timeout=60, context=context) as answer:
            return str(answer.read().decode())

    def metrics_over(self, authority: Authority, most: int = 15) -> bytes:
        context = ssl.create_default_context(cafile=str(authority.certificate))
        with (
            socket.create_connection(("127.0.0.1", self.metrics_port), timeout=60) as sock,
            context.wrap_socket(sock, server_hostname="127.0.0.1") as tls,
        ):
            tls.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
            return b"".join(iter(partial(tls.recv, most), b""))[:most]

    def openflow_over(self, authority: Authority) -> str | None:
        """Return the TLS version of a connection on which the controller shows a certificate of the authority."""
        context = ssl.create_default_context(cafile=str(authority.certificate))
        context.check_hostname = False
        context.load_cert_chain(*authority.sign("leaf"))
        with (
            socket.create_connection(("127.0.0.1", self.controller.openflow_port), timeout=60) as sock,
            context.wrap_socket(sock) as tls,
        ):
            return tls.version()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reloaded]:
    reloaded = Reloaded(tmp_path_factory.mktemp("controller"))
    with reloaded.controller.running():
        yield reloaded


@pytest.fixture
def controller(running: Reloaded) -> Reloaded:
    running.certify(running.first)
    running.accept("old")
    running.tokens.chmod(0o600)
    (running.folder / "signalbox.toml").write_text(running.controller.config())
    running.hang_up("event=reloaded")
    return running


def test_certificates_of_every_port_are_replaced(controller: Reloaded) -> None:
    assert controller.status("old", controller.first)
    assert controller.openflow_over(controller.first)
    assert controller.metrics_over(controller.first) == b"HTTP/1.0 200 OK"
    controller.certify(controller.second)
    controller.hang_up("event=reloaded")
    assert controller.status("old", controller.second)
    assert controller.openflow_over(controller.second)
    assert controller.metrics_over(controller.second) == b"HTTP/1.0 200 OK"
    with pytest.raises(Unreachable):
        controller.status("old", controller.first)
    for over in (controller.openflow_over, controller.metrics_over):
        with pytest.raises(ssl.SSLCertVerificationError):
            over(controller.first)


def test_a_withdrawn_token_ends_its_streams_and_is_refused_on_open_connections(controller: Reloaded) -> None:
    transfers = [{"src": 0, "dst": 1, "bytes_per_iteration": 1_000_000}]
    spec = JobSpec.parse({"job_id": "job", "endpoints": ["10.0.0.1", "10.0.0.2"], "transfers": transfers})
    controller.accept("old", "other")
    controller.hang_up("event=reloaded")
    with controller.client("old", controller.first) as client, controller.client("other", controller.first) as other:
        client.register_job(spec)
        watch, others_watch = client.watch_routes("job"), other.watch_routes("job")
        next(watch)
        next(others_watch)
        controller.accept("new", "other")
        with controller.tokens.open("a") as file:
            file.write('[[tenant]]\nname = "blue"\nmax_jobs = 1\n')
        controller.hang_up("event=reloaded")
        assert 'event="tenants have quotas but no tokens"' in controller.log()
        with pytest.raises(Unauthenticated, match="no longer valid"):
            next(watch)
        with pytest.raises(Unauthenticated, match="the token is not known"):
            client.get_status()
        other.deregister_job("job", force=True)
        with pytest.raises(NotFound):
            next(others_watch)
    assert controller.status("new", controller.first)


def test_a_broken_file_changes_nothing_and_is_named_in_the_log(controller: Reloaded) -> None:
    controller.certify(controller.second)
    controller.accept("new")
    controller.tokens.chmod(0o644)
    controller.hang_up(REFUSED)
    assert "chmod 600" in controller.log()
    assert controller.status("old", controller.first)
    with pytest.raises(SignalboxError):
        controller.status("new", controller.second)
    controller.tokens.chmod(0o600)
    controller.tokens.write_text("")
    controller.hang_up(REFUSED)
    assert f"api.tokens: {controller.tokens}: gives no caller a role" in controller.log()
    assert controller.status("old", controller.first)
    controller.accept("new")
    (controller.folder / "c.key").chmod(0o644)
    controller.hang_up(REFUSED)
    assert f"chmod 600 {controller.folder}/c.key" in controller.log()
    assert controller.status("old", controller.first)
    (controller.folder / "c.key").chmod(0o600)
    (controller.folder / "c.key").write_text("no key")
    controller.hang_up(REFUSED)
    line = controller.log().splitlines()[-1]
    for listener in ("openflow", "api", "metrics"):
        assert f"{listener}.private_key: {controller.folder}/c.key is not a PEM file with a private key" in line
    assert controller.status("old", controller.first)
    (controller.folder / "signalbox.toml").write_text("no_such_key = 1")
    controller.hang_up(REFUSED)
    assert controller.status("old", controller.first)


def test_an_expired_certificate_is_refused_and_the_old_one_goes_on(controller: Reloaded) -> None:
    assert "signalbox_reload_refused 0" in controller.metrics(controller.first)
    expired = controller.first.sign_expired("controller")
    (controller.folder / "c.pem").write_bytes(expired.certificate.read_bytes())
    (controller.folder / "c.key").write_bytes(expired.private_key.read_bytes())
    controller.hang_up(REFUSED)
    assert f"api.certificate: {controller.folder / 'c.pem'} expired on 20" in controller.log()
    assert controller.status("old", controller.first)
    shown = controller.metrics(controller.first)
    assert "signalbox_reload_refused 1" in shown
    ends = re.findall(r'^signalbox_certificate_end_timestamp_seconds\{listener="(\w+)"\} (\S+)', shown, re.MULTILINE)
    assert sorted(listener for listener, _ in ends) == ["api", "metrics", "openflow"]
    assert all(float(end) > time.time() for _, end in ends)


def test_settings_change_and_what_needs_a_restart_is_named(controller: Reloaded) -> None:
    """The log has both values of a setting that changes, and fewer lines with another level."""
    config = controller.controller.config()
    elsewhere = config.replace(f"127.0.0.1:{controller.port}", "127.0.0.1:1")
    for changed, keys in (
        (config + "[planning]\nmax_moves = 9\nmax_paths = 9\n", ["planning.max_paths"]),
        (elsewhere + "[log]\nlevel = 'warning'\n[jobs]\nmax_jobs = 7\n", ["api.listen", "jobs.max_jobs"]),
    ):
        (controller.folder / "signalbox.toml").write_text(changed)
        controller.hang_up("needs a restart")
        lines = controller.log().splitlines()
        named = next(line.partition("keys=")[2] for line in reversed(lines) if "needs a restart" in line)
        assert all(key in named for key in keys)
        assert "log" not in named
    assert any("setting changed" in line and "planning.max_moves" in line and "256 → 9" in line for line in lines)
    before = controller.log().count("event=audit")
    with controller.client("old", controller.first) as client:
        client.replan()
    assert controller.log().count("event=audit") == before


def test_no_secret_is_in_the_log_or_the_metrics_whatever_fails(controller: Reloaded) -> None:
    """The log has no part of a secret either."""
    token, sha256 = new_token()
    controller.accept("old")
    with controller.tokens.open("a") as file:
        file.write(f'\n[[token]]\nname = "ops"\nrole = "operator"\nsha256 = "{sha256}"\n')
    controller.hang_up("event=reloaded")
    request_id = "request-id-that-nobody-may-know"
    spec = JobSpec.parse({"job_id": "secretive", "endpoints": ["10.0.5.1", "10.0.5.2"]})
    with controller.client(token, controller.first) as client:
        lease_token = client.register_job(spec, request_id=request_id).lease_token
        failing: list[Callable[[str], object]] = [
            lambda wrong: client.renew_lease("secretive", wrong),
            lambda wrong: client.report_iterations("secretive", [IterationTime(1, -1.0, 1.0)], wrong),
            lambda wrong: client.report_connections("secretive", "192.0.2.1", [], wrong),
            lambda wrong: client.update_job(spec.model_copy(update={"lease_s": 0.0}), lease_token=wrong),
            lambda wrong: client.deregister_job("nobody", wrong),
            lambda wrong: client.register_job(
                spec.model_copy(update={"max_subflows": 4}), lease_token=wrong, request_id=2 * request_id
            ),
        ]
        metadata = client._metadata
        for value in (f"Basic {token}", f"Bearer {token}A", token):
            client._metadata = (("authorization", value),)
            with pytest.raises(Unauthenticated):
                client.get_status()
        client._metadata = (*metadata, *metadata)
        with pytest.raises(Unauthenticated):
            client.get_status()
        client._metadata = metadata
        for call in failing:
            for wrong in (f"{lease_token}A", lease_token[:-1] + "\u00e9", lease_token):
                with suppress(SignalboxError):
                    call(wrong)

        def denied() -> bool:
            with suppress(WrongLeaseToken):
                failing[0](f"{lease_token}A")
            return "PERMISSION_DENIED" in controller.log()

        until(denied, "a line of a refused call: the log has some of each second")
        client.deregister_job("secretive", lease_token)
    controller.tokens.write_text(f'[[token]]\nname = "a"\nrole = "reader"\nsha256 = "{token}"\n{token} = 1')
    controller.hang_up(REFUSED)
    log = controller.log()
    for seen in ("name=ops", "UNAUTHENTICATED", "PERMISSION_DENIED", "token[0].sha256"):
        assert seen in log
    key = (controller.folder / "state" / "lease.key").read_bytes()
    secrets = (token, sha256, lease_token.partition(".")[2], request_id, key.hex(), "PRIVATE KEY", repr(key)[2:-1])
    written = log + controller.metrics_over(controller.first, 1 << 20).decode()
    assert "signalbox_" in written
    assert not [secret for secret in secrets if secret[:20] in written.replace(f"token[0].{token}", "")]
