"""One iteration of a training, as a context: how long it took, and how long its communication."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Self


class Step:
    """One iteration: from when it is entered to its end. ``report``: takes its wall time and that of communication."""

    def __init__(self, report: Callable[[float, float | None], None]) -> None:
        self._report = report
        self._communicated_s: float | None = None
        self._began = 0.0

    def __enter__(self) -> Self:
        self._began = time.perf_counter()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._report(time.perf_counter() - self._began, self._communicated_s)

    @contextmanager
    def communication(self) -> Iterator[None]:
        """Around what the step communicates, as often as it does. Without it all of the step counts."""
        began = time.perf_counter()
        yield
        self._communicated_s = (self._communicated_s or 0.0) + time.perf_counter() - began
