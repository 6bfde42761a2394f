"""A training program that joins a job and leaves it again, for ``join``: what does that cost it?

    unshare -rn python -m benchmarks.joined_training ADDRESS CONNECTIONS SECONDS

It has the addresses of both hosts, on loopback. Out: a line of JSON. Between two blocks of the same length, one in the
job and one not, nothing else differs.
"""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

import signalbox

HERE, THERE = "10.0.1.1", "10.0.2.1"
COMPUTE_S = 0.02
MESSAGE = bytes(1000)
BLOCK_S = 5.0
POLLS = 50
STEPS = 10_000
READY_S = 1.0
CPU_BOUND = 2_000
"""Turns of a loop of Python between two looks at the clock: the training keeps the interpreter busy."""

Ends = tuple[socket.socket, socket.socket]


def connect(count: int) -> list[Ends]:
    with socket.create_server((THERE, 0), backlog=count) as listener:
        address = listener.getsockname()
        return [
            (socket.create_connection(address, source_address=(HERE, 0)), listener.accept()[0]) for _ in range(count)
        ]


def iterate(pairs: list[Ends]) -> None:
    """Compute, then send to the peer over every connection."""
    until = time.perf_counter() + COMPUTE_S
    while time.perf_counter() < until:
        sum(range(CPU_BOUND))
    for near, far in pairs:
        near.send(MESSAGE)
        far.recv(len(MESSAGE), socket.MSG_WAITALL)


def resources() -> tuple[int, int]:
    """Bytes of memory and threads of this process (proc(5))."""
    status = Path("/proc/self/status").read_text()
    memory, threads = (int(re.search(rf"{name}:\s+(\d+)", status)[1]) for name in ("VmRSS", "Threads"))  # type: ignore[index]
    return 1024 * memory, threads


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
    """``others_cpu``: of the process without its first thread, as a part of the time. ``slower``: mean iteration in the
    job over that of the blocks outside it, minus 1."""
    pairs = connect(connections)
    before = resources()
    iterate(pairs)
    took: dict[bool, list[float]] = {True: [], False: []}
    others_s = joined_s = 0.0
    with_job = before
    for block in range(max(2, round(seconds / BLOCK_S))):
        inside = block % 2 == 1
        job = join(address) if inside else None
        if job:
            time.sleep(READY_S)
        began, cpu = time.perf_counter(), time.process_time() - time.thread_time()
        while time.perf_counter() < began + BLOCK_S:
            start = time.perf_counter()
            if job:
                with job.step():
                    iterate(pairs)
            else:
                iterate(pairs)
            took[inside].append(time.perf_counter() - start)
        if job:
            others_s += time.process_time() - time.thread_time() - cpu
            joined_s += time.perf_counter() - began
            with_job = resources()
            job.leave()
    means = {inside: sum(times) / len(times) for inside, times in took.items()}
    return {
        "connections": connections,
        "iteration_s": means[False],
        "slower": means[True] / means[False] - 1,
        "others_cpu": others_s / joined_s,
        "memory_bytes": with_job[0] - before[0],
        "threads": with_job[1] - before[1],
        **_calls(address),
    }


def _calls(address: str) -> dict[str, float]:
    """Seconds that calls take: a step, and reading what sockets have carried."""
    with join(address) as job:
        polls = []
        for _ in range(POLLS):
            start = time.perf_counter()
            job.exchanged()
            polls.append(time.perf_counter() - start)
        start = time.perf_counter()
        for _ in range(STEPS):
            with job.step():
                pass
        return {"poll_s": median(polls), "step_s": (time.perf_counter() - start) / STEPS}


def away(address: str, seconds: float) -> dict[str, Any]:
    """CPU time of a process that only waits for a controller, as a part of the time, once pauses have grown."""
    with signalbox.join("bench", endpoints=[HERE, THERE], lease_s=1, address=address):
        time.sleep(30.0)
        began, cpu = time.perf_counter(), time.process_time()
        time.sleep(seconds)
        return {"cpu": (time.process_time() - cpu) / (time.perf_counter() - began)}


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
