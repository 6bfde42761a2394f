"""Lines that a malicious browser can cause in the log of ``signalbox web``."""

import json
import re
import signal
from pathlib import Path
from urllib.request import urlopen

from benchmarks.web.browser import web_page

EVENTS = [
    ("event", 5),
    ("event", {}),
    ("ack", {"client_id": 5}),
    ("handshake", {"client_id": "\x1b[31mred"}),
    ("javascript_response", ["\x1b[31mred"]),
    ("log", {"client_id": "CLIENT", "level": "error", "message": "\x1b[31mred\nerror: forged"}),
    ("log", {"client_id": "CLIENT", "level": "\x1b[31m"}),
]


class Browser:
    """Browser that speaks Engine.IO 4 by polling, and Socket.IO 5 over it."""

    def __init__(self, url: str) -> None:
        self._url = f"{url}_nicegui_ws/socket.io/?EIO=4&transport=polling"
        (found,) = re.findall(r'"sid":"([^"]+)"', self._polled())
        self._url += f"&sid={found}"
        self.send("40")
        self._polled()

    def _polled(self) -> str:
        with urlopen(self._url, timeout=30) as answer:
            text: str = answer.read().decode()
            return text

    def send(self, packet: str) -> None:
        with urlopen(self._url, packet.encode(), timeout=30) as answer:
            answer.read()


def test_wrong_events_write_neither_escapes_nor_tracebacks(tmp_path: Path) -> None:
    with web_page(f"unix:{tmp_path / 'none'}") as page:
        with urlopen(page.url, timeout=30) as answer:
            (client,) = set(re.findall(r"client_id\W+([0-9a-f-]{36})", answer.read().decode()))
        browser = Browser(page.url)
        for name, data in EVENTS:
            browser.send(f"42{json.dumps([name, data]).replace('CLIENT', client)}")
        for packet in ("4", "42[", '42["\x1b[31m"]', "9", "42" + "[" * 100_000):
            try:
                browser.send(packet)
            except OSError:
                browser = Browser(page.url)
        page.process.send_signal(signal.SIGTERM)
        said = page.process.communicate(timeout=60)[1]
    assert "nicegui" in said or "asyncio" in said, said
    assert r"\x1b[31mred\nerror: forged" in said
    assert "Traceback" not in said
    assert all(line.isprintable() for line in said.splitlines())
