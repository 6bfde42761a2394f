"""The controller's side of the southbound's process: starts the process, and exchanges messages with it.

In: packets of the control loop, answers about claims, new files. Out: packets of the southbound. Two threads send and
receive, so that nothing waits for a busy process. The controller ends when the process ends by itself or hangs, so that
other members get the switches.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any, Protocol

import structlog

from controller.child import Child
from controller.config import Config
from controller.fabric.topology import Dpid
from controller.southbound.process_messages import Broken, CannotListen, Claim, Stop
from signalbox.errors import SignalboxError

log = structlog.get_logger(__name__)

LOOK_AT_LIFE_S = 1.0
"""Seconds between two checks whether the process has sent a message."""
MOST_SILENT = 15
"""Largest number of successive checks without a message; no check happens while this process itself is suspended."""
END_S = 5.0
"""Seconds in which the process must end the connections of the switches."""


class Followed(Protocol):
    """Source of the switches of which this member is the holder, for the ``Holding`` of the southbound's process.

    ``changed``: called by a thread after each change."""

    changed: Callable[[], None]

    def generation(self, dpid: Dpid) -> int | None: ...
    def may_claim(self, dpid: Dpid, since: float) -> bool: ...


def run(*arguments: Any) -> None:
    """Run the southbound. Main function of the process; the import is here because the controller does not need it."""
    from controller.southbound.own_process import run as run_process

    run_process(*arguments)


class SouthboundProcess:
    """A southbound in a process of its own.

    ``holding``: switches to claim. ``fail``: called by a thread with an error when the process ends by itself."""

    def __init__(
        self,
        config: Config,
        holding: Followed,
        logging: Callable[[], object],
        fail: Callable[[BaseException], None],
    ) -> None:
        self._holding = holding
        self._fail = fail
        self.link: Callable[[bytes | None], None] = lambda _: None
        """Function that is called with each packet of the southbound, or with None when the southbound could not read a
        packet."""
        self._child = Child("southbound", run, config, logging, niceness=0)
        self._queue: queue.SimpleQueue[object] = queue.SimpleQueue()
        self._answered: dict[Dpid, Claim] = {}
        self._is_changed = threading.Event()
        holding.changed = self._look_for_changes
        self._stopping = False
        self._ended = threading.Event()
        self._silent = 0
        self._waits = self._is_begun = False
        """Whether the receiving thread is waiting for a message; and whether the process has sent its first message."""
        self._threads = [
            threading.Thread(target=self._guarded, args=(body,), name=f"southbound-{name}", daemon=True)
            for name, body in (("sends", self._send), ("receives", self._receive), ("lives", self._watch))
        ]
        for thread in self._threads:
            thread.start()

    def write(self, message: object) -> None:
        """Queue a packet, or a message of ``southbound.process_messages``, without waiting."""
        self._queue.put(message)

    def broken(self) -> None:
        """Tell the southbound that the link to the control loop is broken."""
        self.write(Broken())

    def stop(self) -> None:
        """End the connections of all switches, and the process."""
        self._stopping = True
        self._ended.set()
        self.write(Stop())
        self._child.end(END_S)
        self.write(None)
        for thread in self._threads:
            thread.join(END_S)

    def _guarded(self, body: Callable[[], None]) -> None:
        try:
            body()
        except Exception as error:
            log.exception("the link to the southbound failed; stopping")
            self._fail(error)

    def _look_for_changes(self) -> None:
        if not self._is_changed.is_set():
            self._is_changed.set()
            self.write(self._is_changed)

    def _send(self) -> None:
        while (message := self._queue.get()) is not None:
            if isinstance(message, Claim):
                self._answer(message)
            elif message is self._is_changed:
                self._is_changed.clear()
                for answer in list(self._answered.values()):
                    if answer.generation != self._holding.generation(answer.dpid):
                        self._answer(answer)
            else:
                self._child.send(message)

    def _watch(self) -> None:
        while not self._ended.wait(LOOK_AT_LIFE_S):
            self._silent += self._is_begun and self._waits
            if self._silent > MOST_SILENT:
                self._stopping = True  # the other threads need not report the end
                self._child.end()
                raise SignalboxError(
                    f"the process that speaks OpenFlow has sent nothing for {self._silent * LOOK_AT_LIFE_S:g} s"
                )

    def _receive(self) -> None:
        with suppress(EOFError, OSError):
            while True:
                self._waits = True
                message = self._child.receive()
                self._waits, self._is_begun, self._silent = False, True, 0
                match message:
                    case bytes() as packet:
                        self.link(packet)
                    case Broken():
                        self.link(None)
                    case Claim() as asked:
                        self.write(asked)  # only the other thread answers, so that no old answer comes last
                    case CannotListen(why):
                        self._stopping = True
                        self._fail(OSError(why))
        if not self._stopping:
            raise SignalboxError(f"the process of the southbound ended with status {self._child.end(END_S)}")

    def _answer(self, asked: Claim) -> None:
        may_claim = asked.since is not None and self._holding.may_claim(asked.dpid, asked.since)
        generation = self._holding.generation(asked.dpid)  # in this order, as ``Holding`` requires
        self._answered[asked.dpid] = answer = replace(asked, generation=generation, may_claim=may_claim)
        self._child.send(answer)
