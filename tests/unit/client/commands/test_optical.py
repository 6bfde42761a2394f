"""Output about optical switches."""

from typing import Any

from signalbox.commands import naming, optical
from signalbox.v1 import signalbox_pb2 as pb
from tests.support.circuit_messages import optical_switches, rings, wired_job
from tests.unit.client.commands.test_printing import shown, text


def fabric() -> pb.GetFabricResponse:
    found = rings(5, (1, 2))
    optical_switches(found)
    return found


def described(found: pb.GetFabricResponse, *jobs: pb.Job) -> list[list[str]]:
    """Return the printed description of the first optical switch."""
    names = optical.Names(found)
    return shown(optical.panel({**optical.described(found.optical_switches[0], jobs, names), "alarms": []}, names))


def test_they_are_listed_with_ports_and_circuits() -> None:
    found = fabric()
    found.optical_switches[0].fibres[3].ClearField("out_port")
    found.optical_switches[0].fibres[3].up = False
    found.optical_switches[1].connected = False
    (table,) = optical.tables(found.optical_switches)
    assert "2 optical switches" in text(table)
    assert text(table)[-2:] == ["optical1 0x101 yes 4 of 5 4", "optical2 0x102 no - of 5 5"]
    assert optical.tables(rings(5, (1, 2)).optical_switches) == []


def test_each_port_says_where_its_light_goes_and_for_which_job() -> None:
    found = fabric()
    job = wired_job(found)
    del job.wiring.circuits[0]  # the circuit of interface 1 of server 1
    found.optical_switches[0].fibres[1].out_port = 9
    found.optical_switches[0].fibres[2].ClearField("out_port")
    found.optical_switches[0].fibres[2].up = False
    rows = described(found, pb.Job(), job)
    assert ["circuits", "3,", "of", "which", "jobs", "own", "2"] in rows
    assert rows[-5:] == [
        ["1", "server1:2", "yes", "server2", "-"],
        ["2", "server2:2", "yes", "port", "9,", "which", "has", "no", "fibre", "-"],
        ["3", "server3:2", "no", "-", "-"],
        ["4", "server4:2", "yes", "server5", "ring"],
        ["5", "server5:2", "yes", "server1", "ring"],
    ]


def test_of_one_that_is_not_connected_it_says_what_was_read_last() -> None:
    found = fabric()
    found.optical_switches[0].connected = False
    for fibre in found.optical_switches[0].fibres:
        fibre.up = False
    rows = described(found)
    assert ["connected", "no;", "circuits", "are", "as", "they", "were", "read", "last"] in rows
    assert rows[-1] == ["5", "server5:2", "-", "server1", "-"]


def test_servers_that_are_down_have_their_names_and_unknown_ones_their_dpids() -> None:
    found = fabric()
    del found.switches[:2]
    found.parts_down.add(kind=pb.PART_KIND_SWITCH, name="server2", id="0x2")
    rows = described(found)
    assert ["1", "0x1:2", "yes", "server2", "-"] in rows
    assert ["2", "server2:2", "yes", "server3", "-"] in rows


def test_a_circuit_names_the_optical_switch_that_makes_it() -> None:
    found = fabric()
    link = next(each for each in found.links if each.name == "server4:3>server1")
    assert str(optical.through(link, found)) == "optical2, from its port 4 to port 1"
    del found.optical_switches[:]
    assert optical.through(link, found) is None
    link.one_way = False
    assert optical.through(link, fabric()) is None


class Answers:
    """Client of a controller whose fabric is ``found``."""

    def __init__(self, found: pb.GetFabricResponse) -> None:
        self.get_fabric = lambda: found


def test_names_of_optical_switches_are_completed_where_they_are_taken() -> None:
    client: Any = Answers(fabric())
    servers = [f"server{n}" for n in range(1, 6)]
    assert naming.all_switch_names(client) == [*servers, "optical1", "optical2"]
    assert naming.switch_names(client) == servers
    assert naming.part_names(client) == servers, "circuits cannot be drained"
