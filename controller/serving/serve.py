"""Wiring of the controller: every queue is made here, under a comment that names its writer and its reader.

southbound (Ryu's hub, main thread) ─▶ inbox ─▶ control loop (thread) ─▶ outbox ─▶ southbound
gRPC server (thread)                ─▶ inbox                          ─▶ planner (process) ─▶ inbox
status board: control loop ─▶ gRPC server, metrics server

With ``openflow.own_process`` the southbound is a process: process ─▶ link ─▶ router ─▶ inbox, and back. Links of other
members' southbounds arrive at the gRPC server (``sharing``).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy.ma  # noqa: F401 - numpy imports it at its first use, which would be in the control loop
import structlog

from controller import config as configuration
from controller.alarms import AlarmKey
from controller.answerer import Answerer, resolve
from controller.api.leader_link import NewLink
from controller.api.lease_tokens import LeaseTokens
from controller.api.server import ApiServer, MemberPort
from controller.config import Config
from controller.control_loop import ControlLoop
from controller.core.messages import Command, Reply, Tick, WorkedOut, WorkOut
from controller.events import EventHistory
from controller.fabric.topology import Dpid
from controller.jobs.messages import SaveState, StateNotSaved, StateSaved
from controller.link.ends import LinkEnd
from controller.link.routing import Router
from controller.log_limit import LimitedLog
from controller.observability import logs
from controller.observability.metrics import MetricsServer
from controller.planning.analysis.dispatch import analyse
from controller.planning.analysis.messages import Analyse
from controller.planning.messages import SolvePlan, WorkOutSlowdowns
from controller.planning.process import MakePlanner, PlanRequestHandler
from controller.serving import descriptors, exposure, preflight, readiness, standby
from controller.serving.alarm_lines import AlarmLines
from controller.serving.event_file import EventFile
from controller.serving.event_log import ALARM, OF_ALARMS, Event, at_start, events, not_over
from controller.serving.garbage import Garbage, loading
from controller.serving.inbox import Inbox
from controller.serving.kept_events import MOST_KEPT, EventKeys
from controller.serving.loaded import Loaded
from controller.serving.publishing import Publishing
from controller.serving.reload import Hangups, Prepare, Reload, hangups, reloading
from controller.serving.sharing import TAKEN_OVER_S, Sharing, probe_key, shares, sharing
from controller.serving.southbound_process import SouthboundProcess
from controller.southbound.holding import AllSwitches, Holding
from controller.southbound.limits import Put
from controller.southbound.outbox import Outbox, stop_signals
from controller.status import Status, StatusBoard
from controller.store.configured import NothingSaved, assignments_of, membership_of, prepare_access, store_of
from controller.store.store import Store
from controller.tables.messages import ToSwitches
from controller.tls import TlsContext
from signalbox.errors import InvalidInput, SignalboxError
from signalbox.words import EventKind, Mode

log = structlog.get_logger(__name__)
limited_log = LimitedLog(log, period_s=10.0, lines=100)
"""Log of events that clients can cause any number of times."""

SOUTHBOUND = ("controller.southbound.run_hub", "controller.southbound.app")
"""Modules that import the OpenFlow framework."""

TICK_S = 0.1
USUALLY_SILENT = 1.5
"""Largest silence of a switch that can answer, as a multiple of the time between counter polls or echo requests."""
BATCH = 1000
"""Largest number of messages in one turn of the control loop."""


def serve(
    config: Config,
    stand_by: bool = False,
    make_planner: MakePlanner | None = None,
    config_file: Path | None = None,
    answer: Callable[[Any], object] | None = None,
) -> int:
    """Run the controller until SIGTERM or SIGINT, and return the exit status.

    ``stand_by``: wait first while another controller uses the state directory. ``config_file``: file to read again at
    SIGHUP. ``make_planner``: makes the planner. ``answer``: answers the extension's questions (``Extension.answer``) in
    a separate process. Only benchmarks pass functions for ``make_planner`` and ``answer``.

    Raises ``InvalidInput`` for wrong files, and ``OSError`` when an address cannot be listened on."""
    with hangups() as received:
        return _serve(config, stand_by, make_planner, config_file, answer, received)


def _serve(
    config: Config,
    stand_by: bool,
    make_planner: MakePlanner | None,
    config_file: Path | None,
    answer: Callable[[Any], object] | None,
    received: Hangups,
) -> int:
    InvalidInput.refuse(exposure.problems(config.api))
    store = store_of(config)
    if stand_by and isinstance(store, NothingSaved):
        raise InvalidInput.of(
            "state_dir", "is missing; --standby needs state_dir or etcd, where a claim decides who is active"
        )
    logs.configure(json=config.log.json_lines, level=config.log.level)
    for doubt in preflight.doubts(config):
        log.warning("questionable setting", what=doubt)
    given, config = config, descriptors.within(config, descriptors.raise_limit())
    # control loop -> gRPC server, metrics server
    board = StatusBoard()
    loaded = Loaded(config, board)
    board.membership = membership = membership_of(config, store)
    board.is_active = lambda: store.is_claimed
    board.has_standby = membership.has_standby if membership else store.has_standby
    assigned = assignments_of(config, store, membership) if shares(config) else None
    access = partial(prepare_access, store, membership=membership, assignments=assigned[0] if assigned else None)
    prepare: tuple[Prepare, ...] = (*loaded.prepare, access)
    reload = Reload(config_file, given, prepare, partial(setattr, board, "reload_refused"))
    with (
        reloading(received, reload),
        membership or nullcontext(),
        sharing(config, loaded, membership, assigned) as shared,
        ExitStack() as waiting,
    ):
        if stand_by:
            for module in SOUTHBOUND if not config.openflow.own_process else ():
                import_module(module)  # slow to import: do it now, so that neither jobs nor switches wait for it later
            beside = shared.leader_link(loaded).run if shared else None
            waiting.enter_context(standby.forwarding(config, loaded, board, membership, beside))
            if membership and not shared:
                # Members have different addresses, so switches try to reach all of them.
                from controller.southbound.waiting_room import waiting_room

                waiting.enter_context(waiting_room(config.openflow, loaded.openflow_tls))
            with loaded.waiting(store):
                if not standby.wait_for_turn(store):
                    store.close()  # SIGTERM may have arrived just after the claim
                    return 0
                reload.once(partly=True)  # files that are wrong by now stay as they were read before
        _run(config, make_planner or loaded.planning_process, answer, store, board, loaded, waiting.close, shared)
    return 0


def _run(
    config: Config,
    make_planner: MakePlanner,
    answer: Callable[[Any], object] | None,
    store: Store,
    board: StatusBoard,
    loaded: Loaded,
    free_ports: Callable[[], None],
    shared: Sharing | None,
) -> None:
    """Run the controller with the state directory, if there is one, until SIGTERM or SIGINT.

    ``free_ports``: closes the ports of a standby, just before the ports of the active controller are opened.
    ``shared``: southbound of this member, if members divide the switches."""
    with ExitStack() as ends:
        ends.callback(store.close)
        # southbound, gRPC server, planning process -> control loop
        inbox = Inbox()
        # control loop -> southbound; and whatever ends the process -> main thread
        outbox = Outbox()
        # control loop -> planning process -> inbox
        planner = make_planner(inbox.put, outbox.fail)
        ends.callback(planner.stop)
        # control loop -> analysis, which resolves the API's futures itself
        analysis = Answerer(analyse)
        ends.callback(analysis.stop)

        with loading():
            config = configuration.with_settings(config, loaded.controlling(inbox.put))
            saved = store.load()
            events_kept = EventKeys(store.events) if store.events else EventFile(config.state_dir)
            ends.callback(events_kept.close)
            # control loop -> gRPC server
            board.history = events_kept.history
            alarms_before = _alarms_before(board.history)
            loop = ControlLoop(config, saved, loaded.declared, time.monotonic(), alarms_before)
            secret = store.secret(bool(saved.jobs))
            tokens = LeaseTokens(secret)
            epoch = store.begin(partial(outbox.fail, SignalboxError("another controller has claimed the state")))
            first = loop.status(time.monotonic())
        # control loop -> process that answers the extension's questions -> inbox
        answers = None
        if answer := answer or loop.extension.answer:
            answers = Answerer(answer, loop.extension.prepare)
            ends.callback(answers.stop)
        board.history.add(
            EventKind.CONTROLLER, "controller started", {"version": version("signalbox-controller")}, time.time()
        )
        # control loop -> southbounds in processes of their own
        grace_s = config.etcd.lease_s + TAKEN_OVER_S if shared else 0.0
        router = Router(inbox.put, grace_s, config.openflow.barrier_timeout_s) if config.openflow.own_process else None
        to_switches = router.send if router else outbox.send
        driver = _Driver(
            loop,
            inbox,
            to_switches,
            outbox.fail,
            planner,
            analysis,
            answers,
            store,
            board,
            at_start(first, alarms_before),
        )
        driver.publish(first)  # so that the first request of a client already sees saved jobs
        known = frozenset(part.ends[0].at.dpid for part in loop.derived.known_switches().values() if part.seen)
        new_link = partial(LinkEnd, router, probe_key(secret), known) if router else None
        port = _member_port(config, loaded, store, new_link if shared else None)
        api = ApiServer(config.api, board, inbox.put, tokens, loaded.api, port)
        metrics = MetricsServer(config.metrics, board, loaded.metrics_tls)
        with stop_signals(outbox.stop):
            driver.start()
            ends.callback(driver.stop)
            ends.callback(metrics.stop)
            ends.callback(api.stop)
            free_ports()
            addresses = api.start()
            metrics_port = metrics.start()
            holding = AllSwitches(epoch, lambda: store.is_claimed)
            on_ready = partial(_ready, config, addresses, metrics_port, loop.state.mode)
            silent = partial(hand_over, config, board, outbox)
            if router is None or new_link is None:
                run_hub(config, inbox.put, outbox, loaded.openflow_tls, holding, on_ready, known, silent)
            elif shared:
                shared.process.fail = outbox.fail
                with shared.leading(router, new_link, board, loaded.declared.rack_of):
                    on_ready()
                    outbox.wait()
            else:
                process = SouthboundProcess(config, known, holding, loaded.logging, outbox.fail, on_ready, silent)
                ends.callback(process.stop)
                loaded.southbound = process
                local = new_link("", process.write, same_clock=True)
                process.link = local.received
                local.begin()
                outbox.wait()


def hand_over(config: Config, board: StatusBoard, outbox: Outbox, silent_s: float) -> None:
    """Stop the controller if its state is in etcd, a standby exists, and no switch has answered for a lease.

    The standby may reach the switches. A controller that no switch has reached yet continues, so that controllers do
    not replace each other while all switches are down."""
    usual_s = min(config.counters.interval_s, config.openflow.echo_interval_s)
    if board.membership and silent_s > max(config.etcd.lease_s, USUALLY_SILENT * usual_s) and board.has_standby():
        outbox.fail(
            SignalboxError(f"no switch has answered for {silent_s:.1f} s; stopping, so that a standby takes over")
        )


def _member_port(config: Config, loaded: Loaded, store: Store, new_link: NewLink | None) -> MemberPort | None:
    if not config.members.api:
        return None
    names = frozenset(config.members.certificate_names or ())
    return MemberPort(
        config.members.api, loaded.members_tls, names, lambda: store.is_claimed, new_link, config.etcd.lease_s
    )


def _ready(config: Config, addresses: Sequence[str], metrics_port: int, mode: Mode) -> None:
    """Report that jobs, operators, scrapers and switches can connect."""
    log.info(
        "ready",
        openflow=f"{config.openflow.host}:{config.openflow.port}",
        api=" ".join(addresses),
        metrics=f"{config.metrics.host}:{metrics_port}",
        mode=mode.value,
    )
    readiness.ready("controls the switches")


def _alarms_before(history: EventHistory) -> dict[AlarmKey, float]:
    """Return the alarms of the previous controller that had not ended, with their start in monotonic seconds."""
    lasts = {key: max(0.0, time.time() - at) for key, at in not_over(history.after(0, MOST_KEPT)).items()}
    return {key: time.monotonic() - lasts_s for key, lasts_s in lasts.items()}


def run_hub(
    config: Config,
    put: Put,
    outbox: Outbox,
    tls: TlsContext,
    holding: Holding,
    on_ready: Callable[[], None],
    known: Collection[Dpid],
    silent: Callable[[float], None],
) -> None:
    """Run the southbound; its slow imports happen after the API has started, so that jobs need not wait for them."""
    from controller.southbound.run_hub import run_hub as run

    run(config, put, outbox, tls, holding, on_ready, known, silent)


@dataclass(eq=False)
class _Driver:
    """Thread of the control loop: the only reader of the inbox, and the only caller of the loop.

    Nothing else reads the clock for the loop. An exception in this thread stops the process."""

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
        """Carry out the commands. A reply with an effect on the status is sent after the status was published."""
        self._carry_out(commands)
        replies = [command for command in commands if isinstance(command, Reply)]
        for reply in replies:
            if not reply.after_status:
                resolve(reply.future, reply.value)
        if shown := [reply for reply in replies if reply.after_status]:
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

    def _carry_out(self, commands: Iterable[Command]) -> None:
        southbound: list[ToSwitches] = []
        for command in commands:
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
                case Reply():
                    pass  # resolved by ``_give``
                case _:
                    southbound.append(command)
        self.to_switches(southbound)

    def _worked_out(self, question: object, answer: Future[object]) -> None:
        """Put the answer into the inbox. The thread of ``answers`` calls this method."""
        why = answer.exception()
        self.inbox.put(WorkedOut(question, str(why) if why else answer.result()))

    def _saved(self, found: int | OSError) -> None:
        """Put the result of a commit into the inbox, from the store's thread."""
        if isinstance(found, int):
            self.inbox.put(StateSaved(found))
        else:
            limited_log.error("the state cannot be saved", why=str(found))
            self.inbox.put(StateNotSaved(str(found)))
