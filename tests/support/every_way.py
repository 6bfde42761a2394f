"""Every path that a packet may take through a fake fabric, whatever its ECMP hash, after every rule change."""

from collections.abc import Iterable, Sequence
from itertools import permutations

from controller.fabric.topology import CandidatePaths, Dpid, Fabric, PortNo, PortRef
from controller.planning.problem import FlowId
from signalbox.jobs.subflows import port_classes
from tests.support.fake_fabric import FakeFabric
from tests.support.fake_switch import Packet

SECOND_CLASS = port_classes(2)[1].value


def ring_flows(ips: Sequence[str]) -> list[FlowId]:
    return [FlowId(a, b) for a, b in zip(ips, [*ips[1:], ips[0]], strict=True)]


class Watch:
    """Walk over every path that a packet may take between hosts, repeated for the paths that a change may affect.

    ``lost``: packets that may be lost now."""

    def __init__(self, fabric: FakeFabric, hosts: Sequence[str]) -> None:
        """Watch all pairs of the hosts.

        Packets of the second class of ports are watched between neighbours in a ring of the hosts, in both directions,
        because a flow of two subflows has a pin for each class."""
        self._fabric = fabric
        self._packets = [Packet(src, dst) for src, dst in permutations(hosts, 2)]
        for src, dst in (flow.pair for flow in ring_flows(hosts)):
            self._packets += [Packet(src, dst, src_port=SECOND_CLASS), Packet(dst, src, dst_port=SECOND_CLASS)]
        self._through: dict[Packet, set[Dpid]] = {}
        self.lost: frozenset[Packet] = frozenset()
        self.look()

    def look(self) -> None:
        """Walk all paths, and accept the current losses from now on."""
        self.lost = frozenset(packet for packet in self._packets if self._is_lossy(packet))

    def look_after(self, changed: Iterable[Dpid]) -> None:
        """Walk the paths that the changed switches may affect; fail when a packet is lost that was not lost before."""
        changed = set(changed)
        again = [packet for packet in self._packets if not changed.isdisjoint(self._through[packet])]
        lossy = {packet for packet in again if self._is_lossy(packet)}
        assert lossy <= self.lost, f"lost: {sorted((p.src, p.dst) for p in lossy - self.lost)}"
        self.lost = self.lost.difference(again) | lossy

    @property
    def through(self) -> set[Dpid]:
        return set().union(*self._through.values())

    def _is_lossy(self, packet: Packet) -> bool:
        through: set[Dpid] = set()
        target = self._fabric.hosts[packet.dst]
        done: dict[PortRef, bool] = {}

        def lossy(at: PortRef, trail: tuple[PortRef, ...]) -> bool:
            assert at.dpid not in {ref.dpid for ref in trail}, f"{packet.src} > {packet.dst} goes round: {trail}"
            if at in done:
                return done[at]
            switch = self._fabric.switches[at.dpid]
            through.add(at.dpid)
            found = False
            for port in switch.possible(at.port, packet):
                if port is None:
                    found = True
                elif PortRef(at.dpid, port) != target:
                    peer = switch.peers[port]
                    found |= peer is None or lossy(peer, (*trail, at))
            done[at] = found
            return found

        result = lossy(self._fabric.hosts[packet.src], ())
        self._through[packet] = through
        return result


def watch_changes(fabric: FakeFabric, watch: Watch) -> None:
    """Check the paths after every rule change; only paths through the changed switch are walked again."""
    counts = dict.fromkeys(fabric.switches, 0)

    def check() -> None:
        changed = [dpid for dpid, switch in fabric.switches.items() if len(switch.mods) != counts[dpid]]
        counts.update((dpid, len(fabric.switches[dpid].mods)) for dpid in changed)
        watch.look_after(changed)

    check()
    fabric.after_each_mod = check


def lose_carrier(fabric: FakeFabric, a: Dpid, port: PortNo) -> None:
    """Take both ends of a cable down in the switches; the controller is not informed yet."""
    peer = fabric.switches[a].peers[port]
    assert peer
    fabric.switches[a].set_up(port, up=False)
    fabric.switches[peer.dpid].set_up(peer.port, up=False)


def apart(fabric: Fabric, hosts: Iterable[str]) -> set[tuple[str, str]]:
    paths = CandidatePaths(fabric, 1)
    at = {host: fabric.hosts[host].at.dpid for host in hosts}
    return {(a, b) for a, b in permutations(at, 2) if not paths.connected(at[a], at[b])}
