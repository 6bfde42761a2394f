"""Full or unwritable state directories, and processes with few descriptors or none.

Every acknowledged change is there after a SIGKILL. Clients of one port leave descriptors for other ports."""

import re
import socket
import subprocess
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from itertools import count
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from benchmarks.api_abuse import http2
from benchmarks.live.faults_made import fill, small_disk
from controller.config import ApiConfig
from controller.jobs.messages import Registration, SavedState
from controller.store.records import changes
from controller.store.sqlite_store import SqliteStore
from mininet_topos.controller_process import ControllerProcess, Settings, reserve_port
from mininet_topos.haproxy_process import haproxy_before
from signalbox.client import Client, Unreachable, resuming
from signalbox.errors import InvalidInput, SignalboxError, Unavailable
from signalbox.jobs.spec import JobSpec
from signalbox.words import Mode
from tests.support.by_id import registered
from tests.support.waiting import DEADLINE_S, beside, until
from tests.support.wire.api_calls import numbered_job
from tests.support.wire.fake_switch import FakeSwitch

JOBS = 200
REFUSED = 3


FULL = r"the disk is full: \S*/state has \d+ bytes free, but 65536 are needed \(\d+ missing\)"


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Yield a folder whose ``state`` is a file system of 128 kB."""
    with small_disk(tmp_path, "128k"):
        yield tmp_path


def register(client: Client, numbers: range) -> list[str]:
    """Register jobs until ``REFUSED`` of them were refused, and return the acknowledged ones."""
    acknowledged: list[str] = []
    refused = 0
    for number in numbers:
        try:
            client.register_job(numbered_job(number))
        except Unavailable:
            refused += 1
            if refused == REFUSED:
                break
        else:
            acknowledged.append(f"job{number}")
    return acknowledged


def change_mode(client: Client, times: int) -> None:
    """Change the mode repeatedly. A single change would fit into the space that failed writes have left free."""
    for number in range(times):
        client.set_mode(Mode.PLANNED if number % 2 else Mode.SHADOW)


def known(client: Client) -> list[str]:
    return [job.spec.job_id for job in client.list_jobs()]


def alarms(client: Client) -> str:
    return " ".join(alarm.text for alarm in client.get_status().alarms)


def test_what_a_full_disk_does_not_take_is_not_acknowledged(folder: Path) -> None:
    controller = ControllerProcess(folder)
    with controller.running() as client:
        acknowledged = register(client, range(JOBS))
        assert 0 < len(acknowledged) < JOBS
        fill(folder / "state" / "other")
        with pytest.raises(Unavailable, match=rf"cannot be saved .*{FULL}.* so it is not in effect") as refused:
            change_mode(client, 20)
        assert refused.value.retry_s > 0
        assert sorted(known(client)) == sorted(acknowledged)
        until(lambda: "cannot be saved" in alarms(client), "the alarm")
        controller.kill()
    with controller.running() as client:
        assert sorted(known(client)) == sorted(acknowledged), "in the first answer"
        subprocess.run(["mount", "-o", "remount,size=8m", str(folder / "state")], check=True)
        assert len(register(client, range(JOBS, JOBS + 3))) == 3
        until(lambda: "cannot be saved" not in alarms(client), "the alarm's end")


def limit(controller: ControllerProcess, **limits: int | str) -> None:
    """Set resource limits of the running process, such as ``nofile``, to a number or to "unlimited"."""
    assert controller.process
    options = [f"--{name}={value}:" for name, value in limits.items()]
    subprocess.run(["prlimit", "--pid", str(controller.process.pid), *options], check=True)


def logged(controller: ControllerProcess, event: str) -> list[str]:
    lines = controller.log.read_text().splitlines()
    return [re.findall(r"\bjob=(\S+)", line)[0] for line in lines if f'event="{event}"' in line]


def exchanged(turn: int) -> list[JobSpec]:
    return [numbered_job(n).model_copy(update={"endpoints": numbered_job((n + turn) % 2).endpoints}) for n in range(2)]


def hosts(client: Client) -> list[tuple[str, ...]]:
    return [tuple(each.spec.endpoints) for each in client.list_jobs()]


def exchange_for_ever(client: Client, answered: Event) -> None:
    """Exchange hosts until the controller is killed; set the event when it has answered some times."""
    with suppress(SignalboxError):
        for turn in count():
            client.update_jobs(exchanged(turn))
            if turn == 5:
                answered.set()


def test_what_cannot_be_written_is_not_acknowledged_until_it_can(tmp_path: Path) -> None:
    """The file size limit acts like a file system that became read-only: no file can be written beyond its first bytes.

    Afterwards the process has no free descriptors, which changes nothing. An exchange of hosts is saved as a whole or
    not at all, even when the controller is killed while it answers."""
    controller, answered = ControllerProcess(tmp_path), Event()
    with controller.running() as client:
        acknowledged = register(client, range(4))
        client.update_jobs(exchanged(1))
        limit(controller, fsize=64)
        assert register(client, range(4, 10)) == []
        with pytest.raises(Unavailable, match=r"cannot be saved \(.*\), so it is not in effect") as refused:
            client.deregister_job("job2")
        assert refused.value.retry_s > 0
        with pytest.raises(Unavailable, match="so it is not in effect"):
            client.update_jobs(exchanged(0))
        assert hosts(client)[:2] == [spec.endpoints for spec in exchanged(1)]
        assert sorted(known(client)) == acknowledged
        assert client.renew_lease("job2") > 0, "what is not saved goes on"
        until(lambda: "cannot be saved" in alarms(client), "the alarm")
        limit(controller, fsize="unlimited")
        acknowledged += register(client, range(10, 13))
        assert len(acknowledged) == 7
        until(lambda: "cannot be saved" not in alarms(client), "the alarm's end")
        assert logged(controller, "job registered") == acknowledged, "each one once, and no other"
        assert logged(controller, "job ended") == []
        acknowledged += without_descriptors(controller, client)
        exchanges = beside(exchange_for_ever, client, answered)
        assert answered.wait(DEADLINE_S)
        controller.kill()
        exchanges.result(DEADLINE_S)
    with controller.running() as client:
        assert sorted(known(client)) == sorted(set(acknowledged) - {"job2"})
        assert hosts(client)[:2] in [[spec.endpoints for spec in exchanged(turn)] for turn in range(2)]


def without_descriptors(controller: ControllerProcess, client: Client) -> list[str]:
    """Register jobs, end job 2 and change job 3 without free descriptors; the open database needs no new one."""
    assert controller.process
    until(lambda: "event=ready" in controller.log.read_text(), "the southbound")
    descriptors = Path("/proc", str(controller.process.pid), "fd")
    limit(controller, nofile=len(list(descriptors.iterdir())))
    acknowledged = register(client, range(20, 40))
    client.deregister_job("job2")
    assert client.update_job(numbered_job(3, lease_s=600)).spec.lease.seconds == 600
    controller.check()
    limit(controller, nofile=1024)
    acknowledged += register(client, range(40, 43))
    assert len(acknowledged) == 23
    return acknowledged


def start(store: SqliteStore) -> None:
    store.load()
    store.begin()
    store.close()


@pytest.mark.parametrize("known_before", [False, True])
def test_a_start_on_a_full_disk_says_how_much_is_missing_where(tmp_path: Path, known_before: bool) -> None:
    with small_disk(tmp_path, "128k") as state:
        if known_before:
            start(SqliteStore(state))
        fill(state / "other")
        with pytest.raises(InvalidInput, match=f"state_dir: cannot write in {state}: {FULL}"):
            start(SqliteStore(state))


def test_a_full_disk_is_not_well_again_because_an_empty_commit_fits(tmp_path: Path) -> None:
    """SQLite writes an empty commit into pages that it already has."""
    with small_disk(tmp_path, "1m") as state:
        store = SqliteStore(state)
        before = store.load()
        store.begin()
        jobs = [Registration(numbered_job(n), f"{n}", registered_at=1e9) for n in range(JOBS)]
        one, all_ = SavedState(registered(jobs[0])), SavedState(registered(*jobs))
        assert isinstance(commit(store, before, one), int)
        filler = state / "other"
        fill(filler)
        assert isinstance(commit(store, one, all_), OSError)
        assert isinstance(commit(store, one, one), OSError), "still full"
        filler.unlink()
        assert isinstance(commit(store, one, one), int)
        assert isinstance(commit(store, one, all_), int)
        store.close()


def commit(store: SqliteStore, before: SavedState, after: SavedState) -> int | OSError:
    done: Future[int | OSError] = Future()
    store.commit(changes(before, after), done.set_result)
    return done.result(60)


DESCRIPTORS = 256
HELD = 300
"""Number of connections that the test opens to each port."""
PROGRAM = "tests.support.wire.few_descriptors"


def switches(client: Client) -> int:
    return len(client.get_fabric().switches)


def first_snapshot(watch: Iterator[Any]) -> Any:
    return next(message for message in watch if message.snapshot)


def test_switches_connect_and_changes_are_saved_while_clients_hold_all_connections(tmp_path: Path) -> None:
    """A watch through HAProxy is resumed when the controller was killed."""
    port, metrics = reserve_port(), reserve_port()
    api = ApiConfig(listen=(f"127.0.0.1:{port}",), proxy_socket=tmp_path / "proxy.sock", max_connections=56)
    settings: Settings = {
        "api": {"listen": [*api.listen], "proxy_socket": str(api.proxy_socket), "max_connections": 56},
        "metrics": {"port": metrics},
    }
    controller = ControllerProcess(tmp_path, settings=settings, program=(PROGRAM, str(DESCRIPTORS)))
    with ExitStack() as stack:
        stack.enter_context(haproxy_before(tmp_path, api))
        controller.start()
        stack.callback(controller.stop)
        client = stack.enter_context(Client(f"127.0.0.1:{port}"))
        until(lambda: controller.ready(client), "the controller")
        lost: list[SignalboxError] = []
        watch = resuming(client.watch_jobs, lost.append, pause=lambda _: None)
        assert next(watch).snapshot
        for target in (port, metrics, controller.openflow_port):
            for number in range(HELD):
                held = stack.enter_context(socket.socket())
                held.bind((f"127.0.0.{2 + number % 4}", 0))
                with suppress(ConnectionError):  # the controller may refuse the connection at any moment
                    held.connect(("127.0.0.1", target))
                    if target == port and number % 2:
                        held.sendall(http2.hello())
        switch = FakeSwitch(controller.openflow_port, 7).connect()
        stack.callback(switch.close)
        until(lambda: switches(client) == 1, "the switch")
        for number in range(20):
            client.register_job(numbered_job(number))
        controller.kill()
        resumed = beside(first_snapshot, watch)
        until(lambda: bool(lost), "the end of the watch")
        controller.start()
        again = stack.enter_context(Client(f"127.0.0.1:{port}"))
        until(lambda: controller.ready(again), "the controller")
        assert len(list(again.list_jobs())) == 20
        assert len(resumed.result(60).jobs) == 20
        watch.close()
    assert isinstance(lost[0], Unreachable)
