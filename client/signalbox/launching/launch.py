"""Find out, before a job runs, which process announces it and on which hosts its ranks are.

``launch_of`` uses the command and the environment, and reads files that the command names."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from signalbox.launchers import rank_of
from signalbox.launching import mpi, torch
from signalbox.launching.schedulers import Host, allocated

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
        return _of_torch(torch.nodes_of(words[1:], environ, accelerate=program == "accelerate"), environ)
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
    if words and (first := torch.nodes_of(words[1:], environ).first) is not None:
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
        return words if words and words[0] in torch.MODULES else ()
    return ()


def _of_torch(nodes: torch.Nodes, environ: Mapping[str, str]) -> Launch:
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
