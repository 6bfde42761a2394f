"""The connection that owns a dpid, and how the controller becomes master, on connections that record their messages."""

from __future__ import annotations

import struct
from itertools import count

import pytest

from controller.fabric.messages import RefusalReason
from controller.southbound.admission import ATTEMPTS, ROLES_WITHIN_S, Admission
from controller.southbound.connection import Connection
from controller.southbound.framework import ofp

NOCHANGE, EQUAL, MASTER, SLAVE = 0, 1, 2, 3
STALE = (ofp.OFPET_ROLE_REQUEST_FAILED, ofp.OFPRRFC_STALE)
UNSUPPORTED = (ofp.OFPET_ROLE_REQUEST_FAILED, ofp.OFPRRFC_UNSUP)


class Peer(Connection):
    """Connection without a socket. Transaction ids begin at the same number for all peers."""

    def __init__(self, peer: str, dpid: int = 0x2A) -> None:
        self.id, self.peer = dpid, peer
        self.sent: list[tuple[int, bytes]] = []
        self.reasons: list[RefusalReason] = []
        self.closed = False
        self._numbers = count(100)

    def send(self, *messages: bytes) -> list[int]:
        sent = [(next(self._numbers), message) for message in messages]
        self.sent += sent
        return [xid for xid, _ in sent]

    def refuse(self, reason: RefusalReason, why: str) -> None:
        assert "0x2a" in why
        self.reasons.append(reason)
        self.close()

    def close(self) -> None:
        self.closed = True

    def of_kind(self, kind: int) -> list[tuple[int, bytes]]:
        return [(xid, message[8:]) for xid, message in self.sent if message[1] == kind]

    def echo_requests(self) -> list[int]:
        return [xid for xid, _ in self.of_kind(ofp.OFPT_ECHO_REQUEST)]

    def role_requests(self) -> list[tuple[int, int]]:
        """Return role and generation of each role request."""
        return [struct.unpack("!I4xQ", body) for _, body in self.of_kind(ofp.OFPT_ROLE_REQUEST)]

    def asked(self) -> int:
        """Return the transaction id of the newest role request."""
        return self.of_kind(ofp.OFPT_ROLE_REQUEST)[-1][0]


class Door:
    """Admission of connections.

    ``admitted``: the connections that may be used, in order."""

    def __init__(self) -> None:
        self.admitted: list[Connection] = []
        self.admission = Admission(self.admitted.append)

    def arrived(self, peer: Peer, now: float = 0.0) -> Peer:
        self.admission.arrived(peer, now)
        return peer

    def role(self, peer: Peer, role: int, generation: int = 0) -> None:
        """Answer the newest role request."""
        self.admission.role_reply(peer, peer.asked(), role, generation)

    def fails(self, peer: Peer, code: tuple[int, int]) -> None:
        self.admission.error(peer, peer.asked(), code, "refused")

    def admit(self, peer: Peer, now: float = 0.0) -> Peer:
        """Let the switch answer both role requests."""
        if not peer.role_requests():
            self.arrived(peer, now)
        self.role(peer, EQUAL, 5)
        self.role(peer, MASTER, 6)
        assert self.admitted[-1] is peer
        return peer


@pytest.fixture
def door() -> Door:
    return Door()


@pytest.fixture
def holder(door: Door) -> Peer:
    """Return a connection that has been admitted."""
    return door.admit(Peer("a"))


# ---- roles


@pytest.mark.parametrize(("held", "claimed"), [(7, 8), (0, 1), ((1 << 64) - 1, 0), ((1 << 63) - 1, 1 << 63)])
def test_the_generation_after_that_of_the_switch_is_claimed(door: Door, held: int, claimed: int) -> None:
    peer = door.arrived(Peer("a"))
    assert peer.role_requests() == [(NOCHANGE, 0)]
    door.role(peer, EQUAL, held)
    assert peer.role_requests() == [(NOCHANGE, 0), (MASTER, claimed)]
    assert door.admitted == [], "nothing is known of the claim yet"
    door.role(peer, MASTER, claimed)
    assert door.admitted == [peer]


def test_only_the_answer_to_the_newest_request_counts(door: Door) -> None:
    """A master role that the switch reports before the claim may result from another controller's claim."""
    peer = door.arrived(Peer("a"))
    first = peer.asked()
    door.admission.role_reply(peer, first + 1, EQUAL, 7)
    door.admission.error(peer, first + 1, UNSUPPORTED, "of another message")
    waits = door.arrived(Peer("b"))
    door.admission.role_reply(waits, first, EQUAL, 7)
    door.admission.error(waits, first, UNSUPPORTED, "of another connection")
    assert (len(peer.sent), waits.sent) == (1, [])
    door.role(peer, MASTER, 7)
    assert (peer.role_requests()[-1], door.admitted) == ((MASTER, 8), [])
    door.admission.role_reply(peer, first, MASTER, 7)
    door.admission.error(peer, first, UNSUPPORTED, "late")
    assert (len(peer.sent), door.admitted) == (2, [])
    door.role(peer, MASTER, 8)
    door.role(peer, MASTER, 8)
    door.fails(peer, UNSUPPORTED)
    assert (len(peer.role_requests()), door.admitted) == (2, [peer]), "it is admitted once"


def test_a_stale_claim_is_made_again_with_the_generation_of_then_and_not_for_ever(door: Door) -> None:
    peer = door.arrived(Peer("a"))
    for generation in range(10, 10 + ATTEMPTS):
        assert door.admitted == []
        door.role(peer, EQUAL, generation)
        assert peer.role_requests()[-1] == (MASTER, generation + 1)
        door.fails(peer, STALE)
    assert len(peer.role_requests()) == 2 * ATTEMPTS
    assert door.admitted == [peer]


@pytest.mark.parametrize("code", [UNSUPPORTED, STALE, None])
def test_a_switch_that_refuses_to_tell_its_generation_is_used_without_a_claim(
    door: Door, code: tuple[int, int] | None
) -> None:
    peer = door.arrived(Peer("a"))
    door.admission.error(peer, peer.asked(), code, "no roles")
    assert (peer.role_requests(), door.admitted) == ([(NOCHANGE, 0)], [peer])


def test_a_switch_that_makes_another_the_master_or_does_not_answer_is_used_all_the_same(door: Door) -> None:
    slave, silent = door.arrived(Peer("a")), door.arrived(Peer("b", 0x2B), 1.0)
    door.role(slave, EQUAL, 7)
    door.role(slave, SLAVE, 8)
    assert door.admitted == [slave]
    door.admission.tick(1.0 + ROLES_WITHIN_S - 0.01)
    assert door.admitted == [slave]
    door.admission.tick(1.0 + ROLES_WITHIN_S)
    door.admission.tick(1.0 + 2 * ROLES_WITHIN_S)
    assert door.admitted == [slave, silent]
    assert not silent.closed


# ---- one connection per dpid


def test_a_holder_that_answers_its_echo_request_keeps_its_dpid_and_all_that_wait_are_refused(
    door: Door, holder: Peer
) -> None:
    newcomers = [door.arrived(Peer(name), 10.0) for name in "bc"]
    (asked,) = holder.echo_requests()
    door.admission.echo_reply(holder, asked)
    assert [peer.reasons for peer in newcomers] == [["duplicate_dpid"]] * 2
    late = door.arrived(Peer("d"), 20.0)
    door.admission.echo_reply(holder, asked)
    assert not late.reasons, "the answer of then says nothing of now"
    door.admission.echo_reply(holder, holder.echo_requests()[1])
    assert late.reasons == ["duplicate_dpid"]
    door.admission.tick(1000.0)
    door.admission.gone(holder, 1000.0)
    assert (holder.closed, door.admitted) == (False, [holder])
    assert newcomers[0].sent == newcomers[1].sent == []


def test_no_other_echo_reply_shows_that_the_holder_is_alive(door: Door, holder: Peer) -> None:
    """Replies to regular echo requests may be late; a newcomer may guess the transaction id of the request."""
    other = door.admit(Peer("x", 0x2B))
    newcomer = door.arrived(Peer("b"), 10.0)
    (asked,) = holder.echo_requests()
    assert other.echo_requests() == [], "it has another dpid"
    for peer, xid in ((holder, asked + 1), (newcomer, asked), (other, asked)):
        door.admission.echo_reply(peer, xid)
    assert (newcomer.reasons, newcomer.sent, holder.closed) == ([], [], False)
    door.admission.gone(holder, 20.0)  # the holder has not answered its echo requests
    door.admit(newcomer, 21.0)
    door.admission.gone(holder, 22.0)
    assert door.admitted == [holder, other, newcomer]
    assert not newcomer.closed


def test_the_newest_of_those_that_wait_comes_next_and_is_asked_for_the_others(door: Door, holder: Peer) -> None:
    older, newest, leaves = (door.arrived(Peer(name), at) for name, at in (("b", 1.0), ("c", 1.5), ("d", 1.6)))
    for at in (1.7, 1.8):
        door.admission.gone(leaves, at)
    door.admission.gone(holder, 2.0)
    assert (older.sent, newest.role_requests(), leaves.sent) == ([], [(NOCHANGE, 0)], [])
    assert newest.echo_requests() == [], "its role comes first"
    door.admit(newest, 3.0)
    (asked,) = newest.echo_requests()
    door.admission.echo_reply(newest, asked)
    assert older.reasons == ["duplicate_dpid"]


def test_a_dpid_is_free_when_its_holder_has_left(door: Door, holder: Peer) -> None:
    door.admission.gone(holder, 1.0)
    door.admission.gone(holder, 1.0)
    door.admission.echo_reply(holder, 100)
    door.admission.role_reply(holder, 100, MASTER, 1)
    door.admission.error(holder, 100, STALE, "late")
    door.admission.tick(100.0)
    assert door.admit(Peer("b"), 100.0).echo_requests() == []
