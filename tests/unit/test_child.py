"""A child process ends with the controller, which may end before the child has begun, or without ending it."""

from __future__ import annotations

import subprocess
import sys

CHILD_OF_ONE_THAT_HAS_ENDED = """
import multiprocessing, os, time
from controller import child

def work(parent):
    while os.getppid() == parent:
        time.sleep(0.01)
    child.leave_to_controller()
    os.write(1, b"it goes on")

multiprocessing.get_context("fork").Process(target=work, args=(os.getpid(),)).start()
os._exit(0)
"""


def test_a_child_ends_when_the_controller_has_ended_before_it() -> None:
    done = subprocess.run([sys.executable, "-c", CHILD_OF_ONE_THAT_HAS_ENDED], capture_output=True, check=True)
    assert (done.stdout, done.stderr) == (b"", b"")


LEAVES_A_CHILD = """
import sys
from multiprocessing.connection import Connection
from controller.child import Child

child = Child("waits", Connection.recv)
sys.exit(3)
"""


def test_a_process_ends_with_its_own_status_although_it_leaves_a_child() -> None:
    assert subprocess.run([sys.executable, "-c", LEAVES_A_CHILD]).returncode == 3
