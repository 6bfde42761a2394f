"""Signals end children of tests even if the suite was started with the signals ignored (``nohup make test &``)."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

ANSWERS = """
import os, signal, subprocess, sys

number = int(sys.argv[1])
signal.signal(number, signal.SIG_IGN)
import tests.conftest

child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
child.send_signal(number)
print(child.wait())
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_a_child_of_a_test_ends_by_a_signal_that_was_ignored_when_the_suite_was_started(number: signal.Signals) -> None:
    argv = [sys.executable, "-c", ANSWERS, str(int(number))]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60)
    assert int(done.stdout) == -number
