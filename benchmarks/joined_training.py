"""A training program that joins a job, for ``join``: what does that cost it?

    unshare -rn python -m benchmarks.joined_training ADDRESS CONNECTIONS SECONDS

It has the addresses of both hosts, on loopback, so both ends of each connection. Without connections it only waits for
a controller; the address ``silent`` is of one that accepts and says nothing. Out: a line of JSON.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import signalbox

HERE, THERE = "10.0.1.1", "10.0.2.1"
COMPUTE = 400
"""Times ``CPU_BOUND`` additions in Python: about 10 ms."""
MESSAGE = bytes(1000)
POLLS = 50
STEPS = 10_000
READY_S = 1.0
CPU_BOUND = 2_000

Ends = tuple[socket.socket, socket.socket]


def connect(count: int) -> list[Ends]:
    with socket.create_server((THERE, 0), backlog=count) as listener:
        address = listener.getsockname()
        return [
            (socket.create_connection(address, source_address=(HERE, 0)), listener.accept()[0]) for _ in range(count)
        ]


def iterate(pairs: list[Ends]) -> None:
    """Compute, which keeps the interpreter busy, then send to the peer over every connection."""
    for _ in range(COMPUTE):
        sum(range(CPU_BOUND))
    for near, far in pairs:
        near.send(MESSAGE)
        far.recv(len(MESSAGE), socket.MSG_WAITALL)


def resources() -> tuple[int, int]:
    """Bytes of memory and threads of this process (proc(5))."""
    status = Path("/proc/self/status").read_text()
    memory, threads = (int(re.search(rf"{name}:\s+(\d+)", status)[1]) for name in ("VmRSS", "Threads"))  # type: ignore[index]
    return 1024 * memory, threads


def calls_s() -> float:
    """CPU time of the process that calls the controller (proc(5)): it has been given this one's id."""
    own, ticks = str(os.getpid()).encode(), 0
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words, stat = (folder / "cmdline").read_bytes().split(b"\0"), (folder / "stat").read_text()
        except OSError:  # it has ended
            continue
        if own in words and any(b"signalbox.client_process" in word for word in words):
            ticks += sum(map(int, stat.rpartition(")")[2].split()[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK")


def join(address: str) -> signalbox.Job:
    """With everything that costs something: routes and connections."""
    return signalbox.join(
        "bench",
        endpoints=[HERE, THERE],
        transfers=[{"src": 0, "dst": 1, "bytes_per_iteration": 1000}],
        reports_connections=True,
        address=address,
        on_routes=lambda _: None,
    )


def measure(address: str, connections: int, seconds: float) -> dict[str, Any]:
    """CPU time of the process beside its first thread, and of calls in that: all that can hold an iteration up. And
    that of the process that calls the controller."""
    pairs = connect(connections)
    before = resources()
    with join(address) as job:
        time.sleep(READY_S)
        count, began, others_s = 0, time.perf_counter(), time.process_time() - time.thread_time()
        calling_s = calls_s()
        while time.perf_counter() < began + seconds:
            with job.step():
                iterate(pairs)
            count += 1
        others_s = time.process_time() - time.thread_time() - others_s
        calling_s = calls_s() - calling_s
        took_s = time.perf_counter() - began
        joined = resources()
        return {
            "connections": connections,
            "iteration_s": took_s / count,
            "others_cpu": others_s / took_s,
            "calls_cpu": calling_s / took_s,
            "step_s": _cpu_s(lambda: _step(job), STEPS),
            "poll_s": _cpu_s(job.exchanged, POLLS),
            "memory_bytes": joined[0] - before[0],
            "threads": joined[1] - before[1],
        }


def _step(job: signalbox.Job) -> None:
    with job.step():
        pass


def _cpu_s(call: Callable[[], object], times: int) -> float:
    """Median of the seconds that the thread runs: the machine has other work."""
    found = []
    for _ in range(times):
        start = time.thread_time()
        call()
        found.append(time.thread_time() - start)
    return median(found)


def away(address: str, seconds: float) -> dict[str, Any]:
    """CPU time of a process that only waits for a controller, and of the one that calls it, as parts of the time, once
    pauses have grown."""
    with signalbox.join("bench", endpoints=[HERE, THERE], lease_s=1, address=address):
        time.sleep(30.0)
        began, cpu, calling_s = time.perf_counter(), time.process_time(), calls_s()
        time.sleep(seconds)
        took_s = time.perf_counter() - began
        return {"cpu": (time.process_time() - cpu) / took_s, "calls_cpu": (calls_s() - calling_s) / took_s}


def main() -> None:
    address, connections, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    for ip in (HERE, THERE):
        subprocess.run(["ip", "address", "add", f"{ip}/32", "dev", "lo"], check=True)
    if address == "silent":
        server = socket.create_server(("127.0.0.1", 0))
        address = f"127.0.0.1:{server.getsockname()[1]}"
    found = measure(address, connections, seconds) if connections else away(address, seconds)
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
