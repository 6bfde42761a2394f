"""``signalbox report``: a file about a running controller or its support bundle, opened in a real Chromium."""

import gzip
import io
import json
import os
import stat
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import urlsplit

import pytest

from benchmarks.web.browser import Browser
from controller.jobs.messages import RegisterJob, ReportIterations
from signalbox.commands.output import fields
from signalbox.jobs.reports import IterationTime
from signalbox.jobs.spec import JobId, JobSpec
from signalbox.report import gathered
from tests.support.busy_fabric import Ring
from tests.support.command_line import Signalbox
from tests.support.fabric_messages import leaf_spine
from tests.support.wire.served_fabric import ServedFabric

HOSTILE = "<script>alert(1)</script>\u202e\"'&"


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Run an API of a fabric on which one job trains: a ring over the first host of each leaf.

    A cable is down, and another job waits for a host."""
    fabric = ServedFabric.of_four_leaves()
    ring = {"algorithm": "ring_all_reduce", "groups": ["all"], "bytes_per_iteration": 1_000_000}
    for name, ips in (("slow", [f"10.0.{leaf}.1" for leaf in range(1, 5)]), ("waits", ["10.0.1.2", "10.9.9.9"])):
        groups = [{"name": "all", "ranks": list(range(len(ips)))}]
        spec = JobSpec.parse({"job_id": name, "endpoints": ips, "groups": groups, "collectives": [ring]})
        fabric.send(RegisterJob(spec))
        if name == "slow":
            fabric.rings.append(Ring(ips))
    fabric.run(5)
    fabric.cut_first_cable()
    for index in range(3):
        fabric.carry(5)
        fabric.send(ReportIterations(JobId("slow"), (IterationTime(index, 10.0, 9.0),)))
    with fabric.served() as address:
        yield address


def counted(page: Browser, css: str) -> int:
    return int(page.script("return document.querySelectorAll(arguments[0]).length", css))


def asked_for(page: Browser) -> set[str]:
    """Return the addresses of all requests since the last call, except those of the browser's initial page."""
    logged = (json.loads(entry["message"])["message"] for entry in page.driver.get_log("performance"))  # type: ignore[no-untyped-call]
    urls = {each["params"]["request"]["url"] for each in logged if each["method"] == "Network.requestWillBeSent"}
    return {url for url in urls if urlsplit(url).scheme not in ("about", "chrome", "data")}


def packed(parts: Mapping[str, Any]) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        for name, content in parts.items():
            data = content if isinstance(content, bytes) else json.dumps(content).encode()
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return made.getvalue()


def large(count: int) -> dict[str, Any]:
    """Return a state of 64 leaves, 32 spines, and ``count`` jobs of 16 flows over leaves and spines."""
    fabric = fields(leaf_spine(64, 32))
    at = {(link["src"]["dpid"], link["dst"]["dpid"]): link["src"] for link in fabric["links"]}
    fabric["hosts"] = [
        {"ip": f"10.0.{leaf}.{n}", "at": {"dpid": str(leaf), "port": n}, "switch_name": f"leaf{leaf}"}
        for leaf in range(1, 65)
        for n in range(1, 33)
    ]
    jobs, routes = list[Any](), list[Any]()
    for number in range(count):
        name, slowdown = f"job-{number}", 1.0 + number % 3
        ips = [f"10.0.{(number + k) % 64 + 1}.{number % 32 + 1}" for k in range(16)]
        job = {"spec": {"job_id": name, "endpoints": ips}, "state": "pinned", "virtual_links": 16}
        jobs.append({**job, "slowdown": slowdown, "efficiency_predicted": 1 / slowdown})
        for k, ip in enumerate(ips):
            leaf, spine, other = (number + k) % 64 + 1, number % 32 + 1, (number + k + 1) % 64 + 1
            links = [at[str(leaf), str(256 + spine)], at[str(256 + spine), str(other)]]
            path = {"share": 1.0, "switches": [f"leaf{leaf}", f"spine{spine}", f"leaf{other}"], "links": links}
            routes.append({"job_id": name, "src": ip, "dst": ips[(k + 1) % 16], "held": [path]})
    plan = {"max_slowdown": 3.0, "bound": 3.0, "certificate": "optimal", "plan_time_s": 0.5}
    status = {"version": "1", "mode": "planned", "switches": 96, "switches_in_sync": 96, "jobs": count}
    events = [
        {"number": str(n), "event_time": "2026-11-24T10:00:00Z", "kind": "job", "what": "job"} for n in range(2000)
    ]
    found = {"status": status, "jobs": jobs, "routes": routes, "plan": plan, "events": events, "fabric": fabric}
    return {f"signalbox/{name}.json": each for name, each in found.items()}


@pytest.mark.parametrize("jobs", [200, pytest.param(1000, marks=pytest.mark.long)])
def test_reports_are_drawn_without_network_or_script_and_name_what_is_slow(
    signalbox: Signalbox, address: str, tmp_path: Path, chromium: Browser, jobs: int
) -> None:
    file, taken, big = tmp_path / "report.html", tmp_path / "ticket.tar.gz", tmp_path / "big.html"
    assert signalbox("report", file, "--address", address).status == 0
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    signalbox("support-bundle", taken, "--address", address)
    assert signalbox("report", tmp_path / "bundled.html", "--from", taken).status == 0
    (tmp_path / "large.tar.gz").write_bytes(packed(large(jobs)))
    assert signalbox("report", big, "--from", tmp_path / "large.tar.gz").status == 0
    assert big.stat().st_size <= 3_000_000
    for opened in (file, tmp_path / "bundled.html"):
        chromium.driver.get(opened.as_uri())
        assert counted(chromium, "#graph .node") == 8
        assert counted(chromium, "#graph .cable") == 16
        assert counted(chromium, "#graph .cable.down") == 1
        assert counted(chromium, "script") == 0
        assert "warning: link leaf1:1>spine1" in chromium.text("#verdict")
        assert "waits for hosts that are not found: 10.9.9.9" in chromium.text("#slow")
        assert counted(chromium, "#jobs details") == 2
    chromium.driver.get(big.as_uri())
    assert counted(chromium, ".matrix .cell") == 2048
    assert counted(chromium, "#jobs tbody tr") >= jobs
    assert chromium.complaints() == []
    assert asked_for(chromium) == {each.as_uri() for each in (file, tmp_path / "bundled.html", big)}


def test_names_are_text_wherever_they_come_from(signalbox: Signalbox, tmp_path: Path) -> None:
    switch = {"dpid": "1", "name": HOSTILE + "²" + "9" * 5000, "in_sync": True, "ports": []}
    alarm = {"kind": "switch_down", "subject": HOSTILE, "severity": "critical", "text": HOSTILE}
    job = {"spec": {"job_id": HOSTILE, "endpoints": [HOSTILE]}, "missing_hosts": [HOSTILE]}
    details = [{"name": HOSTILE, "value": HOSTILE}, {"name": "worst_slowdown", "value": "nan"}]
    event = {"number": "1", "event_time": "2026-11-24T10:00:00Z", "kind": "plan", "what": HOSTILE, "details": details}
    parts = {"status": {"alarms": [alarm]}, "fabric": {"switches": [switch]}, "jobs": [job], "events": [event]}
    taken, file = tmp_path / f"{HOSTILE.replace('/', '')}.tar.gz", tmp_path / "report.html"
    taken.write_bytes(packed({f"signalbox/{name}.json": each for name, each in parts.items()}))
    assert signalbox("report", file, "--from", taken).status == 0
    text = file.read_text()
    assert text.count("&lt;script&gt;") >= 8
    assert "<script" not in text
    assert "\u202e" not in text


def nested(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth


STATUS = {"signalbox/status.json": {"version": "1"}}


def endless() -> bytes:
    header = tarfile.TarInfo("signalbox/other")
    header.size = 1 << 62
    return gzip.compress(header.tobuf(tarfile.GNU_FORMAT) + bytes(1024))


def sparse() -> bytes:
    header = tarfile.TarInfo("signalbox/status.json")
    header.pax_headers = {"GNU.sparse.map": "1,x"}
    return gzip.compress(header.tobuf(tarfile.PAX_FORMAT) + bytes(1024))


@pytest.mark.parametrize(("content", "problem"), [
    (b"", "is not a complete tar.gz"),
    (b"not packed", "is not a complete tar.gz"),
    (packed({"signalbox/other": Random(1).randbytes(9000)})[:5000], "is not a complete tar.gz"),
    (gzip.compress(b"no archive" * 100), "is not a complete tar.gz"),
    (endless(), "has more than"),
    (sparse(), "is not a complete tar.gz"),
    (packed({}), "has no status.json"),
    (packed({"signalbox/status.json": b"{"}), "status.json: is not JSON"),
    (packed({"signalbox/status.json": nested(100_000)}), "status.json: is not JSON"),
    (packed({"signalbox/status.json": b'{"hosts": NaN}'}), "status.json: is not JSON (NaN is not a number)"),
    (packed({"signalbox/status.json": []}), "status.json: must be an object"),
    (packed({"signalbox/status.json": {"hosts": "many"}}), "status.json: Failed to parse hosts field"),
    (packed({"signalbox/status.json": {"drains": ["\ud800"]}}), "status.json: 'utf-8' codec can't encode"),
    (packed({**STATUS, "signalbox/jobs.json": {}}), "jobs.json: must be a list"),
    (packed({**STATUS, "signalbox/jobs.json": [{}, {"spec": 1}]}), "jobs.json: [1]: Failed to parse spec"),
    (
        packed({**STATUS, "signalbox/fabric.json": {"parts_down": [{"kind": "switch", "id": "leaf1"}]}}),
        "fabric.json: parts_down[0].id: must be a dpid such as 0x101 (given: 'leaf1')",
    ),
])  # fmt: skip
def test_an_unreadable_bundle_is_an_error_with_why(
    signalbox: Signalbox, tmp_path: Path, content: bytes, problem: str
) -> None:
    taken, file = tmp_path / "ticket.tar.gz", tmp_path / "report.html"
    taken.write_bytes(content)
    result = signalbox("report", file, "--from", taken)
    assert result.status == 1
    assert result.err.startswith(f"error: {taken}: ")
    assert problem in result.err
    assert len(result.err) < 500
    assert not file.exists()


def test_a_bundle_is_unpacked_up_to_a_limit(
    signalbox: Signalbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gathered, "MAX_BYTES", 100_000)
    taken = tmp_path / "ticket.tar.gz"
    taken.write_bytes(packed({"signalbox/other": bytes(10_000_000), **STATUS}))
    assert "has more than" in signalbox("report", "-", "--from", taken).err
    monkeypatch.undo()
    monkeypatch.setattr(gathered, "MAX_FILE_BYTES", 10)
    taken.write_bytes(packed(STATUS))
    assert "status.json: has more than" in signalbox("report", "-", "--from", taken).err


def test_a_report_that_cannot_be_written_leaves_what_was_there(signalbox: Signalbox, tmp_path: Path) -> None:
    taken, folder = tmp_path / "ticket.tar.gz", tmp_path / "report.html"
    taken.write_bytes(packed(STATUS))
    folder.mkdir()
    result = signalbox("report", folder, "--from", taken)
    assert (result.status, result.err) == (1, f"error: {folder}: Is a directory\n")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["report.html", "ticket.tar.gz"]


def test_a_pipe_is_written_to_and_a_link_followed_neither_is_replaced(signalbox: Signalbox, tmp_path: Path) -> None:
    taken, pipe, link, file = (tmp_path / name for name in ("ticket.tar.gz", "pipe", "link", "report.html"))
    taken.write_bytes(packed(STATUS))
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    assert signalbox("report", pipe, "--from", taken).status == 0
    assert os.read(reader, 100_000).startswith(b"<!DOCTYPE html>")
    os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    link.symlink_to(file)
    assert signalbox("report", link, "--from", taken).status == 0
    assert link.is_symlink()
    assert file.read_text().startswith("<!DOCTYPE html>")
    assert signalbox("report", ".", "--from", taken).err == "error: .: Is a directory\n"


def test_a_time_that_no_calendar_has_is_not_known(signalbox: Signalbox, tmp_path: Path) -> None:
    taken, file = tmp_path / "ticket.tar.gz", tmp_path / "report.html"
    taken.write_bytes(packed({**STATUS, "signalbox/versions.json": {"time": "0001-01-01T00:00:00+23:59"}}))
    assert signalbox("report", file, "--from", taken).status == 0
    assert "Signalbox: report of -" in file.read_text()


def test_without_a_controller_there_is_no_report(signalbox: Signalbox, tmp_path: Path) -> None:
    result = signalbox("report", tmp_path / "report.html", "--address", f"unix:{tmp_path / 'none'}")
    assert result.status != 0
    assert result.err.startswith("error: ")
    assert list(tmp_path.iterdir()) == []
