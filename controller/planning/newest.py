"""Between two threads: the newest request is enough."""

from __future__ import annotations

import threading
from typing import Generic, TypeVar

Kind = TypeVar("Kind")


class Newest(Generic[Kind]):
    """Holds the newest request until a thread takes it; older ones are dropped."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._request: Kind | None = None
        self._closed = False

    def put(self, request: Kind) -> None:
        with self._changed:
            self._request = request
            self._changed.notify()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify()

    @property
    def waits(self) -> bool:
        """There is a request that no thread has taken."""
        return self._request is not None

    def take(self) -> Kind | None:
        """Waits for a request; None when closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._request is not None)
            request, self._request = self._request, None
            return None if self._closed else request
