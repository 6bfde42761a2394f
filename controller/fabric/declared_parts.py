"""Parts that the inventory file declares, with stand-ins for parts that were never seen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from controller.fabric.parts import DECLARED, UNKNOWN_DPID, Declared, End, Part, PartKey, PartKind, host_key, switch_key
from controller.fabric.topology import PortNo, PortRef

_NOWHERE = PortRef(UNKNOWN_DPID, PortNo(0))


class DeclaredParts:
    """Declared parts and the number of known parts that match each declaration.

    A stand-in is a ``Part`` that represents a declaration as long as no known part matches the declaration. A declared
    host, and a declared switch with a dpid, are known from the start under the key that they will have when they
    appear."""

    def __init__(self, declared: Declared) -> None:
        self.roles = declared.role_of
        self._dpids = declared.dpid_of
        self._hosts = {host.ip: host for host in declared.hosts}
        self._cables = {frozenset((cable.a, cable.b)): cable for cable in declared.cables}
        self._bundles = {frozenset((bundle.a, bundle.b)): bundle for bundle in declared.bundles}
        self._known: Counter[object] = Counter()

    @property
    def hosts(self) -> Iterator[PartKey]:
        """Keys of the declared hosts."""
        return map(host_key, self._hosts)

    def all(self) -> Iterator[Part]:
        """Yield the parts of all declarations as they are before any part was seen: stand-ins, hosts and switches."""
        for name, dpid in self._dpids.items():
            at = _NOWHERE if dpid is None else PortRef(dpid, PortNo(0))
            key = _key(PartKind.SWITCH, name) if dpid is None else switch_key(dpid)
            yield Part(key, (End(at, name),))
        for host in self._hosts.values():
            yield Part(host_key(host.ip), (End(_NOWHERE, host.switch, host.port),))
        for cable in self._cables.values():
            yield _stand_in(End(_NOWHERE, *cable.a), End(_NOWHERE, *cable.b))
        for bundle in self._bundles.values():
            yield from (_of_bundle(bundle.a, bundle.b, n) for n in range(1, bundle.cables + 1))

    def count(self, part: Part, more: int) -> Iterator[tuple[Part, bool]]:
        """Count a part that became known (``more`` = 1) or was forgotten (``more`` = -1).

        Yields the stand-ins of the matching declarations, and whether each of them must exist now."""
        if not part.seen:
            return
        names = tuple(end.switch for end in part.ends)
        if part.kind is PartKind.SWITCH and names[0] in self._dpids and self._dpids[names[0]] is None:
            self._known[names[0]] += more
            yield Part(_key(PartKind.SWITCH, names[0]), (End(_NOWHERE, names[0]),)), not self._known[names[0]]
        if part.kind is not PartKind.LINK:
            return
        ports, pair = frozenset((end.switch, end.port) for end in part.ends), frozenset(names)
        if cable := self._cables.get(ports):
            self._known[ports] += more
            yield _stand_in(End(_NOWHERE, *cable.a), End(_NOWHERE, *cable.b)), not self._known[ports]
        if bundle := self._bundles.get(pair):
            self._known[pair] += more
            for n in range(1, bundle.cables + 1):
                yield _of_bundle(bundle.a, bundle.b, n), n > self._known[pair]

    def declares(self, part: Part) -> bool:
        """Return whether a declared part would be missing without this part."""
        if not part.seen:
            return True
        name = part.ends[0].switch
        match part.kind:
            case PartKind.HOST:
                return part.key.id in self._hosts
            case PartKind.SWITCH if name in self._dpids:
                dpid = self._dpids[name]
                return self._known[name] <= 1 if dpid is None else dpid == part.ends[0].at.dpid
            case PartKind.LINK:
                ports = frozenset((end.switch, end.port) for end in part.ends)
                pair = frozenset(end.switch for end in part.ends)
                bundle = self._bundles.get(pair)
                return ports in self._cables or (bundle is not None and self._known[pair] <= bundle.cables)
        return False


def _key(kind: PartKind, name: str) -> PartKey:
    return PartKey(kind, f"{DECLARED}{name}")


def _stand_in(a: End, b: End) -> Part:
    return Part(_key(PartKind.LINK, f"{a.name}>{b.switch}"), (a, b))


def _of_bundle(a: str, b: str, number: int) -> Part:
    return Part(_key(PartKind.LINK, f"{a}>{b} (cable {number})"), (End(_NOWHERE, a), End(_NOWHERE, b)))
