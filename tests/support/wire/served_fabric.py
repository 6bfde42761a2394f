"""A fabric in memory, whose hosts send, behind the real API server.

This is the whole controller without real switches and processes."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from controller.api.lease_tokens import LeaseTokens
from controller.api.server import ApiServer
from controller.config import ApiConfig
from controller.core.messages import Command, Message, Reply
from controller.planning.analysis.analyse import analyse
from controller.planning.analysis.requests import Analyse
from controller.status import StatusBoard
from signalbox.errors import SignalboxError
from tests.support.busy_fabric import BusyFabric


class ServedFabric(BusyFabric):
    """Fabric whose clock starts now, and moves only when the test moves it."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.now = time.monotonic()
        self._turn = threading.Lock()
        self._board = StatusBoard()

    @contextmanager
    def served(self) -> Iterator[str]:
        """Serve the API and yield its address."""
        self._publish()
        server = ApiServer(ApiConfig(listen=("127.0.0.1:0",)), self._board, self._put, LeaseTokens.of(None))
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

        Counters are as old as the time of the fabric, and the clock of the API would call them late."""
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
