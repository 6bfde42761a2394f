"""A fabric in memory, whose hosts send, behind the real API server.

This is the whole controller without real switches and processes."""

import json
import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Self

from controller.api.lease_tokens import LeaseTokens
from controller.api.server import ApiServer
from controller.config import ApiConfig
from controller.core.messages import Command, Message, Reply
from controller.fabric.topology import PortNo
from controller.jobs.messages import RegisterJob
from controller.planning.analysis.dispatch import analyse
from controller.planning.analysis.messages import Analyse
from controller.status import StatusBoard
from signalbox.errors import SignalboxError
from signalbox.jobs.spec import JobSpec
from tests.support.busy_fabric import BusyFabric, Ring
from tests.support.doc_pages import ROOT
from tests.support.fake_fabric import FABRIC_BPS
from tests.support.three_rings import CONFIG


def example_job(name: str) -> JobSpec:
    return JobSpec.parse(json.loads((ROOT / f"examples/{name}.json").read_text()))


class ServedFabric(BusyFabric):
    """Fabric whose clock starts now, and moves only when the test moves it."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.now = time.monotonic()
        self._turn = threading.Lock()
        self._board = StatusBoard()

    @classmethod
    def of_four_leaves(cls) -> Self:
        """Return a fabric of 4 leaves x 4 spines x 4 hosts that are all known."""
        fabric = cls(4, 4, 4)
        fabric.start(CONFIG)
        fabric.run(5)
        fabric.all_speak()
        return fabric

    def train_examples(self) -> None:
        """Register the example jobs ``language`` and ``vision``, whose hosts send more slowly than they could."""
        for job in map(example_job, ("language", "vision")):
            self.send(RegisterJob(job))
            self.rings += [Ring(job.endpoints[:4], FABRIC_BPS / 3), Ring(job.endpoints[4:], FABRIC_BPS / 2)]

    def cut_first_cable(self) -> None:
        self.cut(next(dpid for dpid, switch in self.switches.items() if switch.name == "leaf1"), PortNo(1))

    @contextmanager
    def served(self) -> Iterator[str]:
        """Serve the API and yield its address."""
        self._publish()
        server = ApiServer(ApiConfig(listen=("127.0.0.1:0",)), self._board, self._put, LeaseTokens())
        try:
            yield server.start()[0]
        finally:
            server.stop(grace_s=0.2)

    def change(self, what: Callable[[], object]) -> None:
        """Change the fabric, for example by ``carry`` for some time, and publish the result."""
        with self._turn:
            what()
            self._publish()

    def _publish(self) -> None:
        """Publish the status without an age limit of counters.

        Counters have times of the fabric's own clock, so by the clock of the API they would be late."""
        self._board.publish(replace(self.status, counters_late_after_s=math.inf))

    def _put(self, message: Message) -> None:
        with self._turn:
            self.send(message)
            self._publish()

    def _carry_out(self, command: Command) -> list[Message]:
        if isinstance(command, Analyse):
            try:
                command.reply.set_result(analyse(command.request))
            except SignalboxError as error:
                command.reply.set_exception(error)
            return []
        if isinstance(command, Reply) and isinstance(command.value, SignalboxError):
            command.future.set_exception(command.value)
        elif isinstance(command, Reply):
            command.future.set_result(command.value)
        return super()._carry_out(command)
