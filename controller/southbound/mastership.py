"""Becomes the master of a switch, so that only one controller writes to it (OpenFlow 1.3.5, sections 6.3.5 and 7.3.9).

Sans-IO, one object per connection. In: what the switch answers. Out: role requests through ``send``, which returns
their transaction ids; ``state`` says how it went. The generation is asked for first and one more is claimed with: it
grows with every change of masters, 64 bits that wrap around, and all ones in Open vSwitch when there was none yet.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from controller.southbound.framework import PROTOCOL, ofp, ofp_parser

ATTEMPTS = 3
"""Another controller may claim the switch at the same moment: the later generation counts."""
MASTERSHIP_LOST = (ofp.OFPET_BAD_REQUEST, ofp.OFPBRC_IS_SLAVE)
"""Type and code of the error that says that another controller has become the master."""

_GENERATIONS = 1 << 64
_STALE = (ofp.OFPET_ROLE_REQUEST_FAILED, ofp.OFPRRFC_STALE)


class Mastership:
    """``state``: ``master``; ``refused``, which switches without roles do, and is no reason not to use them; or
    ``asking`` until one of these is known."""

    def __init__(self, send: Callable[[Any], int]) -> None:
        self.state: Literal["asking", "master", "refused"] = "asking"
        self.why = ""
        self._send = send
        self._left = ATTEMPTS
        self._claimed = False
        self._xid = self._ask()

    def _ask(self) -> int:
        self._claimed = False
        return self._send(ofp_parser.OFPRoleRequest(PROTOCOL, ofp.OFPCR_ROLE_NOCHANGE, 0))

    def reply(self, xid: int, role: int, generation: int) -> None:
        if xid != self._xid or self.state != "asking":
            return
        if self._claimed:
            self.state = "master" if role == ofp.OFPCR_ROLE_MASTER else "refused"
            self.why = f"the switch answers with role {role}"
            return
        self._claimed = True
        following = (generation + 1) % _GENERATIONS
        self._xid = self._send(ofp_parser.OFPRoleRequest(PROTOCOL, ofp.OFPCR_ROLE_MASTER, following))

    def error(self, xid: int, code: tuple[int, int] | None, reason: str) -> None:
        """``code``: type and code of the error."""
        if xid != self._xid or self.state != "asking":
            return
        self._left -= 1
        if code == _STALE and self._claimed and self._left:
            self._xid = self._ask()
        else:
            self.state, self.why = "refused", reason
