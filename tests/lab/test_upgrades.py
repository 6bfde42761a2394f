"""Upgrade of two members, one after the other, while a job trains: nothing is lost, and no rule is changed.

The benchmark ``upgrades`` does the same with more members and jobs."""

from pathlib import Path

from benchmarks.live.upgrades import finish, run_upgrade, upgrade_of
from mininet_topos.leaf_spine import LeafSpine

LEAVES, SPINES, HOSTS = 4, 2, 1
MBPS = 1.0
ELEMENTS = 4_000
PROBE_S = 0.03
LEASE_S = 30
"""Lease of a member in seconds, so long that no member of a busy machine is replaced. No upgrade waits for its end."""


def test_a_job_trains_while_members_are_upgraded(lab_prefix: str, tmp_path: Path) -> None:
    size = LeafSpine(LEAVES, SPINES, HOSTS, host_mbps=MBPS, fabric_mbps=MBPS, prefix=lab_prefix)
    with upgrade_of(size, tmp_path, 2, ELEMENTS, 1, close_s=PROBE_S, quiet_s=0.5, member_lease_s=LEASE_S) as here:
        run_upgrade(here, tmp_path)
        found = finish(here)
    assert found["broken"] == []
    assert [(event["element"], event["what"]) for event in found["events"]] == [
        (name, what) for name in ("two", "one") for what in ("drained", "replaced", "used again")
    ]
    assert all(sum(role["sent"] for role in event["roles"].values()) > 0 for event in found["events"])
    assert found["jobs"]["iterations"] > 0
