"""Report of the switches that this member can reach, with which the leader assigns switches to members. Sans-IO.

In: messages of switches. Out: ``SwitchesInReach``. Times are those of ``discovery``: seconds during which the process
listened to switches. This clock advances little while the process itself is stopped.
"""

from __future__ import annotations

from collections.abc import Set

from controller.fabric.messages import SwitchesInReach
from controller.fabric.topology import Dpid


class Reach:
    """Detection of a broken network between this member and the switches.

    Some switches owe a message, because they are polled or have to answer a request. When all these switches are silent
    for ``silent_s``, probably only the network of this member is broken. This member then reports no switch as
    reachable, so that other members can serve the switches. This includes switches of other holders, which seldom send
    messages. A switch counts as reachable again when it answers: TCP may take seconds to repeat lost data."""

    def __init__(self, silent_s: float) -> None:
        self._silent_s = silent_s
        self._heard_at = 0.0
        """Time of the latest message of a switch that owes a message, or of the latest report of silence."""
        self._silent: set[Dpid] = set()

    def heard(self, now: float) -> None:
        """Handle a message of a switch that is polled, or has another request to answer."""
        self._heard_at = now

    def answered(self, dpid: Dpid) -> None:
        self._silent.discard(dpid)

    def report(self, connected: Set[Dpid], is_waiting: bool, now: float) -> SwitchesInReach:
        """Return the switches in reach.

        ``is_waiting``: whether any switch is polled, or has another request to answer."""
        if not is_waiting:
            self._heard_at = now
        elif now > self._heard_at + self._silent_s:
            self._silent |= connected
            self._heard_at = now  # so that switches that answer meanwhile count as reachable
        return SwitchesInReach(frozenset(connected - self._silent), frozenset(connected & self._silent))
