"""Nodes of Mininet whose shell ends."""

import subprocess
from typing import Any

import pytest
from mininet.node import Node

from mininet_topos.fabric_topo import ShellThatEnds


class OneShell(ShellThatEnds, Node):  # type: ignore[misc]
    command: tuple[str, ...] = ("true",)

    def _popen(self, _cmd: object, **params: Any) -> subprocess.Popen[bytes]:
        return subprocess.Popen(self.command, **params)


class Prompting(OneShell):
    command = ("bash", "--norc", "--noediting", "-i")


def test_a_shell_that_ends_before_its_prompt_is_an_error() -> None:
    with pytest.raises(OSError, match="the shell of h1 has ended with status 0"):
        OneShell("h1", inNamespace=False)


def test_a_shell_that_ends_with_a_command_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PS1", chr(127))
    node = Prompting("h1", inNamespace=False)
    assert node.cmd("echo 1").strip() == "1"
    with pytest.raises(OSError, match="the shell of h1 has ended"):
        node.cmd("kill -9 $$")
    node.cleanup()
