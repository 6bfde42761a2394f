"""``signalbox web`` and ``signalbox top`` as processes, and a headless Chromium that shows the page.

Selenium drives Chromium. ``Browser`` can also read and click the charts that ECharts has drawn in the page.
"""

import json
import os
import pty
import shutil
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.error import URLError
from urllib.parse import urlsplit
from urllib.request import urlopen

from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.remote.webelement import WebElement

from benchmarks.measures import usage
from mininet_topos.controller_process import reserve_port

CHROMIUM, DRIVER = "chromium", "chromedriver"
WAIT_S = 30.0
OPTIONS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-background-timer-throttling",
    "--disable-renderer-backgrounding",
    "--force-device-scale-factor=1",
)
Found = TypeVar("Found")


def missing() -> str | None:
    """Return a message that names the programs that are not installed; None if all are."""
    names = [name for name in (CHROMIUM, DRIVER) if shutil.which(name) is None]
    return f"not installed: {', '.join(names)}; scripts/bootstrap.sh --libraries installs them" if names else None


class Browser:
    """Browser that shows a page. ``driver``: Selenium's driver."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver

    def script(self, code: str, *arguments: object) -> Any:
        return self.driver.execute_script(code, *arguments)

    def options(self, chart: str) -> dict[str, Any]:
        """Return ECharts' options of the chart in the element ``chart-NAME``."""
        found: dict[str, Any] = self.script(f"return {_chart(chart)}.getOption()")
        return found

    def series(self, chart: str, name: str) -> dict[str, Any]:
        return next(each for each in self.options(chart)["series"] if each["id"] == name)

    def click_on(self, chart: str, event: dict[str, Any]) -> None:
        """Click on a chart. ``event``: event as ECharts passes it to its handlers."""
        self.script(f"{_chart(chart)}.trigger('click', arguments[0])", event)

    def hover(self, element: WebElement) -> None:
        webdriver.ActionChains(self.driver).move_to_element(element).perform()

    def text(self, css: str) -> str:
        found: str = self.script("return document.querySelector(arguments[0])?.innerText ?? ''", css)
        return found

    def until(self, what: Callable[[], Found], wait_s: float = WAIT_S) -> Found:
        """Return the first true result of ``what``, called again and again. Raises ``TimeoutError``."""
        end = time.monotonic() + wait_s
        while not (found := what()):
            if time.monotonic() > end:
                raise TimeoutError(f"still {found!r} after {wait_s:.0f} s")
            time.sleep(0.05)
        return found

    def opened(self, url: str) -> None:
        """Open a page, and wait until the fabric is drawn."""
        self.driver.get(url)
        self.until(lambda: self.script(f"return !!{_chart('fabric')}?.getOption()?.series?.length"))

    def complaints(self) -> list[str]:
        """Return the warnings and errors that the console has got since the last call.

        Chromium's remark that fonts load slowly is left out, because it is about the machine."""
        logged = (entry["message"] for entry in self.driver.get_log("browser"))  # type: ignore[no-untyped-call]
        return [message for message in logged if "Slow network is detected" not in message]

    def hosts_asked(self) -> set[str]:
        """Return the names of the hosts that were requested since the last call."""
        logged = (json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance"))  # type: ignore[no-untyped-call]
        urls = [
            each["params"].get("request", {}).get("url") or each["params"].get("url", "")
            for each in logged
            if each["method"] in ("Network.requestWillBeSent", "Network.webSocketCreated")
        ]
        return {urlsplit(url).hostname or "" for url in urls if urlsplit(url).scheme in ("http", "https", "ws", "wss")}

    def dark(self, wanted: bool) -> None:
        """Prefer a dark or a light colour scheme. Must be called before the page is opened."""
        feature = [{"name": "prefers-color-scheme", "value": "dark" if wanted else "light"}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": feature})

    def screenshot(self, file: Path) -> None:
        self.driver.save_screenshot(str(file))


def _chart(chart: str) -> str:
    """Return a JavaScript expression for a chart's ECharts instance.

    The instance belongs to a component of NiceGUI. Vue's root has its components by number (``$refs``)."""
    number = f"document.querySelector('.chart-{chart}')?.id.slice(1)"
    return f"document.getElementById('app')?._vnode?.component?.proxy?.$refs['r' + {number}]?.chart"


@contextmanager
def browser(folder: Path) -> Iterator[Browser]:
    """Run Chromium with a new profile in ``folder`` while the block runs."""
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which(CHROMIUM) or CHROMIUM
    for option in (*OPTIONS, f"--user-data-dir={folder / 'profile'}", "--window-size=1400,1300"):
        options.add_argument(option)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    service = Service(shutil.which(DRIVER) or DRIVER, env={**os.environ, "HOME": str(folder)})
    driver = webdriver.Chrome(options=options, service=service)
    try:
        yield Browser(driver)
    finally:
        driver.quit()


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
    """Run ``signalbox web`` while the block runs, and yield it once it answers. ``port``: 0 for a free one."""
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
def terminal_view(address: str) -> Iterator[Callable[[], float]]:
    """Run ``signalbox top`` in a terminal while the block runs, and yield a function for its CPU seconds."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(ours, (60, 200))
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
