"""Programs of ``mininet_topos.demo.traffic``, which send unannounced traffic, on loopback."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from mininet_topos.trainer.sockets import publish
from tests.support.waiting import DEADLINE_S, until


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


def test_mice_of_two_hosts_reach_each_other_once_they_may_begin(tmp_path: Path) -> None:
    hosts = ("127.0.0.1", "127.0.0.2")
    common = ["--rendezvous", str(tmp_path), "--name", "go", "--per-second", "50", "--seconds", "0.4"]
    with (
        start("mice", *common, "--bind", hosts[0], "--peers", hosts[1]) as one,
        start("mice", *common, "--bind", hosts[1], "--peers", hosts[0]) as other,
    ):
        listening = {f"{int(ip.split('.')[3]):02X}00007F:1B58" for ip in hosts}  # as proc(5) writes them
        until(lambda: all(end in Path("/proc/net/tcp").read_text() for end in listening))
        publish(tmp_path, "go", ("-", 0))
        said = [json.loads(each.communicate(timeout=DEADLINE_S)[0]) for each in (one, other)]
    assert said == [{"sent": 20, "failed": 0}] * 2
