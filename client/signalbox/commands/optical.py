"""Show optical switches: a list of all, or everything known about one of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from rich.console import Group, RenderableType

from signalbox.commands import printing
from signalbox.commands.output import Column, Fitted, facts
from signalbox.live.shown import counted
from signalbox.v1 import signalbox_pb2 as pb


def all_switches(fabric: pb.GetFabricResponse) -> Sequence[pb.Switch | pb.OpticalSwitch]:
    """Return the switches, then the optical switches."""
    return [*fabric.switches, *fabric.optical_switches]


def tables(found: Sequence[pb.OpticalSwitch]) -> list[RenderableType]:
    """Return a list with a table of the optical switches; an empty list when there are none."""
    columns = (
        Column("optical switch"),
        Column("dpid", 2),
        Column("connected"),
        Column("ports up", 1, number=True),
        Column("circuits", number=True),
    )
    rows = (
        (each.name, f"{each.dpid:#x}", printing.yes_or_no(each.connected), _ports_up(each), len(_far_ends(each)))
        for each in found
    )
    title = counted(len(found), "optical switch", "optical switches")
    return [Fitted(columns, rows, title=title)] if found else []


def _ports_up(optical: pb.OpticalSwitch) -> str:
    """Return the number of ports that are up, such as ``3 of 4``; ``- of 4`` while the switch is not connected."""
    up = sum(fibre.up for fibre in optical.fibres) if optical.connected else "-"
    return f"{up} of {len(optical.fibres)}"


def _far_ends(optical: pb.OpticalSwitch) -> Mapping[int, pb.Fibre]:
    """Return the circuits of a switch: for each port where light enters, the fibre through which it leaves."""
    at = {fibre.port: fibre for fibre in optical.fibres}
    out = ((port, fibre.out_port) for port, fibre in at.items() if fibre.HasField("out_port"))
    return {port: at[out_port] for port, out_port in out if out_port in at}


class Through(NamedTuple):
    """Optical switch that makes a circuit, with the ports where light enters and leaves."""

    name: str
    port: int
    out_port: int

    def __str__(self) -> str:
        return f"{self.name}, from its port {self.port} to port {self.out_port}"


def through(link: pb.Link, fabric: pb.GetFabricResponse) -> Through | None:
    """Return the optical switch that makes a circuit; None for any other link, and while the switch is unknown."""
    for optical in fabric.optical_switches if link.one_way else ():
        for fibre in optical.fibres:
            if fibre.interface == link.src and fibre.HasField("out_port"):
                return Through(optical.name, fibre.port, fibre.out_port)
    return None


class Names:
    """Names of the servers between which circuits run, including servers that are down."""

    def __init__(self, fabric: pb.GetFabricResponse) -> None:
        self._by_id = {part.id: part.name for part in fabric.parts_down if part.kind == pb.PART_KIND_SWITCH}
        self._by_id |= {f"{switch.dpid:#x}": switch.name for switch in fabric.switches}

    def server(self, at: pb.PortRef) -> str:
        dpid = f"{at.dpid:#x}"
        return self._by_id.get(dpid, dpid)

    def interface(self, at: pb.PortRef) -> str:
        return f"{self.server(at)}:{at.port}"


def interfaces(optical: pb.OpticalSwitch, names: Names) -> list[str]:
    """Return the names of the server interfaces that are cabled to the optical switch."""
    return [names.interface(fibre.interface) for fibre in optical.fibres]


def described(optical: pb.OpticalSwitch, jobs: Iterable[pb.Job], names: Names) -> dict[str, Any]:
    """Return data for programs: the optical switch, and its circuits with the jobs that own them."""
    owner = {_ends(circuit.src, circuit.dst): job.spec.job_id for job in jobs for circuit in job.wiring.circuits}
    at = {fibre.port: fibre.interface for fibre in optical.fibres}
    circuits = [
        {
            "name": f"{names.interface(at[port])}>{names.server(far.interface)}",
            "src": at[port],
            "dst": far.interface,
            "port": port,
            "job_id": owner.get(_ends(at[port], far.interface)),
        }
        for port, far in _far_ends(optical).items()
    ]
    return {"optical_switch": optical, "circuits": circuits}


def _ends(src: pb.PortRef, dst: pb.PortRef) -> tuple[int, ...]:
    return src.dpid, src.port, dst.dpid, dst.port


def panel(found: Mapping[str, Any], names: Names) -> RenderableType:
    """Return tables with everything known about an optical switch.

    ``found``: result of ``described``, and the alarms."""
    optical: pb.OpticalSwitch = found["optical_switch"]
    by_port = {circuit["port"]: circuit for circuit in found["circuits"]}
    of_jobs = sum(circuit["job_id"] is not None for circuit in found["circuits"])
    about = {
        "optical switch": optical.name,
        "dpid": f"{optical.dpid:#x}",
        "connected": "yes" if optical.connected else f"no{'; circuits as of the last reading' * bool(by_port)}",
        "ports up": _ports_up(optical),
        "circuits": f"{len(by_port)}, of which jobs own {of_jobs}",
    }
    columns = (
        Column("port", number=True),
        Column("server interface"),
        Column("up"),
        Column("connected to"),
        Column("job", wraps=True),
    )

    def row(fibre: pb.Fibre) -> Sequence[object]:
        circuit = by_port.get(fibre.port)
        up = printing.yes_or_no(fibre.up) if optical.connected else "-"
        if circuit:
            to, job = names.server(circuit["dst"]), circuit["job_id"] or "-"
        else:
            to, job = f"port {fibre.out_port}, which has no fibre" if fibre.HasField("out_port") else "-", "-"
        return fibre.port, names.interface(fibre.interface), up, to, job

    ports = Fitted(columns, map(row, optical.fibres), title="ports")
    return Group(facts(about), *printing.alarms(found["alarms"]), ports)
