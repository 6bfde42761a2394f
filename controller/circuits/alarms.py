"""Alarms of optical switches, of fibres, and of the interfaces of servers at them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from controller.alarms import Alarm
from controller.circuits.fibres import FibreState
from controller.circuits.optical_switches import OpticalSwitches
from controller.fabric.parts import End, Part, switch_key
from controller.fabric.topology import Fabric, PortNo, PortRef
from signalbox.words import AlarmKind

MOST_NAMED = 4
"""Number of interfaces that one sentence lists by name."""


def raised_alarms(circuits: OpticalSwitches, fibres: FibreState, fabric: Fabric) -> Iterator[Alarm]:
    """Yield the alarms, each kind at most once per subject. ``fabric`` must have names for its switches."""
    yield from _dark_interfaces(circuits, fibres, fabric)
    for dpid in sorted(circuits.away):  # the configuration lists optical switches, so each should be connected
        end = End(PortRef(dpid, PortNo(0)), circuits.name(dpid))
        yield Alarm(AlarmKind.SWITCH_DOWN, end.name, {"part": Part(switch_key(dpid), (end,))})


def _dark_interfaces(circuits: OpticalSwitches, fibres: FibreState, fabric: Fabric) -> Iterator[Alarm]:
    """Yield an alarm for each interface of a connected server that does not work.

    An interface does not work in each of these cases:

    - its port is down at either end;
    - its circuit passes no probes, or passed none before it was replaced;
    - its fibres may be swapped;
    - its probes arrive where no circuit leads."""
    for at in sorted(circuits.cabling.fibre_of):
        switch = fabric.switches.get(at.dpid)
        port = switch.ports.get(at.port) if switch else None
        if switch and not (port and port.up and at not in circuits.dark):
            no_light = f"has no light to {_fibre_end(circuits, at)}"
            yield Alarm(AlarmKind.INTERFACE_DARK, f"{switch.name}:{at.port}", {"why": no_light})
    why = {}
    for src, dst in sorted(fibres.silent):
        there = _port_name(fabric, dst)
        why[src] = (
            f"sends into a circuit to {there}, where no probes arrive"
            if (src, dst) in circuits.missing
            else f"sent into a circuit to {there}, where no probes arrived"
        )
    for src, dst in fibres.misrouted.items():
        why[src] = f"sends to {_port_name(fabric, dst)}, where no circuit leads: fibres are not as configured"
    for src, others in fibres.partners().items():
        why[src] = _may_be_swapped(circuits, fabric, src, others)
    for src in sorted(why):
        yield Alarm(AlarmKind.INTERFACE_DARK, f"{fabric.name(src.dpid)}:{src.port}", {"why": why[src]})


def _may_be_swapped(circuits: OpticalSwitches, fabric: Fabric, at: PortRef, others: Sequence[PortRef]) -> str:
    names = [_port_name(fabric, other) for other in others]
    if len(others) > 1:
        named = ", ".join(names[:MOST_NAMED]) + (", or others" if len(names) > MOST_NAMED else "")
        return f"may have its fibres swapped with those of one of {named}: probes arrive as if they were"
    return (
        f"may be connected to {_fibre_end(circuits, others[0])}, and {names[0]} to {_fibre_end(circuits, at)}: probes "
        "arrive as if their fibres were swapped"
    )


def _fibre_end(circuits: OpticalSwitches, at: PortRef) -> str:
    """Return the name of the optical port to which the configured fibres of an interface lead."""
    optical = circuits.cabling.fibre_of[at]
    return f"port {optical.port} of {circuits.name(optical.dpid)}"


def _port_name(fabric: Fabric, at: PortRef) -> str:
    return f"{fabric.name(at.dpid)}:{at.port}"
