"""The files that deploy/members/make-files.sh makes: three members of etcd and three controllers run with them."""

import os
import random
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.request import urlopen

import pytest

from signalbox.client import Client
from signalbox.credentials import Credentials
from signalbox.errors import SignalboxError
from signalbox.v1 import signalbox_pb2 as pb
from tests.support.compose_files import services
from tests.support.doc_pages import ROOT
from tests.support.waiting import until
from tests.support.wire.api_calls import ring

SCRIPT = ROOT / "deploy/members/make-files.sh"
COMPOSE = services("docker-compose.members.yml")


@pytest.fixture
def addresses() -> dict[str, str]:
    """Return an address of loopback for each member, at which nothing listens."""
    first = f"127.{random.randrange(1, 255)}.{random.randrange(1, 255)}"
    return {name: f"{first}.{n}" for n, name in enumerate("abc", 11)}


class Files:
    """Files that ``make-files.sh`` writes to a folder, and programs that use this folder in place of /etc."""

    def __init__(self, folder: Path, addresses: Mapping[str, str]) -> None:
        self.folder = folder
        self.addresses = addresses
        self.make()
        for name in addresses:
            self._move(name, f"{name}/member.env")
            self._move(name, f"{name}/signalbox/signalbox.toml")

    def make(self) -> None:
        words = [f"{name}={address}" for name, address in self.addresses.items()]
        subprocess.run([SCRIPT, self.folder, *words], check=True)

    def _move(self, name: str, file: str) -> None:
        path = self.folder / file
        text = path.read_text()
        for there, here in (
            ("/etc/etcd/", "etcd/"),
            ("/etc/signalbox/", "signalbox/"),
            ("/var/lib/etcd/", ""),
            ("/run/signalbox/", ""),
        ):
            text = text.replace(there, f"{self.folder / name}/{here}")
        path.write_text(text)

    @contextmanager
    def running(self, service: str) -> Iterator[subprocess.Popen[bytes]]:
        """Run a service of the compose file, and end it when the context ends."""
        here = self.folder / service[-1]
        lines = (here / "member.env").read_text().splitlines()
        environment = os.environ | dict(line.split("=", 1) for line in lines)
        words = [
            re.sub("^/etc/", f"{here}/", re.sub("^signalbox$", "-msignalbox", word))
            for word in COMPOSE[service]["command"]
        ]
        python = [sys.executable] if words[0].startswith("-m") else []
        with (here / f"{service}.log").open("ab") as log:
            process = subprocess.Popen([*python, *words], env=environment, stdout=log, stderr=log)
        try:
            yield process
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()

    def is_healthy(self, name: str) -> bool:
        try:
            with urlopen(f"http://{self.addresses[name]}:2381/health", timeout=1) as answer:
                return b'"true"' in answer.read()
        except OSError:
            return False

    def client(self) -> Client:
        known = Credentials(
            tls_ca=str(self.folder / "authorities/ca.pem"), token_file=str(self.folder / "operator.token")
        )
        return Client(",".join(f"{address}:50051" for address in self.addresses.values()), credentials=known)


def roles(client: Client) -> dict[str, int]:
    try:
        return {member.name: member.role for member in client.list_members()}
    except SignalboxError:
        return {}


def test_three_members_run_with_them_and_replace_a_leader(tmp_path: Path, addresses: Mapping[str, str]) -> None:
    files = Files(tmp_path, addresses)
    with ExitStack() as ends:
        for name in addresses:
            ends.enter_context(files.running(f"etcd-{name}"))
        until(lambda: all(map(files.is_healthy, addresses)))
        controllers = {name: ends.enter_context(files.running(f"controller-{name}")) for name in addresses}
        client = ends.enter_context(files.client())
        until(lambda: sorted(roles(client).values()) == [1, 2, 2])
        client.register_job(ring("kept"))
        (leader,) = [name for name, role in roles(client).items() if role == pb.MEMBER_ROLE_LEADER]
        controllers[leader].kill()
        until(lambda: sorted(roles(client).values()) == [1, 2, 3])
        assert [job.spec.job_id for job in client.list_jobs()] == ["kept"]


def test_a_second_run_renews_certificates_and_keeps_authorities_tokens_and_configurations(
    tmp_path: Path, addresses: Mapping[str, str]
) -> None:
    files = Files(tmp_path, addresses)
    before = {path: path.read_bytes() for path in sorted(tmp_path.rglob("*")) if path.is_file()}
    files.make()
    changed = {path.relative_to(tmp_path) for path, data in before.items() if path.read_bytes() != data}
    renewed = {
        Path(name, file)
        for name in addresses
        for stem in ("etcd/etcd", "signalbox/etcd", "signalbox/member", "signalbox/controller")
        for file in (f"{stem}.pem", f"{stem}.key")
    }
    assert changed - renewed == {Path(name, "member.env") for name in addresses}  # moved by the first run
    assert renewed <= changed
    assert {oct(path.stat().st_mode & 0o777) for path in before} == {"0o600"}


def test_a_member_without_an_address_is_refused(tmp_path: Path) -> None:
    done = subprocess.run([SCRIPT, tmp_path / "members", "a"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (2, "make-files.sh: 'a' is not NAME=ADDRESS\n")
    assert not (tmp_path / "members").exists()
