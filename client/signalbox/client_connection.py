"""Make calls to the API over the gRPC connection of a client.

A call returns the answer of the API, or raises an error of ``signalbox.errors``."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from typing import Any, Self

import grpc

from signalbox import active_channel
from signalbox.addresses import DEFAULT_ADDRESS
from signalbox.bounded_channel import BoundedChannel
from signalbox.client_errors import raise_ours
from signalbox.credentials import NO_CREDENTIALS, Credentials, checked_addresses
from signalbox.errors import SignalboxError
from signalbox.v1 import signalbox_pb2_grpc as pb_grpc

_RETRY = {
    "methodConfig": [
        {
            "name": [{}],
            "retryPolicy": {
                "maxAttempts": 4,
                "initialBackoff": "0.1s",
                "maxBackoff": "2s",
                "backoffMultiplier": 3,
                "retryableStatusCodes": ["UNAVAILABLE"],
            },
        },
        {"name": [{"service": "grpc.health.v1.Health"}]},
    ]
}
"""gRPC's retry policy (proposal A6): a call that ends with UNAVAILABLE is sent again up to three times.

Health checks are never repeated: ``_cause`` makes one to find out why a call has failed. A client with several
addresses does not use the policy, because ``ActiveChannel`` repeats its calls."""
_RETRY_OPTIONS: list[tuple[str, object]] = [
    ("grpc.service_config", json.dumps(_RETRY)),
    # A waiting client reconnects soon after a restart of the controller. By default it may wait two minutes.
    ("grpc.max_reconnect_backoff_ms", 2000),
]

PROBE_S = 0.2
"""Time-out in seconds of the health check that ``_cause`` makes."""
PAGE_BYTES = 1000
"""Bytes that each page of a list counts in addition to its size.

The limit of the sum over all pages then also limits the number of empty pages."""


class ClientConnection:
    """Base of ``Client``, with the gRPC channel, the remembered lease tokens and the methods that make calls."""

    def __init__(
        self,
        address: str = DEFAULT_ADDRESS,
        timeout_s: float = 10.0,
        credentials: Credentials = NO_CREDENTIALS,
        max_answer_bytes: int = -1,
    ) -> None:
        self._address = address
        self._timeout_s = timeout_s
        self._max_answer_bytes = max_answer_bytes
        self._metadata = credentials.metadata(address)
        addresses = checked_addresses(address)
        options = [
            # A plan of a large fabric is larger than the 4 MiB that gRPC accepts by default.
            ("grpc.max_receive_message_length", max_answer_bytes),
            # Each client has its own connection: HAProxy allows 128 streams per connection, and further streams
            # would wait silently.
            ("grpc.use_local_subchannel_pool", 1),
            *(_RETRY_OPTIONS if len(addresses) == 1 else active_channel.OPTIONS),
        ]
        opened = credentials.opener(address, options)
        self._channel: Any = (
            BoundedChannel(address, opened(address))
            if len(addresses) == 1
            else active_channel.ActiveChannel(addresses, opened, find_s=timeout_s)
        )
        self._tokens: dict[str, str] = {}
        self._request_ids: dict[str, str] = {}
        self._jobs: Any = pb_grpc.JobServiceStub(self._channel)  # type: ignore[no-untyped-call]
        self._probe: Any = self._channel.unary_unary("/grpc.health.v1.Health/Check")
        self._controller: Any = pb_grpc.ControllerServiceStub(self._channel)  # type: ignore[no-untyped-call]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._channel.close()

    def _pages(self, method: Callable[..., Any], request: Any) -> Generator[Any, None, None]:
        """Yield the answers of a list method, one per page, until the last page.

        Raises ``SignalboxError`` when the sum of the pages' sizes exceeds the client's limit. Each page counts
        ``PAGE_BYTES`` more than its size."""
        left = self._max_answer_bytes
        while True:
            page = self._call(method, request)
            left -= PAGE_BYTES + page.ByteSize()
            if left < 0 <= self._max_answer_bytes:
                raise SignalboxError(
                    f"the controller's list exceeds this client's limit of {self._max_answer_bytes:,} bytes"
                )
            yield page
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    def _watch(self, method: Callable[..., Any], request: Any) -> Generator[Any, None, None]:
        stream = method(request, metadata=self._metadata)
        try:
            yield from stream
        except grpc.RpcError as error:
            raise_ours(error, self._address)
        finally:
            stream.cancel()

    def _token(self, job_id: str, given: str | None) -> str:
        return self._tokens.get(job_id, "") if given is None else given

    def _call(
        self, method: Callable[..., Any], request: Any, at_least_s: float = 0.0, wait_s: float | None = None
    ) -> Any:
        """Call the API and return its answer.

        The time-out is ``wait_s`` seconds. If ``wait_s`` is None, the time-out is the larger one of the client's
        time-out and ``at_least_s``."""
        wait_s = max(self._timeout_s, at_least_s) if wait_s is None else wait_s
        try:
            return method(request, timeout=wait_s, metadata=self._metadata)
        except grpc.RpcError as error:
            raise_ours(self._cause(error), self._address)

    def _cause(self, error: grpc.RpcError) -> grpc.RpcError:
        """Return the error that explains why a call failed: ``error`` itself, or the error of a health check made now.

        When gRPC repeats a call until its time-out, the call's error does not say why the attempts failed. A health
        check's error says why."""
        if _ended_with(grpc.StatusCode.DEADLINE_EXCEEDED, error):
            try:
                self._probe(b"", timeout=PROBE_S)
            except grpc.RpcError as found:
                return found if _ended_with(grpc.StatusCode.UNAVAILABLE, found) else error
        return error


def _ended_with(code: grpc.StatusCode, error: Any) -> bool:
    """Return whether gRPC itself ended the call with this code; an error of the controller has trailing metadata."""
    return error.code() is code and not error.trailing_metadata()
