"""The probing process on loopback: it follows its input and counts every packet."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from pathlib import Path

from mininet_topos.controller_process import reserve_port
from mininet_topos.probe.prober import overflows
from mininet_topos.probe.probing import read_streams
from tests.support.waiting import DEADLINE_S, ended, line

ONE, TWO, LISTENER = "127.77.0.1", "127.77.0.2", "127.77.0.3"


def prober(ip: str, port: int, out: Path) -> subprocess.Popen[str]:
    options = ["--bind", ip, "--port", str(port), "--tos", "16", "--out", str(out)]
    argv = [sys.executable, "-m", "mininet_topos.probe", *options]
    return subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_two_hosts_probe_each_other_and_account_for_every_packet(tmp_path: Path) -> None:
    outs = {ip: tmp_path / f"{ip}.json" for ip in (ONE, TWO)}
    port = reserve_port()  # the UDP port of the same number is free too
    processes = {ip: prober(ip, port, out) for ip, out in outs.items()}
    assert [line(process) for process in processes.values()] == ["ready\n"] * 2
    began = time.monotonic()
    with socket.socket(type=socket.SOCK_DGRAM) as listener:
        listener.bind((LISTENER, port))
        listener.settimeout(DEADLINE_S)
        send(processes[ONE], f"{TWO} 0.002 60")
        send(processes[TWO], f"{ONE} 0.004 1000")
        send(processes[TWO], f"{LISTENER} 0.004 60")
        for _ in range(50):
            listener.recv(2000)
        send(processes[ONE], f"{TWO} 0 60")
        send(processes[TWO], f"{ONE} 0 1000")
        send(processes[TWO], f"{LISTENER} 0 60")
    assert [ended(process)[0] for process in processes.values()] == [0, 0]
    heard = tmp_path / "listener.json"
    heard.write_text(json.dumps({"ip": LISTENER, "sent": {}, "received": {}, "overflows": 0}))
    streams, late = read_streams([*outs.values(), heard])
    assert late == 2 * overflows(Path("/proc/self/net/snmp").read_text()), "one machine, counted by both"
    for pair in ((ONE, TWO), (TWO, ONE)):
        outcome = streams[pair].outcome(began, began + 60)
        assert outcome.sent > 10
        assert (outcome.lost, outcome.duplicated, outcome.overtaken) == (0, 0, 0)
    assert len(streams[ONE, TWO].sent) > len(streams[TWO, ONE].sent)


def send(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdin
    process.stdin.write(line + "\n")
    process.stdin.flush()
