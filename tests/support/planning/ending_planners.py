"""Planners for tests of the planning process: they end, do not answer, or stop within an answer.

They have a module of their own because each process imports it: importing the planner and pytest would take longer than
the test."""

import os
import signal
import threading
from multiprocessing.connection import Connection
from typing import Any

from controller.planning.messages import PlanningRequest, WorkOutSlowdowns
from controller.planning.plan import NoPlan, Planned, Slowdowns
from controller.planning.process import OnCrash, PlanRequestHandler, Put


class Fatal:
    """Planner that ends its process at a request of an odd generation, and answers other requests."""

    def __init__(self, put: Put, _: OnCrash) -> None:
        self._put = put

    def submit(self, request: PlanningRequest) -> None:
        if request.snapshot.generation % 2:
            os.kill(os.getpid(), signal.SIGKILL)
        self._put(Planned(NoPlan(request.snapshot.generation, f"of {len(request.snapshot.problem.flows)} flows")))

    def stop(self) -> None: ...


class Silent(Fatal):
    """Planner that does not answer requests of an odd generation."""

    def submit(self, request: PlanningRequest) -> None:
        if request.snapshot.generation % 2 == 0:
            super().submit(request)


class TellsSlowdowns(Fatal):
    """Planner that answers a request for slowdowns."""

    def submit(self, request: PlanningRequest) -> None:
        if isinstance(request, WorkOutSlowdowns):
            self._put(Slowdowns(request.snapshot.generation, {}, frozenset()))
        else:
            super().submit(request)


class ShortLived(Fatal):
    """Planner whose process ends soon after its start, whatever the request."""

    def __init__(self, put: Put, on_crash: OnCrash) -> None:
        super().__init__(put, on_crash)
        threading.Timer(0.05, os._exit, [3]).start()


class Halting(Fatal):
    """Planner that stops its process while it writes the answer to a request of an odd generation."""

    def submit(self, request: PlanningRequest) -> None:
        if request.snapshot.generation % 2:

            def half(connection: Connection, data: Any) -> None:
                os.write(connection.fileno(), bytes(data)[: len(data) // 2])
                os.kill(os.getpid(), signal.SIGSTOP)

            Connection._send = half  # type: ignore[attr-defined]
            self._put(Planned(NoPlan(request.snapshot.generation, "")))
        super().submit(request)


def broken(_: Put, __: OnCrash) -> PlanRequestHandler:
    raise ImportError("there is no solver")
