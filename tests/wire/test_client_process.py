"""The process that calls the controller for a training process, and the effects of either on the other."""

import os
import resource
import signal
import subprocess
from pathlib import Path

from signalbox.client_process import MAX_MEMORY_BYTES
from signalbox.jobs.spec import JobId
from tests.support.waiting import ended, line, until
from tests.support.wire.control_stand_in import H1, H2, Running
from tests.wire.test_joined_process_ends import has_job, program


def callers(process: subprocess.Popen[str]) -> list[int]:
    """Return the ids of the processes that call the controller for ``process``."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if str(process.pid).encode() in words and any(b"signalbox.client_process" in word for word in words):
            found.append(int(folder.name))
    return found


def caller(process: subprocess.Popen[str]) -> int:
    (found,) = callers(process)
    return found


JOINS_ITSELF = """
with open(__file__ + ".log", "a") as log:
    print("ran", file=log)
import os, signalbox
if "JOINS" in os.environ:
    signalbox.join("site", endpoints=["10.0.1.1", "10.0.2.1"], address=os.environ["JOINS"])
"""


def test_what_every_interpreter_runs_at_its_start_is_not_run_by_that_process(api: Running, tmp_path: Path) -> None:
    """A process that calls the controller would otherwise join as well, and start a further such process."""
    site = tmp_path / "sitecustomize.py"
    site.write_text(JOINS_ITSELF)
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
    with program(api, "join(); joined()", PYTHONPATH=path, JOINS=api.addresses[0]) as process:
        assert ended(process)[0] == 0
    assert site.with_suffix(".py.log").read_text() == "ran\n"


CLOSES_ALL = """
import socket
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
job = join(transfers=[{"src": 0, "dst": 1, "bytes_per_iteration": 1000}], on_routes=lambda _: None)
while not job.routes:  # from then on no thread opens any for a while
    time.sleep(0.01)
os.closerange(3, 4096)
own = [one for _ in range(20) for one in socket.socketpair()]
for one in own:
    one.setblocking(False)
joined()
while not signal.sigtimedwait([signal.SIGUSR1], 0.05):
    job.iteration(0.05)
for one in own:
    try:
        raise SystemExit(f"{one.recv(100)} came from elsewhere")
    except BlockingIOError:
        pass
"""


def test_a_program_that_closes_all_descriptors_has_those_that_it_opens_then_for_itself(api: Running) -> None:
    with program(api, CLOSES_ALL) as process:
        until(lambda: iterations(api) > 0)
        process.send_signal(signal.SIGUSR1)
        found = ended(process)
        assert found[0] == 0, found
    until(lambda: not has_job(api))


def iterations(api: Running) -> int:
    return api.control.registry.jobs[JobId("job")].vitals.reported.iterations


FLOWS = [{"src": 0, "dst": 1, "bytes_per_iteration": 1000}]

CLEAN = f"""
job = join(transfers={FLOWS}, on_routes=lambda _: None)
while not job.routes:
    time.sleep(0.01)
assert not {{"grpc", "google.protobuf", "signalbox.client"}} & set(sys.modules)
with open("/proc/self/maps") as maps:
    mapped = maps.read()
assert "cygrpc" not in mapped and "upb" not in mapped
try:
    os.wait()
    raise SystemExit("there is a child that the program does not know of")
except ChildProcessError:
    joined()
"""


def test_a_training_process_has_neither_grpc_nor_a_child_that_it_does_not_know_of(api: Running) -> None:
    with program(api, CLEAN) as process:
        assert ended(process) == (0, "", "")
    assert not has_job(api)


MANY_CHILDREN = f"""
spec = {{"job_id": "job", "endpoints": ["{H1}", "{H2}"], "transfers": {FLOWS}}}
job = signalbox.join(spec, address=sys.argv[1], on_routes=lambda _: None)
children = 0
while not job.routes or children < 14:
    child = os.fork()
    if not child:
        os._exit(0)
    children += 1
    assert os.waitpid(child, 0)[1] == 0
    time.sleep(0.01)
joined()
"""


def test_a_process_that_forks_while_it_connects_goes_on_and_so_do_its_children(api: Running) -> None:
    """No signal may end the program or a child; gRPC inside a program that forks can cause such a signal."""
    with program(api, MANY_CHILDREN) as process:
        assert ended(process)[0] == 0


OWN_CALLS = """
join(on_routes=lambda _: None)
child = os.fork()
if not child:
    from signalbox.client import Client
    with Client(sys.argv[1]) as client:
        assert [job.spec.job_id for job in client.list_jobs()] == ["job"]
    endpoints = ["10.0.1.9", "10.0.2.9"]
    with signalbox.join("other", endpoints=endpoints, address=sys.argv[1], strict=True) as other:
        assert other.registered
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
joined()
"""


def test_a_forked_child_makes_calls_and_joins_by_itself(api: Running) -> None:
    with program(api, OWN_CALLS) as process:
        assert ended(process) == (0, "", "")
    assert not api.control.registry.jobs


REPORTS = """
job = join()
joined()
while True:
    with job.step():
        time.sleep(0.05)
"""


def test_the_job_stays_registered_when_the_process_that_calls_is_killed_and_signals_do_not_end_it(api: Running) -> None:
    with program(api, REPORTS) as process:
        uid = api.control.registry.jobs[JobId("job")].uid
        first = caller(process)
        assert Path(f"/proc/{first}/oom_score_adj").read_text() == "1000\n", "it ends first where memory runs out"
        assert resource.prlimit(first, resource.RLIMIT_DATA)[0] == MAX_MEMORY_BYTES
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            os.kill(first, number)
        before = iterations(api)
        until(lambda: iterations(api) > before)
        assert caller(process) == first
        os.kill(first, signal.SIGKILL)
        until(lambda: callers(process) not in ([], [first]))
        before = iterations(api)
        until(lambda: iterations(api) > before)
        assert api.control.registry.jobs[JobId("job")].uid == uid
        process.send_signal(signal.SIGTERM)
        status, _, errors = ended(process)
        assert status == -signal.SIGTERM
        assert "the process that calls it has ended" in errors
    assert not has_job(api)


KEPT_OPEN = """
os.dup2(1, 50, inheritable=True)  # as libraries have descriptors
join()
child = ctypes.PyDLL(None).fork()  # of which Python does not know; it has all descriptors
if not child:
    for descriptor in (1, 2, 50):
        os.close(descriptor)
    time.sleep(60)
    os._exit(0)
joined()
print(child, flush=True)
time.sleep(60)
"""


def test_nothing_waits_for_the_process_that_calls_and_it_ends_with_a_killed_program(api: Running) -> None:
    """A reader of the program's output does not have to wait for the end of the calling process."""
    with program(api, KEPT_OPEN) as process:
        child = int(line(process))
        calling = caller(process)
        try:
            os.kill(calling, signal.SIGSTOP)
            process.kill()
            assert ended(process) == (-signal.SIGKILL, "", "")
            os.kill(calling, signal.SIGCONT)
            until(lambda: not callers(process))
        finally:
            os.kill(child, signal.SIGKILL)
