"""Southbound of a member: it serves the switches that are assigned to this member, for whichever member leads.

The southbound has a process of its own (``southbound_process``), which continues when this controller becomes the
leader. In: assignments in etcd. Out: the link to the leader while this controller stands by, and a router of commands
while it leads.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from secrets import token_bytes
from typing import Protocol

from controller.api.leader_link import LeaderLink
from controller.config import Config
from controller.fabric.topology import Dpid
from controller.link.ends import LinkEnd
from controller.link.routing import Router
from controller.serving.assigning import Assigning, Assignments
from controller.serving.loaded import Loaded
from controller.serving.southbound_process import SouthboundProcess
from controller.southbound.holding import Holding
from controller.status import StatusBoard
from controller.store.assignment import Holder
from controller.store.members import Membership

TAKEN_OVER_S = 2.0
"""Seconds beyond a lease in which a switch of a lost member may get another holder before its links are given up."""


class StoredAssignments(Assignments, Holding, AbstractContextManager["StoredAssignments"], Protocol):
    """Assignments in etcd, as written by the leader and followed by this member."""


def shares(config: Config) -> bool:
    """Return whether members divide the switches among themselves."""
    return bool(config.openflow.own_process and config.members.api)


@dataclass
class Sharing:
    """Southbound of this member. ``errors``: error that ended the southbound's process, if it has ended."""

    config: Config
    base: Callable[[], int]
    """Function that returns the number below all generation ids, once this controller leads."""
    membership: Membership
    assignments: Assignments
    process: SouthboundProcess
    errors: list[BaseException] = field(default_factory=list)

    @property
    def member(self) -> str:
        """Name and id of this member, as NAME/ID."""
        return f"{self.membership.own.name}/{self.membership.own.id}"

    def leader_link(self, loaded: Loaded) -> LeaderLink:
        """Return the link to the leader for the time in which this controller stands by."""
        return LeaderLink(self.membership, loaded.members_tls, self.process, self.config.etcd.lease_s)

    @contextmanager
    def leading(
        self, router: Router, new_link: Callable[..., LinkEnd], board: StatusBoard, racks: Mapping[Dpid, str]
    ) -> Iterator[None]:
        """Control the own switches, and assign all switches, while the context lasts.

        ``racks``: racks of the switches that have one (``Declared.rack_of``)."""
        end = new_link(self.member, self.process.write, same_clock=True)
        self.process.link = end.received
        end.begin()
        board.held = self._held
        members, lease_s = self.membership, self.config.etcd.lease_s
        reach = partial(_reach, router)
        with Assigning(self.assignments, lambda: members.newest, reach, self.base(), lease_s, racks) as assigning:
            router.changed = assigning.look
            try:
                yield
            finally:
                router.changed = lambda: None

    def _held(self) -> Mapping[str, int]:
        return Counter(holder.id for holder in self.assignments.holders().values())


@contextmanager
def sharing(
    config: Config,
    loaded: Loaded,
    membership: Membership | None,
    assigned: tuple[StoredAssignments, Callable[[], int]] | None,
) -> Iterator[Sharing | None]:
    """Run the southbound of this member while the context lasts; yield None if members do not divide the switches.

    ``assigned``: assignments, and a function that returns the base of generation ids (``configured.assignments_of``).
    Raises the error that ended the process of the southbound."""
    if assigned is None or membership is None:
        yield None
        return
    found, base = assigned
    with found as assignments:
        errors: list[BaseException] = []

        def fail(error: BaseException) -> None:
            errors.append(error)
            os.kill(os.getpid(), signal.SIGTERM)  # ends the wait of a standby

        process = SouthboundProcess(config, (), assignments, loaded.logging, fail)
        loaded.southbound = process
        try:
            yield Sharing(config, base, membership, assignments, process, errors)
        finally:
            loaded.southbound = None
            process.stop()
    if errors:
        raise errors[0]


def probe_key(secret: bytes | None) -> bytes:
    """Return the key of the probes of all members, derived from the secret of lease tokens; without it a random key."""
    return blake2b(secret or token_bytes(32), digest_size=32, person=b"probes").digest()


def _reach(router: Router) -> dict[Dpid, list[Holder]]:
    """Return the members that each switch is connected to."""
    return {
        dpid: [Holder(name, id_) for name, _, id_ in (member.partition("/") for member in members)]
        for dpid, members in router.in_reach.items()
    }
