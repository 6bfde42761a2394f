"""The live page of a fabric of real switches on which a job trains: its loads, and a cut cable.

With ``SIGNALBOX_PICTURES=FOLDER`` the long test of this module writes screenshots of the page and of the report to the
folder."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from benchmarks.web.browser import Browser, browser, missing
from benchmarks.web.process import web_page
from mininet_topos.demo import phases as demo
from mininet_topos.demo.parts import Training, TrainingJob
from mininet_topos.lab.record import wait_for
from mininet_topos.lab.running_fabric import LINK_MBPS, running_fabric
from mininet_topos.leaf_spine import LeafSpine
from mininet_topos.probe.queues import large_socket_buffers
from tests.support.lab.needs import needs

pytestmark = pytest.mark.lab

LEAVES, SPINES = 2, 2
ELEMENTS = 20_000


def test_loads_of_training_are_drawn_and_a_cut_cable_and_its_alarm_named(lab_prefix: str, tmp_path: Path) -> None:
    needs(missing())
    size = LeafSpine(LEAVES, SPINES, 1, host_mbps=LINK_MBPS, fabric_mbps=LINK_MBPS, prefix=lab_prefix)
    settings = {"discovery": {"hold_down_s": 0.5}, "counters": {"interval_s": 1.0, "window_s": 3.0}}
    ports, raw, profile = tmp_path / "ports", tmp_path / "raw", tmp_path / "profile"
    raw.mkdir()
    profile.mkdir()
    with ExitStack() as stack:
        lab, controller, client = stack.enter_context(running_fabric(size, tmp_path, settings=settings))
        page = stack.enter_context(web_page(controller.address))
        chromium = stack.enter_context(browser(profile))
        training = Training(lab, [TrainingJob("ring", lab.hosts)], ELEMENTS, controller.address, ports, raw)
        training.start()
        wait_for(lambda: sum(job.pinned for job in client.list_jobs()) == LEAVES, "the ring's pins", 60)
        chromium.opened(page.url)
        chromium.until(lambda: "ring" in chromium.text(".jobs"))
        chromium.until(lambda: max(drawn_loads(chromium)) > 0.1)

        lab.cut("leaf1", "spine1")
        wait_for(lambda: bool(client.get_fabric().parts_down), "the cable", 60)
        detected = time.monotonic()
        (name,) = (part.name for part in client.get_fabric().parts_down)
        chromium.until(lambda: dashed(chromium) == [name])
        (tmp_path / "seen_s").write_text(f"{time.monotonic() - detected:.2f}")
        chromium.until(lambda: "link_down" in chromium.text(".alarms") and name in chromium.text(".alarms"))
        chromium.until(lambda: "link down" in chromium.text(".events"))
        training.stop()
        assert chromium.complaints() == []


@pytest.mark.long
def test_what_the_pages_of_the_docs_show(lab_prefix: str, tmp_path: Path) -> None:
    """Take pictures of rings over all leaves, a drained spine, and a plan that was better than hashing."""
    needs(missing())
    pictures = os.environ.get("SIGNALBOX_PICTURES")
    folder, prefix = Path(pictures or tmp_path), "" if pictures else lab_prefix
    size = LeafSpine(demo.LEAVES, demo.SPINES, demo.HOSTS_PER_LEAF, 5.0, 5.0, prefix=prefix)
    ports, raw, profile = tmp_path / "ports", tmp_path / "raw", tmp_path / "profile"
    raw.mkdir()
    profile.mkdir()
    with ExitStack() as stack:
        stack.enter_context(large_socket_buffers())
        lab, controller, client = stack.enter_context(running_fabric(size, tmp_path, demo.RATE_BPS / 1e6))
        page = stack.enter_context(web_page(controller.address))
        chromium = stack.enter_context(browser(profile))
        training = Training(lab, demo.ring_jobs(lab), demo.ELEMENTS, controller.address, ports, raw)
        training.start()
        wait_for(lambda: client.get_status().pins >= 2 * 4 * len(training.jobs), "every ring's pins", 60)
        client.drain([lab.bridge("spine4")])
        wait_for(lambda: all(job.iterations > 3 for job in client.list_jobs()), "iterations", 120)
        for dark in (True, False):
            chromium.dark(dark)
            chromium.opened(page.url)
            chromium.until(lambda: "ring1" in chromium.text(".jobs"))
            chromium.driver.find_element("css selector", ".jobs tbody tr:nth-child(2)").click()
            chromium.until(lambda: "declared" in str(chromium.options("demand").get("series")))
            chromium.until(lambda: max(drawn_loads(chromium)) > 0.5)
            time.sleep(2.0)  # until the last push is painted
            if not dark:
                chromium.screenshot(folder / "web-training-light.png")
        assert sum("part" in link for link in chromium.series("fabric", "fabric")["links"]) == 16
        report = tmp_path / "report.html"
        subprocess.run(
            [sys.executable, "-m", "signalbox", "report", report, "--address", controller.address], check=True
        )
        chromium.driver.get(report.as_uri())
        assert "ring1" in chromium.text("body")
        chromium.screenshot(folder / "report.png")
        training.stop()
        assert chromium.complaints() == []


def drawn_loads(chromium: Browser) -> list[float]:
    links = chromium.series("fabric", "fabric")["links"]
    return [link["value"] for link in links if link.get("value") is not None] or [0.0]


def dashed(chromium: Browser) -> list[str]:
    links = chromium.series("fabric", "fabric")["links"]
    return [link["part"] for link in links if link["lineStyle"]["type"] == "dashed"]
