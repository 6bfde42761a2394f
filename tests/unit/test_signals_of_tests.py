"""Signals end children of tests even if the suite was started with the signals ignored (``nohup make test &``)."""

from __future__ import annotations

import subprocess
import sys

ANSWERS = """
import signal, subprocess, sys

numbers = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT]
for number in numbers:
    signal.signal(number, signal.SIG_IGN)
import tests.conftest

for number in numbers:
    child = subprocess.Popen([sys.executable, "-S", "-c", "import signal; signal.pause()"])
    child.send_signal(number)
    print(child.wait() == -number)
"""


def test_a_child_of_a_test_ends_by_a_signal_that_was_ignored_when_the_suite_was_started() -> None:
    done = subprocess.run([sys.executable, "-c", ANSWERS], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == ["True"] * 4
