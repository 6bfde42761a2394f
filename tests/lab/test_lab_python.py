"""scripts/lab_python.sh: the private resources of a worker of lab tests, and their complete removal."""

import json
import subprocess
from pathlib import Path

from mininet_topos.lab.record import interface_exists, namespaces, run

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "lab_python.sh"
LEAVES_MUCH = """
import json, subprocess, sys
from mininet_topos.lab.record import interface_exists, run

run("ovs-vsctl", "add-br", "left", "--", "set", "Bridge", "left", "datapath_type=netdev")
run("ip", "netns", "add", "left")
subprocess.Popen(["sleep", "1000"], start_new_session=True)
print(json.dumps([run("ovs-vsctl", "list-br").split(), interface_exists("left")]), flush=True)
sys.exit(7)
"""


def test_a_worker_has_a_switch_of_its_own_and_what_it_leaves_ends_with_it() -> None:
    """The pipe closes only when the process that the worker left behind has ended, since it inherited the output."""
    done = subprocess.run([SCRIPT, "-c", LEAVES_MUCH], stdout=subprocess.PIPE, text=True, timeout=120)
    assert (done.returncode, json.loads(done.stdout)) == (7, [["left"], True])
    assert "left" not in run("ovs-vsctl", "list-br").split()
    assert "left" not in namespaces()
    assert not interface_exists("left")
