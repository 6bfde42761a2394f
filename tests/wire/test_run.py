"""``signalbox run`` with real commands, the real API server, and without one."""

import os
import pty
import shlex
import signal
import socket
import subprocess
import sys
import termios
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from signalbox.commands.run import main
from signalbox.jobs.spec import JobId
from tests.support.waiting import DEADLINE_S, ended, error_line, line, read_until, until
from tests.support.wire.control_stand_in import H1, H2, Running

RUN = [sys.executable, "-m", "signalbox", "run"]
HOSTS = ("--hosts", f"{H1},{H2}")
HOLD = ("sh", "-c", "echo started; read line; exit 3")
"""Command that runs until it reads a line, and ends with status 3."""


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SIGNALBOX_JOB", "SIGNALBOX_TAKE_OVER", "SIGNALBOX_ADDRESS", "SLURM_JOB_ID", "RANK"):
        monkeypatch.delenv(name, raising=False)


def jobs(api: Running) -> dict[JobId, Any]:
    return dict(api.control.registry.jobs)


@contextmanager
def running(
    *words: str, address: str | None = None, before: Sequence[str] = (), **more: Any
) -> Iterator[subprocess.Popen[str]]:
    """Run the command; ``words`` follow ``signalbox run --job job``, and ``before`` precedes it."""
    argv = [*before, *RUN, "--job", "job", *(("--address", address) if address else ()), *words]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(argv, text=True, **{**pipes, **more}) as process:
        try:
            yield process
        finally:
            process.kill()


def run(*words: str, **more: Any) -> tuple[int, str, str]:
    with running(*words, **more) as process:
        return ended(process)


def test_the_job_of_a_spec_is_announced_while_its_command_runs(api: Running, tmp_path: Path) -> None:
    """The option --job takes precedence over the id in the file."""
    file = tmp_path / "job.yaml"
    file.write_text(f"job_id: other\nhosts: [{H1}, {H2}]\ntransfers: [{{src: 0, dst: 1, bytes_per_iteration: 9}}]\n")
    with running("--spec", str(file), "--", *HOLD, address=api.addresses[0]) as process:
        until(lambda: "job" in jobs(api))
        assert jobs(api)[JobId("job")].spec.transfers[0].bytes_per_iteration == 9
        assert ended(process) == (3, "started\n", "")
    assert not jobs(api)


JOINS = """
import signalbox
transfers = [{"src": 0, "dst": 1, "bytes_per_iteration": 1000}]
with signalbox.join(endpoints=["%s", "%s"], transfers=transfers, strict=True):
    print("joined", flush=True)
    input()
"""


def test_a_program_that_joins_takes_the_job_over(api: Running) -> None:
    program = (sys.executable, "-c", f"input()\n{JOINS}" % (H1, H2))
    with running("--verbose", *HOSTS, "--", *program, address=api.addresses[0]) as process:
        assert process.stdin
        assert error_line(process) == "signalbox: job 'job' is announced\n"
        print("join", file=process.stdin, flush=True)
        assert line(process) == "joined\n"
        assert jobs(api)[JobId("job")].spec.transfers
        assert ended(process, "end\n") == (0, "", "")
    assert not jobs(api)


def test_another_rank_than_the_first_is_the_command_itself(api: Running) -> None:
    command = ("sh", "-c", "echo $$ $SIGNALBOX_JOB; grep SigIgn: /proc/$$/status; read line")
    environ = os.environ | {"OMPI_COMM_WORLD_RANK": "1"}
    with running(*HOSTS, "--", *command, address=api.addresses[0], env=environ) as process:
        assert line(process) == f"{process.pid} job\n"
        assert not int(line(process).split()[1], 16) & 1 << signal.SIGPIPE - 1, "as Python has it"
        assert not jobs(api)
        assert ended(process, "end\n") == (0, "", "")


def test_the_command_has_its_environment(api: Running) -> None:
    command = ("sh", "-c", "echo $SIGNALBOX_JOB $SIGNALBOX_TAKE_OVER $SIGNALBOX_ADDRESS")
    assert run("--", *command, address=api.addresses[0])[1] == f"job 1 {api.addresses[0]}\n"


NOT_ANNOUNCED = "signalbox: job 'job' is not announced (the command runs): "


def test_the_command_runs_without_a_controller_and_one_line_says_so() -> None:
    with running(*HOSTS, "--", *HOLD, address="127.0.0.1:1") as process:
        assert "no contact with the controller" in error_line(process)
        assert ended(process) == (3, "started\n", "")


def test_the_command_runs_while_the_controller_hangs() -> None:
    with ExitStack() as stack:
        silent = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        silent.settimeout(DEADLINE_S)
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        process = stack.enter_context(running(*HOSTS, "--", *HOLD, address=address))
        stack.enter_context(silent.accept()[0])  # and is never answered
        assert ended(process) == (3, "started\n", "")


def test_the_command_runs_when_the_controller_refuses_its_job(api: Running) -> None:
    address = api.addresses[0]
    with running(*HOSTS, "--", *HOLD, address=address) as first:
        until(lambda: "job" in jobs(api))
        with running(*HOSTS, "--", *HOLD, address=address) as second:
            assert "belongs to another registration" in error_line(second)
            assert ended(second) == (3, "started\n", "")
        with running(*HOSTS, "--take-over", "--", *HOLD, address=address) as third:
            uid = jobs(api)[JobId("job")].uid
            until(lambda: jobs(api)[JobId("job")].uid != uid)
            assert ended(first) == (3, "started\n", ""), "its end does not end the other"
            assert "job" in jobs(api)
            assert ended(third)[0] == 3


@pytest.mark.parametrize(("words", "said"), [
    ((), "the hosts of the job are not known: sh does not name hosts; name the hosts with --hosts"),
    (
        ("--address", "nowhere", *HOSTS),
        "address: must be HOST:PORT or unix:PATH; this is neither (given: 'nowhere')",
    ),
])  # fmt: skip
def test_what_cannot_be_announced_is_said_in_one_line(words: tuple[str, ...], said: str) -> None:
    with running(*words, "--", *HOLD) as process:
        assert error_line(process) == f"{NOT_ANNOUNCED}{said}\n"
        assert ended(process) == (3, "started\n", "")


def test_on_one_host_there_is_nothing_to_announce() -> None:
    environ = os.environ | {"SLURM_JOB_NODELIST": "n1"}
    with running("--verbose", "--", "bash", "-c", "read line; exit 0", env=environ) as process:
        assert error_line(process) == "signalbox: job 'job' is on one host: there is nothing to announce\n"
        assert ended(process)[0] == 0


WRONG = [
    ((), "error: --job: is missing: give it, or set SIGNALBOX_JOB\n"),
    (("--job", "Job"), "error: --job: 'Job' must have 1 to 63 lower-case letters"),
    (("--job", "job", "--spec", "missing.yaml"), "error: missing.yaml: No such file or directory"),
    (("--job", "job", "--spec", "spec.yaml"), "error: spec.yaml:2:1: hosts[0]: must be IPv4 addresses"),
    (
        ("--job", "job", "--spec", "two.yaml"),
        "error: two.yaml: must have one job, because one command runs one job (given: 2)",
    ),
    (("--job", "job", "--spec", "two.yaml", "--hosts", H1), "error: --hosts: cannot be combined with --spec"),
    (("--job", "job", "--hosts", "10.0.1.1-300"), "error: --hosts: must be IPv4 addresses"),
    (("--job", "job", "--hosts", "n[1"), "error: --hosts: 'n[1' does not name hosts"),
    (("--job", "job", "--addresses", "spec.yaml"), "error: spec.yaml:1:1: job_id: must be IPv4 addresses"),
    (("--no-such-option",), "No such option"),
]


@pytest.mark.parametrize(("words", "said"), WRONG, ids=[said for _, said in WRONG])
def test_wrong_usage_is_refused_before_the_command_starts(
    words: tuple[str, ...],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Unlike other commands here, these run in the process of the test."""
    monkeypatch.chdir(tmp_path)
    Path("spec.yaml").write_text("job_id: job\nhosts: n1\n")
    Path("two.yaml").write_text(f"- {{job_id: a, hosts: [{H1}, {H2}]}}\n- {{job_id: b, hosts: [{H1}, {H2}]}}\n")
    monkeypatch.setattr(sys, "argv", ["signalbox", "run", *words, "--", "touch", "started"])
    with pytest.raises(SystemExit, check=lambda end: end.code == 2):
        main()
    out, err = capsys.readouterr()
    assert (out, said in err) == ("", True)
    assert not Path("started").exists()


def test_the_exit_status_is_that_of_the_command_or_128_and_its_signal() -> None:
    assert run("--hosts", H1, "--", "sh", "-c", "kill -KILL $$") == (137, "", "")
    words = shlex.join([*RUN, "--job", "job", "--hosts", H1, "--", "sh", "-c", "exit 200"])
    assert subprocess.run(["sh", "-c", f"{words} <&- >&- 2>&-"]).returncode == 200, "where streams are closed"


def test_a_program_that_cannot_be_started_has_the_status_that_shells_give_it(tmp_path: Path) -> None:
    assert run("--", "no-such-program") == (127, "", "error: no-such-program: No such file or directory\n")
    assert run("--", str(tmp_path)) == (126, "", f"error: {tmp_path}: Permission denied\n")


def test_input_output_and_descriptors_are_those_of_the_command() -> None:
    read, write = os.pipe()
    os.write(write, b"inherited\n")
    with running("--hosts", H1, "--", "sh", "-c", f"cat; cat /dev/fd/{read}", pass_fds=[read]) as process:
        os.close(write)
        assert ended(process, "given\n") == (0, "given\ninherited\n", "")
    os.close(read)


SIGNALS = """
import os, signal, sys
taken = [signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2]
def take(number, _):
    os.write(1, signal.Signals(number).name.encode() + b"\\n")  # print must not interrupt itself
    if number == signal.SIGQUIT:
        sys.exit(7)
for number in taken:
    signal.signal(number, take)
signal.alarm(60)
print("ready", flush=True)
while True:
    signal.pause()
"""


def test_signals_are_passed_on_once() -> None:
    default = ["env", "--default-signal=INT,HUP,QUIT"]  # also where the tests run under nohup
    with running("--hosts", H1, "--", sys.executable, "-c", SIGNALS, before=default) as process:
        assert line(process) == "ready\n"
        for name in ("SIGHUP", "SIGINT", "SIGTERM", "SIGUSR1", "SIGUSR2", "SIGQUIT"):
            process.send_signal(signal.Signals[name])
            assert line(process) == f"{name}\n"
        assert ended(process) == (7, "", "")


def test_signals_that_are_ignored_stay_ignored() -> None:
    shell = f"trap '' HUP; exec {shlex.join([*RUN, '--job', 'job', '--hosts', H1])} -- sh -c "
    command = shlex.quote("kill -HUP $$; kill -HUP $PPID; echo goes on")
    done = subprocess.run(["sh", "-c", shell + command], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "goes on\n")


def test_a_killed_wrapper_leaves_the_command_running() -> None:
    with running("--hosts", H1, "--", "sh", "-c", "echo started; read line; echo $line") as process:
        assert line(process) == "started\n"
        process.kill()
        process.wait(DEADLINE_S)
        assert ended(process, "goes on\n")[1] == "goes on\n"


SHELL = f"""
import os, signal, subprocess, sys
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
words = [*{RUN!r}, "--job", "job", "--hosts", "{H1}", "--", sys.executable, "-c", {SIGNALS!r}]
job = subprocess.Popen(words, process_group=0)
os.tcsetpgrp(0, job.pid)
_, status = os.waitpid(job.pid, os.WUNTRACED)
print("stopped", os.WIFSTOPPED(status), flush=True)
os.killpg(job.pid, signal.SIGCONT)
_, status = os.waitpid(job.pid, os.WUNTRACED)
print("ended", os.waitstatus_to_exitcode(status), flush=True)
"""
"""Program that runs the command in the foreground as a shell does, and continues it once when it is stopped."""

KEYS = [
    (b"", [b"ready"]), (b"\x03", [b"SIGINT"]), (b"\x1a", [b"stopped True"]), (b"\x03", [b"SIGINT"]),
    (b"\x1c", [b"SIGQUIT", b"ended 7"]),
]  # fmt: skip
"""Keys that the terminal receives one after the other, each with the lines that are then printed."""


def test_keys_of_a_terminal_reach_the_command_once_stop_it_and_a_shell_continues_it() -> None:
    control, terminal = pty.openpty()
    attributes = termios.tcgetattr(terminal)
    attributes[3] &= ~termios.ECHO
    termios.tcsetattr(terminal, termios.TCSANOW, attributes)
    pipes: dict[str, Any] = {"stdin": terminal, "stdout": terminal, "stderr": terminal}
    program = f"import os; os.close(os.open(os.ttyname(0), os.O_RDWR))\n{SHELL}"  # makes it the controlling terminal
    with subprocess.Popen([sys.executable, "-c", program], start_new_session=True, **pipes) as shell:
        os.close(terminal)
        for key, answers in KEYS:
            os.write(control, key)
            for answer in answers:
                assert read_until(control, b"\n").strip() == answer
        assert shell.wait(DEADLINE_S) == 0
    os.close(control)
