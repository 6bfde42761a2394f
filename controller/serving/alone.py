"""Arrangement of a controller that controls all switches itself, from Ryu's hub in the main thread.

control loop (thread) ─▶ outbox ─▶ hub ─▶ inbox. A standby waits for the claim of the state, and opens no port.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module

from controller.config import Config
from controller.fabric.topology import Dpid
from controller.serving.arrangement import Begun, Control
from controller.southbound.holding import AllSwitches, Holding
from controller.southbound.limits import Put
from controller.southbound.outbox import Outbox
from controller.tls import TlsContext

SOUTHBOUND = ("controller.southbound.run_hub", "controller.southbound.app")
"""Modules that import the OpenFlow framework, which is slow to import."""


@dataclass(frozen=True)
class Alone:
    """``Arrangement`` of one active controller. ``is_claimed``: whether this process has the claim of the state."""

    config: Config
    tls: TlsContext
    is_claimed: Callable[[], bool]

    @contextmanager
    def standing_by(self) -> Iterator[None]:
        """Do the slow imports while standing by, so that neither jobs nor switches wait for them after a takeover."""
        for module in SOUTHBOUND:
            import_module(module)
        yield

    def control(self, begun: Begun) -> Control:
        holding = AllSwitches(begun.epoch, self.is_claimed)
        run = partial(run_hub, self.config, begun.put, begun.outbox, self.tls, holding, known=begun.known)
        return Control(begun.outbox.send, run)


def run_hub(
    config: Config,
    put: Put,
    outbox: Outbox,
    tls: TlsContext,
    holding: Holding,
    on_ready: Callable[[], None],
    known: Collection[Dpid],
) -> None:
    """Run the southbound. Import it here, which is slow: the API has started before, so jobs need not wait."""
    from controller.southbound.run_hub import run_hub as run

    run(config, put, outbox, tls, holding, on_ready, known)
