"""Lab with a controller of its own that has found every link."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from mininet_topos.controller_process import ControllerProcess, Settings
from mininet_topos.fabric_topo import FabricTopo
from mininet_topos.lab.lab import Lab
from mininet_topos.lab.record import LabError, wait_for
from signalbox.client import Client, Unreachable
from signalbox.errors import SignalboxError

LINK_MBPS = 5.0
FOUND_S = 60.0


@contextmanager
def running_fabric(
    topo: FabricTopo,
    folder: Path,
    link_mbps: float = LINK_MBPS,
    settings: Settings | None = None,
    program: tuple[str, ...] = ("controller", "serve"),
) -> Iterator[tuple[Lab, ControllerProcess, Client]]:
    """Run a lab whose links all have one rate, and a controller with its files in ``folder``.

    ``settings`` take precedence over those made here, key by key."""
    rates = {"link_bps": link_mbps * 1e6, "host_link_bps": link_mbps * 1e6}
    mine: Settings = {"discovery": {"edge_after_s": 1.0}, "fabric": rates}
    given = settings or {}
    both = {section: {**mine.get(section, {}), **given.get(section, {})} for section in {**mine, **given}}
    controller = ControllerProcess(folder, settings=both, program=program)
    with ExitStack() as stack:
        stack.callback(controller.kill)
        controller.start()
        lab = stack.enter_context(Lab(topo, controller.target))
        client = stack.enter_context(Client(controller.address))
        links = fabric_links(lab)
        with explained(controller, client):
            wait_for(lambda: controller.ready(client), "the controller's first answer", FOUND_S)
            wait_for(lambda: settled(client, links), f"{links} directed links", FOUND_S)
        lab.reconnect_soon()
        yield lab, controller, client


@contextmanager
def explained(controller: ControllerProcess, client: Client) -> Iterator[None]:
    """Add the controller's status and the end of its log to a ``LabError`` raised inside."""
    try:
        yield
    except LabError as error:
        try:
            reported = str(client.get_status())
        except SignalboxError as no_answer:
            reported = str(no_answer)
        raise LabError(f"{error}\n{reported}\nThe controller's log ends:\n{controller.last_lines()}") from error


def fabric_links(lab: Lab) -> int:
    """Return the number of directed links between switches."""
    return 2 * len(lab.topo.fabric.cables)


def settled(client: Client, links: int) -> bool:
    """Return whether every link is found, every switch in sync, and the adoption of rules finished."""
    try:
        status = client.get_status()
    except Unreachable:
        return False
    return status.links == links and status.switches_in_sync == status.switches > 0 and not status.adopting
