"""``signalbox web`` and ``signalbox top`` as processes."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from urllib.error import URLError
from urllib.request import urlopen

from benchmarks.measures import usage
from mininet_topos.controller_process import reserve_port

START_S = 60.0


@dataclass(frozen=True)
class WebPage:
    url: str
    process: subprocess.Popen[str]

    def cpu_s(self) -> float:
        return usage(self.process).cpu_s

    def rss_mb(self) -> float:
        return usage(self.process).rss_bytes / 1e6


@contextmanager
def web_page(address: str, *options: str, port: int = 0) -> Iterator[WebPage]:
    """Run ``signalbox web`` until the block ends, and yield it once it answers. ``port``: 0 for a free one."""
    port = port or reserve_port()
    words = [sys.executable, "-m", "signalbox", "web", "--address", address, "--listen", f"127.0.0.1:{port}", *options]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    process = subprocess.Popen(words, env=environment, text=True, stderr=subprocess.PIPE)
    url = f"http://127.0.0.1:{port}/"
    try:
        end = time.monotonic() + START_S
        while not _answers(url):
            assert process.poll() is None, process.communicate()[1]
            assert time.monotonic() < end, "signalbox web does not answer"
            time.sleep(0.05)
        yield WebPage(url, process)
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=20)
        process.kill()
        process.communicate()


@contextmanager
def terminal_view(address: str, columns: int = 200, lines: int = 60) -> Iterator[Callable[[], float]]:
    """Run ``signalbox top`` in a terminal that reads all its output; yield a function for its CPU time in seconds."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(ours, (lines, columns))
    words = [sys.executable, "-m", "signalbox", "top", "--address", address]
    process = subprocess.Popen(words, stdin=theirs, stdout=theirs, stderr=theirs, env={**os.environ, "TERM": "xterm"})
    os.close(theirs)

    def drain() -> None:
        with suppress(OSError):  # raised when the program has ended
            while os.read(ours, 1 << 16):
                pass

    reader = threading.Thread(target=drain)
    reader.start()
    try:
        yield lambda: usage(process).cpu_s
    finally:
        process.terminate()
        process.wait(20)
        reader.join()
        os.close(ours)


def _answers(url: str) -> bool:
    with suppress(URLError, OSError), urlopen(f"{url}healthz", timeout=5) as answer:
        return bool(answer.read() == b"ok\n")
    return False
