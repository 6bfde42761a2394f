"""Client of a Signalbox controller, for training jobs and operators, with the definitions that both sides share.

``signalbox.join`` announces a training job. Its module is imported at the first use of ``join``; programs that need
only another part of the package do not wait for it. The controller imports this package; nothing here imports the
controller.

Shared definitions:

- ``v1``: generated code of the API; ``mapping`` converts its messages to types of this package
- ``jobs``: job specs and their traffic; ``models``: traffic of a transformer
- ``errors``, ``words``: errors that reach users, and words of enums
- ``ip_addresses``: addresses of hosts in the fabric

Training programs:

- ``joining``: ``signalbox.join``; ``membership`` decides on registration, lease and reports, in a thread of ``rounds``
- ``remote_client``, ``client_process``, ``own_sockets``: a separate process makes the program's calls, because gRPC is
  unsafe in a process that forks
- ``route_following``, ``socket_bytes``: routes of the job, and bytes per peer as counted by the kernel
- ``torch``, ``ranks``: announcement of PyTorch programs, and the exchange between their ranks

Announcements on behalf of programs: ``launching`` (``signalbox run``), ``keeping`` (``signalbox jobs keep``),
``kubernetes``.

Files: ``spec_files``, ``file_forms``, ``yaml_text`` and ``toml_text`` read job specs, with line and column of each
mistake; ``traces`` makes specs from logs.

Operators: ``client`` has the calls; ``cli`` and ``commands`` are the command line. ``live`` is the state that ``top``,
``web``, ``report`` and the commands show. ``distributions`` finds commands of other distributions."""

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
