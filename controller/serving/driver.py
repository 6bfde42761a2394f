"""Thread of the control loop. Only this thread reads the inbox and calls the loop.

The thread passes each command of the loop to the part of the process that carries out the command, and publishes the
status, and the events since the previous status.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import assert_never

import structlog

from controller.answerer import Answerer, resolve
from controller.control_loop import ControlLoop
from controller.core.messages import Command, Reply, Tick, WorkedOut, WorkOut
from controller.jobs.messages import SaveState, StateNotSaved, StateSaved
from controller.log_limit import LimitedLog
from controller.planning.analysis.messages import Analyse
from controller.planning.messages import SolvePlan, WorkOutSlowdowns
from controller.planning.process import PlanRequestHandler
from controller.serving.alarm_lines import AlarmLines
from controller.serving.event_log import ALARM, OF_ALARMS, Event, events
from controller.serving.garbage import Garbage
from controller.serving.inbox import Inbox
from controller.serving.publishing import Publishing
from controller.status import Status, StatusBoard
from controller.store.store import Store
from controller.tables.messages import ToSwitches

log = structlog.get_logger(__name__)
limited_log = LimitedLog(log, period_s=10.0, lines=100)
"""Log for events that clients can cause any number of times."""

TICK_S = 0.1
BATCH = 1000
"""Largest number of messages in one turn of the control loop."""


@dataclass(eq=False)
class Driver:
    """Thread of the control loop, which also reads the clock for the loop.

    ``fail``: stops the process; called with an exception that occurs in this thread."""

    loop: ControlLoop
    inbox: Inbox
    to_switches: Callable[[Iterable[ToSwitches]], None]
    fail: Callable[[BaseException], None]
    planner: PlanRequestHandler
    analysis: Answerer
    answers: Answerer | None
    store: Store
    board: StatusBoard
    logged: Status
    """Latest status whose events were logged."""

    def __post_init__(self) -> None:
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="control-loop", daemon=True)
        self._publishing = Publishing()
        self._alarm_lines = AlarmLines()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(timeout=5)

    def _run(self) -> None:
        try:
            tick_at = 0.0
            garbage = Garbage()
            while not self._stopping.is_set():
                # One turn takes a whole burst, so that the loop reacts once to all of it.
                messages = self.inbox.take(BATCH, 0.0 if self.loop.unfinished else tick_at - time.monotonic())
                now = time.monotonic()
                if now >= tick_at:
                    tick_at = now + TICK_S
                    messages.append(Tick(is_claimed=self.store.is_claimed))
                taken = self.loop.apply(messages, now)
                self._execute(taken, now)  # before the work that follows, which may take long
                done = self.loop.work(now)
                self._execute(done, now)
                commands = [*taken, *done]
                self._publishing.note(messages, commands)
                if self._publishing.is_due(self.loop.published_routes, now) and not self.loop.urgent:
                    self._publish(now)
                if not commands and all(isinstance(message, Tick) for message in messages):
                    garbage.quiet(now)
        except Exception as error:
            log.exception("the control loop failed; stopping")
            self.fail(error)

    def _execute(self, commands: Sequence[Command], now: float) -> None:
        """Carry out the commands.

        A reply about an effect that the status shows (``Reply.after_status``) is sent after the status was
        published."""
        to_switches: list[ToSwitches] = []
        shown: list[Reply] = []
        for command in commands:
            if isinstance(command, ToSwitches):
                to_switches.append(command)
            elif isinstance(command, Reply) and command.after_status:
                shown.append(command)
            else:
                self._carry_out(command)
        self.to_switches(to_switches)
        if shown:
            self._publish(now)
            for reply in shown:
                resolve(reply.future, reply.value)

    def _publish(self, now: float) -> None:
        self._publishing.done(self.loop.published_routes, now)
        self.publish(self.loop.status(now))

    def publish(self, status: Status) -> None:
        """Publish the status, and log the events since the previous one."""
        before, self.logged = self.logged, status
        now = time.monotonic()
        for kind, event, details in events(before, status):
            lines = self._alarm_lines.of(event, details, now) if kind in OF_ALARMS else ((event, details),)
            self._log(lines)
            self.board.history.add(kind, event, details, time.time())
        self._log(self._alarm_lines.due(now))
        limited_log.summarise()
        self.board.publish(status)

    def _log(self, lines: Iterable[Event]) -> None:
        for event, details in lines:
            (limited_log.warning if event == ALARM else limited_log.info)(event, **details)

    def _carry_out(self, command: SolvePlan | WorkOutSlowdowns | Analyse | WorkOut | SaveState | Reply) -> None:
        match command:
            case SolvePlan() | WorkOutSlowdowns():
                self.planner.submit(command)
            case Analyse(request, reply):
                self.analysis.submit(request, reply)
            case WorkOut(question):
                assert self.answers
                answer: Future[object] = Future()
                answer.add_done_callback(partial(self._worked_out, question))
                self.answers.submit(question, answer)
            case SaveState(_, changes):
                self.store.commit(changes, self._saved)
            case Reply(future, value):
                resolve(future, value)
            case _:
                assert_never(command)

    def _worked_out(self, question: object, answer: Future[object]) -> None:
        """Put the answer to a question into the inbox; called by the thread that worked out the answer."""
        why = answer.exception()
        self.inbox.put(WorkedOut(question, str(why) if why else answer.result()))

    def _saved(self, found: int | OSError) -> None:
        """Put the result of a commit into the inbox; called by the store's thread."""
        if isinstance(found, int):
            self.inbox.put(StateSaved(found))
        else:
            limited_log.error("the state cannot be saved", why=str(found))
            self.inbox.put(StateNotSaved(str(found)))
