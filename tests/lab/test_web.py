"""The live page of a fabric of real switches on which jobs train; ``tests/wire/test_web.py`` has the page's details.

With ``SIGNALBOX_PICTURES=FOLDER`` the test writes screenshots of the page and of the report to the folder."""

import os
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from benchmarks.web.browser import Browser, browser, missing, web_page
from mininet_topos.demo import phases as demo
from mininet_topos.demo.parts import Training
from mininet_topos.lab.running_fabric import running_fabric
from mininet_topos.leaf_spine import LeafSpine
from mininet_topos.probe.queues import large_socket_buffers
from tests.support.lab.needs import needs
from tests.support.lab.waits import wait_for

pytestmark = pytest.mark.long


def test_what_the_pages_of_the_docs_show(lab_prefix: str, tmp_path: Path) -> None:
    """Take pictures of rings over all leaves, a drained spine, and a plan that is better than hashing."""
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
        wait_for(lambda: client.get_status().pins >= 2 * 4 * len(training.jobs), "every ring's pins")
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
        chromium.opened(page.url)
        lab.cut("leaf1", "spine1")
        chromium.until(lambda: "link_down" in chromium.text(".alarms"))
        training.stop()
        assert chromium.complaints() == []


def drawn_loads(chromium: Browser) -> list[float]:
    links = chromium.series("fabric", "fabric")["links"]
    return [link["value"] for link in links if link.get("value") is not None] or [0.0]
