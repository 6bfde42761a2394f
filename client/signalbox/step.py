"""Context for one iteration of a training program that measures its time and its communication time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Self


class Step:
    """Iteration of a training program, from entering the context to its end.

    When the context ends without an error, ``report`` receives the wall time and the communication time in seconds. The
    communication time is None when ``communication`` was not used."""

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
        """Measure communication inside the step; may be used several times.

        If it is not used, the whole step counts as communication."""
        began = time.perf_counter()
        yield
        self._communicated_s = (self._communicated_s or 0.0) + time.perf_counter() - began
