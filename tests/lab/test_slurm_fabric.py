"""Claims of docs/how-to/join-from-slurm.md, on the emulated fabric with a real Slurm: jobs of MPI are pinned."""

import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
import structlog

from mininet_topos.joining.launch import ENVIRONMENT, ROOT, SYSTEM_PYTHON
from mininet_topos.joining.launch import missing as missing_libraries
from mininet_topos.joining.rank import stop
from mininet_topos.lab.record import run
from mininet_topos.lab.running_fabric import LINK_MBPS, running_fabric
from mininet_topos.leaf_spine import LeafSpine
from mininet_topos.trainer.log import read_rank_log
from signalbox.client import Client
from signalbox.errors import NotFound
from tests.support.doc_pages import PAGES
from tests.support.lab.fabric import routes
from tests.support.lab.needs import needs
from tests.support.lab.slurm import Slurm, missing, set_up, slurm_cluster
from tests.support.lab.waits import wait_for
from tests.support.wire.keeping import keeping

log = structlog.get_logger(__name__)
pytestmark = pytest.mark.long

GUIDE = next(page for page in PAGES if page.name == "docs/how-to/join-from-slurm.md")
SETTINGS = {"counters": {"interval_s": 1.0}, "planning": {"interval_s": 2.0}}
TRAIN = f"""#!/bin/sh
control=control/$SLURM_JOB_ID
mkdir -p $control && touch $control/go
exec {SYSTEM_PYTHON} -m mininet_topos.joining.mpi_rank --job $SLURM_JOB_ID --peers a,b --elements 40000 \\
    --control $control --out .
"""


def block(language: str) -> str:
    return next(block.text for block in GUIDE.blocks if block.language == language)


def at_site(text: str, folder: Path) -> str:
    return text.replace("/etc/signalbox", str(folder)).replace("/etc/slurm", str(folder))


def command(begins: str, folder: Path) -> str:
    """Run the only command of the page that begins with ``begins``, and return the command's output."""
    (found,) = {line for line in GUIDE.commands() if line.startswith(begins)}
    text = at_site(found, folder).replace("signalbox get", f"{sys.executable} -m signalbox get")
    return subprocess.run(text, shell=True, cwd=ROOT, check=True, capture_output=True, text=True).stdout


def pinned(client: Client, job_id: str) -> set[tuple[str, str]]:
    try:
        return {(route.src, route.dst) for route in routes(client, job_id) if route.pinned}
    except NotFound:
        return set()


def test_jobs_of_mpi_are_pinned_until_a_node_dies(
    lab_prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs(missing() or missing_libraries().get("open-mpi"))
    site = tmp_path / "site"
    site.mkdir()
    command("install -D", site)
    (site / "addresses.yaml").write_text(block("yaml"))
    (site / "train.sh").write_text(block("bash"))
    (site / "train").write_text(TRAIN)
    (site / "train").chmod(0o755)
    topo = LeafSpine(4, 2, 1, host_mbps=LINK_MBPS, fabric_mbps=LINK_MBPS, prefix=lab_prefix)
    with running_fabric(topo, tmp_path, settings=SETTINGS) as (lab, controller, client):
        for host in lab.hosts:  # the controller finds hosts by their packets
            run("ip", "netns", "exec", lab.namespace(host), "ping", "-c1", "-w10", lab.hosts[host is lab.hosts[0]].ip)
        wait_for(lambda: len(client.get_fabric().hosts) == 4, "hosts")
        monkeypatch.setenv("SIGNALBOX_ADDRESS", controller.address)
        set_up(site / "hooks", site, controller.address)
        command("signalbox get topology", site)
        nodes = {f"n{number}": lab.namespace(host) for number, host in enumerate(lab.hosts, start=1)}
        lines = at_site(block("ini"), site).split()
        slurm = Slurm(site, nodes, lines, topology=(site / "topology.conf").read_text())
        options = ("--addresses", site / "addresses.yaml")
        with (
            slurm_cluster(slurm),
            keeping(site / "jobs", controller.address, tmp_path, tmp_path / "keep.log", *options) as keep,
        ):
            wait_for(lambda: "keeping the jobs of" in keep.log.read_text(), "the daemon")
            shown = slurm.run("scontrol", "show", "topology")
            assert re.search(r"SwitchName=tier1-1 Level=1 LinkSpeed=\d+ Nodes=n\[1-4\]", shown)
            assert re.search(rf"SwitchName={lab_prefix}leaf2 Level=0 LinkSpeed=\d+ Nodes=n2", shown)
            began = time.monotonic()
            root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
            slurm.submit(str(site / "train.sh"), env=ENVIRONMENT | root)
            wait_for(lambda: len(client.list_jobs()) == 2, "both jobs to be announced")
            announced = time.monotonic() - began
            pairs = {job.spec.job_id: _both_ways(job.spec.endpoints) for job in client.list_jobs()}
            assert sorted(len(found) for found in pairs.values()) == [2, 2]
            wait_for(lambda: all(pinned(client, job) == of for job, of in pairs.items()), "pins", 90, 0.1)
            log.info("from sbatch to", announced_s=round(announced, 2), pinned_s=round(time.monotonic() - began, 2))

            (dies,) = {job for job, of in pairs.items() if any(lab.hosts[3].ip in pair for pair in of)}
            (stays,) = pairs.keys() - {dies}
            slurm.kill("n4")
            wait_for(lambda: [job.spec.job_id for job in client.list_jobs()] == [stays], "one release")
            assert pinned(client, stays) == pairs[stays]
            number = stays.removeprefix("slurm-")
            stop(site / "control" / number)
            wait_for(lambda: not client.list_jobs(), "the other release")
            trained = read_rank_log(site / f"{number}-rank0.jsonl")
            assert trained.ended
            assert all(iteration.ok for iteration in trained.iterations)


def _both_ways(endpoints: object) -> set[tuple[str, str]]:
    one, other = map(str, endpoints)  # type: ignore[call-overload]
    return {(one, other), (other, one)}
