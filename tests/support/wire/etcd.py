"""Real etcd with one member, in a folder."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.request import urlopen

from controller.store.etcd_client import EtcdAccess
from mininet_topos.controller_process import reserve_port
from mininet_topos.lab.record import wait_for


class EtcdProcess:
    """Process of etcd, which keeps its data in ``folder`` when it is killed and started again.

    ``options``: further options of the command."""

    def __init__(self, folder: Path, *options: str, scheme: str = "http") -> None:
        self._folder = folder
        self._options = options
        self._scheme = scheme
        self._peer_port, self._metrics_port = reserve_port(), reserve_port()
        self.endpoint = f"127.0.0.1:{reserve_port()}"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def access(self) -> EtcdAccess:
        return EtcdAccess((self.endpoint,))

    def start(self) -> None:
        clients, peers = f"{self._scheme}://{self.endpoint}", f"http://127.0.0.1:{self._peer_port}"
        words = ["etcd", "--name", "one", "--data-dir", str(self._folder / "data")]
        words += ["--listen-client-urls", clients, "--advertise-client-urls", clients]
        words += ["--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers]
        words += ["--listen-metrics-urls", f"http://127.0.0.1:{self._metrics_port}"]
        words += ["--initial-cluster", f"one={peers}", "--heartbeat-interval", "50", "--election-timeout", "500"]
        with (self._folder / "etcd.log").open("ab") as log:
            self._process = subprocess.Popen([*words, *self._options], stdout=log, stderr=log)
        wait_for(self._is_ready, "etcd", 60)

    def _is_ready(self) -> bool:
        with suppress(OSError), urlopen(f"http://127.0.0.1:{self._metrics_port}/health") as reply:
            return bool(json.load(reply)["health"] == "true")
        return False

    def snapshot(self, file: Path) -> None:
        self._control("--endpoints", self.endpoint, "snapshot", "save", str(file))

    def restore(self, snapshot: Path) -> None:
        """Stop etcd, and start it with the contents of a snapshot only."""
        self.kill()
        shutil.rmtree(self._folder / "data")
        peers = f"http://127.0.0.1:{self._peer_port}"
        words = ["--name", "one", "--data-dir", str(self._folder / "data"), "--initial-cluster", f"one={peers}"]
        self._control("snapshot", "restore", str(snapshot), *words, "--initial-advertise-peer-urls", peers)
        self.start()

    def free_space(self) -> None:
        """Free what earlier revisions use, and accept changes again after the database was full."""
        status = json.loads(self._control("--endpoints", self.endpoint, "endpoint", "status", "--write-out", "json"))
        revision = str(status[0]["Status"]["header"]["revision"])
        for command in (["compact", "--physical", revision], ["defrag"], ["alarm", "disarm"]):
            self._control("--endpoints", self.endpoint, *command)

    def put(self, key: str, value: str) -> None:
        self._control("--endpoints", self.endpoint, "put", key, value)

    def delete(self, key: str) -> None:
        self._control("--endpoints", self.endpoint, "del", key)

    def _control(self, *words: str) -> bytes:
        done = subprocess.run(["etcdctl", *words], check=True, env={"ETCDCTL_API": "3"}, capture_output=True)
        return done.stdout

    def signal(self, number: signal.Signals) -> None:
        assert self._process
        self._process.send_signal(number)

    def kill(self) -> None:
        if self._process:
            self._process.kill()
            self._process.wait()
            self._process = None


@contextmanager
def running_etcd(folder: Path, *options: str, scheme: str = "http") -> Iterator[EtcdProcess]:
    folder.mkdir(exist_ok=True)
    etcd = EtcdProcess(folder, *options, scheme=scheme)
    etcd.start()
    try:
        yield etcd
    finally:
        etcd.kill()
