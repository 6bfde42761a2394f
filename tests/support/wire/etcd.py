"""Real etcd with one member in a folder, stores of a controller in it, and faults of their transactions."""

import json
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import grpc
import pytest

from controller.jobs.messages import SavedState
from controller.store.etcd_client import EtcdAccess, EtcdError
from controller.store.etcd_store import EtcdStore
from controller.store.etcd_v3 import etcd_pb2 as pb
from mininet_topos.controller_process import ControllerProcess, reserve_port
from mininet_topos.lab.record import wait_for

LEASE_S = 5


class EtcdProcess:
    """Process of etcd, which keeps its data in ``folder`` when it is killed and started again.

    ``options``: further options of the command."""

    def __init__(self, folder: Path, *options: str, scheme: str = "http") -> None:
        self._folder = folder
        self._options = options
        self._scheme = scheme
        self._peer_port, self._metrics_port = reserve_port(), reserve_port()
        self.endpoint = f"127.0.0.1:{reserve_port()}"
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def access(self) -> EtcdAccess:
        return EtcdAccess((self.endpoint,))

    def configuration(self, folder: Path, prefix: str) -> Path:
        file = folder / "etcd.toml"
        file.write_text(f'store = "etcd://{self.endpoint}"\n[etcd]\nprefix = "{prefix}"\n')
        return file

    def start(self) -> None:
        clients, peers = f"{self._scheme}://{self.endpoint}", f"http://127.0.0.1:{self._peer_port}"
        words = ["etcd", "--name", "one", "--data-dir", str(self._folder / "data")]
        words += ["--listen-client-urls", clients, "--advertise-client-urls", clients]
        words += ["--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers]
        words += ["--listen-metrics-urls", f"http://127.0.0.1:{self._metrics_port}"]
        words += ["--initial-cluster", f"one={peers}", "--heartbeat-interval", "50", "--election-timeout", "500"]
        with (self._folder / "etcd.log").open("ab") as log:
            self.process = subprocess.Popen([*words, *self._options], stdout=log, stderr=log)
        wait_for(self._is_ready, "etcd", 60)

    @property
    def pid(self) -> int:
        assert self.process
        return self.process.pid

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
        assert self.process
        self.process.send_signal(number)

    def kill(self) -> None:
        if self.process:
            self.process.kill()
            self.process.wait()
            self.process = None


@contextmanager
def running_etcd(folder: Path, *options: str, scheme: str = "http") -> Iterator[EtcdProcess]:
    folder.mkdir(exist_ok=True)
    etcd = EtcdProcess(folder, *options, scheme=scheme)
    etcd.start()
    try:
        yield etcd
    finally:
        etcd.kill()


@contextmanager
def opened(access: EtcdAccess, prefix: str) -> Iterator[EtcdStore]:
    store = EtcdStore(access, prefix, LEASE_S)
    try:
        yield store
    finally:
        store.close()


def member(etcd: EtcdProcess, prefix: str, folder: Path) -> ControllerProcess:
    return ControllerProcess.member(folder, etcd.endpoint, {"etcd": {"prefix": prefix, "lease_s": LEASE_S}})


def never_lost() -> None:
    pytest.fail("nobody else has claimed the state")


@contextmanager
def begun(access: EtcdAccess, prefix: str, lost: Callable[[], None] = never_lost) -> Iterator[EtcdStore]:
    with opened(access, prefix) as store:
        store.load()
        store.begin(lost)
        yield store


def saved(access: EtcdAccess, prefix: str) -> SavedState:
    with opened(access, prefix) as store:
        return store.load()


class Interrupted:
    """Replacement of a store's transactions, in which number ``at`` (from 0) gets no answer.

    ``done``: whether etcd nevertheless carries it out."""

    def __init__(self, store: EtcdStore, at: int, done: bool) -> None:
        self._transaction = store._etcd.transaction
        self._left = at
        self._done = done

    def __call__(self, *request: Any, **options: Any) -> pb.TxnResponse:
        self._left -= 1
        if self._left == -1:
            if self._done:
                self._transaction(*request, **options)
            raise EtcdError("no answer", grpc.StatusCode.UNAVAILABLE)
        return self._transaction(*request, **options)

    @property
    def happened(self) -> bool:
        return self._left < 0


class Copied:
    """Replacement of a store's transactions that sends each of them to etcd twice, and with ``late`` once more."""

    def __init__(self, store: EtcdStore) -> None:
        self._transaction = store._etcd.transaction
        self._requests: list[Any] = []

    def __call__(self, *request: Any, **options: Any) -> pb.TxnResponse:
        self._requests.append(request)
        self._transaction(*request, **options)
        return self._transaction(*request, **options)

    def late(self) -> None:
        for request in self._requests:
            self._transaction(*request)
