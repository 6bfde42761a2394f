"""Fabrics as messages of the API."""

from collections.abc import Mapping

from signalbox.live.state import State
from signalbox.v1 import signalbox_pb2 as pb

BPS = 1e9


def link(src: tuple[int, int], dst: tuple[int, int], name: str, load: float | None = None) -> pb.Link:
    found = pb.Link(
        src=pb.PortRef(dpid=src[0], port=src[1]), dst=pb.PortRef(dpid=dst[0], port=dst[1]), name=name, capacity_bps=BPS
    )
    if load is not None:
        found.rate_bps = load * BPS
    return found


def cable(a: tuple[int, int], b: tuple[int, int], names: Mapping[int, str], up: float | None = None) -> list[pb.Link]:
    """Return both directions of a cable; only the direction from ``a`` has measurements."""
    there, back = f"{names[a[0]]}:{a[1]}>{names[b[0]]}", f"{names[b[0]]}:{b[1]}>{names[a[0]]}"
    return [link(a, b, there, up), link(b, a, back)]


def leaf_spine(leaves: int, spines: int, hosts: bool = True, in_sync: bool = True) -> pb.GetFabricResponse:
    names = {leaf: f"leaf{leaf}" for leaf in range(1, leaves + 1)}
    names |= {0x100 + spine: f"spine{spine}" for spine in range(1, spines + 1)}
    links = [
        each
        for leaf in range(1, leaves + 1)
        for spine in range(1, spines + 1)
        for each in cable((leaf, spine), (0x100 + spine, leaf), names, 0.5)
    ]
    return pb.GetFabricResponse(
        switches=[pb.Switch(dpid=dpid, name=name, in_sync=in_sync) for dpid, name in names.items()],
        links=links,
        hosts=[
            pb.Host(ip=f"10.0.{leaf}.1", at=pb.PortRef(dpid=leaf, port=99), switch_name=names[leaf])
            for leaf in range(1, leaves + 1)
            if hosts
        ],
    )


def state_of(fabric: pb.GetFabricResponse) -> State:
    state = State()
    state.take_fabric(fabric)
    return state
