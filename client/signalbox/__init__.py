"""What jobs and operators need to talk to a Signalbox controller, and what both sides must agree on.

``signalbox.join`` announces a training job. It is imported when it is first used: a program that only needs another
part does not wait for it.

gRPC does things of its own when a process forks, as for data loaders, and in a process that connects meanwhile they end
the child, or the process itself, by a signal. So they are turned off, which gRPC must know before it is imported. A
program that has chosen keeps its choice.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from signalbox.joining import Job as Job
    from signalbox.joining import join as join

os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

_OFFERED = {"join": "signalbox.joining", "Job": "signalbox.joining"}


def __getattr__(name: str) -> Any:
    if name in _OFFERED:
        return getattr(import_module(_OFFERED[name]), name)
    raise AttributeError(f"module 'signalbox' has no attribute {name!r}")
