"""Three ring jobs over the four leaves of the fake fabric, one per host of a leaf, and the spines that they use."""

from typing import TypeVar

from controller.config import Config, DiscoveryConfig, FabricConfig
from controller.jobs.messages import RegisterJob
from controller.planning.problem import FlowId
from tests.support.fake_fabric import FABRIC_BPS, FakeFabric, ring_job

CONFIG = Config(
    fabric=FabricConfig(link_bps=FABRIC_BPS, host_link_bps=FABRIC_BPS), discovery=DiscoveryConfig(edge_after_s=1.0)
)
RINGS = [[f"10.0.{leaf}.{host}" for leaf in (1, 2, 3, 4)] for host in (1, 2, 3)]


Kind = TypeVar("Kind", bound=FakeFabric)


def started(fabric: Kind, *jobs: int, lease_s: float = 60.0, config: Config = CONFIG) -> Kind:
    """Start a controller on the fabric, and return the fabric when the jobs run."""
    fabric.start(config)
    fabric.run(3)
    if jobs:
        register(fabric, *jobs, lease_s=lease_s)
        fabric.run(3)
    return fabric


def register(fabric: FakeFabric, *jobs: int, lease_s: float = 60.0) -> None:
    for job in jobs:
        fabric.send(RegisterJob(ring_job(f"job{job}", RINGS[job], lease_s)))


def all_flows() -> list[FlowId]:
    return [FlowId(ring[i], ring[(i + 1) % 4]) for ring in RINGS for i in range(4)]


def spines_used(fabric: FakeFabric) -> dict[FlowId, str]:
    used = {}
    for flow in all_flows():
        trace = fabric.trace(*flow.pair)
        assert trace is not None, f"{flow} is lost"
        used[flow] = trace[1]
    return used


def assert_no_collision(fabric: FakeFabric) -> None:
    spines = spines_used(fabric)
    for leaf in (1, 2, 3, 4):
        out = [spine for flow, spine in spines.items() if flow.src_ip.startswith(f"10.0.{leaf}.")]
        into = [spine for flow, spine in spines.items() if flow.dst_ip.startswith(f"10.0.{leaf}.")]
        assert len(set(out)) == len(out)
        assert len(set(into)) == len(into)
