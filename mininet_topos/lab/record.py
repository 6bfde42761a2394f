"""Records of the names that labs use on the machine, each written before its lab is made, so all labs can be removed.

There is one file per lab in ``/run/signalbox-labs``, with its bridges, namespaces and interfaces. The file is locked
while the owner of the lab runs (the kernel releases the lock even after SIGKILL). Only interfaces and namespaces in a
record, and bridges with the lab's mark, are removed. If Open vSwitch ended before the lab, tap devices with the
bridges' names are left, which are removed too.

The module also runs commands and waits for conditions.
"""

import fcntl
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, TextIO

import structlog

from mininet_topos import ending
from signalbox.errors import SignalboxError

RECORDS = Path("/run/signalbox-labs")
BRIDGE_MARK = "signalbox-lab"
DEADLINE_S = 30.0
OVS_TIMEOUT_S = 10

log = structlog.get_logger(__name__)


class LabError(SignalboxError):
    """The lab cannot do what was requested; the message says why."""


@dataclass(frozen=True, slots=True)
class LabRecord:
    """Names that a lab with ``prefix`` uses on this machine. ``owner``: id of the process that runs it."""

    prefix: str
    owner: int
    bridges: tuple[str, ...]
    namespaces: tuple[str, ...]
    interfaces: tuple[str, ...]

    @property
    def mark(self) -> str:
        """Value of ``BRIDGE_MARK`` in the ``external_ids`` of its bridges."""
        return self.prefix or "default"


def run(*argv: str, feed: str | None = None, deadline_s: float = DEADLINE_S) -> str:
    """Run a command in its own session, which Ctrl-C does not reach, and return its output.

    ``feed``: input of the command. Raises ``LabError`` with the command's error message."""
    shown = " ".join(argv)[:200]
    ending.check()
    try:
        with ending.kept_from_children():
            result = subprocess.run(
                argv, capture_output=True, text=True, start_new_session=True, timeout=deadline_s, input=feed
            )
    except FileNotFoundError:
        raise LabError(f"{argv[0]} is not installed; run scripts/bootstrap.sh") from None
    except subprocess.TimeoutExpired:
        raise LabError(f"no answer within {deadline_s:.0f} s: {shown}") from None
    if result.returncode:
        raise LabError(f"{shown}: {result.stderr.strip() or result.stdout.strip()}")
    return result.stdout


def in_one_process(program: Literal["ip", "tc"], steps: Iterable[str]) -> str:
    """Return the output of all ``steps``, each the arguments of one command.

    Steps after a failed one are carried out too, before ``LabError`` is raised."""
    return run(program, "-force", "-batch", "-", feed="\n".join(steps))


def wait_for(condition: Callable[[], bool], what: str, deadline_s: float = DEADLINE_S, poll_s: float = 0.01) -> None:
    """Return once ``condition`` holds. Raises ``LabError`` that names ``what`` after ``deadline_s`` seconds."""
    ends = time.monotonic() + deadline_s
    while not condition():
        if time.monotonic() > ends:
            raise LabError(f"waited {deadline_s:.0f} s for {what}")
        ending.sleep(poll_s)


def claim(record: LabRecord) -> TextIO:
    """Remove the remains of ended labs, check that every name of ``record`` is free, and write the record.

    Returns the locked file, for ``release``. Raises ``LabError`` when a running lab has the prefix or when a name is
    taken."""
    with registry():
        for path in sorted(RECORDS.glob("*.json")):
            _remove_if_dead(path)
        path = RECORDS / f"{record.mark}.json"
        if path.exists():
            raise LabError(f"a lab with prefix {record.prefix!r} is running: process {_read(path).owner}")
        _delete_bridges(bridge for mark, bridge in _marked_bridges() if not (RECORDS / f"{mark}.json").exists())
        _check_free(record)
        file = path.open("w")
        fcntl.flock(file, fcntl.LOCK_EX)
        json.dump(asdict(record), file)
        file.flush()
        return file


def release(record: LabRecord, file: TextIO) -> None:
    """Remove everything that ``record`` names, then the record."""
    remove(record)
    with registry():
        Path(file.name).unlink()
        file.close()


def remove(record: LabRecord) -> None:
    """Kill the programs in the lab's namespaces, then delete its bridges, interfaces and namespaces.

    The start of the next lab deletes bridges that Open vSwitch cannot delete now."""
    existing = namespaces()
    mine = [name for name in record.namespaces if name in existing]
    _kill_programs(mine)
    try:
        _delete_bridges(bridge for mark, bridge in _marked_bridges() if mark == record.mark)
    except LabError as error:
        with suppress(OSError):  # the terminal may be gone
            log.warning("lab_without_open_vswitch", prefix=record.prefix, reason=str(error))
    interfaces = (*record.interfaces, *record.bridges)
    with suppress(LabError):  # some are deleted with the other end of their pair
        in_one_process("ip", (f"link delete {interface}" for interface in filter(interface_exists, interfaces)))
    in_one_process("ip", (f"netns delete {name}" for name in mine))
    wait_for(lambda: not any(map(interface_exists, interfaces)), "interfaces to be deleted")


def interface_exists(name: str) -> bool:
    return Path("/sys/class/net", name).exists()


def namespaces() -> set[str]:
    """Return the named network namespaces of this machine."""
    return {line.split()[0] for line in run("ip", "netns", "list").splitlines() if line}


def _kill_programs(names: list[str]) -> None:
    def programs() -> list[int]:
        return [int(pid) for pid in in_one_process("ip", (f"netns pids {name}" for name in names)).split()]

    def killed() -> bool:
        living = [pid for pid in programs() if not _is_zombie(pid)]
        for pid in living:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return not living

    wait_for(killed, f"the programs in {', '.join(names)} to end")


def _is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def _marked_bridges() -> list[tuple[str, str]]:
    """Return (mark, name) of every bridge of a lab."""
    table: Any = json.loads(_ovs_vsctl("--format=json", "--columns=name,external_ids", "list", "Bridge"))
    marks = [(dict(external_ids[1]).get(BRIDGE_MARK), name) for name, external_ids in table["data"]]
    return [(mark, name) for mark, name in marks if mark]


def _delete_bridges(bridges: Iterable[str]) -> None:
    """Delete the bridges in one transaction.

    Without ovs-vswitchd they are deleted from the database only, and the call fails after a while."""
    steps = [word for bridge in bridges for word in ("--", "--if-exists", "del-br", bridge)]
    if steps:
        _ovs_vsctl(*steps)


def _ovs_vsctl(*argv: str) -> str:
    """Run ovs-vsctl with a time limit: without ovs-vswitchd it would wait for ever."""
    return run("ovs-vsctl", f"--timeout={OVS_TIMEOUT_S}", *argv)


def _check_free(record: LabRecord) -> None:
    taken = sorted(
        (set(_ovs_vsctl("list-br").split()) & set(record.bridges))
        | (namespaces() & set(record.namespaces))
        | {name for name in (*record.interfaces, *record.bridges) if interface_exists(name)}
    )
    if taken:
        raise LabError(f"these names are taken: {', '.join(taken)}; remove them or give the lab a prefix")


def _remove_if_dead(path: Path) -> None:
    with path.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        if path.stat().st_size:
            record = _read(path)
            log.info("lab_left_over", prefix=record.prefix, owner=record.owner)
            remove(record)
        path.unlink()


def _read(path: Path) -> LabRecord:
    fields: Any = json.loads(path.read_text())
    names = {what: tuple(fields[what]) for what in ("bridges", "namespaces", "interfaces")}
    return LabRecord(prefix=fields["prefix"], owner=fields["owner"], **names)


@contextmanager
def registry() -> Iterator[None]:
    """Keep other processes from reading or changing the set of records. Raises ``LabError`` without root."""
    try:
        RECORDS.mkdir(mode=0o755, exist_ok=True)
        lock = (RECORDS / "lock").open("w")
    except OSError as error:
        raise LabError(f"{RECORDS}: {error.strerror}; labs need root") from None
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
