"""Hosts of the ranks that ``mpirun`` starts, from its command line and from the scheduler: Slurm, PBS and LSF.

``mpirun`` belongs to Open MPI, or is Hydra of MPICH and Intel MPI. Each host counts as one rank where the number
depends on other facts, such as its cores. An extra host does no harm; a missing host gets no routes.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import cycle, islice
from pathlib import Path
from typing import NamedTuple

from signalbox.errors import InvalidInput
from signalbox.files import read_bytes


class Host(NamedTuple):
    """A host. ``slots``: largest number of its ranks; None when it is unknown."""

    name: str
    slots: int | None


def allocated(environ: Mapping[str, str], step: bool) -> list[Host]:
    """Return the hosts that a scheduler has allocated; empty without a scheduler. Raises ``InvalidInput``.

    With ``step``, the result has the hosts of this process's Slurm step. Without ``step``, it has the hosts of the
    whole job, which launchers inside the job use."""
    for nodes, tasks in _SLURM[0 if step else 1 :]:
        if environ.get(nodes):
            return _of_slurm(environ[nodes], environ.get(tasks, ""))
    for name in ("PBS_NODEFILE", "LSB_DJOB_HOSTFILE"):
        if environ.get(name):
            return each_once(text_of(environ[name]).split())
    return each_once(environ.get("LSB_HOSTS", "").split())


_SLURM = (("SLURM_STEP_NODELIST", "SLURM_STEP_TASKS_PER_NODE"), ("SLURM_JOB_NODELIST", "SLURM_TASKS_PER_NODE"))


def _of_slurm(nodes: str, tasks: str) -> list[Host]:
    """Return hosts with their slots. ``tasks``: slots of each host, such as ``2(x3),1`` for 2, 2, 2 and 1 (srun(1))."""
    from signalbox.host_addresses import host_names

    names = host_names(nodes)
    found = re.findall(r"(\d+)(?:\(x(\d+)\))?", tasks)
    counts = [int(count) for count, times in found for _ in range(int(times or 1))]
    if len(counts) != len(names):
        return [Host(name, None) for name in names]
    return [Host(name, count) for name, count in zip(names, counts, strict=True)]


def each_once(names: Iterable[str]) -> list[Host]:
    """Return each host once. The number of slots of a host is the number of times that the host is named."""
    return [Host(name, slots) for name, slots in Counter(names).items()]


def text_of(file: str) -> str:
    """Return the text of a file. Raises ``InvalidInput``."""
    try:
        return read_bytes(Path(file)).decode(errors="replace")
    except OSError as error:
        raise InvalidInput.of(file, error.strerror or str(error)) from None


PROGRAMS = re.compile(r"(mpirun|mpiexec|orterun|prterun|oshrun)([.-](openmpi|mpich|hydra|orte|prte))?")

HOST_FILES = ("OMPI_MCA_orte_default_hostfile", "PRTE_MCA_prte_default_hostfile")
HYDRA_FILES = ("HYDRA_HOST_FILE", "I_MPI_HYDRA_HOST_FILE")
INTERFACES = "btl_tcp_if_include"
MAPPING = "rmaps_base_mapping_policy"

_COUNT = {"np", "n", "c"}
_PER_HOST = {"npernode", "N", "ppn", "perhost", "grr"}
_HOST_LIST = {"H", "host", "hosts"}
_HOST_FILE = {"hostfile", "machinefile", "default-hostfile", "f"}
_SETTING = {"mca", "gmca", "omca", "prtemca", "gprtemca", "pmixmca", "gpmixmca", "genv", "env"}
"""Options with two values: the name and the value of a setting."""
_OTHER = {
    *("x", "wdir", "wd", "path", "prefix", "map-by", "rank-by", "bind-to", "rankfile", "rf", "output-filename", "am"),
    *("tune", "timeout", "stdin", "app", "npersocket", "cpus-per-proc", "cpus-per-rank", "cpu-set", "cpu-list"),
    *("preload-files", "preload-files-dest-dir", "report-uri", "ompi-server", "server-wait-time", "max-restarts"),
    *("personality", "tmpdir", "debugger", "launch-agent", "runtime-options", "output", "display", "dvm-uri", "pmixam"),
    *("genvlist", "envlist", "launcher", "launcher-exec", "bootstrap", "bootstrap-exec", "iface", "rmk", "membind"),
    *("topolib", "configfile", "outfile-pattern", "errfile-pattern", "ckpoint-prefix", "print-rank-map", "umask"),
}
_ONE = _COUNT | _PER_HOST | _HOST_LIST | _HOST_FILE | _OTHER


@dataclass
class _Part:
    """Program in the command line of ``mpirun``, with its options. Colons separate several programs.

    - ``count``: number of ranks; ``per_host``: number of ranks on each host; None when not given
    - ``by_host``: whether consecutive ranks are on different hosts, instead of on the same host until it is full
    - ``slots_known``: whether the options determine the number of ranks on each host"""

    hosts: list[Host] = field(default_factory=list)
    count: int | None = None
    per_host: int | None = None
    by_host: bool = False
    slots_known: bool = True


def ranks_and_interfaces(
    words: Sequence[str], environ: Mapping[str, str], allocation: Sequence[Host]
) -> tuple[list[str], list[str]]:
    """Return the host of each rank, and the interfaces or networks that Open MPI uses.

    - ``words``: command line of the launcher, without its name
    - ``allocation``: hosts to use when neither the words nor a host file name any

    Raises ``InvalidInput``."""
    interfaces = environ.get(f"OMPI_MCA_{INTERFACES}", "")
    files = [environ[name] for name in (*HOST_FILES, *HYDRA_FILES) if environ.get(name)]
    parts = []
    for of_part in _divided(words):
        part = _Part()
        listed: list[str] = []
        _map_by(part, environ.get(f"OMPI_MCA_{MAPPING}", ""))
        for name, *values in options(of_part):
            if name in _COUNT:
                part.count = _number(name, values)
            elif name in _PER_HOST:
                part.per_host = _number(name, values)
            elif name == "pernode":
                part.per_host = 1
            elif name in ("bynode", "rr"):
                part.by_host = True
            elif name == "map-by":
                _map_by(part, values[0])
            elif name in _SETTING and values[0] == MAPPING:
                _map_by(part, values[1])
            elif name in _HOST_LIST and "+" in (word[:1] for word in values[0].split(",")):
                part.slots_known = False  # +n0 is the first host of the host file or the scheduler, +e an idle host
            elif name in _HOST_LIST:
                listed += _listed(values[0])
                part.hosts = each_once(listed)
            elif name in _HOST_FILE and not listed:  # a list of hosts has precedence: it selects hosts of the file
                part.hosts = _in_file(values[0])
            elif name in _SETTING and values[0].endswith("default_hostfile"):
                files = [values[1]]
            elif name in _SETTING and values[0] == INTERFACES:
                interfaces = values[1]
            elif name in ("rankfile", "rf", "app", "configfile", "npersocket"):
                part.slots_known = False
        parts.append(part)
    usual = next((part.hosts for part in parts if part.hosts), [])
    usual = usual or [host for file in files[:1] for host in _in_file(file)] or [*allocation]
    ranks: list[str] = []
    for part in parts:
        ranks += _hosts_of_ranks(replace(part, hosts=_with_free_slots(part.hosts or usual, Counter(ranks))))
    return ranks, [each for each in interfaces.split(",") if each]


def options(words: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield each option before the program: its name without dashes, then its values."""
    left = iter(words)
    for word in left:
        if not word.startswith("-"):
            return
        name, is_joined, value = word.lstrip("-").partition("=")
        values = [value] if is_joined else []
        wanted = 2 if name in _SETTING else 1 if name in _ONE else 0
        values += islice(left, max(0, wanted - len(values)))
        if len(values) < wanted:
            raise InvalidInput.of("", f"{word} has no value")
        yield name, *values


def _map_by(part: _Part, how: str) -> None:
    how = how.lower()
    if ppr := re.fullmatch(r"ppr:(\d+):node(?::.*)?", how):
        part.per_host = int(ppr[1])
    elif how.partition(":")[0] == "node":
        part.by_host = True
    elif re.search(r"ppr:|pe=|seq|rankfile|span", how):
        part.slots_known = False


def _with_free_slots(hosts: Sequence[Host], used: Mapping[str, int]) -> list[Host]:
    """Return the hosts with the slots that earlier programs in the command line have not used.

    If no host has a free slot, return the hosts with all their slots."""
    left = [host if host.slots is None else Host(host.name, max(0, host.slots - used[host.name])) for host in hosts]
    return left if any(host.slots != 0 for host in left) else [*hosts]


def _divided(words: Sequence[str]) -> Iterator[list[str]]:
    part: list[str] = []
    for word in words:
        if word == ":":
            yield part
            part = []
        else:
            part.append(word)
    yield part


def _number(name: str, values: Sequence[str]) -> int:
    if not values[0].isascii() or not values[0].isdigit():
        raise InvalidInput.of("", f"-{name} {values[0]} is not a number of ranks")
    return int(values[0])


def _listed(text: str) -> Iterator[str]:
    """Yield the hosts in a list such as ``n1,n2:4``, each as often as it has slots."""
    for word in filter(None, text.split(",")):
        name, _, slots = word.partition(":")
        yield from [name.rpartition("@")[2]] * (int(slots) if slots.isdigit() else 1)


def _in_file(file: str) -> list[Host]:
    """Return the hosts of a file with lines such as ``n1 slots=4`` (Open MPI) or ``n1:4`` (Hydra)."""
    found: dict[str, int | None] = {}
    for line in text_of(file).splitlines():
        words = line.partition("#")[0].split()
        if not words or words[0].startswith("^"):
            continue
        name, _, after = words[0].rpartition("@")[2].partition(":")
        said = re.search(r"(?<![\w-])(?:slots|count|cpus?)\s*=\s*(\d+)", line)
        slots = int(said[1]) if said else int(after) if after.isdigit() else None
        found[name] = slots if name not in found or slots is None else (found[name] or 0) + slots
    return [Host(name, slots) for name, slots in found.items()]


def _hosts_of_ranks(part: _Part) -> Iterable[str]:
    """Return the host of each rank of a program.

    If the number of ranks on a host is unknown, each host is returned once."""
    hosts = [Host(host.name, part.per_host or host.slots) for host in part.hosts]
    if part.by_host and part.count and all(host.slots is None for host in hosts):
        return islice(cycle([host.name for host in hosts]), part.count if hosts else 0)
    if not part.slots_known or any(host.slots is None for host in hosts):
        return [host.name for host in hosts]
    slots = [range(host.slots or 0) for host in hosts]
    if part.by_host:
        most = max(map(len, slots), default=0)
        filled = [host.name for k in range(most) for host, of in zip(hosts, slots, strict=True) if k in of]
    else:
        filled = [host.name for host, of in zip(hosts, slots, strict=True) for _ in of]
    return filled if part.count is None else islice(cycle(filled), part.count if filled else 0)
