"""Hosts of the ranks of a command, from the launcher that it names, and the process that announces the job.

PyTorch's launchers are ``torchrun``, ``python -m torch.distributed.run`` and ``accelerate launch``. Such a launcher
runs once per node and does not know the other nodes. It knows the number of nodes, which node this is, and where the
nodes meet."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from signalbox.job_ids import rank_of
from signalbox.launching import mpi
from signalbox.launching.mpi import Host, allocated

LOCAL = ("localhost",)


@dataclass(frozen=True, slots=True)
class Launch:
    """Facts about a job before it runs.

    - ``ranks``: host of each rank; None when it is unknown, with the reason in ``why``
    - ``only_on``: only host that announces the job; empty when any host may announce it
    - ``interfaces``: interfaces that the job communicates over, as names or networks (10.0.0.0/16)"""

    ranks: tuple[str, ...] | None
    why: str = ""
    only_on: str = ""
    interfaces: tuple[str, ...] = ()


def launch_of(command: Sequence[str], environ: Mapping[str, str]) -> Launch:
    """Return the facts about the job that a command starts.

    Raises ``InvalidInput`` for an unreadable file or an unknown form of a launcher's option."""
    program = os.path.basename(command[0])
    if mpi.PROGRAMS.fullmatch(program):
        ranks, interfaces = mpi.ranks_and_interfaces(command[1:], environ, allocated(environ, step=False))
        return Launch(tuple(ranks) or LOCAL, interfaces=tuple(interfaces))
    if words := _torch_words(program, command):
        return _of_torch(nodes_of(words[1:], environ, accelerate=program == "accelerate"), environ)
    if program == "srun":
        return _of(
            _nodelist(command[1:]) or allocated(environ, step=False), "srun names no nodes, and there is no Slurm job"
        )
    # Open MPI's daemons run in a Slurm step of their own, which lacks the first node, so the job's hosts are used.
    return _of(allocated(environ, step="OMPI_COMM_WORLD_RANK" not in environ), f"{program} does not name hosts")


def announces(command: Sequence[str], environ: Mapping[str, str]) -> bool:
    """Return whether this process announces the job.

    A PyTorch launcher that knows its node's number announces the job on the first node only. Otherwise rank 0 announces
    the job, or a process without a rank. Reads no files."""
    words = _torch_words(os.path.basename(command[0]), command)
    if words and (first := nodes_of(words[1:], environ).first) is not None:
        return first
    return rank_of(environ) in (None, 0)


def _torch_words(program: str, command: Sequence[str]) -> Sequence[str]:
    """Return the words of PyTorch's launcher from its name on; empty for another program."""
    if program == "torchrun":
        return command
    if program == "accelerate" and command[1:2] == ["launch"]:
        return command[1:]
    if re.fullmatch(r"python[\d.]*", program) and "-m" in command:
        words = command[command.index("-m") + 1 :]
        return words if words and words[0] in MODULES else ()
    return ()


def _of_torch(nodes: Nodes, environ: Mapping[str, str]) -> Launch:
    if nodes.count == 1:
        return Launch(LOCAL)
    hosts = [Host(host.name, nodes.ranks_per_node) for host in allocated(environ, step=True)]
    only_on = nodes.meeting if nodes.first is None and rank_of(environ) is None else ""
    return _of(hosts, "the launcher names only the host of its rendezvous", only_on)


def _of(hosts: Sequence[Host], why: str, only_on: str = "") -> Launch:
    ranks = tuple(host.name for host in hosts for _ in range(host.slots or 1))
    return Launch(ranks or None, why, only_on)


def _nodelist(words: Sequence[str]) -> list[Host]:
    """Return the hosts in srun's option --nodelist."""
    from signalbox.host_addresses import host_names

    for at, word in enumerate(words):
        name, is_joined, value = word.partition("=")
        if name in ("-w", "--nodelist"):
            text = value if is_joined else "".join(words[at + 1 : at + 2])
            return [] if "/" in text else [Host(host, None) for host in host_names(text)]
    return []


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
