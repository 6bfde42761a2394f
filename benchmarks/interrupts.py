"""Benchmark ``interrupts``: what the demo and the lab leave on the machine when they are interrupted.

    sudo .venv/bin/python -m benchmarks interrupts [--instants N] [--only demo|lab]

Each program is started many times, and interrupted at another instant each time, in the ``WAYS`` by turns. Each run has
its own network and mount namespaces, ``/run``, Open vSwitch, temporary directory and terminal. The benchmark therefore
finds everything that the run leaves, and nothing else:

- processes, recognized by a variable in their environment;
- interfaces, named namespaces, and bridges in Open vSwitch's database;
- sockets, temporary files and records of labs;
- reports of exceptions on the terminal.

Nothing may remain; otherwise the exit status is 1.
"""

import json
import os
import pty
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.measures import chosen, report

MARK = "SIGNALBOX_INTERRUPTED_RUN"
WAYS = ("Ctrl-C", "SIGTERM", "SIGHUP", "closed terminal", "closed shell", "Ctrl-C again and again")
"""Ways to end a command.

The kernel sends SIGHUP to the session leader when the terminal is closed. With "closed terminal" the leader is the
command itself. With "closed shell" the leader is a shell that runs the command; the shell ends at once, and the kernel
then sends SIGHUP to the command.
"""
END_S = 90.0
GRACE_S = 1.0
"""Seconds after the command has ended by which processes that it killed must be gone."""
AGAIN_S = 0.4
POLL_S = 0.001
SHOWN = 2000
SCRIPT = "scripts/openvswitch.sh"
LAB = (SCRIPT, "run", sys.executable, "-m", "signalbox", "lab")
PROGRAMS: Mapping[str, tuple[tuple[str, ...], float, float]] = {
    "demo": (("make", "--assume-old=setup", "demo"), 16.0, 170.0),
    "lab": (LAB, 5.0, 10.0),
}
"""Command of each program, the seconds that it takes to start, and the latest second at which it is interrupted."""
EMPTY = "mount -t tmpfs tmpfs /run && mount -t sysfs sysfs /sys && ip link set lo up && echo && exec sleep inf"


@dataclass(frozen=True, slots=True)
class Run:
    program: str
    way: str
    instant_s: float
    """Seconds from the start of the command until it was interrupted."""
    status: int | None
    took_s: float
    """Seconds from the interruption until the command ended; for "closed shell", until nothing remained."""
    stayed: tuple[str, ...]
    """Descriptions of what remained (``Place.left``), and lines of the output that report an exception."""
    shown: str
    """Last ``SHOWN`` characters of the run's output."""


class Place:
    """Namespaces and directories of one run.

    ``folder``: directory for the run's files. ``holder``: id of a process that exists to keep the namespaces."""

    def __init__(self, folder: Path, holder: int) -> None:
        self.folder = folder
        self.holder = holder
        self.mark = f"{MARK}={folder}"
        for name in ("tmp", "db", "log", "etc/openvswitch"):
            (folder / name).mkdir(parents=True)

    def enter(self, *argv: str) -> list[str]:
        return ["nsenter", f"--target={self.holder}", "--net", "--mount", f"--wd={Path.cwd()}", "--", *argv]

    def environment(self) -> dict[str, str]:
        places = {"OVS_DBDIR": "db", "OVS_SYSCONFDIR": "etc", "OVS_LOGDIR": "log", "TMPDIR": "tmp"}
        return os.environ | {MARK: str(self.folder)} | {name: str(self.folder / at) for name, at in places.items()}

    def processes(self) -> dict[int, str]:
        """Return the command line of each of the run's processes, by process id."""
        found = {}
        for path in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if self.mark.encode() in (path / "environ").read_bytes().split(b"\0"):
                    found[int(path.name)] = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
        return found

    def left(self) -> list[str]:
        run = Path(f"/proc/{self.holder}/root/run")
        links = json.loads(subprocess.check_output(self.enter("ip", "-json", "link")))
        database = self.folder / "db" / "conf.db"
        return [
            *(f"process {pid}: {words[:100]}" for pid, words in self.processes().items()),
            *(f"interface {link['ifname']}" for link in links if link["ifname"] != "lo"),
            *(f"namespace {path.name}" for path in run.glob("netns/*")),
            *(f"record {path.name}" for path in run.glob("signalbox-labs/*.json")),
            *(f"file {path.name}" for path in run.glob("openvswitch/*") if not path.name.endswith(".lock")),
            *(f"bridge {name}" for name in (_bridges(database) if database.exists() else ())),
            *(f"temporary {path.name}" for path in (self.folder / "tmp").iterdir()),
        ]


def _bridges(database: Path) -> list[str]:
    query = '["Open_vSwitch", {"op": "select", "table": "Bridge", "where": [], "columns": ["name"]}]'
    return [
        row["name"] for row in json.loads(subprocess.check_output(["ovsdb-tool", "query", database, query]))[0]["rows"]
    ]


@contextmanager
def place() -> Iterator[Place]:
    """Yield a new, empty place. Its processes are killed afterwards."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="signalbox-interrupts-")))
        words = ["unshare", "--net", "--mount", "sh", "-c", EMPTY]
        holder = subprocess.Popen(words, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
        stack.callback(holder.wait)
        stack.callback(holder.kill)
        assert holder.stdout
        stack.enter_context(holder.stdout)
        if not holder.stdout.readline():
            raise OSError("cannot make namespaces; this needs root")
        made = Place(folder, holder.pid)
        try:
            yield made
        finally:
            for pid in made.processes():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


class Terminal:
    """Command that runs in a terminal of its own. ``output``: bytes that it has written so far."""

    def __init__(self, argv: Sequence[str], environment: Mapping[str, str]) -> None:
        self.output = b""
        self._master, slave = pty.openpty()
        # setsid instead of preexec_fn: eventlet, which some tests import, warns about code between fork and exec.
        # A shell starts commands with the default signals, also if this benchmark runs in the background without them.
        words = ["setsid", "--ctty", "env", "--default-signal", *argv]
        self.process = subprocess.Popen(words, stdin=slave, stdout=slave, stderr=slave, env=environment)
        os.close(slave)
        while os.tcgetpgrp(self._master) != self.process.pid and self.process.poll() is None:
            time.sleep(POLL_S)  # until then, Ctrl-C reaches no process
        self._open = True
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def type(self, keys: bytes) -> None:
        with suppress(OSError):  # raised when the command has just ended
            os.write(self._master, keys)

    def close(self) -> None:
        """Close the terminal, as when the user closes its window."""
        self._open = False
        self._reader.join()

    def end(self, way: str) -> None:
        if way.startswith("closed"):
            self.close()
        elif way == "SIGTERM":
            self.process.terminate()
        elif way == "SIGHUP":
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGHUP)
        else:
            self.type(b"\x03")
            while way != "Ctrl-C" and self.process.poll() is None:
                time.sleep(AGAIN_S)
                self.type(b"\x03")

    def _read(self) -> None:
        """Read the output until ``close`` is called, and then close the terminal: only the reading thread can."""
        with suppress(OSError):  # EIO: no process has the terminal open any more
            while self._open:
                if select.select([self._master], [], [], 0.02)[0]:
                    self.output += os.read(self._master, 4096)
        os.close(self._master)


def interrupted(program: str, argv: Sequence[str], way: str, instant_s: float, ready: bytes | None = None) -> Run:
    """Start a program, end it in the given way after ``instant_s``, and return the result.

    ``ready``: text that the output must contain before the program is ended."""
    with place() as at:
        led = ("sh", "-c", '"$@"; exit', "sh", *argv) if way == "closed shell" else argv
        terminal = Terminal(at.enter(*led), at.environment())
        due = time.monotonic() + instant_s
        while time.monotonic() < due or (ready is not None and ready not in terminal.output):
            if terminal.process.poll() is not None:
                break
            time.sleep(0.01)
        began = time.monotonic()
        terminal.end(way)
        status = None
        with suppress(subprocess.TimeoutExpired):
            status = terminal.process.wait(END_S)
        ended = time.monotonic()
        until = ended + GRACE_S if led is argv else began + END_S
        while (left := at.left()) and time.monotonic() < until:
            time.sleep(0.05)
            ended = ended if led is argv else time.monotonic()
        text = terminal.output.decode(errors="replace")
        left += [line.strip() for line in text.splitlines() if "Traceback" in line or "Exception ignored" in line]
        terminal.close()
        return Run(program, way, round(instant_s, 2), status, round(ended - began, 2), tuple(left), text[-SHOWN:])


def instants(count: int, start_s: float, last_s: float) -> list[float]:
    """Return ``count`` instants in seconds: half of them before ``start_s``, the other half from then to ``last_s``."""
    early = count // 2
    late = count - early
    return [start_s * i / early for i in range(early)] + [start_s + (last_s - start_s) * i / late for i in range(late)]


def main(
    count: Annotated[int, typer.Option("--instants", min=2, help="Number of instants for each program.")] = 20,
    only: Annotated[str, typer.Option(help=f"Programs to run, from {', '.join(PROGRAMS)}.")] = ",".join(PROGRAMS),
    part: Annotated[
        str, typer.Option(help="Slice of the list of instants: 0:5 runs the first five; all by default.")
    ] = ":",
    out: Annotated[Path, typer.Option(help="Directory for the results.")] = Path("out/bench"),
) -> None:
    """End the demo and the lab at many instants in every way, and list what remains."""
    programs = chosen("--only", only, PROGRAMS)
    first, last = (int(bound) if bound else None for bound in part.split(":"))
    runs = []
    for program in programs:
        argv, start_s, last_s = PROGRAMS[program]
        cases = list(zip(instants(count, start_s, last_s), islice(cycle(WAYS), count), strict=True))
        for instant_s, way in cases[first:last]:
            runs.append(interrupted(program, argv, way, instant_s))
            typer.echo(f"{program} at {instant_s:.1f} s, {way}: {len(runs[-1].stayed)} stayed", err=True)
    data = [asdict(run) for run in runs]
    shown = [{name: value for name, value in run.items() if name != "shown"} for run in data]
    report({"runs": data}, out / "interrupts.json", {"Interrupts": shown})
    if any(run.stayed for run in runs):
        raise typer.Exit(1)
