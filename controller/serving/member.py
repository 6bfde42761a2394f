"""Arrangement of a member, one of several controllers that share a state in etcd and divide the switches.

The southbound has a process of its own (``southbound_process``), which continues when this member becomes the leader.
Messages take these ways, in both directions:

    standing by:  southbound ─▶ link to the leader
    leading:      southbounds of all members ─▶ links ─▶ router ─▶ inbox

In: assignments in etcd. Out: commands to the southbound that is the holder of a switch; as leader, new assignments."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from secrets import token_bytes
from typing import Protocol

from controller.api.leader_link import LeaderLink
from controller.api.server import MemberPort
from controller.config import Config
from controller.fabric.topology import Dpid
from controller.link.ends import LinkEnd
from controller.link.routing import Router
from controller.serving.arrangement import Begun, Control
from controller.serving.assigning import AWAY_S, Assigning, Assignments, Reach
from controller.serving.loaded import Loaded
from controller.serving.missing_members import MissingMembersWatch
from controller.serving.southbound_process import Followed, SouthboundProcess
from controller.serving.standby import forwarding
from controller.status import StatusBoard
from controller.store.assignment import Holder
from controller.store.members import Membership
from signalbox.errors import SignalboxError


class StoredAssignments(Assignments, Followed, AbstractContextManager["StoredAssignments"], Protocol):
    """Assignments in etcd, which the leader writes and this member follows."""

    fail: Callable[[SignalboxError], None]
    """Function that a thread calls when etcd was restored from a snapshot, so that this process must start again."""

    def is_assigned(self, holder: Holder, dpid: Dpid, generation: int) -> bool:
        """Return whether the member may have claimed the switch with this generation id.

        The answer is based on the assignments that this process has read."""


@dataclass(frozen=True)
class Member:
    """``Arrangement`` of a member. ``is_claimed``: whether this process has the claim of the state."""

    config: Config
    loaded: Loaded
    board: StatusBoard
    is_claimed: Callable[[], bool]
    base: Callable[[], int]
    """Function that returns the base of generation ids, once this member leads."""
    membership: Membership
    assignments: StoredAssignments
    process: SouthboundProcess

    @contextmanager
    def standing_by(self) -> Iterator[None]:
        """Forward calls to the leader, serve metrics, and link the southbound to the leader."""
        link = LeaderLink(self.membership, self.loaded.members_tls, self.process, self.config.etcd.lease_s)
        with forwarding(self.config, self.loaded, self.board, self.membership, link.run):
            yield

    def control(self, begun: Begun) -> Control:
        members, lease_s = self.config.members, self.config.etcd.lease_s
        assert members.api
        router = Router(
            begun.put,
            lease_s + AWAY_S,
            self.config.openflow.barrier_timeout_s,
            is_assigned=lambda member, *claim: self.assignments.is_assigned(_holder_of(member), *claim),
        )
        new_link = partial(LinkEnd, router, probe_key(begun.secret), begun.known)
        names = frozenset(members.certificate_names or ())
        port = MemberPort(members.api, self.loaded.members_tls, names, self.is_claimed, new_link, lease_s)
        return Control(router.send, partial(self._lead, begun, router, new_link), port)

    def _lead(
        self, begun: Begun, router: Router, new_link: Callable[..., LinkEnd], on_ready: Callable[[], None]
    ) -> None:
        own = self.membership.own
        end = new_link(f"{own.name}/{own.id}", self.process.write, same_clock=True)
        self.process.link = end.received
        end.begin()
        self.board.holders = partial(_holders, router)
        self.board.assigned = self.assignments.holders
        reach, taken = partial(_members_in_reach, router), partial(_taken, router)
        newest, lease_s = (lambda: self.membership.newest), self.config.etcd.lease_s
        self.board.refused_members = router.refused
        watch = MissingMembersWatch(begun.put)
        inputs = newest, reach, self.base(), lease_s, begun.racks, watch.look, taken
        with Assigning(self.assignments, *inputs) as assigning:
            router.changed = self.membership.changed = assigning.look
            try:
                on_ready()
                begun.outbox.wait()
            finally:
                router.changed = self.membership.changed = lambda: None


@contextmanager
def member(
    config: Config,
    loaded: Loaded,
    board: StatusBoard,
    is_claimed: Callable[[], bool],
    membership: Membership,
    assigned: tuple[StoredAssignments, Callable[[], int]],
) -> Iterator[Member]:
    """Run the southbound of this member while the context lasts.

    ``assigned``: see ``configured.assignments_of``. The caller must let SIGTERM raise an exception. Raises the error
    that ended the southbound's process, or that occurred with the assignments."""
    found, base = assigned
    with found as assignments:
        errors: list[BaseException] = []

        def fail(error: BaseException) -> None:
            errors.append(error)
            os.kill(os.getpid(), signal.SIGTERM)  # also ends the wait of a standby

        process = None
        try:
            assignments.fail = fail
            loaded.southbound = process = SouthboundProcess(config, assignments, loaded.logging, fail)
            yield Member(config, loaded, board, is_claimed, base, membership, assignments, process)
        finally:
            loaded.southbound = None
            if process:
                process.stop()
            if errors:
                raise errors[0]


def probe_key(secret: bytes | None) -> bytes:
    """Return the key that signs the probes of all members, derived from ``secret``; a random key without a secret."""
    return blake2b(secret or token_bytes(32), digest_size=32, person=b"probes").digest()


def _holder_of(member: str) -> Holder:
    name, _, id_ = member.partition("/")
    return Holder(name, id_)


def _holders(router: Router) -> dict[Dpid, Holder]:
    """Return the member that each switch has confirmed as its OpenFlow master."""
    return {dpid: _holder_of(member) for dpid, member in router.holders.items()}


def _members_in_reach(router: Router) -> Reach:
    return {_holder_of(member): report for member, report in router.in_reach.items()}


def _taken(router: Router) -> dict[tuple[Dpid, Holder], int]:
    return {(dpid, _holder_of(member)): newer for (dpid, member), newer in router.taken.items()}
