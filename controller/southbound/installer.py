"""Installation of stages: sends changes to each switch, then a barrier, and finds the change that an error refers to.

In: ``InstallStage``, and the replies of switches. Out: messages through ``send``, which returns their transaction ids,
and one ``StageDone`` per stage. After ``PATIENCE_S`` (``now``: monotonic seconds), the results so far are reported, and
the result of each late switch when it arrives.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, field
from math import inf

from controller.fabric.topology import Dpid
from controller.southbound import openflow_encode as encode
from controller.southbound.given_rules import GivenRules
from controller.southbound.limits import limited_log
from controller.tables.messages import InstallStage, StageDone, SwitchResult
from controller.tables.rules import RuleMod

BATCH = 256
"""Number of messages that are packed and sent before other greenlets may run; takes about 2 ms."""
PATIENCE_S = 1.0
"""Seconds for which a stage waits for slow switches before its first report."""


@dataclass(slots=True)
class _Stage:
    """State of one stage. Times are monotonic seconds."""

    command: InstallStage
    late_at: float
    """Time at which the results so far are reported."""
    missing: set[Dpid]
    results: dict[Dpid, SwitchResult] = field(default_factory=dict)
    """Results that were not reported yet."""
    late: bool = False


@dataclass(slots=True)
class _OnSwitch:
    stage: _Stage
    mods: dict[int, RuleMod] = field(default_factory=dict)
    """Sent changes that were not refused, by transaction id."""
    rejected: list[tuple[RuleMod, str]] = field(default_factory=list)
    barrier: int | None = None
    deadline: float = inf
    """Time at which the barrier is abandoned; set by the first ``expire`` after the barrier was sent."""


class Installer:
    def __init__(
        self, barrier_timeout_s: float, send: encode.Send, put: Callable[[StageDone], None], given: GivenRules
    ) -> None:
        self._given = given
        self._barrier_timeout_s = barrier_timeout_s
        self._send = send
        self._put = put
        self._open: dict[Dpid, list[_OnSwitch]] = {}

    def install(self, command: InstallStage, connected: Container[Dpid], now: float) -> Iterator[None]:
        """Send the stage, and yield whenever other greenlets may run.

        Switches that are not ``connected`` count as timed out."""
        stage = _Stage(command, now + PATIENCE_S, set(command.stage.mods))
        work = {dpid: _OnSwitch(stage) for dpid in command.stage.mods}
        for dpid, on_switch in work.items():
            self._open.setdefault(dpid, []).append(on_switch)
        for dpid in work:
            if dpid not in connected:
                self.switch_left(dpid)
        if not work:
            self._report(stage)
        sent = 0
        for dpid, on_switch in work.items():
            mods = command.stage.mods[dpid]
            for start in range(0, max(1, len(mods)), BATCH):
                batch = mods[start : start + BATCH]
                if dpid in stage.missing:
                    self._send_mods(dpid, on_switch, batch, last=start + BATCH >= len(mods))
                sent += len(batch)
                if sent >= BATCH:
                    sent = 0
                    yield
        yield

    def _send_mods(self, dpid: Dpid, on_switch: _OnSwitch, mods: tuple[RuleMod, ...], last: bool) -> None:
        messages = [encode.mod_message(mod) for mod in mods]
        if last:
            messages.append(encode.barrier())
        xids = self._send(dpid, *messages)
        on_switch.mods.update(zip(xids, mods, strict=False))
        self._given.sent(dpid, mods)
        if last:
            on_switch.barrier = xids[-1]

    def error(self, dpid: Dpid, xid: int, reason: str) -> bool:
        """Handle an error message. Return False if the error does not refer to a message of an open stage."""
        for on_switch in self._open.get(dpid, ()):
            if (mod := on_switch.mods.pop(xid, None)) is not None:  # a switch may refuse the same message several times
                on_switch.rejected.append((mod, reason))
                return True
            if on_switch.barrier == xid:
                self._close(dpid, on_switch, timed_out=True)
                return True
        return False

    def barrier_reply(self, dpid: Dpid, xid: int) -> None:
        for on_switch in self._open.get(dpid, ()):
            if on_switch.barrier == xid:
                return self._close(dpid, on_switch, timed_out=False)
        return None

    def switch_left(self, dpid: Dpid) -> None:
        for on_switch in list(self._open.get(dpid, ())):
            self._close(dpid, on_switch, timed_out=True)

    def expire(self, now: float) -> None:
        """Report stages with late switches, and abandon overdue barriers."""
        stages = {one.stage.command.change_id: one.stage for them in self._open.values() for one in them}
        for stage in stages.values():
            if not stage.late and stage.late_at <= now:
                stage.late = True
                limited_log.warning(
                    "switches have not confirmed rules in time",
                    stage=stage.command.stage.name,
                    count=len(stage.missing),
                )
                self._report(stage)
        for dpid, on_switch in [(dpid, one) for dpid, them in self._open.items() for one in them]:
            if on_switch.barrier is not None:
                on_switch.deadline = min(on_switch.deadline, now + self._barrier_timeout_s)
            if on_switch.deadline > now:
                continue
            limited_log.warning("no barrier reply", dpid=f"{dpid:#x}", stage=on_switch.stage.command.stage.name)
            self._close(dpid, on_switch, timed_out=True)

    def _close(self, dpid: Dpid, on_switch: _OnSwitch, timed_out: bool) -> None:
        self._open[dpid].remove(on_switch)
        if not self._open[dpid]:
            del self._open[dpid]
        if not timed_out:
            self._given.confirmed(dpid, on_switch.mods.values())
        stage = on_switch.stage
        stage.missing.remove(dpid)
        stage.results[dpid] = SwitchResult(tuple(on_switch.rejected), timed_out)
        if stage.late or not stage.missing:
            self._report(stage)

    def _report(self, stage: _Stage) -> None:
        results, stage.results = stage.results, {}
        self._put(StageDone(stage.command.change_id, results))
