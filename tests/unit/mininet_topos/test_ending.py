"""Signals that end a program: they are raised only where the program may end. Each test has a process of its own."""

import os
import pty
import signal
import subprocess
import sys

import pytest

BEGIN = """
import os, signal, sys
from mininet_topos import ending
def kill(number): os.kill(os.getpid(), number)
def say(text): print(text, flush=True)
"""


def ended(program: str, *wrapper: str, **options: object) -> tuple[int, str, str]:
    argv = [*wrapper, sys.executable, "-c", BEGIN + program]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, **options)  # type: ignore[call-overload]
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_a_signal_is_raised_at_the_next_check_and_only_once(number: signal.Signals) -> None:
    program = f"""
signal.signal({number}, signal.SIG_DFL)  # the tests may run under nohup
ending.note_signals()
def main():
    try:
        kill({number})
        say("not interrupted")
        ending.check()
        say("not reached")
    finally:
        kill(signal.SIGTERM)
        ending.check()
        ending.sleep(0.001)
        say("cleaned up")
ending.run(main)
"""
    assert ended(program) == (128 + number, "not interrupted\ncleaned up\n", "")


def test_a_sleep_ends_with_the_signal() -> None:
    program = """
import threading
ending.note_signals()
threading.Timer(0.05, kill, [signal.SIGTERM]).start()
ending.run(lambda: ending.sleep(600))
"""
    assert ended(program, timeout=60) == (143, "", "")


def test_what_holds_signals_is_not_interrupted_and_what_follows_is() -> None:
    program = """
ending.note_signals()
def main():
    with ending.held():
        kill(signal.SIGINT)
        ending.sleep(0.001)
        ending.check()
        say("made")
    ending.check()
    say("not reached")
ending.run(main)
"""
    assert ended(program) == (130, "made\n", "")


def test_ctrl_c_again_says_what_goes_on() -> None:
    program = """
ending.note_signals()
def main():
    kill(signal.SIGINT)
    kill(signal.SIGINT)
    ending.check()
ending.run(main)
"""
    assert ended(program) == (130, "", "\nstill removing the lab\n")


def test_a_failure_after_a_signal_has_no_traceback_and_one_before_has() -> None:
    failing = "ending.run(lambda: 1 / 0)"
    assert ended(f"ending.note_signals(); kill(signal.SIGINT); {failing}") == (130, "", "")
    status, _, errors = ended(f"ending.note_signals(); {failing}")
    assert status == 1
    assert "ZeroDivisionError" in errors


@pytest.mark.parametrize("program", ["ending.run(lambda: print('lost'))", "ending.run(lambda: say('lost'))"])
def test_a_closed_output_ends_the_program_quietly(program: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    argv = [sys.executable, "-c", BEGIN + program]
    done = subprocess.run(argv, stdout=writing, stderr=subprocess.PIPE, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, b"")


def test_a_signal_that_came_before_the_program_was_ready_is_taken() -> None:
    program = """
kill(signal.SIGTERM)
say("blocked")
ending.note_signals()
ending.run(ending.check)
"""
    assert ended(program, "env", "--block-signal=INT,TERM,HUP") == (143, "blocked\n", "")


def test_what_the_parent_ignores_stays_ignored() -> None:
    program = """
ending.note_signals()
kill(signal.SIGHUP)
ending.run(ending.check)
"""
    assert ended(program, "env", "--ignore-signal=HUP") == (0, "", "")


def test_a_program_that_notes_no_signals_is_unwound_by_them() -> None:
    program = """
try:
    with ending.unwinding():
        try:
            kill(signal.SIGHUP)
        finally:
            with ending.held():
                kill(signal.SIGTERM)
            say("cleaned up")
except ending.Interrupted as interrupted:
    say(interrupted.number)
"""
    assert ended(program) == (0, "cleaned up\n1\n", "")


def test_a_command_of_the_lab_is_not_ended_by_ctrl_c() -> None:
    """The signal may arrive when the command has started and has no session yet."""
    program = """
import threading
from mininet_topos.lab.record import run
ending.note_signals()
os.setpgid(0, 0)
os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
ended = threading.Event()
def type():
    while not ended.wait(0.0005):
        os.killpg(0, signal.SIGINT)
threading.Thread(target=type, daemon=True).start()
with ending.held():
    for _ in range(100):
        run("true")
ended.set()
say("all ended well")
"""
    assert ended(program) == (0, "all ended well\n", "")


def test_a_closed_terminal_is_noted_without_a_signal() -> None:
    """The kernel signals only the process that leads the session."""
    program = """
ending.note_signals()
say("up")
ending.run(lambda: ending.sleep(600))
"""
    terminal, slave = pty.openpty()
    with subprocess.Popen([sys.executable, "-c", BEGIN + program], stdout=slave) as process:
        os.close(slave)
        said = b""
        while not said.endswith(b"\r\n"):  # print writes the end of the line separately
            said += os.read(terminal, 100)
        os.close(terminal)
        assert process.wait(timeout=60) == 128 + signal.SIGHUP
