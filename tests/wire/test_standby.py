"""Two real controller processes: the state of a standby, its answer to SIGHUP, and its settings after a take-over."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import pytest

from mininet_topos.controller_process import ControllerProcess, reserve_port
from signalbox.client import Client
from signalbox.credentials import Credentials
from signalbox.errors import ConcurrentUpdate, SignalboxError, Unauthenticated
from tests.support.waiting import until
from tests.support.wire.api_calls import ring
from tests.support.wire.certificates import Authority
from tests.support.wire.secured import secret_file, token_table

REFUSED = 'event="not reloaded: nothing has changed"'
PARTLY = 'event="reloaded in part: files with problems stay as before"'


class Pair:
    """Active controller and standby, with the same ports, certificate, tokens, inventory and state.

    Each has a log and a configuration file of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = Authority(folder, "ours")
        made = self.authority.sign("controller", also="IP:127.0.0.1")
        self.certificate, self.key = made.certificate, made.private_key
        self.tokens, self.inventory = folder / "tokens.toml", folder / "inventory.toml"
        self.accept("old")
        self.inventory.write_text("")
        self.port, self.metrics_port = reserve_port(), reserve_port()
        self.active, self.standby = (self._controller(folder / name) for name in ("active", "standby"))
        self.standby.openflow_port = self.active.openflow_port
        (folder / "active" / "state").mkdir(0o700)
        (folder / "standby" / "state").symlink_to(folder / "active" / "state")

    def _controller(self, folder: Path) -> ControllerProcess:
        folder.mkdir()
        return ControllerProcess(
            folder,
            settings={
                "api": {
                    "listen": [f"unix:{folder / 'api.sock'}", f"127.0.0.1:{self.port}"],
                    "tokens": str(self.tokens),
                    "certificate": str(self.certificate),
                    "private_key": str(self.key),
                },
                "fabric": {"inventory": str(self.inventory)},
                "metrics": {"port": self.metrics_port},
            },
        )

    @contextmanager
    def running(self) -> Iterator[None]:
        try:
            self.active.start()
            self.until(lambda: self.status("old"), "the active controller")
            assert self.metric("signalbox_standby") == "0"
            self.standby.start("--standby")
            self.until(lambda: '"standing by"' in self.log(), "the standby")
            yield
        finally:
            self.standby.kill()
            self.active.kill()

    def accept(self, token: str) -> None:
        secret_file(self.tokens, token_table(token, token) + token_table("blue", "blue", "tenant"))

    def client(self, token: str) -> Client:
        file = secret_file(self.folder / f"{token}.token", token)
        return Client(f"127.0.0.1:{self.port}", 5, Credentials(self.authority.certificate, token_file=file))

    def status(self, token: str) -> bool:
        with self.client(token) as client:
            return bool(client.get_status().version)

    def metric(self, name: str) -> str:
        with urlopen(f"http://127.0.0.1:{self.metrics_port}/metrics", timeout=60) as answer:
            lines = str(answer.read().decode()).splitlines()
        return next(line.partition(" ")[2] for line in lines if line.startswith(f"{name} "))

    def log(self) -> str:
        return self.standby.log.read_text()

    def hang_up(self, expected: str) -> str:
        """Send SIGHUP to the standby; return its log from then on, once it has the line."""
        assert self.standby.process is not None
        begin = len(self.log())
        os.kill(self.standby.process.pid, signal.SIGHUP)
        self.until(lambda: expected in self.log()[begin:], expected)
        return self.log()[begin:]

    def take_over(self, token: str) -> str:
        """Kill the active controller; return the standby's log from then on, once it answers the owner of the token."""
        begin = len(self.log())
        self.active.kill()
        self.until(lambda: self.status(token), "the standby's API")
        return self.log()[begin:]

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until the condition is true. A request in it that fails counts as false, except ``Unauthenticated``."""

        def holds() -> bool:
            for controller in (self.active, self.standby):
                controller.check()
            try:
                return condition()
            except Unauthenticated:
                raise
            except SignalboxError:
                return False

        until(holds, what)


def test_a_standby_answers_sighup_and_takes_over_with_the_newest_that_was_good_and_all_jobs(tmp_path: Path) -> None:
    """All files are invalid when the standby takes over, so it uses their last valid versions."""
    pair, hosts = Pair(tmp_path), ("10.0.1.1", "10.0.2.1")
    with pair.running():
        with pair.client("blue") as blue:
            token = blue.register_job(ring("job", hosts, lease_s=600)).lease_token
            assert blue.update_job(ring("job", hosts, size=2000, lease_s=600), revision=1).revision == 2
        assert pair.metric("signalbox_standby") == "1"
        pair.accept("new")
        line = next(line for line in pair.hang_up("event=reloaded").splitlines() if "event=reloaded" in line)
        for what in ("tokens=2", "tokens_before=2", 'added="token new"', 'withdrawn="token old"'):
            assert what in line
        pair.tokens.write_text("")
        pair.inventory.write_text("[[host")
        pair.certificate.unlink()
        said = pair.hang_up(REFUSED)
        for problem in (
            f"api.certificate: cannot read {pair.certificate}",
            f"api.tokens: {pair.tokens}: gives no caller a role",
            f"fabric.inventory: {pair.inventory}: not TOML",
        ):
            assert problem in said
        (pair.standby.folder / "signalbox.toml").write_text("no_such_key = 1")
        assert "no_such_key" in pair.hang_up(REFUSED)
        said = pair.take_over("new")
        assert said.index('"taking over"') < said.index(PARTLY) < said.index("event=ready")
        assert (pair.metric("signalbox_standby"), pair.metric("signalbox_reload_refused")) == ("0", "1")
        with pytest.raises(Unauthenticated):
            pair.status("old")
        with pair.client("blue") as blue:
            blue.renew_lease("job", token)
            with pytest.raises(ConcurrentUpdate, match="has revision 2, and this update is made from revision 1"):
                blue.update_job(ring("job", hosts, size=3000, lease_s=600), lease_token=token, revision=1)
            changed = blue.update_job(ring("job", hosts, size=3000, lease_s=600), lease_token=token, revision=2)
            assert changed.revision == 3
