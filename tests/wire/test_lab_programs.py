"""Programs of labs and benchmarks on loopback: unannounced traffic, probes, and the relay of ``benchmarks faults``."""

import json
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.live.relay import openflow_relay
from benchmarks.openflow_bytes import Multipart, Type, message
from mininet_topos.controller_process import reserve_port
from mininet_topos.probe.prober import overflows
from mininet_topos.probe.probing import read_streams
from mininet_topos.trainer.sockets import publish
from tests.support.waiting import DEADLINE_S, ended, line, until


def start(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "mininet_topos.demo.traffic", *arguments], stdout=subprocess.PIPE, text=True
    )


def test_a_sink_takes_what_its_source_sends_until_the_time_is_up(tmp_path: Path) -> None:
    common = ["--rendezvous", str(tmp_path), "--name", "sink"]
    with start("sink", *common, "--bind", "127.0.0.1") as sink, start("source", *common, "--seconds", "0.2") as source:
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


def answer(kind: Multipart) -> bytes:
    return message(Type.MULTIPART_REPLY, 1, struct.pack("!HH4x", kind, 0))


def test_only_answers_with_port_counters_are_dropped_and_only_when_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket() as switch:
        listener.settimeout(60)
        with openflow_relay(listener.getsockname()[1]) as between:
            switch.connect(("127.0.0.1", between.port))
            controller, _ = listener.accept()
            with controller, controller.makefile("rb") as heard:
                controller.settimeout(60)
                sent = [answer(Multipart.PORT_STATS), answer(Multipart.FLOW), message(Type.HELLO, 2)]
                for drops, passed in ((False, sent), (True, sent[1:]), (False, sent)):
                    between.drops_ports = drops
                    switch.sendall(b"".join(sent))
                    assert heard.read(sum(map(len, passed))) == b"".join(passed)
                controller.sendall(message(Type.PORT_STATUS, 3))
                switch.settimeout(60)
                assert switch.recv(100) == message(Type.PORT_STATUS, 3)
