"""Waits for other threads and processes. Every wait has a deadline, and one that fails says what was seen."""

import os
import select
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from subprocess import Popen
from typing import IO, Any, TypeVar

from mininet_topos.lab.record import wait_for

DEADLINE_S = 60.0
Result = TypeVar("Result")


def until(condition: Callable[[], object], what: str = "a condition of the test") -> None:
    """Return once the condition holds, and raise ``LabError`` when it does not hold in time."""
    wait_for(lambda: bool(condition()), what, DEADLINE_S)


def beside(call: Callable[..., Result], *arguments: object) -> Future[Result]:
    """Call the function in another thread, and return the future of its result.

    The process ends without waiting for the thread, so a test that fails does not hang."""
    done: Future[Result] = Future()

    def run() -> None:
        try:
            done.set_result(call(*arguments))
        except BaseException as error:
            done.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return done


def in_parallel(count: int, call: Callable[[int], Result]) -> list[Result]:
    """Call the function with 0 to ``count`` - 1, each in a thread, and return the results in this order."""
    return [done.result(DEADLINE_S) for done in [beside(call, number) for number in range(count)]]


def read_until(pipe: int | IO[Any], end: bytes) -> bytes:
    """Return what is written to a pipe or terminal up to the bytes ``end``, or up to its own end; read no more.

    Raises ``AssertionError`` with the bytes so far when neither comes in time."""
    ends, found, poll = time.monotonic() + DEADLINE_S, b"", select.poll()
    poll.register(pipe, select.POLLIN)
    while not found.endswith(end):
        if not poll.poll(1000 * max(0.0, ends - time.monotonic())):
            raise AssertionError(f"waited {DEADLINE_S:.0f} s for {end!r}, and read only {found!r}")
        try:
            byte = os.read(pipe if isinstance(pipe, int) else pipe.fileno(), 1)
        except OSError:  # a terminal that no process has open
            byte = b""
        if not byte:
            break
        found += byte
    return found


def line(process: Popen[str]) -> str:
    return _line(process, process.stdout)


def error_line(process: Popen[str]) -> str:
    return _line(process, process.stderr)


def _line(process: Popen[str], pipe: IO[str] | None) -> str:
    assert pipe
    try:
        return read_until(pipe, b"\n").decode()
    except AssertionError as error:
        process.kill()
        raise AssertionError(f"{error}; the rest: {ended(process)[1:]}") from None


def ended(process: Popen[str], given: str | None = None) -> tuple[int, str, str]:
    """Write to the program's input and close it, wait for its end, and return its status, output and errors."""
    out, errors = process.communicate(given, timeout=DEADLINE_S)
    return process.returncode, out, errors
