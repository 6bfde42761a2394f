"""What five viewers of the live page cost the control loop of the controller that they look at.

In: a controller whose switches are in memory (``benchmarks.api_load``): 64 x 32, pinned jobs that renew and report, and
counters in which every link has another rate each time. Out: how long calls of its loop's ``handle`` and calls of the
API take without a page and with one, in turn. The browser draws in the time that nothing else wants: five windows of
64 x 32 would take the processors that the controller needs, and viewers have machines of their own.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks.api_load.command import Result, Scene, load
from benchmarks.web.browser import browser
from benchmarks.web.process import web_page

SCENE = Scene("counted", "64x32x32", largest=4, counted=True)
CALLS_PER_S = 100.0
SEED = 1

Row = dict[str, str | float]


def rows(viewers: int, jobs: int, seconds: float, times: int) -> list[Row]:
    """One without viewers and one with them, so many times in turn."""
    return [_row(number, jobs, seconds) for _ in range(times) for number in (0, viewers)]


def _row(viewers: int, jobs: int, seconds: float) -> Row:
    result = load(SCENE, jobs, seconds, SEED, CALLS_PER_S, lambda address: _looking(address, viewers))
    return {"viewers": viewers, **_figures(result)}


@contextmanager
def _looking(address: str, viewers: int) -> Iterator[None]:
    with ExitStack() as stack:
        if viewers:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            page = stack.enter_context(web_page(address))
            chromium = stack.enter_context(browser(folder, idle=True))
            for _ in range(viewers):
                chromium.driver.switch_to.new_window("window")
                chromium.opened(page.url)
        yield


def _figures(result: Result) -> Row:
    handle, cpu = result.handle["handle_ms"] or {}, result.handle["handle_cpu_ms"] or {}
    return {
        "flows": result.flows,
        "calls of handle": result.handle["calls"],
        **{f"handle {part} ms": handle.get(part, 0.0) for part in ("p50", "p99", "max")},
        **{f"CPU {part} ms": cpu.get(part, 0.0) for part in ("p50", "p99", "max")},
        "unary p50 ms": result.unary.p50 if result.unary else 0.0,
        "unary p99 ms": result.unary.p99 if result.unary else 0.0,
        "failed": sum(result.errors.values()),
    }
