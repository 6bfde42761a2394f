"""``signalbox web`` in Chromium: it draws the state of the API, and answers clicks."""

import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement

from benchmarks.web.browser import Browser, WebPage, web_page
from controller.jobs.messages import DeregisterJob, RegisterJob
from signalbox.client import Client
from signalbox.jobs.spec import JobId, JobSpec
from signalbox.live.picture import LIGHT, colour, picture
from signalbox.live.state import State
from signalbox.web.charts import on_route
from tests.support.command_line import Signalbox
from tests.support.wire.odd_controller import CODE, TWICE, endless_controller, odd_controller
from tests.support.wire.served_fabric import ServedFabric


@dataclass
class Looking:
    fabric: ServedFabric
    address: str
    client: Client
    page: WebPage
    chromium: Browser

    def state(self) -> State:
        state = State()
        state.take_fabric(self.client.get_fabric())
        return state

    def title(self, chart: str) -> str:
        found = self.chromium.options(chart).get("title") or [{"text": ""}]
        return str(found[0]["text"])

    def press(self, key: str) -> None:
        self.chromium.driver.find_element(By.TAG_NAME, "body").send_keys(key)

    def choose(self, **data: str) -> None:
        self.chromium.click_on("fabric", {"componentType": "series", "data": data})

    def drawn(self) -> list[dict[str, Any]]:
        links: list[dict[str, Any]] = self.chromium.series("fabric", "fabric")["links"]
        return links

    def until_said(self, text: str) -> str:
        self.chromium.until(lambda: text in self.chromium.text(".said"))
        return self.chromium.text(".said")

    def row(self, job_id: str) -> WebElement:
        find = f"//td[text()='{job_id}']"
        return self.chromium.until(lambda: self.chromium.driver.find_elements(By.XPATH, find))[0]


@pytest.fixture(scope="module")
def looking(chromium: Browser) -> Iterator[Looking]:
    fabric = ServedFabric.of_four_leaves()
    fabric.train_examples()
    fabric.run(5)
    fabric.carry(10)
    with ExitStack() as stack:
        address = stack.enter_context(fabric.served())
        client = stack.enter_context(Client(address))
        page = stack.enter_context(web_page(address))
        chromium.opened(page.url)
        yield Looking(fabric, address, client, page, chromium)


def test_switches_cables_and_hosts_are_drawn_with_the_loads_of_the_api(looking: Looking) -> None:
    state = looking.state()

    def expected() -> dict[str, str]:
        return {cable.name: colour(cable.load, LIGHT) for cable in picture(looking.state()).cables}

    assert len(set(expected().values())) > 1

    def coloured() -> dict[str, str]:
        return {link["part"]: link["lineStyle"]["color"] for link in looking.drawn() if "part" in link}

    looking.chromium.until(lambda: coloured() == expected())
    assert len(coloured()) == 16
    drawn = looking.chromium.series("fabric", "fabric")
    assert {node["name"] for node in drawn["data"]} == {switch.name for switch in state.switches.values()} | set(
        state.hosts
    )
    assert len(drawn["links"]) == 16 + 16


def test_a_job_that_is_looked_at_shows_its_paths(looking: Looking) -> None:
    routes = looking.client.list_routes(["vision"])
    links = {(link.dpid, link.port) for each in routes for path in each.held for link in path.links}
    used = {cable.name for cable in picture(looking.state()).cables if on_route(cable, links)}
    assert 0 < len(used) < 16

    def bright() -> set[str]:
        return {link["part"] for link in looking.drawn() if "part" in link and link["lineStyle"]["opacity"] == 1}

    row = looking.row("vision")
    looking.chromium.until(lambda: len(bright()) == 16)
    looking.chromium.hover(row)
    looking.chromium.until(lambda: bright() == used)
    row.click()
    looking.chromium.until(lambda: "vision" in looking.title("demand"))
    looking.press("e")
    said = looking.until_said("Why is vision slow?\n")
    assert said.split("\n")[1:] == list(looking.client.explain("vision").answer)


def test_a_chosen_job_that_ends_is_let_go_and_what_was_answered_stays(looking: Looking) -> None:
    job = JobSpec.parse({"job_id": "short", "endpoints": ["10.0.1.1", "10.0.2.1"]})
    looking.fabric.change(lambda: looking.fabric.send(RegisterJob(job)))
    find = "//td[text()='short']"
    looking.row("short").click()
    looking.chromium.until(lambda: "short" in looking.title("demand"))
    looking.press("w")
    looking.until_said("Choose a switch")
    looking.fabric.change(lambda: looking.fabric.send(DeregisterJob(JobId("short"), force=True)))
    looking.chromium.until(lambda: not looking.chromium.driver.find_elements(By.XPATH, find))
    looking.chromium.until(lambda: not looking.title("demand"))
    assert "Choose a switch" in looking.chromium.text(".said")


def test_a_click_asks_what_a_failure_would_do(looking: Looking) -> None:
    looking.choose(part="spine2", dpid="0x202")
    spine = next(dpid for dpid, switch in looking.state().switches.items() if switch.name == "spine2")
    looking.choose(dpid=f"{spine:#x}")
    looking.until_said("spine2, 4 cables")
    assert len(looking.chromium.series("cables", "up")["data"]) == 4
    sizes = {node["name"]: node["symbolSize"] for node in looking.chromium.series("fabric", "fabric")["data"]}
    assert max(sizes, key=lambda name: sizes[name]) == "spine2", "it is marked"
    looking.press("w")
    said = looking.until_said("What if spine2 fails?\n")
    assert said.split("\n")[1:] == list(looking.client.what_if(names=["spine2"]).answer)


def test_a_cable_says_its_loads_and_whose_flows_it_carries(looking: Looking) -> None:
    routes = looking.client.list_routes(["vision"])
    link = next(link for each in routes for path in each.held for link in path.links)
    name = next(cable.name for cable in picture(looking.state()).cables if on_route(cable, {(link.dpid, link.port)}))
    looking.choose(part=name)
    assert "vision (" in looking.until_said("\nIt carries pinned flows of ")


def test_a_cut_cable_is_dashed_and_its_alarm_named_soon(looking: Looking) -> None:

    def cut() -> None:
        looking.fabric.cut_first_cable()
        looking.fabric.run(10)

    looking.fabric.change(cut)

    def down() -> list[str]:
        return [link["part"] for link in looking.drawn() if link["lineStyle"]["type"] == "dashed"]

    looking.chromium.until(lambda: down() == ["leaf1:1>spine1"])
    looking.chromium.until(lambda: "link_down" in looking.chromium.text(".alarms"))
    assert looking.chromium.series("slowdowns", "plan")["data"]


def test_what_a_job_announces_is_drawn_as_it_changes_and_goes_with_the_job(looking: Looking) -> None:
    def spec(megabytes: int) -> JobSpec:
        transfer = {"src": 0, "dst": 1, "bytes_per_iteration": megabytes * 1_000_000}
        return JobSpec.parse({"job_id": "pair", "endpoints": ["10.0.1.1", "10.0.2.3"], "transfers": [transfer]})

    def declared() -> list[Any]:
        return [each["data"] for each in looking.chromium.options("demand")["series"] if each["id"] == "declared"]

    looking.client.register_job(spec(3))
    looking.row("pair").click()
    looking.chromium.until(lambda: declared() == [[3]])
    looking.client.update_job(spec(5), ["transfers"])
    looking.chromium.until(lambda: declared() == [[5]])
    looking.client.deregister_job("pair")
    looking.chromium.until(lambda: declared() == [])


def test_keys_are_listed_and_the_page_turns_dark(looking: Looking) -> None:
    light = looking.chromium.options("fabric")["textStyle"]["color"]
    looking.press("?")
    looking.chromium.until(lambda: "next or previous job" in looking.chromium.text(".q-dialog"))
    looking.press(Keys.ESCAPE)
    looking.chromium.until(lambda: not looking.chromium.text(".q-dialog"))
    looking.press("d")
    looking.chromium.until(lambda: looking.chromium.options("fabric")["textStyle"]["color"] != light)
    looking.press("d")
    looking.chromium.until(lambda: looking.chromium.options("fabric")["textStyle"]["color"] == light)


def test_on_a_narrow_screen_the_graph_scrolls_instead_of_names_lying_over_hosts(looking: Looking) -> None:
    driver = looking.chromium.driver
    size = {"width": 400, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    width = "return document.querySelector(arguments[0])?.getBoundingClientRect().width ?? 0"
    looking.chromium.until(lambda: looking.chromium.script(width, ".chart-fabric") >= 600)
    assert looking.chromium.script("return document.documentElement.scrollWidth") <= 400
    driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    looking.chromium.until(lambda: looking.chromium.script(width, "html") > 600)


def test_a_server_that_does_not_answer_leaves_the_page_as_it_is(looking: Looking) -> None:
    late = "window.socket.emitReserved('connect_error', new Error('timeout'))"
    looking.chromium.script(f"window.before = true; {late}; {late}")
    looking.press("?")  # the server answers it after it could have loaded the page again
    looking.chromium.until(lambda: "next or previous job" in looking.chromium.text(".q-dialog"))
    looking.press(Keys.ESCAPE)
    looking.chromium.until(lambda: not looking.chromium.text(".q-dialog"))
    assert looking.chromium.script("return document.readyState === 'complete' && window.before === true")
    assert looking.chromium.script("return window.socket.io.opts.transports[0]") == "polling"


def test_nothing_is_asked_of_other_hosts_and_nothing_complained_of(looking: Looking) -> None:
    assert looking.chromium.complaints() == []
    assert looking.chromium.hosts_asked() == {"127.0.0.1"}


def test_names_are_drawn_as_text_and_switches_of_one_name_told_apart(looking: Looking) -> None:
    chromium = looking.chromium
    with odd_controller() as address, web_page(address) as page:
        chromium.opened(page.url)
        chromium.until(lambda: CODE[:20] in chromium.text(".jobs") and CODE[:20] in chromium.text(".alarms"))
        chromium.until(lambda: len(chromium.series("fabric", "fabric")["data"]) == 5 + 3)
        for dpid, cables in (("0x101", 3), ("0x102", 2)):
            looking.choose(dpid=dpid)
            looking.until_said(f"{TWICE} ({dpid}), {cables} cables")
        looking.press("w")
        looking.until_said("asked of 0x102")
        looking.press("j")
        looking.press("e")
        looking.until_said(CODE[:20])
        assert chromium.script("return window.ran ?? 0") == 0
        assert chromium.complaints() == []


@pytest.mark.long
def test_a_controller_that_sends_without_end_leaves_memory_and_the_pages_of_others(looking: Looking) -> None:
    chromium = looking.chromium
    with endless_controller() as address, web_page(address) as page:
        chromium.opened(page.url)
        chromium.until(lambda: "more than 65,536 messages of the type Job" in chromium.text(".banner"))
        chromium.until(lambda: "one change from the controller exceeds" in chromium.text(".banner"))
        for key in ("j", "e", "j", "j"):  # requests that the controller does not answer
            looking.press(key)
        with urlopen(f"{page.url}healthz", timeout=60) as answer:
            assert answer.read() == b"ok\n"
        looking.press("?")
        chromium.until(lambda: "next or previous job" in chromium.text(".q-dialog"))
        assert page.rss_mb() < 1500
        page.process.send_signal(signal.SIGTERM)
        said = page.process.communicate(timeout=60)[1]
    assert "Traceback" not in said
    assert len(said.splitlines()) < 20
    chromium.opened(looking.page.url)
    chromium.complaints()  # discards complaints about the page whose server has ended


def test_an_open_page_is_live_after_a_restart_and_operators_drain_after_a_question(
    looking: Looking, tmp_path: Path
) -> None:
    chromium = looking.chromium

    def shown(button: str) -> list[WebElement]:
        return [each for each in chromium.driver.find_elements(By.XPATH, button) if each.is_displayed()]

    def press(label: str, within: str = "") -> None:
        button = f"{within}//button[normalize-space(.)='{label}']"
        chromium.until(lambda: shown(button))[0].click()

    def drained() -> list[str]:
        looking.fabric.change(lambda: looking.fabric.run(1))
        return [drain.name for drain in looking.client.get_fabric().drains]

    def shape_of(switch: str) -> str:
        drawn = chromium.series("fabric", "fabric")["data"]
        # The chart has no nodes while it is drawn anew.
        return next((str(node.get("symbol", "")) for node in drawn if node["name"] == switch), "")

    chromium.opened(looking.page.url)
    assert shown("//button[contains(., 'What if')]")
    assert not shown("//button[contains(., 'rain')]"), "not without --operate"
    spine = next(dpid for dpid, switch in looking.state().switches.items() if switch.name == "spine3")
    with web_page(f"unix:{tmp_path / 'none'}") as page:
        chromium.driver.get(page.url)
        chromium.until(lambda: "This view is out of date" in chromium.text(".banner"))
        page.process.send_signal(signal.SIGTERM)
        said = page.process.communicate(timeout=60)[1]
        assert page.process.returncode == 0
        assert f"The page is at {page.url}" in said
        assert said.count("warning: ") == 1, said
    with web_page(looking.address, "--operate", port=int(page.url.rstrip("/").rpartition(":")[2])):
        chromium.until(lambda: "switches in sync" in chromium.text("header") and not chromium.text(".banner"))
        chromium.complaints()  # discards complaints of earlier pages, whose servers have ended
        press("Drain")
        looking.until_said("Choose a switch or a cable first.")
        looking.choose(dpid=f"{spine:#x}")
        press("Drain")
        chromium.until(lambda: "Drain spine3?" in chromium.text(".q-dialog"))
        press("Cancel", "//*[contains(@class, 'q-dialog')]")
        chromium.until(lambda: not chromium.text(".q-dialog"))
        assert drained() == []
        for label, wanted, shape in (("Drain", ["spine3"], "diamond"), ("Undrain", [], "circle")):
            press(label)
            press(label, "//*[contains(@class, 'q-dialog')]")
            looking.until_said(f"spine3: {label.lower()}ed")
            chromium.until(lambda wanted=wanted: drained() == wanted)  # type: ignore[misc]
            chromium.until(lambda shape=shape: shape in shape_of("spine3"))  # type: ignore[misc]
        assert chromium.complaints() == []
        chromium.opened(looking.page.url)


def test_a_page_of_another_name_is_refused(looking: Looking) -> None:
    for headers in ({"Host": "elsewhere.example"}, {"Origin": "http://elsewhere.example"}):
        with pytest.raises(HTTPError, match="400"):
            urlopen(Request(looking.page.url, headers=headers), timeout=60)


def test_it_says_what_is_wrong_with_where_it_listens(signalbox: Signalbox) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        found = signalbox("web", "--listen", f"127.0.0.1:{port}")
    assert found.status == 1
    assert f"cannot listen on 127.0.0.1:{port}: Address already in use" in found.err
    assert "must be HOST:PORT" in signalbox("web", "--listen", "8080").err
