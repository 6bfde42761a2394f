"""Ends and forks of a joined process, and their effects on its job."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from signalbox.jobs.spec import JobId
from tests.support.waiting import ended, line, until
from tests.support.wire.control_stand_in import H1, H2, Running

BEGIN = f"""
import ctypes, multiprocessing, os, signal, sys, threading, time
import signalbox

def join(**more):
    return signalbox.join("job", endpoints=["{H1}", "{H2}"], address=sys.argv[1], strict=True, **more)

def joined():
    print("joined", flush=True)

def wait():
    joined()
    while True:
        time.sleep(0.01)
"""

STUCK = """
join()
c = ctypes.CDLL(None)
mutex = ctypes.create_string_buffer(64)
c.pthread_mutex_lock(mutex)
joined()
c.pthread_mutex_lock(mutex)  # a library that waits for a peer, and does not come back for signals
"""


def has_job(api: Running) -> bool:
    return JobId("job") in api.control.registry.jobs


@contextmanager
def program(api: Running, text: str, **environ: str) -> Iterator[subprocess.Popen[str]]:
    """Run a program, and yield it when it has printed that it has joined."""
    argv = [sys.executable, "-W", "error", "-c", BEGIN + text, api.addresses[0]]
    env = os.environ | environ
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=env) as process:
        try:
            assert line(process) == "joined\n", ended(process)
            yield process
        finally:
            process.kill()


def waits(process: subprocess.Popen[str]) -> bool:
    return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "S"


ENDS = {
    "an exception": ("join(); joined(); 1 / 0", 1),
    "an exception in with": ("with join():\n    joined(); 1 / 0", 1),
    "a forked child of multiprocessing joined": (
        "c = multiprocessing.get_context('fork').Process(target=lambda: join() and joined()); c.start(); c.join()",
        0,
    ),
    "another thread joined": ("t = threading.Thread(target=join); t.start(); t.join(); joined()", 0),
}


@pytest.mark.parametrize(("text", "status"), ENDS.values(), ids=ENDS)
def test_the_job_is_released_with_the_program(api: Running, text: str, status: int) -> None:
    with program(api, text) as process:
        found, _, errors = ended(process)
    assert found == status
    assert ("ZeroDivisionError" in errors) is (status == 1)
    assert not has_job(api)


IN_A_CALL = "import ctypes; join(); joined(); ctypes.CDLL(None).pause()"
"""Program in a library call that a signal interrupts, so the program ends while its job is still being released."""


@pytest.mark.parametrize("text", [STUCK, IN_A_CALL], ids=["in a library", "in a call"])
def test_sigterm_ends_a_program_without_a_handler_as_before_and_releases_the_job(api: Running, text: str) -> None:
    with program(api, text) as process:
        until(lambda: waits(process))
        process.send_signal(signal.SIGTERM)
        assert ended(process) == (-signal.SIGTERM, "", "")
    assert not has_job(api)


ASYNCIO = """
import asyncio
async def train():
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, stop.set)
    joined()
    await stop.wait()
    print("stopped", flush=True)
    await asyncio.sleep(60)
join()
asyncio.run(train())
"""


def test_a_program_that_waits_for_signals_itself_is_ended_too(api: Running) -> None:
    with program(api, ASYNCIO) as process:
        process.send_signal(signal.SIGUSR1)
        assert line(process) == "stopped\n"
        process.send_signal(signal.SIGTERM)
        assert ended(process) == (-signal.SIGTERM, "", "")
    assert not has_job(api)


GRACEFUL = """
asked = []
signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
join()
joined()
while not asked:
    time.sleep(0.01)
print("saving", flush=True)
sys.stdin.read()
print("saved", flush=True)
"""


def test_a_program_keeps_its_own_handler_and_the_job_until_it_ends(api: Running) -> None:
    """The next test has a handler that is set after joining."""
    with program(api, GRACEFUL) as process:
        process.send_signal(signal.SIGTERM)
        assert line(process) == "saving\n"
        assert has_job(api)
        assert ended(process) == (0, "saved\n", "")
    assert not has_job(api)


def test_a_handler_that_calls_the_one_before_ends_the_program_as_that_would(api: Running) -> None:
    text = """
join()
before = signal.getsignal(signal.SIGTERM)
signal.signal(signal.SIGTERM, lambda *given: print("saved", flush=True) or before(*given))
wait()
"""
    with program(api, text) as process:
        process.send_signal(signal.SIGTERM)
        assert ended(process) == (-signal.SIGTERM, "saved\n", "")
    assert not has_job(api)


AWAITS = """
job = join(on_routes=lambda _: None)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
joined()
signal.sigwait([signal.SIGUSR1])
print("checkpoint", flush=True)
"""


def test_a_signal_that_the_program_waits_for_is_not_given_to_another_thread(api: Running) -> None:
    with program(api, AWAITS) as process:
        until(lambda: waits(process))
        process.send_signal(signal.SIGUSR1)
        assert ended(process) == (0, "checkpoint\n", "")


def test_a_program_that_ignores_sigterm_goes_on(api: Running) -> None:
    text = "signal.signal(signal.SIGTERM, signal.SIG_IGN); join(); joined(); sys.stdin.read()"
    with program(api, text) as process:
        process.send_signal(signal.SIGTERM)
        assert ended(process)[0] == 0
    assert not has_job(api)


def test_signals_are_as_before_when_the_job_is_left(api: Running) -> None:
    text = (
        "with join(): assert callable(signal.getsignal(signal.SIGTERM)); joined()\n"
        "assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL\n"
        "assert signal.set_wakeup_fd(-1) == -1\n"
        "while threading.active_count() > 1: time.sleep(0.01)\n"
    )
    with program(api, text) as process:
        assert ended(process) == (0, "", "")


FORKS = """
job = join()
job.routes

def look():
    job.iteration(1.0)
    with job.step():
        pass
    assert (job.ended, job.registered, job.exchanged()) == ("forked", False, {}), job.ended
    assert job.connections() == frozenset() and job.routes is not None
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL and signal.set_wakeup_fd(-1) == -1
    job.update(lease_s=20.0)
    job.leave()

for _ in range(3):
    with job._lock:  # which another thread may have
        child = os.fork()
        if not child:
            look()
            sys.exit(0)
        _, status = os.waitpid(child, 0)
    assert status == 0, status
assert job.ended is None
joined()
sys.stdin.readline()
"""


def test_a_forked_child_does_not_own_the_job(api: Running) -> None:
    with program(api, FORKS) as process:
        assert has_job(api)
        assert api.control.registry.jobs[JobId("job")].vitals.reported.iterations == 0
        assert ended(process) == (0, "", "")
    assert not has_job(api)


CHILD_SIGNALS = """
job = join()
read, write = os.pipe()
child = os.fork()
if not child:
    os.write(write, b"1")
    time.sleep(60)
os.read(read, 1)
os.kill(child, signal.SIGTERM)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGTERM

# A child that is forked behind Python's back keeps the handler, and the descriptor that it writes to. It must run
# no Python: another thread of the parent may have held the interpreter lock, and would never release it here.
c = ctypes.CDLL(None)
for called_in_the_child in (c.pause, c._exit):
    c.__register_atfork(None, None, called_in_the_child, None)
child = c.fork()
while os.waitpid(child, os.WNOHANG) == (0, 0):
    os.kill(child, signal.SIGTERM)
    time.sleep(0.01)
joined()
sys.stdin.readline()
assert job.registered
"""


def test_a_signal_to_a_child_does_not_end_its_parent(api: Running) -> None:
    with program(api, CHILD_SIGNALS) as process:
        assert has_job(api)
        assert ended(process)[0] == 0
