"""Benchmark ``web``: cost of the live page for several viewers in Chromium, and cost of ``signalbox top``.

The real API server shows fabrics whose links get other rates every second. For each fabric the results are the time
until it is drawn, what is drawn, and the CPU time and memory of the page's server. The output is a table, and
``out/bench/web.json``.
"""

import os
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console

from benchmarks.measures import background, report
from benchmarks.scrapes import LINK_BPS, status_of
from benchmarks.web.browser import Browser, WebPage, browser, missing, terminal_view, web_page
from controller.api.lease_tokens import LeaseTokens
from controller.api.server import ApiServer
from controller.config import ApiConfig
from controller.fabric.topology import Fabric
from controller.status import LinkStatus, Status, StatusBoard
from offline.scenarios.fabrics import fat_tree, leaf_spine
from signalbox.errors import SignalboxError

RESULTS = Path("out/bench/web.json")
RATES_EVERY_S = 1.0
TOP_STARTS_S = 5.0
FABRICS: dict[str, tuple[Callable[[], Fabric], int]] = {
    "4x4": (lambda: leaf_spine(4, 4, 4, LINK_BPS, LINK_BPS), 4),
    "fat-tree-4": (lambda: fat_tree(4, LINK_BPS, LINK_BPS), 4),
    "64x32": (lambda: leaf_spine(64, 32, 32, LINK_BPS, LINK_BPS), 1000),
}
"""Fabrics by name, each with its number of jobs."""

Row = dict[str, str | float]


def change(status: Status, board: StatusBoard, done: threading.Event) -> None:
    """Publish other rates of the links every second, until ``done`` is set."""
    random, links = np.random.default_rng(1), list(status.fabric.links)
    while not done.wait(RATES_EVERY_S):
        rates = random.beta(2, 2, len(links)) * LINK_BPS
        figures = {link: LinkStatus(0, rate, 0.0) for link, rate in zip(links, rates.tolist(), strict=True)}
        board.publish(replace(status, links=figures))


def measured(name: str, viewers: int, seconds: float) -> Row:
    make, jobs = FABRICS[name]
    status = status_of(make(), jobs)
    board = StatusBoard()
    board.publish(status)
    server = ApiServer(ApiConfig(listen=("127.0.0.1:0",)), board, _refuse, LeaseTokens())
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        address = server.start()[0]
        stack.callback(server.stop, 0.2)
        stack.enter_context(background(partial(change, status, board)))
        page = stack.enter_context(web_page(address))
        chromium = stack.enter_context(browser(folder))
        chromium.opened(page.url)  # puts the files of the front end into the browser's cache
        painted = [_opened(chromium, page) for _ in range(viewers)]
        began, cpu, memory = time.monotonic(), page.cpu_s(), page.rss_mb()
        time.sleep(seconds)
        passed, spent = time.monotonic() - began, page.cpu_s() - cpu
        row: Row = {
            "fabric": name,
            "viewers": viewers,
            "first viewer paints s": painted[0],
            "last viewer paints s": painted[-1],
            "drawn": _drawn(chromium),
            "CPU % of a core": 100 * spent / passed,
            "MB": page.rss_mb(),
            "MB more": page.rss_mb() - memory,
            "seconds": round(passed),
        }
        row["top: CPU %"] = _cost_of_top(address, seconds)
        if complaints := chromium.complaints():
            raise SignalboxError(f"the browser's console has {len(complaints)} lines: {complaints[0]}")
        return row


def _cost_of_top(address: str, seconds: float) -> float:
    """Return the CPU time of ``signalbox top`` in percent of a core, after its start."""
    with terminal_view(address) as cpu_s:
        time.sleep(TOP_STARTS_S)
        began, before = time.monotonic(), cpu_s()
        time.sleep(seconds)
        return 100 * (cpu_s() - before) / (time.monotonic() - began)


def _refuse(message: Any) -> None:
    """Refuse a message, because there is no control loop."""
    if hasattr(message, "reply"):
        message.reply.set_exception(SignalboxError("this benchmark has no control loop; it only shows a fabric"))


def _opened(chromium: Browser, page: WebPage) -> float:
    """Open the page in a new window, and return the seconds until the fabric is drawn."""
    chromium.driver.switch_to.new_window("window")
    began = time.monotonic()
    chromium.opened(page.url)
    return time.monotonic() - began


def _drawn(chromium: Browser) -> str:
    drawn = chromium.series("fabric", "fabric")
    cells, links = len(drawn["data"]), len(drawn.get("links") or ())
    return f"{cells} nodes, {links} links" if links else f"{cells} cells"


def main(
    fabric: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help=f"Fabric, from {', '.join(FABRICS)}.", show_default="all")
    ] = None,
    viewers: Annotated[int, typer.Option(min=1, help="Number of windows that show the page.")] = 5,
    seconds: Annotated[float, typer.Option(min=1, help="Seconds to measure.")] = 60.0,
) -> None:
    """Measure the server of the live page while several browsers look at it."""
    if absent := missing():
        raise SignalboxError(absent)
    Console(stderr=True).print(f"{viewers} viewers for {seconds:.0f} s on {os.cpu_count()} processors")
    of_fabrics = [measured(name, viewers, seconds) for name in fabric or FABRICS]
    report({"fabrics": of_fabrics}, RESULTS, {"signalbox web": of_fabrics})
