"""Process with a switch that measures how long the controller takes to answer echo requests.

    python -m benchmarks.fabric.echo_switch PORT DPID INTERVAL_S

The switch has no ports. At the end of stdin the process prints a list in JSON. An entry is [monotonic seconds when a
request was sent, seconds until the answer]. A request without answer counts with the time that it has waited. The
process ends with status 1 when the controller has ended the connection.
"""

from __future__ import annotations

import json
import sys
import time

from benchmarks.openflow_switch import EchoingSwitch


def run(port: int, dpid: int, interval_s: float) -> list[tuple[float, float]]:
    """Send echo requests until stdin ends. Raises ``OSError`` when no controller listens at ``port``."""
    with EchoingSwitch(port, dpid, interval_s=interval_s) as switch:
        sys.stdin.read()
        if switch.connection_lost:
            sys.exit("the controller ended the connection")
        now = time.monotonic()
        return switch.answered + [(at, now - at) for at in switch.unanswered]


if __name__ == "__main__":
    print(json.dumps(run(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))))  # noqa: T201  # for the parent
