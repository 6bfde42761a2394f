"""Controllers for tests, as forks of a process that has imported everything: imports take most of a start's CPU time.

The process has one thread while it forks, and each fork gets its own hub of eventlet. It ends with the test run, and
the kernel kills its forks then. A request is an environment, a working directory, a command line and a log, or a
process id to wait for.

The children of a controller, such as the planner, are forks too. A second fork, made before the controller has threads,
makes them in its place: their parent is the controller, as if it had started them."""

import ctypes
import gc
import importlib
import json
import os
import platform
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from fcntl import F_DUPFD_CLOEXEC, fcntl
from multiprocessing import util
from typing import Any

import pytest

from controller.child import THE_CONTROLLERS
from mininet_topos import controller_process

CHILDREN = "children"
NEXT_VERSION = "tests.support.wire.next_version"
MODULES = (
    "signalbox.__main__",
    "signalbox.cli",
    "controller.commands.serving",
    "controller.planning.worker",
    "controller.serving.serve",
    "controller.southbound.own_process",
    "controller.southbound.run_hub",
)
PR_SET_PDEATHSIG = 1
SYS_CLONE = {"x86_64": 56, "aarch64": 220}[platform.machine()]
CLONE_PARENT = 0x8000


class Fork(subprocess.Popen[bytes]):
    _child_created = False  # no parent of the fork, so ``Popen`` has nothing to collect

    def __init__(self, pid: int, of: "Preloaded") -> None:
        self.args, self.pid, self.returncode = "controller", pid, None
        self._of, self._ended, self._collecting = of, os.pidfd_open(pid), threading.Lock()

    def poll(self) -> int | None:
        with suppress(subprocess.TimeoutExpired):
            return self.wait(0)
        return None

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            ended = select.poll()
            ended.register(self._ended, select.POLLIN)
            if not ended.poll(None if timeout is None else timeout * 1000):
                raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
            with self._collecting:
                if self.returncode is None:
                    self.returncode = self._of.ask(self.pid)
                    os.close(self._ended)
        return int(self.returncode)


class Preloaded:
    """Process that forks controllers of the present or the next version. ``program``: module that starts them."""

    def __init__(self, program: str) -> None:
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._asking = threading.Lock()
        words = [sys.executable, "-m", __name__, program, str(theirs.fileno())]
        # The first is for one thread; ``signalbox.__main__`` sets the others before it imports modules.
        more = {"OPENBLAS_NUM_THREADS": "1", "GRPC_VERBOSITY": "NONE", "PYDANTIC_DISABLE_PLUGINS": "__all__"}
        with theirs:
            self._process = subprocess.Popen(
                words,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                env={**os.environ, **more},
                stdin=subprocess.DEVNULL,
            )

    def ask(self, what: object, *files: int) -> int:
        with self._asking:
            socket.send_fds(self._requests, [json.dumps(what).encode()], files)
            return int(self._requests.recv(100))

    def end(self) -> None:
        self._requests.close()
        self._process.wait()


def read_by_imports() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith(("PYTHON", "SIGNALBOX_OPENFLOW"))}


@pytest.fixture(scope="session", autouse=True)
def preloaded_controllers() -> Iterator[None]:
    """Start controllers as forks, unless they run elsewhere or with another Python or OpenFlow than the test run."""
    usual, before, made = controller_process.start, read_by_imports(), dict[str, Preloaded]()

    def start(module: str, *argv: str, inside: Any = (), **options: Any) -> subprocess.Popen[bytes]:
        if module not in {"controller", NEXT_VERSION} or inside or read_by_imports() != before:
            return usual(module, *argv, inside=inside, **options)
        if module not in made:
            made[module] = Preloaded(module)
        here = made[module]
        return Fork(here.ask([dict(os.environ), os.getcwd(), *argv], options["stdout"].fileno()), here)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(controller_process, "start", start)
        yield
    for each in made.values():
        each.end()


def main(program: str, requests: socket.socket) -> None:
    gc.disable()
    if program == NEXT_VERSION:
        importlib.import_module(program).become_next()
    for name in MODULES:
        importlib.import_module(name)
    gc.freeze()
    gc.enable()
    if program == CHILDREN:
        make_children(requests)
        return
    own = os.getpid()
    assert len(os.listdir("/proc/self/task")) == 1, "a fork of several threads may wait for their locks for ever"
    while True:
        request, files, _, _ = socket.recv_fds(requests, 1 << 16, 1)
        if not request:
            return
        match json.loads(request):
            case int(pid):
                answer = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            case [environ, folder, *argv]:
                answer = os.fork()
                if not answer:
                    requests.close()
                    run(own, environ, folder, argv, *files)
                    return
                os.close(*files)
        requests.send(str(answer).encode())


def run(parent: int, environ: dict[str, str], folder: str, argv: list[str], log: int) -> None:
    """Become a controller with these arguments."""
    os.setsid()
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    os.environ.clear()
    os.environ.update(environ)
    os.chdir(folder)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if not os.fork():
        requests.close()
        make_children(theirs)
        return
    theirs.close()
    importlib.import_module("eventlet.hubs").use_hub()
    vars(util)["spawnv_passfds"] = forking(requests)
    sys.argv[1:] = argv
    importlib.import_module("signalbox.__main__").main()


def forking(requests: socket.socket) -> Callable[[bytes, list[str], list[int]], int]:
    """Return a function that starts a child process, by a request to ``make_children``."""
    usual, asking = util.spawnv_passfds, threading.Lock()

    def spawn(path: bytes, words: list[str], files: list[int]) -> int:
        if "--multiprocessing-fork" not in words:
            return usual(path, words, files)
        with asking:
            socket.send_fds(requests, [json.dumps([words[1:], files]).encode()], files)
            return int(requests.recv(100))

    return spawn


@pytest.fixture(scope="module")
def forked_children() -> Iterator[None]:
    """Let the children of this process be forks of a process that has imported everything."""
    requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", __name__, CHILDREN, str(theirs.fileno())], pass_fds=[theirs.fileno()]
        )
    with requests, pytest.MonkeyPatch.context() as patched:
        patched.setattr(util, "spawnv_passfds", forking(requests))
        yield
    process.wait()


def make_children(requests: socket.socket) -> None:
    """Make forks that are children of this process's parent: each runs the code of a command ``python -c``.

    A request is the command line, and the numbers of the files that the fork gets, with the files."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.pthread_sigmask(signal.SIG_BLOCK, THE_CONTROLLERS)
    while True:
        request, files, _, _ = socket.recv_fds(requests, 1 << 16, 100)
        if not request:
            return
        words, numbers = json.loads(request)
        made = fork_as_sibling()
        if not made:
            requests.close()
            importlib.import_module("eventlet.hubs").use_hub()
            above = max(numbers) + 1
            high = [fcntl(file, F_DUPFD_CLOEXEC, above) for file in files]
            os.closerange(3, above)
            for file, number in zip(high, numbers, strict=True):
                os.dup2(file, number)
                os.close(file)
            code = words.index("-c") + 1
            sys.argv = ["-c", *words[code + 1 :]]
            try:
                exec(words[code], {"__name__": "__main__"})
            except SystemExit as end:
                os._exit(int(end.code or 0))  # as forks of multiprocessing end; all imported modules would take long
            except EOFError:
                os._exit(1)  # the parent has ended before it said what to do
            return
        for file in files:
            os.close(file)
        requests.send(str(made).encode())


def fork_as_sibling() -> int:
    """Fork, as ``os.fork`` does, but make the new process a child of this process's parent."""
    python, libc = ctypes.pythonapi, ctypes.PyDLL(None)
    python.PyOS_BeforeFork()
    made = int(libc.syscall(SYS_CLONE, CLONE_PARENT | signal.SIGCHLD, *[ctypes.c_long(0)] * 4))
    (python.PyOS_AfterFork_Parent if made else python.PyOS_AfterFork_Child)()
    return made


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[2])) as received:
        main(sys.argv[1], received)
