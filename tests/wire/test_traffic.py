"""Unannounced traffic on loopback."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

DEADLINE_S = 60.0


def start(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "mininet_topos.demo.traffic", *arguments], stdout=subprocess.PIPE, text=True
    )


def test_a_sink_takes_what_its_source_sends_until_the_time_is_up(tmp_path: Path) -> None:
    common = ["--rendezvous", str(tmp_path), "--name", "sink"]
    with (
        start("sink", *common, "--bind", "127.0.0.1") as sink,
        start("source", *common, "--seconds", "0.2") as source,
    ):
        sent = json.loads(source.communicate(timeout=DEADLINE_S)[0])
        received = json.loads(sink.communicate(timeout=DEADLINE_S)[0])
    assert sink.returncode == source.returncode == 0
    assert sent["bytes"] == received["bytes"] > 0
    assert sent["seconds"] >= 0.2
