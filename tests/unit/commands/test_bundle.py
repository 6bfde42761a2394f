"""The support bundle contains the data that a ticket needs, and none of the secrets of the server."""

import hashlib
import io
import json
import stat
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from controller.api.identities import new_token
from controller.api.lease_tokens import LeaseTokens
from controller.commands.bundle import REMOVED, without_secrets
from controller.config import MetricsConfig
from controller.observability.metrics import MetricsServer
from controller.status import StatusBoard
from controller.store import lease_secret
from signalbox import client_connection
from signalbox.client import Client
from signalbox.credentials import Credentials
from tests.support.command_line import Signalbox, api, signalbox
from tests.support.wire.api_calls import ring
from tests.support.wire.certificates import Authority
from tests.support.wire.control_stand_in import Running, running_api
from tests.support.wire.secured import secret_file

__all__ = ("api", "signalbox")

PLAIN = "token-of-an-operator-that-was-made-by-hand"


@dataclass(frozen=True)
class Site:
    """Controller with TLS, tokens and a state directory, and a client of it.

    ``secrets``: all secrets of the site."""

    options: tuple[object, ...]
    secrets: tuple[str, ...]
    files: Path


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, api: Running) -> Iterator[Site]:
    """Return a controller's site; ``api`` only silences the audit log of the server, which is in this process."""
    assert api
    made, sha256 = new_token()
    digests = {"made": sha256, "plain": hashlib.sha256(PLAIN.encode()).hexdigest()}
    table = '[[token]]\nname = "{}"\nrole = "operator"\nsha256 = "{}"\n'
    tokens = secret_file(tmp_path / "tokens.toml", "\n".join(table.format(*item) for item in digests.items()))
    ours = Authority(tmp_path, "ours")
    server = ours.sign("controller", also="IP:127.0.0.1")
    state = tmp_path / "state_dir"
    state.mkdir(0o700)
    leases = LeaseTokens(lease_secret.secret_in(state, in_use=False))
    metrics = MetricsServer(MetricsConfig(port=0), StatusBoard())
    port = metrics.start()
    given = secret_file(tmp_path / "token", PLAIN)
    config = tmp_path / "signalbox.toml"
    config.write_text(
        f'state_dir = "{state}"\n[api]\ntokens = "{tokens}"\ncertificate = "{server.certificate}"\n'
        f'private_key = "{server.private_key}"\n[metrics]\nport = {port}\n'
    )
    monkeypatch.setattr("tests.support.wire.control_stand_in.LeaseTokens", lambda: leases)
    with running_api(certificate=server.certificate, private_key=server.private_key, tokens=tokens) as running:
        address, ca = running.addresses[0], ours.certificate
        with Client(address, credentials=Credentials(ca, token_file=given)) as client:
            lease_token = client.register_job(ring(), request_id="request-id-of-the-job").lease_token
        log = tmp_path / "log"
        log.write_text(
            f"event=started\ncalled with authorization: Bearer {PLAIN}\nlease_token={lease_token} also {made}\n"
            f"request_id=request-id-of-the-job\n{server.private_key.read_text()}\nevent=stopped\n"
        )
        key_lines = [line for line in server.private_key.read_text().splitlines() if "KEY" not in line]
        secrets = (made, PLAIN, lease_token, "request-id-of-the-job", *key_lines, *digests.values())
        options = ("--address", address, "--tls-ca", ca, "--token-file", given, "--config", config, "--log", log)
        yield Site(options, secrets, tmp_path)
    metrics.stop()


def members(packed: bytes) -> dict[str, str]:
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        found = {entry.name: archive.extractfile(entry) for entry in archive.getmembers()}
        return {name.removeprefix("signalbox/"): file.read().decode() for name, file in found.items() if file}


def test_it_has_everything_but_the_secrets(site: Site, signalbox: Signalbox) -> None:
    file = site.files / "ticket.tar.gz"
    result = signalbox("support-bundle", file, *site.options)
    assert (result.status, result.out, result.err) == (0, "", "")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    found = members(file.read_bytes())
    documents = ("versions", "status", "fabric", "plan", "jobs", "routes", "events", "configuration")
    assert set(found) == {*(f"{name}.json" for name in documents), "metrics.txt", "log.txt"}
    assert json.loads(found["jobs.json"])[0]["spec"]["job_id"] == "ring"
    assert json.loads(found["status.json"])["alarms"][0]["kind"] == "foreign_rules"
    assert json.loads(found["configuration.json"])["planning"]["interval_s"] == 10.0
    versions = json.loads(found["versions.json"])
    assert versions["packages"]["grpcio"]
    assert {"signalbox-client", "signalbox-controller"} <= versions["signalbox"].keys()
    assert "signalbox_" in found["metrics.txt"]
    assert found["log.txt"].splitlines()[0] == "event=started"
    assert found["log.txt"].splitlines()[-1] == "event=stopped"
    assert [(name, secret) for name, text in found.items() for secret in site.secrets if secret in text] == []
    assert found["log.txt"].count(REMOVED) == 5


def test_what_cannot_be_had_is_named_and_the_rest_is_there_with_the_end_of_the_log(
    signalbox: Signalbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The controller does not run; calls, which last a second, are not tried again."""
    monkeypatch.setattr(client_connection, "_RETRY", {"methodConfig": []})
    monkeypatch.setattr("controller.commands.bundle.LOG_BYTES", 12)
    (tmp_path / "log").write_text("event=started\nevent=stopped\n")
    away = ("--address", f"unix:{tmp_path}/none.sock", "--metrics", "http://127.0.0.1:1/metrics")
    absent = tmp_path / "none" / "ticket.tar.gz"
    refused = signalbox("support-bundle", absent, *away)
    assert (refused.status, refused.err.splitlines()[-1]) == (1, f"error: {absent}: No such file or directory")
    file = tmp_path / "ticket.tar.gz"
    result = signalbox("support-bundle", file, *away, "--log", tmp_path / "log")
    found = members(file.read_bytes())
    assert found["log.txt"] == "ent=stopped\n"
    assert (result.status, set(found)) == (3, {"versions.json", "log.txt", "missing.txt"})
    assert result.err.startswith("error: status.json: no answer from the controller at unix:")
    missing = [line.split(":")[0] for line in found["missing.txt"].splitlines()]
    names = ("status", "fabric", "plan", "jobs", "routes", "events")
    assert missing == [*(f"{name}.json" for name in names), "metrics.txt"]


@pytest.mark.parametrize(("text", "left"), [
    ('{"authorization": "Bearer abc"}', f'{{"authorization": "Bearer {REMOVED}"}}'),
    ("-----BEGIN EC PRIVATE KEY-----\nMHc\nAQ\n", f"-----BEGIN EC PRIVATE KEY-----{REMOVED}"),
    ('{"lease_token": "u.m", "job_id": "ring"}', f'{{"lease_token": "{REMOVED}", "job_id": "ring"}}'),
    ("tokens = /etc/signalbox/tokens.toml", "tokens = /etc/signalbox/tokens.toml"),
])  # fmt: skip
def test_what_is_taken_for_a_secret(text: str, left: str) -> None:
    assert without_secrets(text) == left
