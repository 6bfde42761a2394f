"""What a link can carry: as configured, else as its port says."""

from __future__ import annotations

from controller.config import Config
from controller.fabric.topology import Port, Switch

UNKNOWN_PORT_BPS = 10e9


def configured_capacity(config: Config, switch: Switch, port: Port, at_edge: bool) -> float:
    """Bit/s each way of what is plugged into a port. ``at_edge``: a host, not another switch."""
    for link in config.fabric.link:
        if (link.switch, link.port) == (switch.name, port.name):
            return link.bps
    return (config.fabric.host_link_bps if at_edge else config.fabric.link_bps) or port.speed_bps or UNKNOWN_PORT_BPS
