"""Calls and watches of an endpoint of etcd that is silent: they go on at another endpoint."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from itertools import islice
from typing import Any

import grpc
import pytest

from controller.store import etcd_client
from controller.store.etcd_client import Etcd, EtcdAccess, EtcdError
from controller.store.etcd_v3 import etcd_pb2 as pb
from tests.support.waiting import DEADLINE_S
from tests.support.wire.etcd import EtcdProcess


class Silent(grpc.GenericRpcHandler):
    """Member of etcd that creates watches, and answers nothing else until ``over``.

    ``error``: text of the error with which it answers in place of its silence."""

    def __init__(self, error: str = "") -> None:
        self.over = threading.Event()
        self.error = error
        self.calls: list[str] = []

    def service(self, details: grpc.HandlerCallDetails) -> Any:
        self.calls.append(details.method)
        return grpc.stream_stream_rpc_method_handler(
            self._answer, pb.WatchRequest.FromString, pb.WatchResponse.SerializeToString
        )

    def _answer(self, requests: Iterator[pb.WatchRequest], context: Any) -> Iterator[pb.WatchResponse]:
        if self.error:
            context.abort(grpc.StatusCode.UNKNOWN, self.error)
        if self.calls[-1].endswith("/Watch"):
            next(requests)
            yield pb.WatchResponse(created=True)
        self.over.wait()


@contextmanager
def silent(error: str = "") -> Iterator[tuple[Silent, str]]:
    handler = Silent(error)
    with ThreadPoolExecutor(4) as pool:
        server = grpc.server(pool, handlers=[handler])
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        try:
            yield handler, f"127.0.0.1:{port}"
        finally:
            handler.over.set()
            server.stop(None).wait()


@pytest.mark.parametrize("error", ["", "context deadline exceeded"])
def test_a_call_goes_on_at_the_next_endpoint_and_later_calls_begin_there(
    etcd: EtcdProcess, prefix: str, monkeypatch: pytest.MonkeyPatch, error: str
) -> None:
    """Etcd answers a login with this error if it reaches no majority."""
    monkeypatch.setattr(etcd_client, "ELSEWHERE_S", 0.05 if not error else DEADLINE_S)
    with silent(error) as (handler, address), closing(Etcd(EtcdAccess((address, etcd.endpoint)))) as client:
        for _ in range(2):
            assert client.get(prefix.encode(), DEADLINE_S) is None
        assert handler.calls == ["/etcdserverpb.KV/Range"]


def test_a_silent_watch_ends_and_the_next_one_begins_at_another_endpoint(
    etcd: EtcdProcess, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(etcd_client, "BEAT_S", 0.02)
    monkeypatch.setattr(etcd_client, "SILENT_S", 0.1)
    with silent() as (handler, address), closing(Etcd(EtcdAccess((address, etcd.endpoint)))) as client:
        with pytest.raises(EtcdError, match=f"etcd at {address}: the watch has no answers") as error:
            list(client.changes(prefix.encode(), 0, DEADLINE_S))
        assert error.value.no_answer
        etcd.put(f"{prefix}a", "1")
        [event] = next(client.changes(prefix.encode(), 0, DEADLINE_S))[0]
        assert event.kv.value == b"1"
        assert handler.calls == ["/etcdserverpb.Watch/Watch"]


class Endless:
    """Call that gRPC never ends."""

    def __init__(self) -> None:
        self.over = threading.Event()

    def __iter__(self) -> Iterator[pb.WatchResponse]:
        self.over.wait()
        return iter(())

    def cancel(self) -> None:
        pass


def test_a_watch_that_grpc_does_not_end_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(etcd_client, "SILENT_S", 0.05)
    call = Endless()
    with closing(Etcd(EtcdAccess(("c:1",)))) as client:
        monkeypatch.setattr(client._connections._channels[0], "stream_stream", lambda *_: lambda *_, **__: call)
        with pytest.raises(EtcdError, match="the watch has no answers"):
            list(client.changes(b"a", 0, DEADLINE_S))
        call.over.set()


def test_etcd_answers_what_a_watch_without_changes_asks(
    etcd: EtcdProcess, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(etcd_client, "BEAT_S", 0.02)
    create = pb.WatchRequest(create_request=pb.WatchCreateRequest(key=prefix.encode()))
    with closing(Etcd(etcd.access)) as client:
        replies = list(islice(client._connections.watch([create], DEADLINE_S), 4))
    assert [reply.created for reply in replies] == [True, False, False, False]
    assert not any(reply.canceled or reply.events for reply in replies)


def test_an_error_names_an_endpoint_that_refuses_the_connection_once() -> None:
    with silent() as (_, address):
        pass
    with closing(Etcd(EtcdAccess((address,)))) as client, pytest.raises(EtcdError) as refused:
        client.get(b"/key", DEADLINE_S)
    assert str(refused.value).count(address) == 1
    assert "Connection refused" in str(refused.value)
    assert refused.value.is_away
