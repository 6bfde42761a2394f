"""What Ryu parses for us: descriptions of ports, and errors. They are rare, and come before or instead of our own.

In: Ryu's objects. Out: ours. Section numbers are those of OpenFlow 1.3.5.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from controller.fabric.topology import Dpid, Port, PortNo
from controller.southbound.framework import ofp


def port(desc: Any) -> Port | None:
    """A port as the switch describes it (section 7.2.1); None for the switch's own reserved ports. ``curr_speed`` is
    in kbit/s."""
    if desc.port_no > ofp.OFPP_MAX:
        return None
    up = not desc.config & ofp.OFPPC_PORT_DOWN and not desc.state & ofp.OFPPS_LINK_DOWN
    return Port(PortNo(desc.port_no), _text(desc.name), desc.hw_addr, up, desc.curr_speed * 1000.0)


def switch_name(dpid: Dpid, descs: Iterable[Any]) -> str:
    """The name of the LOCAL port, which is the bridge's, or the dpid in hexadecimal."""
    local = next((desc for desc in descs if desc.port_no == ofp.OFPP_LOCAL), None)
    return _text(local.name) if local else f"{dpid:016x}"


def error_code(message: Any) -> tuple[int, int] | None:
    """Type and code of an error (section 7.4.4); None for an experimenter's."""
    return None if message.type == ofp.OFPET_EXPERIMENTER else (message.type, message.code)


def error_reason(message: Any) -> str:
    """``OFPET_BAD_ACTION(2): OFPBAC_BAD_OUT_GROUP(9)``."""
    if message.type == ofp.OFPET_EXPERIMENTER:
        return f"experimenter error {message.experimenter:#x}/{message.exp_type}"
    kind = ofp.ofp_error_type_to_str(message.type)
    return f"{kind}: {ofp.ofp_error_code_to_str(message.type, message.code)}"


def _text(name: bytes) -> str:
    """Without what would be carried out where somebody looks at it: a terminal, a log."""
    text = name.rstrip(b"\0").decode("utf-8", "replace")
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
