"""The southbound in its own process, as ``serve`` runs it, with its event loop in the main thread."""

import multiprocessing
import os
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext, SpawnContext
from typing import Literal, NamedTuple, TypeVar

from controller.config import Config
from controller.core.messages import Command, Message
from controller.fabric.topology import Dpid
from controller.tables.messages import FromSwitches
from controller.tls import TlsContext
from tests.support.waiting import DEADLINE_S

Found = TypeVar("Found")

Framework = Literal["ryu", "os_ken"]


EPOCH = 1_900_000_000_000_000


class Assigned(NamedTuple):
    """Order to use another generation id for a switch; None: another member holds the switch."""

    dpid: Dpid
    generation: int | None


class _Holding:
    """``Holding`` that the test changes. ``epoch``: generation id of the switches that are not in ``assigned``."""

    is_shared = False

    def __init__(self, epoch: int | None, may_claim: bool) -> None:
        self.version = 0
        self.assigned: dict[Dpid, int | None] = {}
        self._epoch = epoch
        self._may_claim = may_claim

    def generation(self, dpid: Dpid) -> int | None:
        return self.assigned.get(dpid, self._epoch)

    def may_claim(self, dpid: Dpid, since: float) -> bool:  # noqa: ARG002
        return self._may_claim


def _serve(
    config: Config,
    pipe: Connection,
    framework: Framework | None,
    known: Sequence[Dpid],
    epoch: int | None,
    may_claim: bool,
) -> None:
    if framework:
        os.environ["SIGNALBOX_OPENFLOW"] = framework  # read when the next line imports it
    from controller.southbound.limits import Backlog
    from controller.southbound.outbox import Outbox
    from controller.southbound.run_hub import run_hub

    outbox = Outbox()
    holding = _Holding(epoch, may_claim)

    def forward() -> None:
        while True:
            try:
                order = pipe.recv()
            except EOFError:
                return
            if isinstance(order, Assigned):
                holding.assigned[order.dpid] = order.generation
                holding.version += 1
            else:
                outbox.send([order])

    threading.Thread(target=forward, daemon=True).start()

    messages: queue.SimpleQueue[FromSwitches | str] = queue.SimpleQueue()

    def report() -> None:
        while True:
            pipe.send(messages.get())  # waits while the test reads nothing

    threading.Thread(target=report, daemon=True).start()

    def put(message: FromSwitches, _backlog: Backlog | None = None, /) -> None:
        messages.put(message)

    tls = TlsContext("openflow", config.openflow.tls_files)
    run_hub(config, put, outbox, tls, holding, lambda: messages.put("ready"), known)


def context_of(framework: Framework | None) -> SpawnContext | ForkServerContext:
    """Return the context of ``multiprocessing`` for a process with this framework.

    With the framework of the environment, processes are forks of a process that has already imported it."""
    if framework not in (None, os.environ.get("SIGNALBOX_OPENFLOW", "ryu")):
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["controller.southbound.framework", __name__])
    return context


class Southbound:
    """Southbound process.

    ``received``: every message so far, in order.
    ``framework``: OpenFlow framework, None for the choice of the environment.
    ``known``: switches that were known before.
    ``epoch``: generation id of its claims; None if it holds no switch at first.
    ``may_claim``: whether it claims switches that have another generation id."""

    def __init__(
        self,
        config: Config,
        framework: Framework | None = None,
        known: Sequence[Dpid] = (),
        epoch: int | None = EPOCH,
        may_claim: bool = True,
    ) -> None:
        context = context_of(framework)
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(config, theirs, framework, known, epoch, may_claim))
        self._process.start()
        theirs.close()
        self.received: list[Message] = []

    def send(self, command: Command) -> None:
        self._pipe.send(command)

    def assign(self, dpid: Dpid, generation: int | None) -> None:
        self._pipe.send(Assigned(dpid, generation))

    def wait_ready(self) -> None:
        if not self._pipe.poll(DEADLINE_S):
            raise AssertionError("the southbound did not get ready")
        assert self._pipe.recv() == "ready"

    def wait_for(self, find: Callable[[list[Message]], Found | None], since: int = 0) -> Found:
        """Return the first result of ``find`` on the messages from number ``since`` on that is not None or False."""
        deadline = time.monotonic() + DEADLINE_S
        while True:
            found = find(self.received[since:])
            if found is not None and found is not False:
                return found
            left = deadline - time.monotonic()
            if left <= 0 or not self._pipe.poll(left):
                raise AssertionError(f"not seen in {self.received[since:]}")
            self.received.append(self._pipe.recv())

    def first(self, kind: type[Found], since: int = 0, **fields: object) -> Found:
        def find(messages: list[Message]) -> Found | None:
            matching = (
                m for m in messages if isinstance(m, kind) and all(getattr(m, k) == v for k, v in fields.items())
            )
            return next(matching, None)

        return self.wait_for(find, since)

    def stop(self, number: int = signal.SIGTERM) -> int | None:
        if self._process.is_alive() and self._process.pid:
            os.kill(self._process.pid, number)
        return self.wait_end()

    def wait_end(self) -> int | None:
        self._process.join(DEADLINE_S)
        if self._process.is_alive():
            self._process.kill()
            raise AssertionError("the southbound did not end")
        return self._process.exitcode


@contextmanager
def southbound(
    config: Config,
    framework: Framework | None = None,
    known: Sequence[Dpid] = (),
    epoch: int | None = EPOCH,
    may_claim: bool = True,
) -> Iterator[Southbound]:
    controller = Southbound(config, framework, known, epoch, may_claim)
    try:
        controller.wait_ready()
        yield controller
    finally:
        controller.stop()
