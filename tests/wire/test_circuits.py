"""Jobs on circuits, over the real API: counts of the fabric, answers of commands, and refusals."""

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import pytest
from selenium.webdriver.common.by import By

from benchmarks.web.browser import Browser, web_page
from controller.fabric.topology import Dpid
from controller.jobs.messages import RegisterJob
from signalbox.client import Client
from signalbox.errors import InvalidInput, NotKnownYet
from tests.support.command_line import Result, Signalbox
from tests.support.optical_fabric import OpticalFabric, all_reduce
from tests.support.wire.served_fabric import ServedFabric

SERVERS, INTERFACES = 8, 3


class ServedCircuits(OpticalFabric, ServedFabric):
    """Servers connected to optical switches, in memory, behind the real API server."""


class Running(NamedTuple):
    fabric: ServedCircuits
    address: str
    client: Client


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    """Run an API with a job on four servers, and one that waits for one of these servers."""
    fabric = ServedCircuits(SERVERS, INTERFACES)
    fabric.start()
    fabric.run(5)
    for job in (all_reduce("first", [1, 2, 3, 4], all_to_all=100_000), all_reduce("second", [4, 5])):
        fabric.send(RegisterJob(job))
        fabric.run(3)
    with fabric.served() as address, Client(address) as client:
        yield Running(fabric, address, client)


def test_each_circuit_is_counted_as_one_link_and_none_as_down(running: Running) -> None:
    status = running.client.get_status()
    assert (status.links, status.known_links, status.jobs_pending) == (12, 12, 1)
    fabric = running.client.get_fabric()
    assert len(fabric.links) == 12
    assert all(link.one_way for link in fabric.links)
    assert not fabric.parts_down


def test_a_fibre_that_is_cut_takes_its_two_circuits_and_nothing_is_expected_back() -> None:
    fabric = ServedCircuits(6, 2)
    fabric.start()
    fabric.run(5)
    fabric.send(RegisterJob(all_reduce("one", [1, 2, 3, 4, 5, 6])))
    fabric.run(3)
    fabric.wirings_wait = True
    fabric.set_carrier(2, 3, up=False)
    fabric.run(3)
    with fabric.served() as address, Client(address) as client:
        status = client.get_status()
        assert (status.links, status.known_links) == (10, 10)
        assert not client.get_fabric().parts_down


def test_jobs_are_explained_with_their_circuits_or_why_there_are_none(running: Running) -> None:
    answer = " ".join(running.client.explain("first").answer)
    assert "The job runs on 12 circuits: no server forwards any pinned flow of the job." in answer
    with pytest.raises(NotKnownYet, match="job 'second' has no circuits: waits for servers that other jobs use: first"):
        running.client.explain("second")


def test_the_failure_of_an_interface_is_that_of_both_its_circuits(running: Running, signalbox: Signalbox) -> None:
    found = signalbox("what-if", "server2:3", "--json", "--address", running.address).json
    (outcome,) = found["outcomes"]
    assert (outcome["example"], outcome["lost"], outcome["rerouted_most"]) == ("server2:3", [], 2)
    assert found["answer"][-1] == "These results hold until the controller has replaced the lost circuits."
    alone = running.client.what_if(names=["server2:3>server1"]).outcomes[0]
    assert alone.rerouted_most == 1
    every = running.client.what_if()
    assert sorted(name for each in every.outcomes for name in each.failures) == sorted(
        f"server{n}:{port}" for n in range(1, 5) for port in (2, 3, 4)
    )


def test_circuits_are_no_tree_for_slurm(running: Running, signalbox: Signalbox) -> None:
    said = signalbox("get", "topology", "--address", running.address)
    assert said.status == 1
    assert "the fabric has 12 circuits of optical switches" in said.err


def test_optical_switches_are_listed_described_and_counted(running: Running, signalbox: Signalbox) -> None:
    def ask(*command: str) -> Result:
        return signalbox(*command, "--address", running.address)

    listed = ask("get", "switches", "--json").json
    assert [each["name"] for each in listed["optical_switches"]] == ["optical1", "optical2", "optical3"]
    assert len(listed["switches"]) == SERVERS
    assert ["optical2", "0x102", "yes", "8", "of", "8", "4"] in ask("get", "switches").rows
    for name in ("optical2", "0x102"):
        named = ask("get", "switches", name, "--json").json
        assert (named["switches"], [each["name"] for each in named["optical_switches"]]) == ([], ["optical2"])
    partly = ask("get", "switches", "server1", "nix")
    assert (partly.status, "optical" in partly.out) == (3, False)
    assert ["optical", "switches", "3"] in ask("status").rows
    assert "3 optical switches" in ask("fabric").out

    found = ask("describe", "switch", "0x102", "--json").json
    assert (found["optical_switch"]["connected"], found["alarms"]) == (True, [])
    made = {each["name"]: each["job_id"] for each in found["circuits"]}
    links = [link.name for link in running.client.get_fabric().links if link.src.port == 3]
    assert made == dict.fromkeys(links, "first")
    ports = ask("describe", "switch", "optical2").rows[-SERVERS:]
    assert [row[1] for row in ports] == [f"server{n}:3" for n in range(1, SERVERS + 1)]
    assert ports[7] == ["8", "server8:3", "yes", "-", "-"]
    link = ask("describe", "link", links[0])
    assert "it is a circuit of optical2, from its port 1 to port" in link.text
    assert ask("describe", "link", links[0], "--json").json["optical_switch"] == "optical2"


def test_what_cannot_be_done_with_optical_switches_says_what_can(running: Running, signalbox: Signalbox) -> None:
    only = "only switches and cables between them can be drained"
    for command, said in (
        (("drain", "optical1"), f"'optical1' is an optical switch: {only}; signalbox what-if takes interfaces at it"),
        (("drain", "0x101"), "'0x101' is an optical switch"),
        (("what-if", "optical1"), "signalbox what-if takes interfaces at it, such as server1:2"),
        (("drain", "server1:2"), f"'server1:2' leads over optical switches: {only}; signalbox what-if shows"),
        (("drain", "0x1:2"), "'0x1:2' leads over optical switches"),
        (("drain", "server8:2"), f"'server8:2' leads to optical1, and has no circuit now: {only}"),
        (("rules", "optical1"), "'optical1' is an optical switch, whose only rules are its circuits: "),
    ):
        found = signalbox(*command, "--address", running.address)
        assert found.status == 1, command
        assert said in found.err
    with pytest.raises(InvalidInput, match="0x101 is an optical switch, whose only rules are its circuits; GetFabric"):
        running.client.list_rules(0x101)


def test_an_optical_switch_that_is_not_connected_is_described_with_its_alarm(signalbox: Signalbox) -> None:
    fabric = ServedCircuits(4, 2)
    fabric.start()
    fabric.run(5)
    fabric.send(RegisterJob(all_reduce("one", [1, 2, 3, 4], lease_s=600)))
    fabric.run(3)
    fabric.wirings_wait = True
    fabric.lose(Dpid(0x101))
    fabric.run(17)
    fabric.set_carrier(2, 3, up=False)
    fabric.run(1)
    with fabric.served() as address:
        text = signalbox("describe", "switch", "optical1", "--address", address).text
        assert "connected no; circuits as of the last reading" in text
        assert "critical switch_down: switch optical1 (0x101) is down" in text
        assert "interface_dark" not in text
        other = signalbox("describe", "switch", "optical2", "--address", address).text
        assert "interface_dark: server2:3 has no light on its fibre to port 2 of optical2" in other
        assert "optical switches 2, 1 not connected" in signalbox("status", "--address", address).text


def says(chromium: Browser, text: str) -> bool:
    return text in chromium.text(".wiring")


def test_the_page_shows_servers_on_a_circle_and_the_circuits_of_a_job(running: Running, chromium: Browser) -> None:
    with web_page(running.address) as page:
        chromium.opened(page.url)

        def drawn() -> dict[str, Any]:
            found: dict[str, Any] = chromium.series("fabric", "fabric")
            return {link["part"]: link for link in found["links"]}

        chromium.until(lambda: len(drawn()) == 12)
        assert {link["symbol"][1] for link in drawn().values()} == {"arrow"}
        for job, said in (("first", "12 circuits; an iteration takes"), ("second", "no circuits: waits for servers")):
            chromium.driver.find_element(By.XPATH, f"//td[text()='{job}']").click()
            chromium.until(partial(says, chromium, f"{job}: {said}"))
        chromium.driver.find_element(By.TAG_NAME, "body").send_keys("e")
        chromium.until(
            lambda: (
                "job 'second' has no circuits: waits for servers that other jobs use: first" in chromium.text(".said")
            )
        )
