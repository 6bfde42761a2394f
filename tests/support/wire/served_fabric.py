"""A fabric in memory, whose hosts send, behind the real API server: the whole controller but for switches and
processes."""

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
    """Its time begins now, and passes only when it is told to."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.now = time.monotonic()
        self._turn = threading.Lock()
        self._board = StatusBoard()

    @contextmanager
    def served(self) -> Iterator[str]:
        """Returns the address of its API."""
        self._publish()
        server = ApiServer(ApiConfig(listen=("127.0.0.1:0",)), self._board, self._put, LeaseTokens.of(None))
        try:
            yield server.start()[0]
        finally:
            server.stop(grace_s=0.2)

    def change(self, what: Callable[[], object]) -> None:
        """Do something to the fabric, such as ``carry`` for some time, and publish what follows."""
        with self._turn:
            what()
            self._publish()

    def _publish(self) -> None:
        """Its counters are as old as its time: not late by the clock of the API."""
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
