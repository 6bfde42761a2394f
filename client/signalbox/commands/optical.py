"""Optical switches for people: a list of them, and all that is known of one.

In: ``GetFabricResponse`` and jobs in their JSON form. Out: what rich prints, and data for programs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from rich.console import Group, RenderableType

from signalbox.commands import printing
from signalbox.commands.tables import Column, Fitted, facts

Fields = Mapping[str, Any]


def is_optical(switch: Fields) -> bool:
    """Of one that may be either."""
    return "fibres" in switch


def all_switches(fabric: Fields) -> Sequence[Fields]:
    """Switches, then optical switches."""
    return [*fabric["switches"], *fabric["optical_switches"]]


def tables(found: Sequence[Fields]) -> list[RenderableType]:
    """One, or none where there are no optical switches."""
    columns = (
        Column("optical switch"),
        Column("dpid", 2),
        Column("connected"),
        Column("ports up", 1, number=True),
        Column("circuits", number=True),
    )
    rows = (
        (
            each["name"],
            f"{int(each['dpid']):#x}",
            "yes" if each["connected"] else "no",
            _ports_up(each),
            len(_far_ends(each)),
        )
        for each in found
    )
    title = printing.counted(len(found), "optical switch", "optical switches")
    return [Fitted(columns, rows, title=title)] if found else []


def _ports_up(optical: Fields) -> str:
    """``3 of 4``. Of ports of one that is not connected nothing is known."""
    fibres = optical["fibres"]
    return f"{sum(fibre['up'] for fibre in fibres)} of {len(fibres)}" if optical["connected"] else f"- of {len(fibres)}"


def _far_ends(optical: Fields) -> Mapping[int, Fields]:
    """The circuits that it makes: by the port that light comes in at the fibre that it leaves by."""
    at = {fibre["port"]: fibre for fibre in optical["fibres"]}
    return {port: at[fibre["out_port"]] for port, fibre in at.items() if fibre["out_port"] in at}


class Through(NamedTuple):
    """The optical switch that makes a circuit, and from which of its ports to which."""

    name: str
    port: int
    out_port: int

    def __str__(self) -> str:
        return f"{self.name}, from its port {self.port} to port {self.out_port}"


def through(link: Fields, fabric: Fields) -> Through | None:
    """None of links that are no circuits, and while the controller does not know."""
    for optical in fabric["optical_switches"] if link["one_way"] else ():
        for fibre in optical["fibres"]:
            if fibre["interface"] == link["src"] and fibre["out_port"] is not None:
                return Through(optical["name"], fibre["port"], fibre["out_port"])
    return None


class Names:
    """Of servers, also of those that are down."""

    def __init__(self, fabric: Fields) -> None:
        self._by_id = {part["id"]: part["name"] for part in fabric["parts_down"] if part["kind"] == "switch"}
        self._by_id |= {f"{int(switch['dpid']):#x}": switch["name"] for switch in fabric["switches"]}

    def server(self, at: Fields) -> str:
        dpid = f"{int(at['dpid']):#x}"
        return str(self._by_id.get(dpid, dpid))

    def interface(self, at: Fields) -> str:
        return f"{self.server(at)}:{at['port']}"


def interfaces(optical: Fields, names: Names) -> list[str]:
    """At its ports."""
    return [names.interface(fibre["interface"]) for fibre in optical["fibres"]]


def described(optical: Fields, jobs: Iterable[Fields], names: Names) -> dict[str, Any]:
    """With its circuits, and the job that each is of."""
    owner = {
        _ends(circuit["src"], circuit["dst"]): job["spec"]["job_id"]
        for job in jobs
        for circuit in (job["wiring"] or {"circuits": ()})["circuits"]
    }
    at = {fibre["port"]: fibre["interface"] for fibre in optical["fibres"]}
    circuits = [
        {
            "name": f"{names.interface(at[port])}>{names.server(far['interface'])}",
            "src": at[port],
            "dst": far["interface"],
            "port": port,
            "job_id": owner.get(_ends(at[port], far["interface"])),
        }
        for port, far in _far_ends(optical).items()
    ]
    return {"optical_switch": optical, "circuits": circuits}


def _ends(src: Fields, dst: Fields) -> tuple[object, ...]:
    return src["dpid"], src["port"], dst["dpid"], dst["port"]


def panel(found: Fields, names: Names) -> RenderableType:
    """``found``: as ``described`` has it, with its alarms."""
    optical, circuits = found["optical_switch"], found["circuits"]
    by_port = {circuit["port"]: circuit for circuit in circuits}
    of_jobs = sum(circuit["job_id"] is not None for circuit in circuits)
    about = {
        "optical switch": optical["name"],
        "dpid": f"{int(optical['dpid']):#x}",
        "connected": "yes" if optical["connected"] else f"no{'; circuits are as they were read last' * bool(circuits)}",
        "ports up": _ports_up(optical),
        "circuits": f"{len(circuits)}, of which jobs own {of_jobs}",
    }
    columns = (
        Column("port", number=True),
        Column("server interface"),
        Column("up"),
        Column("connected to"),
        Column("job", wraps=True),
    )

    def row(fibre: Fields) -> Sequence[object]:
        circuit = by_port.get(fibre["port"])
        up = ("yes" if fibre["up"] else "no") if optical["connected"] else "-"
        if circuit:
            to, job = names.server(circuit["dst"]), circuit["job_id"] or "-"
        else:
            to, job = "-" if fibre["out_port"] is None else f"port {fibre['out_port']}, which has no fibre", "-"
        return fibre["port"], names.interface(fibre["interface"]), up, to, job

    ports = Fitted(columns, map(row, optical["fibres"]), title="ports")
    return Group(facts(about), *printing.alarms(found["alarms"]), ports)
