"""Hosts that are declared rather than found."""

from __future__ import annotations

from pathlib import Path

import pytest

from controller.errors import InvalidInput
from controller.fabric.topology_state import DeclaredHost
from controller.serving import inventory

GOOD = """
[[host]]
ip = "10.0.1.1"
mac = "02:00:00:00:01:01"
switch = "leaf1"
port = "leaf1-eth5"

[[host]]
ip = "10.0.1.2"
switch = "leaf1"
port = "leaf1-eth6"
"""


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "hosts.toml"
    path.write_text(text)
    return path


def test_a_file_declares_hosts(tmp_path: Path) -> None:
    assert inventory.load(written(tmp_path, GOOD)) == (
        DeclaredHost("10.0.1.1", "02:00:00:00:01:01", "leaf1", "leaf1-eth5"),
        DeclaredHost("10.0.1.2", None, "leaf1", "leaf1-eth6"),
    )


def test_no_file_declares_none() -> None:
    assert inventory.load(None) == ()


def test_every_problem_is_named_with_its_path(tmp_path: Path) -> None:
    text = '[[host]]\nip = "10.0.1"\nswitch = "leaf1"\nspeed = 3\n[[host]]\nip = "10.0.1.2"\nmac = "x"\n'
    with pytest.raises(InvalidInput) as caught:
        inventory.load(written(tmp_path, text))
    named = {problem.path.rpartition(": ")[2] for problem in caught.value.problems}
    assert {"host[0].ip", "host[0].port", "host[0].speed", "host[1].mac", "host[1].switch", "host[1].port"} <= named
