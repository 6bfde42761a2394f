"""Completion of names of a running controller in a real bash, which divides words at colons."""

import os
import subprocess
import sys
from pathlib import Path

from signalbox.cli import whole_words
from signalbox.client import Client
from tests.support.wire.api_calls import ring
from tests.support.wire.control_stand_in import Running

ASK = """
eval "$(signalbox --show-completion bash)"
while read -ra COMP_WORDS; do
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    [[ ${COMP_WORDS[COMP_CWORD]} != _ ]] || COMP_WORDS[COMP_CWORD]=
    _signalbox_completion signalbox "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
    echo "${COMPREPLY[@]}"
done
"""
"""Shell code that calls the completion as readline does, for each line of its input.

A word of a line is either a character of COMP_WORDBREAKS or the text between two of them. ``_`` at the end stands for a
word that has not begun."""


def test_names_with_colons_are_completed_in_bash(api: Running, tmp_path: Path) -> None:
    with Client(api.addresses[0]) as client:
        client.register_job(ring("bert-1"))
    command = tmp_path / "signalbox"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m controller "$@"\n')
    command.chmod(0o755)
    environ = {
        **os.environ,
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "SIGNALBOX_ADDRESS": api.addresses[0],
        "PYTHONPATH": f"{os.getcwd()}:{os.getcwd()}/client",
    }
    port = api.addresses[0].rpartition(":")[2]
    found = {
        "get links leaf1 :": {"1", "spine1"},
        "drain leaf1 : 1 spine1 : l": {"leaf1", "leaf2"},
        "forget _": {"spine2"},
        f"jobs show --address = 127.0.0.1 : {port} _": {"bert-1"},
    }
    words = "".join(f"signalbox {line}\n" for line in found)
    argv = ["bash", "--norc", "-c", ASK]
    done = subprocess.run(argv, env=environ, input=words, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert [set(line.split()) for line in done.stdout.splitlines()] == [*found.values()]


def test_where_bash_does_not_divide_words_nothing_is_put_together() -> None:
    assert whole_words(["signalbox", "get", "leaf1:5"], 2) == (["signalbox", "get", "leaf1:5"], 2, "")
    assert whole_words(["signalbox", "drain", "a", ":", "1", "b"], 5) == (["signalbox", "drain", "a:1", "b"], 3, "")
    assert whole_words(["signalbox", "drain", "a", ":", "1", "b", ":"], 6)[1:] == (3, "b:")
