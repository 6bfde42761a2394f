"""Requests that the live page answers."""

import asyncio
from itertools import product
from typing import Any

import pytest
from starlette.responses import PlainTextResponse
from starlette.types import Message

from signalbox.web.serving import Guard

OPENED = {"host": "127.0.0.1:8080"}


def answered(kind: str, headers: dict[str, str], names: tuple[str, ...] = ()) -> tuple[int, dict[str, str], str]:
    """Return the status, headers and body of the answer to a request."""
    found: list[Message] = []

    async def send(message: Message) -> None:
        found.append(message)

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    scope: dict[str, Any] = {"type": kind, "headers": [(k.encode(), v.encode()) for k, v in headers.items()]}
    asyncio.run(Guard(PlainTextResponse("shown"), names)(scope, receive, send))
    told = {key.decode(): value.decode() for key, value in found[0]["headers"]}
    return found[0]["status"], told, found[1]["body"].decode()


@pytest.mark.parametrize("host", ["127.0.0.1:8080", "[::1]:8080", "10.1.2.3", "localhost:8080", "Fabric.example"])
def test_addresses_and_known_names_are_answered(host: str) -> None:
    origin = {"origin": f"https://{host}"}
    for kind, headers in product(("http", "websocket"), ({"host": host}, {"host": host, **origin})):
        assert answered(kind, headers, ("fabric.example",))[0] == 200


REFUSED_HOSTS = [
    *(None, "", "[::1", "elsewhere.example", "127.0.0.1.elsewhere.example", "evil.com@127.0.0.1", "127.0.0.1:8080/"),
    *("127.0.0.1\x1b[31m", "127.0.0.1:123456"),
]
REFUSED_ORIGINS = [
    *("http://elsewhere.example", "http://127.0.0.1:9999", "null", "http://evil.com//127.0.0.1:8080"),
    *("http://evil.com@127.0.0.1:8080", "127.0.0.1:8080", "ftp://127.0.0.1:8080", "http://127.0.0.1:8080/path", ""),
]


@pytest.mark.parametrize(
    "headers",
    [{} if host is None else {"host": host} for host in REFUSED_HOSTS]
    + [{**OPENED, "origin": origin} for origin in REFUSED_ORIGINS],
    ids=str,
)
def test_names_that_are_not_known_and_other_sites_are_refused(headers: dict[str, str]) -> None:
    assert [answered(kind, headers)[0] for kind in ("http", "websocket")] == [400, 400]


def test_ports_and_proxies_are_allowed_for_and_a_refusal_says_what_makes_the_name_known() -> None:
    for host, origin, status in (
        ("10.1.2.3", "http://10.1.2.3:80", 200),
        ("10.1.2.3:443", "https://10.1.2.3", 200),
        ("10.1.2.3:443", "http://10.1.2.3", 400),
        ("10.1.2.3", "http://10.1.2.3:8080", 400),
    ):
        assert answered("http", {"host": host, "origin": origin})[0] == status
    headers = {**OPENED, "origin": "https://fabric.example"}
    assert answered("websocket", headers, ("fabric.example",))[0] == 200
    assert answered("websocket", headers)[0] == 400
    assert answered("websocket", {**OPENED, "origin": "http://127.0.0.1:9999"}, ("127.0.0.1", "localhost"))[0] == 400
    status, _, said = answered("http", {"host": "myhost:8080"})
    assert (status, said) == (400, "myhost is not a known name of this page; add it with signalbox web --name NAME\n")
    assert answered("http", OPENED)[1]["content-security-policy"] == "frame-ancestors 'none'"
