"""One rank of jobs on an emulated network of several dimensions, as a program inside its namespace.

    PYTHONPATH=. python -m mininet_topos.dimensions.rank

In, on stdin, a JSON object per line: ``places`` (``collective.Place``), ``chunks``, ``steps`` ({``dimensions``,
``elements``, ``members``, ``floor_s``}) and ``rank``; then ``channels`` ([dimension, offset, address, port]); then for
each iteration its ``iteration`` and the time ``at`` (CLOCK_MONOTONIC) when it begins. Out, a line for each: ``port``;
``connected``; ``ends`` of all steps and whether all sums were right, ``ok``. The end of stdin ends it.

A thread per channel sends what is queued, by the order of pieces; a thread per connection receives. This module and
what it imports need only the standard library and numpy, since many ranks start at once.
"""

from __future__ import annotations

import json
import os
import queue
import socket
import struct
import sys
import threading
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from mininet_topos.dimensions.collective import AllReduce, Channel, Piece, Place, Sends, Vector
from mininet_topos.joining.rank import data

HEADER = struct.Struct("!IHBBI")
HELLO = struct.Struct("!Bb")
NOTSENT_BYTES = 4096
"""The kernel takes no more from a channel before it sends, so that a piece that comes first can still overtake."""


class Rank:
    """Connections and the all-reduces over them, one after the other."""

    def __init__(self, places: Sequence[Place], chunks: int) -> None:
        self._places, self._chunks = places, chunks
        self._lock = threading.Lock()
        self._finished = threading.Event()
        self._current: AllReduce | None = None
        self._early: defaultdict[int, list[tuple[Piece, int]]] = defaultdict(list)
        self._queues: dict[Channel, queue.PriorityQueue[Piece]] = {}
        self._listener = socket.create_server(("", 0))

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    def connect(self, peers: Sequence[tuple[int, int, str, int]]) -> None:
        """Opens a connection per channel, and takes as many from others."""
        for dimension, offset, address, port in peers:
            sock = socket.create_connection((address, port))
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"cubic")
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, NOTSENT_BYTES)
            sock.sendall(HELLO.pack(dimension, offset))
            waiting = self._queues[Channel(dimension, offset)] = queue.PriorityQueue()
            _thread(partial(_send_all, sock, waiting))
        for _ in peers:
            sock, _ = self._listener.accept()
            _, offset = HELLO.unpack(_received(sock, HELLO.size))
            _thread(partial(self._receive_all, sock, offset))

    def all_reduce(self, call: int, vector: Vector, dimensions: Sequence[int]) -> None:
        """``vector`` becomes the sum. ``call``: the same on all ranks that take part, and larger each time."""
        with self._lock:
            self._finished.clear()
            self._current = AllReduce(call, vector, self._places, dimensions, self._chunks)
            self._send(self._current.begin())
            for piece, offset in self._early.pop(call, ()):
                self._send(self._current.arrived(piece, offset))
            self._look()
        self._finished.wait()

    def _look(self) -> None:
        if self._current and self._current.done:
            self._current = None
            self._finished.set()

    def _send(self, sends: Sends) -> None:
        for channel, piece in sends:
            self._queues[channel].put(piece)

    def _receive_all(self, sock: socket.socket, offset: int) -> None:
        while True:
            call, chunk, stage, step, elements = HEADER.unpack(_received(sock, HEADER.size))
            piece = Piece(call, chunk, stage, step, np.frombuffer(_received(sock, 4 * elements), np.float32))
            with self._lock:
                if self._current is None or piece.call != self._current.call:
                    self._early[piece.call].append((piece, offset))
                    continue
                self._send(self._current.arrived(piece, offset))
                self._look()


def _send_all(sock: socket.socket, waiting: queue.PriorityQueue[Piece]) -> None:
    while True:
        *key, values = waiting.get()
        sock.sendall(HEADER.pack(*key, len(values)) + values.tobytes())


def _received(sock: socket.socket, count: int) -> bytearray:
    """Raises ``EOFError`` when the other rank has ended."""
    found = bytearray(count)
    if count and sock.recv_into(found, count, socket.MSG_WAITALL) != count:
        raise EOFError
    return found


def _thread(body: Callable[[], None]) -> None:
    """One that ends, ends the process; quietly when another rank has ended."""

    def guarded() -> None:
        try:
            body()
        except (EOFError, ConnectionError):
            pass
        except Exception:
            traceback.print_exc()
        os._exit(1)

    threading.Thread(target=guarded, daemon=True).start()


class Turn:
    """An iteration, with its data made before it begins and its sums checked after it."""

    def __init__(self, own: int, number: int, steps: Sequence[dict[str, Any]]) -> None:
        self._steps = steps
        self._first_call = number * len(steps)
        self._bases = [data(0, number, step["elements"]) for step in steps]
        self._vectors = [base * np.float32(own + 1) for base in self._bases]
        self._rights = [sum(rank + 1 for rank in step["members"] or [own]) for step in steps]

    def run(self, rank: Rank) -> list[float]:
        """When each step ended."""
        ends = []
        for call, (step, vector) in enumerate(zip(self._steps, self._vectors, strict=True), self._first_call):
            began = time.monotonic()
            if step["members"]:
                rank.all_reduce(call, vector, step["dimensions"])
            time.sleep(max(0.0, began + step["floor_s"] - time.monotonic()))
            ends.append(time.monotonic())
        return ends

    def is_right(self) -> bool:
        sums = zip(self._vectors, self._bases, self._rights, strict=True)
        return all(np.array_equal(vector, base * np.float32(right)) for vector, base, right in sums)


def main() -> None:
    def say(**what: Any) -> None:
        sys.stdout.write(json.dumps(what) + "\n")
        sys.stdout.flush()

    told = (json.loads(line) for line in sys.stdin)
    setup = next(told)
    rank = Rank([Place(*place) for place in setup["places"]], setup["chunks"])
    say(port=rank.port)
    rank.connect(next(told)["channels"])
    say(connected=True)
    for turn in told:
        this = Turn(setup["rank"], turn["iteration"], setup["steps"])
        time.sleep(max(0.0, turn["at"] - time.monotonic()))
        ends = this.run(rank)
        say(ends=ends, ok=this.is_right())


if __name__ == "__main__":
    main()
