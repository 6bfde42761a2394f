"""scripts/lab_python.sh: what a worker of lab tests has of its own, and that nothing of it stays."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from mininet_topos.lab.record import namespaces

pytestmark = pytest.mark.lab

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "lab_python.sh"
LEAVES_MUCH = """
import json, os, subprocess, sys

for command in ("ovs-vsctl add-br left", "ip netns add left", "ip link add left-a type veth peer name left-b"):
    subprocess.run(command.split(), check=True)
subprocess.Popen(["sleep", "1000"], start_new_session=True)
said = subprocess.run(["ovs-vsctl", "list-br"], check=True, capture_output=True, text=True).stdout
print(json.dumps({"bridges": said.split(), "interfaces": sorted(os.listdir("/sys/class/net"))}), flush=True)
sys.exit(7)
"""


def test_a_worker_shares_no_switch_and_no_interface_and_what_it_leaves_ends_with_it() -> None:
    """The output ends when the last process has ended that could write to it: the one that was left."""
    done = subprocess.run([SCRIPT, "-c", LEAVES_MUCH], stdout=subprocess.PIPE, text=True, timeout=120)
    assert done.returncode == 7
    found = json.loads(done.stdout)
    assert found["bridges"] == ["left"]
    assert (
        {"left", "left-a", "left-b", "lo"} <= {*found["interfaces"]} <= {"left", "left-a", "left-b", "lo", "ovs-netdev"}
    )
    assert "left" not in namespaces()
    assert not Path("/sys/class/net/left-a").exists()
