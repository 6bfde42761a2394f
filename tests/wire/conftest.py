"""The real server in front of a stand-in control loop and clients of it, etcd, and a browser."""

import itertools
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import grpc
import pytest

from benchmarks.web.browser import Browser, browser, missing
from mininet_topos.lab.record import LabError
from signalbox.client import Client
from signalbox.v1 import signalbox_pb2_grpc as pb_grpc
from tests.support.command_line import signalbox
from tests.support.lab.needs import needs
from tests.support.preloaded import preloaded_controllers
from tests.support.waiting import until
from tests.support.wire.bench import bench
from tests.support.wire.control_stand_in import Running, running_api
from tests.support.wire.etcd import EtcdProcess, running_etcd
from tests.support.wire.secured import Secured

__all__ = ("bench", "preloaded_controllers", "signalbox")

_prefixes = itertools.count()


@pytest.fixture(scope="module", autouse=True)
def _ends_its_threads() -> Iterator[None]:
    """Fail a module that leaves a thread behind, which could disturb a later test.

    gRPC keeps one polling thread."""
    before = {*threading.enumerate()}
    yield

    def left() -> list[str]:
        names = [each.name for each in {*threading.enumerate()} - before]
        return [name for name in names if "_poll_wrapper" not in name]

    with suppress(LabError):
        until(lambda: not left())
    assert left() == []


@pytest.fixture
def api() -> Iterator[Running]:
    with running_api() as running:
        yield running


@pytest.fixture
def client(api: Running) -> Iterator[Client]:
    with Client(api.addresses[0]) as client:
        yield client


@pytest.fixture
def channel(api: Running) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(api.addresses[0]) as channel:
        yield channel


@pytest.fixture
def jobs(channel: grpc.Channel) -> Any:
    """Return the generated stub, for requests that the typed client cannot make."""
    return pb_grpc.JobServiceStub(channel)  # type: ignore[no-untyped-call]


@pytest.fixture
def controller(channel: grpc.Channel) -> Any:
    return pb_grpc.ControllerServiceStub(channel)  # type: ignore[no-untyped-call]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Secured:
    return Secured.made(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdProcess]:
    with running_etcd(tmp_path_factory.mktemp("etcd")) as etcd:
        yield etcd


@pytest.fixture
def prefix() -> str:
    """Return a prefix of keys of etcd that no other test has."""
    return f"/test{next(_prefixes)}/"


@pytest.fixture(scope="session")
def one_chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    needs(missing())
    with browser(tmp_path_factory.mktemp("chromium")) as chromium:
        yield chromium


@pytest.fixture(scope="module")
def chromium(one_chromium: Browser) -> Iterator[Browser]:
    """Yield the browser of all modules without the records of earlier pages."""
    one_chromium.complaints()
    one_chromium.hosts_asked()
    yield one_chromium
    one_chromium.driver.get("about:blank")
