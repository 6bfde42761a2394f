"""Jobs on circuits, over the real API: how the fabric is counted, what commands answer, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from selenium.webdriver.common.by import By

from benchmarks.web.browser import Browser, browser, missing
from benchmarks.web.process import web_page
from controller.jobs.messages import RegisterJob
from signalbox.client import Client
from signalbox.errors import NotKnownYet
from tests.support.command_line import Signalbox, signalbox
from tests.support.lab.needs import needs
from tests.support.optical_fabric import all_reduce
from tests.support.wire.served_circuits import ServedCircuits

__all__ = ("signalbox",)

SERVERS, INTERFACES = 8, 3


class Running(NamedTuple):
    fabric: ServedCircuits
    address: str
    client: Client


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    """A job on four servers, and one that waits for one of these."""
    fabric = ServedCircuits(SERVERS, INTERFACES)
    fabric.start()
    fabric.run(5)
    for job in (
        all_reduce("first", [1, 2, 3, 4], all_to_all=100_000),
        all_reduce("second", [4, 5]),
    ):
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


def test_a_wired_job_is_explained_with_its_circuits_and_the_alternative(running: Running) -> None:
    answer = " ".join(running.client.explain("first").answer)
    assert "It runs on 12 circuits: no server forwards any of its pinned flows." in answer
    assert "on one switch of the same cost" in answer


def test_a_job_without_circuits_is_explained_with_the_reason(running: Running) -> None:
    with pytest.raises(NotKnownYet, match="job 'second' has no circuits: waits for servers of first"):
        running.client.explain("second")


def test_the_failure_of_an_interface_is_that_of_what_it_sends_and_receives(
    running: Running, signalbox: Signalbox
) -> None:
    found = signalbox("what-if", "server2:3", "--json", "--address", running.address).json
    (outcome,) = found["outcomes"]
    assert (outcome["example"], outcome["lost"], outcome["rerouted_most"]) == ("server2:3", [], 2)
    assert (
        found["answer"][-1] == "This is until the controller has made other circuits in place of those that are lost."
    )
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


def says(chromium: Browser, text: str) -> bool:
    return text in chromium.text(".wiring")


def test_the_page_shows_servers_on_a_circle_and_the_circuits_of_the_chosen_job(
    running: Running, tmp_path: Path
) -> None:
    needs(missing())
    with web_page(running.address) as page, browser(tmp_path) as chromium:
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
        chromium.until(lambda: "job 'second' has no circuits: waits for servers of first" in chromium.text(".said"))
