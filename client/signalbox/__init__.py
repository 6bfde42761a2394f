"""Client of a Signalbox controller, for training jobs and operators, with the definitions that both sides share.

The controller imports this package; nothing here imports the controller. ``signalbox.join`` announces a training job.
The module of ``join`` is imported at the first use of ``join``, so that other programs do not wait for this import.

Shared definitions:

- ``v1``: generated code of the API; ``mapping`` converts its messages to types of this package
- ``jobs``: job specs and their traffic; ``models``: traffic of a transformer
- ``errors``, ``words``, ``ip_addresses``: errors that reach users, words of enums, addresses of hosts

Training programs:

- ``joining``: ``signalbox.join``; ``membership`` decides on registration, lease and reports
- ``remote_client``, ``client_process``, ``own_sockets``: a separate process makes the program's calls
- ``route_following``, ``socket_bytes``: routes of the job, and bytes per peer as counted by the kernel
- ``torch``, ``ranks``: announcement of PyTorch programs, and the exchange between their ranks

Announcements on behalf of programs: ``launching`` (``signalbox run``), ``keeping`` (``signalbox jobs keep``),
``kubernetes``.

Files: ``spec_files``, ``file_forms``, ``yaml_text`` and ``toml_text`` read job specs; ``traces`` makes specs from logs.

Operators: ``client`` has the calls; ``cli`` and ``commands`` are the command line. ``live`` is the state that ``top``,
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
