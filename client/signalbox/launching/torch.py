"""Read the options of PyTorch's launchers: ``torchrun``, ``python -m torch.distributed.run``, ``accelerate launch``.

A launcher runs once per node and does not know the other nodes. It knows the number of nodes, which node this is, and
where the nodes meet."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

MODULES = {"torch.distributed.run", "torch.distributed.launch"}

_FLAGS = {"standalone", "no-python", "module", "m", "run-path", "virtual-local-rank", "help", "h", "use-env"}
"""Options without a value. All other options have a value, except those of accelerate in ``_ACCELERATE_FLAGS``."""
_ACCELERATE_FLAGS = ("use-", "multi-gpu", "cpu", "tpu", "ipex", "debug", "quiet", "q", "enable-", "same-network")
"""Beginnings of accelerate's options without a value."""
_CALLED = {"num-machines": "nnodes", "machine-rank": "node-rank", "main-process-ip": "master-addr"}
"""Torchrun's names of accelerate's options."""


@dataclass(frozen=True, slots=True)
class Nodes:
    """Nodes of a job.

    - ``count``: largest number of nodes; None when it is unknown
    - ``ranks_per_node``: ranks on each node; 1 when ``--nproc-per-node`` is not a positive number
    - ``first``: whether this is the first node; None when it is unknown
    - ``meeting``: host where the nodes meet, which is the first node; empty when it is unknown"""

    count: int | None
    ranks_per_node: int
    first: bool | None
    meeting: str


def nodes_of(words: Sequence[str], environ: Mapping[str, str], accelerate: bool = False) -> Nodes:
    """Return the nodes of the job that a launcher starts.

    ``words``: the launcher's words after its name. ``environ``: environment, whose variables such as ``PET_NNODES``
    replace missing options."""
    given = _options(words, accelerate)

    def value(name: str) -> str:
        return given.get(name) or environ.get(f"PET_{name.replace('-', '_').upper()}", "")

    most = value("nnodes").rpartition(":")[2]
    count = int(most) if most.isdigit() else None if accelerate else 1
    per_node = value("nproc-per-node")
    if "standalone" in given:
        count = 1
    first = int(value("node-rank")) == 0 if value("node-rank").isdigit() else None
    meeting = re.sub(r":\d+$", "", value("rdzv-endpoint") or value("master-addr")).strip("[]")
    return Nodes(count, int(per_node) if per_node.isdigit() and int(per_node) else 1, first, meeting)


def _options(words: Sequence[str], accelerate: bool) -> dict[str, str]:
    """Return the options before the training program, by their long names."""
    found: dict[str, str] = {}
    left = iter(words)
    for word in left:
        if not word.startswith("-"):
            break
        name, is_joined, value = word.lstrip("-").partition("=")
        name = name.replace("_", "-")
        flag = name in _FLAGS or (accelerate and name.startswith(_ACCELERATE_FLAGS))
        found[_CALLED.get(name, name)] = value if is_joined or flag else next(left, "")
    return found


def is_own(host: str) -> bool:
    """Return whether the host is this machine; True when the name does not resolve. May wait for the resolver."""
    import socket  # its import takes a moment that other launchers do not need

    try:
        answers = socket.getaddrinfo(host, 0, type=socket.SOCK_DGRAM)
    except OSError:
        return True
    for family, kind, protocol, _, address in answers:
        with socket.socket(family, kind, protocol) as own:
            try:
                own.bind(address)
            except OSError:
                continue
            return True
    return False
