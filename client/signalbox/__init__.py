"""The client: what jobs and operators need to talk to a Signalbox controller, and what both sides must agree on.

``signalbox.join`` announces a training job. It is imported when it is first used: a program that only needs another
part does not wait for it. Nothing here imports the controller; the controller imports this package.

What both sides agree on:

- ``v1``: the generated code of the API. ``mapping``, ``spec_messages``: its messages as our types, and back.
- ``jobs``: job specs and the traffic that follows from them. ``models``: the traffic of a transformer.
- ``errors``, ``words``: errors that reach users, words of enums.

A training program:

- ``joining``: ``signalbox.join``. ``membership`` decides on registration, lease and reports; ``rounds`` has the thread.
- ``remote_client``, ``client_process``, ``own_sockets``: a process beside the program makes its calls, because gRPC is
  not for a process that forks.
- ``route_following``, ``socket_bytes``: the routes of the job, and the bytes per peer that the kernel counts.
- ``torch``, ``ranks``: the same for PyTorch, and what ranks exchange for it.

Jobs that others announce: ``launching`` (``signalbox run``), ``keeping`` (``signalbox jobs keep``), ``kubernetes``.

Files: ``spec_files``, ``file_forms``, ``yaml_text``, ``toml_text`` read job specs, with line and column of what is
wrong; ``traces`` makes specs from logs.

Operators: ``client`` has the calls, ``cli`` and ``commands`` the command line. ``live`` is the state that ``top``,
``web``, ``report`` and the commands show. ``distributions`` finds commands of other distributions.
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
