"""What jobs and operators need to talk to a Signalbox controller, and what both sides must agree on.

``signalbox.join`` announces a training job. It is imported when it is first used: a program that only needs another
part does not wait for it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from signalbox.joining import Job as Job
    from signalbox.joining import join as join

_OFFERED = {"join": "signalbox.joining", "Job": "signalbox.joining"}


def __getattr__(name: str) -> Any:
    if name in _OFFERED:
        return getattr(import_module(_OFFERED[name]), name)
    raise AttributeError(f"module 'signalbox' has no attribute {name!r}")
