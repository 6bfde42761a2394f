"""A job trains while its controller is paused, and keeps its registration while its first rank waits for a killed one.

The benchmark ``outages`` measures more outages and exits."""

from pathlib import Path

from benchmarks.live.outages import measured, pause, site_of
from benchmarks.live.outages_report import exits, hangs, took_in
from mininet_topos.demo.parts import TrainingJob
from mininet_topos.lab.running_fabric import LINK_MBPS
from mininet_topos.leaf_spine import LeafSpine
from mininet_topos.trainer.log import read_rank_log

ELEMENTS = 20_000
AWAY_S = 5.0
LEASE_S = 60.0
SHORT_LEASE_S = 1.5


def test_a_paused_controller_and_a_rank_that_waits_change_nothing(lab_prefix: str, tmp_path: Path) -> None:
    size = LeafSpine(2, 2, 2, host_mbps=LINK_MBPS, fabric_mbps=LINK_MBPS, prefix=lab_prefix)
    one, other = (tuple(host for host in size.fabric.hosts if host.name.endswith(end)) for end in ("_1", "_2"))
    jobs = [TrainingJob("ring", one)]
    with site_of(size, tmp_path, ELEMENTS, lambda _: jobs, LEASE_S) as site:
        (outage,) = measured(site, [("paused", pause)], AWAY_S, undisturbed_s=0.0, quiet_s=0.2)
        (exit_,) = exits(site.lab, site.client, site.controller.address, tmp_path, other, [hangs], SHORT_LEASE_S)
    assert outage.back_s is not None
    assert {outage.did[name] for name in ("moved", "unpinned", "rules", "registered", "ended")} == {0}
    assert not outage.left
    began, _ = outage.window
    log = read_rank_log(tmp_path / "raw" / "ring-rank0.jsonl")
    assert took_in(log, (began + 1.0, began + AWAY_S)), "it trains meanwhile"
    assert all(done.ok for done in log.iterations)
    assert exit_.ok, exit_
