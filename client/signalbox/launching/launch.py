"""Find the hosts of the ranks that a command starts, run the command, and announce its job in separate threads.

The hosts come from the launcher in the command. PyTorch's launchers (``torchrun``, ``python -m torch.distributed.run``,
``accelerate launch``) run once per node. They know the number of nodes, the number of their own node, and the host
where the nodes meet, but not the other nodes.

Everything slow (imports, host names, calls) happens in threads after the command has started. The logger ``signalbox``
reports failures.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from signalbox.errors import SignalboxError
from signalbox.job_ids import rank_of
from signalbox.launching import mpi
from signalbox.launching.mpi import Host, allocated

if TYPE_CHECKING:
    from signalbox.jobs.spec import JobSpec
    from signalbox.membership import Membership
    from signalbox.rounds import Rounds


LOCAL = ("localhost",)


@dataclass(frozen=True, slots=True)
class Launch:
    """Job that a command starts, as far as the command and the environment describe it.

    - ``ranks``: host of each rank; None when it is unknown, with the reason in ``why``
    - ``only_on``: only host that announces the job; empty when any host may announce it
    - ``interfaces``: interfaces over which the job communicates, as names or networks (10.0.0.0/16)"""

    ranks: tuple[str, ...] | None
    why: str = ""
    only_on: str = ""
    interfaces: tuple[str, ...] = ()


def launch_of(command: Sequence[str], environ: Mapping[str, str]) -> Launch:
    """Return the hosts and interfaces of the job that a command starts.

    Raises ``InvalidInput`` when a file cannot be read, or a launcher's option has an unknown form."""
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
    """Return whether this process announces the job. Reads no files.

    If PyTorch's launcher knows the number of its node, only the first node announces the job. If the launcher does not
    know this number, rank 0 announces the job, or a process without a rank."""
    words = _torch_words(os.path.basename(command[0]), command)
    if words and (first := nodes_of(words[1:], environ).first) is not None:
        return first
    return rank_of(environ) in (None, 0)


def _torch_words(program: str, command: Sequence[str]) -> Sequence[str]:
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
    from signalbox.host_addresses import host_names

    for at, word in enumerate(words):
        name, is_joined, value = word.partition("=")
        if name in ("-w", "--nodelist"):
            text = value if is_joined else "".join(words[at + 1 : at + 2])
            return [] if "/" in text else [Host(host, None) for host in host_names(text)]
    return []


MODULES = {"torch.distributed.run", "torch.distributed.launch"}

_FLAGS = {"standalone", "no-python", "module", "m", "run-path", "virtual-local-rank", "help", "h", "use-env"}
"""Names of options without a value; those of accelerate are in ``_ACCELERATE_FLAGS``."""
_ACCELERATE_FLAGS = ("use-", "multi-gpu", "cpu", "tpu", "ipex", "debug", "quiet", "q", "enable-", "same-network")
"""Prefixes of the names of accelerate's options without a value."""
_CALLED = {"num-machines": "nnodes", "machine-rank": "node-rank", "main-process-ip": "master-addr"}
"""Names of torchrun's options, by the name of the same option of accelerate."""


@dataclass(frozen=True, slots=True)
class Nodes:
    """Nodes of a job that PyTorch's launcher starts.

    - ``count``: largest number of nodes; None when it is unknown
    - ``ranks_per_node``: ranks on each node; 1 when ``--nproc-per-node`` is not a positive number
    - ``first``: whether this is the first node; None when it is unknown
    - ``meeting``: host of the rendezvous, which is the first node; empty when it is unknown"""

    count: int | None
    ranks_per_node: int
    first: bool | None
    meeting: str


def nodes_of(words: Sequence[str], environ: Mapping[str, str], accelerate: bool = False) -> Nodes:
    """Return the nodes of the job that PyTorch's launcher starts.

    - ``words``: command line of the launcher, without its name
    - ``environ``: environment; its variables, such as ``PET_NNODES``, replace missing options"""
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
    """Return the values of the launcher's options, by their names in torchrun.

    Reading ends at the first word that is no option, because the options after it belong to the program."""
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
    """Return whether the host is this machine. A name that does not resolve counts as this machine.

    The function may wait for the resolver."""
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


log = logging.getLogger("signalbox")


class Announcement:
    """Announcement of one job.

    - ``find``: function that returns the job's spec, or None when there is nothing to announce
    - ``address``: as for ``signalbox.join``
    - ``take_over``: whether to end another registration that has the job's id"""

    def __init__(self, job_id: str, find: Callable[[], JobSpec | None], address: str | None, take_over: bool) -> None:
        self._job_id, self._find, self._address, self._take_over = job_id, find, address, take_over
        self._membership: Membership | None = None
        self._rounds: Rounds | None = None
        self._lock = threading.Lock()
        self._over = False

    def begin(self) -> None:
        """Begin to announce the job; return at once."""
        try:
            threading.Thread(target=self._begin, name="signalbox-announce", daemon=True).start()
        except RuntimeError as error:
            self._say(error)

    def end(self) -> None:
        """Deregister the job, within a second."""
        with self._lock:
            self._over = True
        if self._rounds and self._membership:
            from signalbox.rounds import LEAVE_S

            self._rounds.leave()
            self._rounds.join(LEAVE_S)
            self._membership.cancel()

    def _begin(self) -> None:
        try:
            spec = self._find()
            if spec is None:
                return
            from signalbox.client import Client
            from signalbox.joining import connecting
            from signalbox.membership import Membership
            from signalbox.rounds import Rounds

            connect, _ = connecting(Client, self._address, None)
            membership = Membership(connect, spec, lambda _: None, take_over=self._take_over, hands_over=True)
            rounds = Rounds("signalbox-lease", lambda: membership.round(time.monotonic()), membership.leave)
            with self._lock:
                if not self._over:
                    rounds.start()
                    self._membership, self._rounds = membership, rounds
        except Exception as error:
            self._say(error)

    def _say(self, error: Exception) -> None:
        what = str(error) if isinstance(error, SignalboxError) else f"{type(error).__name__}: {error}"
        log.warning("job '%s' is not announced (the command runs): %s", self._job_id, what)


NOT_FOUND, NOT_EXECUTABLE = 127, 126
"""Exit statuses with which a shell ends when a command is not found, or cannot be executed."""

_BY_KERNEL = 0x80
"""Value of ``si_code`` for a signal from the kernel, ``SI_KERNEL`` (sigaction(2)).

The kernel sends such a signal, for example after Ctrl-C, to all processes of the group, so it is not forwarded."""

_PASSED = {signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2}
_OF_JOB_CONTROL = {signal.SIGTSTP, signal.SIGCONT}


class Child:
    """A command that begins to run when the object is made, and receives the signals of this process.

    The object must be made in the main thread of a process, before there are other threads. Later threads must block
    all signals, so that the main thread receives them. Raises ``OSError`` when the command cannot be started."""

    def __init__(self, command: Sequence[str], environ: Mapping[str, str]) -> None:
        # The child inherits ignored signals, as after nohup.
        passed = {number for number in _PASSED | _OF_JOB_CONTROL if signal.getsignal(number) != signal.SIG_IGN}
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._awaited = passed | {signal.SIGCHLD}
        former = signal.pthread_sigmask(signal.SIG_BLOCK, self._awaited)
        self._process = subprocess.Popen(
            command,
            env=environ,
            close_fds=False,  # the command needs some descriptors, such as PMI's
            preexec_fn=partial(signal.pthread_sigmask, signal.SIG_SETMASK, former),
        )

    def wait(self) -> int:
        """Forward signals to the command until it ends.

        Returns the exit status of the command, or 128 plus the number of the signal that ended it."""
        while True:
            info = signal.sigwaitinfo(self._awaited)
            if info.si_signo == signal.SIGCHLD:
                pid, status = os.waitpid(self._process.pid, os.WNOHANG)
                if pid:
                    code = self._process.returncode = os.waitstatus_to_exitcode(status)
                    return code if code >= 0 else 128 - code
                continue
            if info.si_code != _BY_KERNEL:
                with suppress(ProcessLookupError):
                    os.kill(self._process.pid, info.si_signo)
            if info.si_signo == signal.SIGTSTP:
                os.kill(os.getpid(), signal.SIGSTOP)
