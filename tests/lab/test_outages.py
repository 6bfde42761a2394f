"""A job trains while its controller is paused, and keeps its registration while its first rank waits for a killed one.

The benchmark ``outages`` measures more outages."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks.live.outages import Site, measured, pause, site_of
from benchmarks.live.outages_report import took_in
from mininet_topos.demo.parts import Training, TrainingJob
from mininet_topos.lab.record import LabError
from mininet_topos.leaf_spine import LeafSpine
from mininet_topos.trainer.log import read_rank_log
from offline.scenarios.topologies import Host
from tests.support.lab.waits import wait_for

MBPS = 1.0
ELEMENTS = 4_000
AWAY_S = 5.0
LEASE_S = 60.0
SHORT_LEASE_S = 1.5


def test_a_paused_controller_and_a_rank_that_waits_change_nothing(lab_prefix: str, tmp_path: Path) -> None:
    size = LeafSpine(2, 2, 2, host_mbps=MBPS, fabric_mbps=MBPS, prefix=lab_prefix)
    one, other = (tuple(host for host in size.fabric.hosts if host.name.endswith(end)) for end in ("_1", "_2"))
    jobs = [TrainingJob("ring", one)]
    with site_of(size, tmp_path, ELEMENTS, lambda _: jobs, LEASE_S) as site:
        (outage,) = measured(site, [("paused", pause)], AWAY_S, undisturbed_s=0.0, quiet_s=0.2)
        waits(site, other, tmp_path)
    assert outage.back_s is not None
    assert {outage.did[name] for name in ("moved", "unpinned", "rules", "registered", "ended")} == {0}
    assert not outage.left
    began, _ = outage.window
    log = read_rank_log(tmp_path / "raw" / "ring-rank0.jsonl")
    assert took_in(log, (began + 1.0, began + AWAY_S)), "it trains meanwhile"
    assert all(done.ok for done in log.iterations)


def waits(site: Site, hosts: Sequence[Host], folder: Path) -> None:
    """Assert that a job stays registered whose rank 0 waits for ever, because it lives.

    Rank 1 is killed while its host is cut off, so that the kernel's end of its connections does not reach rank 0."""
    (raw := folder / "waiting").mkdir()
    jobs = [TrainingJob("waiting", tuple(hosts))]
    training = Training(site.lab, jobs, ELEMENTS, site.controller.address, folder / "ports", raw, lease_s=SHORT_LEASE_S)
    training.start()

    def uids() -> dict[str, str]:
        return {job.spec.job_id: job.uid for job in site.client.list_jobs()}

    wait_for(lambda: "waiting" in uids(), "the registration")
    uid, lost = uids()["waiting"], hosts[1]
    site.lab.cut(lost.name, lost.leaf)
    training.rank_process("waiting", 1).kill()
    try:
        with pytest.raises(LabError):
            wait_for(lambda: uids().get("waiting") != uid, "an end of the job", 2 * SHORT_LEASE_S)
        assert training.rank_process("waiting", 0).poll() is None
    finally:
        training.rank_process("waiting", 0).kill()
        site.lab.plug(lost.name, lost.leaf)
