"""What is sent to switches next, and what follows when they have confirmed it.

In: the wanted rules, what switches hold. Out: stages of changes, requests to probe the ports of switches that have
become ready, replies that waited for confirmation. Jobs whose confirmed routes change are measured anew.
"""

from __future__ import annotations

from controller.core.derived import Derived
from controller.core.messages import Command
from controller.core.phases import Input
from controller.core.state import State
from controller.fabric.messages import ProbePorts


class Sending:
    """``now`` is monotonic seconds."""

    def __init__(self, state: State, derived: Derived) -> None:
        self._state = state
        self._derived = derived

    def next_stage(self) -> list[Command]:
        """The first stage of the difference between what switches should hold and what they hold."""
        s = self._state
        stage = s.sync.next_stage(s.wanted.rules)
        ready = frozenset(dpid for dpid in s.sync.settled if s.topology.switch_ready(dpid))
        return [*([stage] if stage else []), *([ProbePorts(ready)] if ready else [])]

    def take_confirmed(self, now: float) -> None:
        """Note which pins and routes switches hold, unless what they should hold is about to change."""
        s = self._state
        if not s.sync.busy:
            s.phases.take(Input.ALL_CONFIRMED, now)
        if s.phases.adopting or s.phases.urgent:
            return
        for job_id in s.confirmed.update(
            self._derived.confirmed_pins(), self._derived.confirmed_routes(), s.jobs.jobs.values()
        ):
            s.jobs.reset_measured(job_id)

    def due_replies(self, rules_due: bool, now: float) -> list[Command]:
        """``rules_due``: the wanted rules are to be derived anew, so that nothing counts as confirmed."""
        s = self._state
        all_confirmed = not (rules_due or s.sync.busy or s.sync.unsettled)
        if all_confirmed:
            s.losses.all_confirmed(now)
        return s.waiting.due(all_confirmed, s.cycle.cycles_done, len(s.confirmed.pins), now)
