"""Wiring of the controller: every queue is made here, under a comment that names its writer and its reader.

southbound (``arrangement``) ─▶ inbox ─▶ control loop (thread) ─▶ southbound
gRPC server (thread)         ─▶ inbox                          ─▶ planner (process) ─▶ inbox
status board: control loop ─▶ gRPC server, metrics server

The southbound is in the main thread (``alone``), or each member has one in a process of its own (``member``).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, nullcontext, suppress
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy.ma  # noqa: F401 - numpy imports it at its first use, which would be in the control loop
import structlog

from controller import config as configuration
from controller.alarms import AlarmKey
from controller.answerer import Answerer
from controller.api.lease_tokens import LeaseTokens
from controller.api.server import ApiServer
from controller.config import Config
from controller.control_loop import ControlLoop
from controller.events import EventHistory
from controller.observability import logs
from controller.observability.metrics import MetricsServer
from controller.planning.analysis.dispatch import analyse
from controller.planning.process import MakePlanner
from controller.serving import descriptors, exposure, preflight, readiness
from controller.serving.alone import Alone
from controller.serving.arrangement import Arrangement, Begun
from controller.serving.driver import Driver
from controller.serving.event_file import EventFile
from controller.serving.event_log import at_start, not_over
from controller.serving.garbage import loading
from controller.serving.inbox import Inbox
from controller.serving.kept_events import MOST_KEPT, KeptEvents
from controller.serving.loaded import Loaded
from controller.serving.member import member
from controller.serving.reload import Reload, hangups, reloading
from controller.serving.standby import Stopped, stop, wait_for_turn
from controller.southbound.outbox import Outbox, stop_signals
from controller.status import StatusBoard
from controller.store.configured import assignments_of, membership_of, prepare_access, store_of
from controller.store.store import Store
from signalbox.errors import InvalidInput, SignalboxError
from signalbox.words import EventKind, Mode

log = structlog.get_logger(__name__)


def serve(
    config: Config,
    stand_by: bool = False,
    make_planner: MakePlanner | None = None,
    config_file: Path | None = None,
    answer: Callable[[Any], object] | None = None,
) -> int:
    """Run the controller until SIGTERM or SIGINT, and return the exit status.

    ``stand_by``: whether to wait while another controller uses the state. ``config_file``: file to read again at
    SIGHUP. ``make_planner``: makes the planner. ``answer``: answers the extension's questions (``Extension.answer``) in
    a separate process. Only benchmarks pass ``make_planner`` and ``answer``.

    Raises ``InvalidInput`` for invalid files, and ``OSError`` if the process cannot listen on an address."""
    with suppress(Stopped), ExitStack() as ends:
        ends.enter_context(stop_signals(stop))
        received = ends.enter_context(hangups())
        InvalidInput.refuse([*exposure.problems(config.api), *(preflight.cannot_stand_by(config) if stand_by else ())])
        store = store_of(config)
        logs.configure(json=config.log.json_lines, level=config.log.level)
        for doubt in preflight.doubts(config):
            log.warning("questionable setting", what=doubt)
        given, config = config, descriptors.within(config, descriptors.raise_limit())
        # control loop -> gRPC server, metrics server
        board = StatusBoard()
        loaded = Loaded(config, board)
        board.membership = membership = membership_of(config, store)
        board.is_active = is_claimed = lambda: store.is_claimed
        board.has_standby = membership.has_standby if membership else store.has_standby
        assigned = assignments_of(config, store, membership)
        access = partial(prepare_access, store, membership=membership, assignments=assigned[0] if assigned else None)
        reload = Reload(config_file, given, (*loaded.prepare, access), partial(setattr, board, "reload_refused"))
        ends.enter_context(reloading(received, reload))
        ends.enter_context(membership or nullcontext())
        arrangement: Arrangement = Alone(config, loaded.openflow_tls, is_claimed)
        if membership and assigned:
            arrangement = ends.enter_context(member(config, loaded, board, is_claimed, membership, assigned))
        waiting = ends.enter_context(ExitStack())
        if stand_by:
            waiting.enter_context(arrangement.standing_by())
            with loaded.waiting(store):
                if not wait_for_turn(store, partial(preflight.check_saved, config)):
                    store.close()  # SIGTERM may have arrived just after the claim
                    return 0
                reload.once(partly=True)  # files that are wrong by now stay as they were read before
        _run(config, make_planner or loaded.planning_process, answer, store, board, loaded, waiting.close, arrangement)
    return 0


def _run(
    config: Config,
    make_planner: MakePlanner,
    answer: Callable[[Any], object] | None,
    store: Store,
    board: StatusBoard,
    loaded: Loaded,
    free_ports: Callable[[], None],
    arrangement: Arrangement,
) -> None:
    """Run the controller with its state until SIGTERM or SIGINT.

    A signal ends the controller once it has started: an exception in between could leave a process without an owner.
    ``free_ports``: closes the ports of the standby, just before the ports of the active controller are opened."""
    # control loop -> southbound; and whatever ends the process -> main thread
    outbox = Outbox()
    with stop_signals(outbox.stop), ExitStack() as ends:
        ends.callback(store.close)
        # southbound, gRPC server, planning process -> control loop
        inbox = Inbox()
        # control loop -> planning process -> inbox
        planner = make_planner(inbox.put, outbox.fail)
        ends.callback(planner.stop)
        # control loop -> analysis, which resolves the API's futures itself
        analysis = Answerer(analyse)
        ends.callback(analysis.stop)

        with loading():
            config = configuration.with_settings(config, loaded.controlling(inbox.put))
            saved = store.load()
            events_kept = KeptEvents(store.events or EventFile(config.state_dir))
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
        started = {"version": version("signalbox-controller")}
        if board.membership:
            started["member"] = board.membership.own.name
        board.history.add(EventKind.CONTROLLER, "controller started", started, time.time())
        # control loop -> southbound -> control loop
        known = frozenset(part.ends[0].at.dpid for part in loop.derived.known_switches().values() if part.seen)
        control = arrangement.control(Begun(inbox.put, outbox, epoch, secret, known, loaded.declared.rack_of))
        driver = Driver(
            loop,
            inbox,
            control.send,
            outbox.fail,
            planner,
            analysis,
            answers,
            store,
            board,
            at_start(first, alarms_before),
        )
        driver.publish(first)  # so that the first request of a client already sees saved jobs
        api = ApiServer(config.api, board, inbox.put, tokens, loaded.api, control.port)
        metrics = MetricsServer(config.metrics, board, loaded.metrics_tls)
        driver.start()
        ends.callback(driver.stop)
        ends.callback(metrics.stop)
        ends.callback(api.stop)
        free_ports()
        addresses = api.start()
        metrics_port = metrics.start()
        control.run(partial(_report_ready, config, addresses, metrics_port, loop.state.mode))


def _report_ready(config: Config, addresses: Sequence[str], metrics_port: int, mode: Mode) -> None:
    log.info(
        "ready",
        openflow=f"{config.openflow.host}:{config.openflow.port}",
        api=" ".join(addresses),
        metrics=f"{config.metrics.host}:{metrics_port}",
        mode=mode.value,
    )
    readiness.ready("controls the switches")


def _alarms_before(history: EventHistory) -> dict[AlarmKey, float]:
    """Return the alarms of the previous controller that had not ended, with their starts in monotonic seconds."""
    lasts = {key: max(0.0, time.time() - at) for key, at in not_over(history.after(0, MOST_KEPT)).items()}
    return {key: time.monotonic() - lasts_s for key, lasts_s in lasts.items()}
