"""The connection that owns a dpid, and how the controller becomes master, on connections that record their messages."""

from __future__ import annotations

import struct
from itertools import count
from math import inf

import pytest

from controller.fabric.messages import RefusalReason
from controller.fabric.topology import Dpid
from controller.southbound.admission import (
    CHECK_S,
    LOOK_AGAIN_S,
    MASTERSHIP_LOST,
    NO_GENERATION,
    ROLES_WITHIN_S,
    Admission,
)
from controller.southbound.connection import Connection
from controller.southbound.framework import ofp
from tests.support.captured_logs import captured_logs

NOCHANGE, EQUAL, MASTER, SLAVE = 0, 1, 2, 3
EPOCH = 1_900_000_000_000_000
DPID = Dpid(0x2A)
AHEAD = 2 * EPOCH
"""Smallest generation id that no controller can have."""
PATIENCE_S = 15.0
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
        assert reason in ("silent", "no_roles") or "0x2a" in why
        self.reasons.append(reason)
        self.close()

    def close(self) -> None:
        self.closed = True

    def of_kind(self, kind: int) -> list[tuple[int, bytes]]:
        return [(xid, message[8:]) for xid, message in self.sent if message[1] == kind]

    def echo_requests(self) -> list[int]:
        return [xid for xid, _ in self.of_kind(ofp.OFPT_ECHO_REQUEST)]

    def role_requests(self) -> list[tuple[int, int]]:
        return [struct.unpack("!I4xQ", body) for _, body in self.of_kind(ofp.OFPT_ROLE_REQUEST)]

    def asked(self) -> int:
        return self.of_kind(ofp.OFPT_ROLE_REQUEST)[-1][0]


class Door:
    """Admission of connections, and the ``Holding`` that it follows.

    ``admitted``: the connections that may be used, in order.
    ``lost``: connections to switches of another master; ``refused``: whether each switch has refused something.
    ``paused``: connections over which a switch is claimed anew.
    ``released``: connections to switches that other members hold now.
    ``raised``: connections to switches of this master whose generation id another controller has raised, and the id.
    ``certain_at``: monotonic time at which the generation ids were the newest; -inf while that is not known.
    ``assigned``: generation ids by dpid; others have ``EPOCH``."""

    def __init__(self) -> None:
        self.is_shared = False
        self.certain_at = inf
        self.assigned: dict[int, int | None] = {}
        self.version = 0
        self.admitted: list[Connection] = []
        self.lost: list[Connection] = []
        self.refused: list[bool] = []
        self.paused: list[Connection] = []
        self.released: list[Connection] = []
        self.raised: list[tuple[Connection, int]] = []
        self.admission = Admission(
            self,
            PATIENCE_S,
            self.admitted.append,
            self._lost,
            self.paused.append,
            self.released.append,
            lambda *raised: self.raised.append(raised),
            lambda generation: generation >= AHEAD,
        )

    def _lost(self, connection: Connection, refused: bool) -> None:
        self.lost.append(connection)
        self.refused.append(refused)

    def generation(self, dpid: int) -> int | None:
        return self.assigned.get(dpid, EPOCH)

    def may_claim(self, dpid: int, since: float) -> bool:  # noqa: ARG002
        return self.certain_at >= since

    def assign(self, generation: int | None, now: float, dpid: int = 0x2A) -> None:
        self.assigned[dpid] = generation
        self.version += 1
        self.admission.tick(now)

    def arrived(self, peer: Peer, now: float = 0.0) -> Peer:
        self.admission.arrived(peer, now)
        return peer

    def role(self, peer: Peer, role: int, generation: int = 0) -> None:
        self.admission.role_reply(peer, peer.asked(), role, generation)

    def fails(self, peer: Peer, code: tuple[int, int]) -> None:
        self.admission.error(peer, peer.asked(), code, "refused")

    def admit(self, peer: Peer, now: float = 0.0) -> Peer:
        """Let the switch grant the master role."""
        if not peer.role_requests():
            self.arrived(peer, now)
        self.role(peer, MASTER, EPOCH)
        assert self.admitted[-1] is peer
        return peer


@pytest.fixture
def door() -> Door:
    return Door()


@pytest.fixture
def holder(door: Door) -> Peer:
    return door.admit(Peer("a"))


# ---- roles


def test_the_role_is_claimed_with_the_epoch_and_nothing_is_admitted_before_the_reply(door: Door) -> None:
    peer = door.arrived(Peer("a"))
    assert (peer.role_requests(), door.admitted) == ([(MASTER, EPOCH)], [])
    door.role(peer, MASTER, EPOCH)
    assert (door.admitted, door.lost) == ([peer], [])


def test_only_the_answer_to_the_newest_request_counts(door: Door) -> None:
    peer = door.arrived(Peer("a"))
    claim = peer.asked()
    door.admission.role_reply(peer, claim + 1, MASTER, EPOCH)
    door.admission.error(peer, claim + 1, UNSUPPORTED, "of another message")
    waits = door.arrived(Peer("b"))
    door.admission.role_reply(waits, claim, MASTER, EPOCH)
    door.admission.error(waits, claim, UNSUPPORTED, "of another connection")
    assert (len(peer.role_requests()), waits.sent, door.admitted) == (1, [], [])
    door.fails(peer, STALE)
    door.admission.role_reply(peer, claim, MASTER, EPOCH)
    assert (len(peer.role_requests()), door.admitted, door.lost) == (2, [], [])
    door.role(peer, EQUAL, EPOCH + 5)
    door.role(peer, MASTER, EPOCH)
    door.fails(peer, UNSUPPORTED)
    assert (len(peer.role_requests()), door.admitted, door.lost) == (2, [], [peer]), "it is decided once"


@pytest.mark.parametrize("has_generation", [True, False])
def test_a_stale_claim_is_never_made_again_and_its_reason_has_the_generation_of_the_switch(
    door: Door, has_generation: bool
) -> None:
    peer = door.arrived(Peer("a"))
    door.fails(peer, STALE)
    assert peer.role_requests() == [(MASTER, EPOCH), (NOCHANGE, 0)]
    with captured_logs() as logs:
        if has_generation:
            door.role(peer, EQUAL, EPOCH + 77)
        else:
            door.fails(peer, UNSUPPORTED)
    assert len(peer.role_requests()) == 2
    assert (door.admitted, door.lost, peer.closed) == ([], [peer], False)
    (line,) = (line for line in logs if line["event"] == "switch has a newer master")
    expected = f"its generation id is {EPOCH + 77}, but that of this controller is {EPOCH}"
    assert line["why"] == (expected if has_generation else "refused")


@pytest.mark.parametrize(("role", "generation"), [(SLAVE, EPOCH), (EQUAL, EPOCH), (MASTER, EPOCH + 1)])
def test_a_reply_with_another_role_or_generation_is_a_lost_claim(door: Door, role: int, generation: int) -> None:
    peer = door.arrived(Peer("a"))
    door.role(peer, role, generation)
    assert (door.admitted, door.lost) == ([], [peer])


@pytest.mark.parametrize("code", [UNSUPPORTED, (ofp.OFPET_BAD_REQUEST, ofp.OFPBRC_BAD_TYPE), None])
def test_a_switch_without_roles_is_used(door: Door, code: tuple[int, int] | None) -> None:
    peer = door.arrived(Peer("a"))
    door.admission.error(peer, peer.asked(), code, "no roles")
    assert (peer.role_requests(), door.admitted) == ([(MASTER, EPOCH)], [peer])


def test_a_switch_that_does_not_answer_is_named_once_and_not_used_until_it_does(door: Door) -> None:
    silent, late = door.arrived(Peer("a"), 1.0), door.arrived(Peer("b", 0x2B), 1.0)
    with captured_logs() as logs:
        for after_s in (ROLES_WITHIN_S - 0.01, ROLES_WITHIN_S, 5.0, PATIENCE_S - 0.01):
            door.admission.tick(1.0 + after_s)
    unanswered = "switch did not answer the request for the master role, and is not used"
    assert [(line["event"], line["dpid"]) for line in logs] == [(unanswered, "0x2a"), (unanswered, "0x2b")]
    assert (door.admitted, silent.closed, late.closed) == ([], False, False)
    door.role(late, MASTER, EPOCH)
    door.admission.tick(1.0 + PATIENCE_S)
    assert (door.admitted, silent.reasons, late.reasons) == ([late], ["silent"], [])


def test_a_switch_is_not_claimed_while_another_controller_may_have_the_state(door: Door) -> None:
    door.certain_at = -inf
    peer = door.arrived(Peer("a"))
    assert peer.role_requests() == [(NOCHANGE, 0)]
    door.role(peer, EQUAL, (1 << 64) - 1)
    door.admission.tick(10 * PATIENCE_S)
    assert (len(peer.role_requests()), door.admitted, peer.closed) == (1, [], False)
    door.certain_at = inf
    door.admission.tick(20 * PATIENCE_S)
    door.admission.tick(20 * PATIENCE_S + PATIENCE_S / 2)
    assert (peer.role_requests()[1:], peer.closed) == ([(MASTER, EPOCH)], False)
    door.role(peer, MASTER, EPOCH)
    assert (door.admitted, door.lost) == ([peer], [])


def test_a_switch_that_still_has_the_epoch_is_claimed_without_the_claim_of_the_state(door: Door) -> None:
    door.certain_at = -inf
    peer = door.arrived(Peer("a"))
    door.role(peer, EQUAL, EPOCH)
    assert (peer.role_requests(), door.admitted) == ([(NOCHANGE, 0), (MASTER, EPOCH)], [])
    door.fails(peer, STALE)
    door.role(peer, EQUAL, EPOCH + 1)
    assert (door.admitted, door.lost) == ([], [peer]), "another controller was faster"


@pytest.mark.parametrize("code", [UNSUPPORTED, None])
def test_a_switch_without_roles_is_not_used_while_another_controller_may_have_the_state(
    door: Door, code: tuple[int, int] | None
) -> None:
    door.certain_at = -inf
    peer = door.arrived(Peer("a"))
    door.admission.error(peer, peer.asked(), code, "no roles")
    assert (door.admitted, door.lost) == ([], [])
    door.certain_at = inf
    door.admission.tick(1.0)
    door.fails(peer, UNSUPPORTED)
    assert door.admitted == [peer]


def test_a_holder_that_has_not_answered_the_claim_is_asked_for_those_that_wait(door: Door) -> None:
    holder = door.arrived(Peer("a"))
    newcomer = door.arrived(Peer("b"), 1.0)
    (asked,) = holder.echo_requests()
    door.admission.echo_reply(holder, asked)
    assert (newcomer.reasons, door.admitted) == (["duplicate_dpid"], [])


# ---- holders that change


@pytest.fixture
def aside(door: Door) -> Peer:
    """Return a connection to a switch that another member holds with the generation id 7."""
    door.assigned[0x2A] = None
    peer = door.arrived(Peer("a"))
    door.role(peer, EQUAL, 7)
    door.role(peer, SLAVE, 7)
    return peer


def test_a_switch_of_another_holder_gets_the_role_slave_with_its_own_generation_id(door: Door, aside: Peer) -> None:
    door.admission.tick(2 * PATIENCE_S)
    assert aside.role_requests() == [(NOCHANGE, 0), (SLAVE, 7)]
    assert (door.admitted, door.lost, door.released, aside.closed) == ([], [], [], False)


def test_a_switch_without_a_generation_id_is_left_alone_and_asked_again(door: Door) -> None:
    door.assigned[0x2A] = None
    peer = door.arrived(Peer("a"))
    door.role(peer, EQUAL, NO_GENERATION)
    door.admission.tick(LOOK_AGAIN_S - 0.01)
    assert peer.role_requests() == [(NOCHANGE, 0)]
    door.admission.tick(LOOK_AGAIN_S)
    door.role(peer, EQUAL, 7)
    door.fails(peer, STALE)  # the switch has got a larger one meanwhile
    door.admission.tick(2 * LOOK_AGAIN_S)
    door.role(peer, EQUAL, 8)
    door.role(peer, SLAVE, 8)
    assert peer.role_requests() == [(NOCHANGE, 0), (NOCHANGE, 0), (SLAVE, 7), (NOCHANGE, 0), (SLAVE, 8)]
    assert (door.admitted, door.lost) == ([], [])


@pytest.mark.parametrize("generation", [EPOCH, None])
def test_where_controllers_divide_the_switches_one_without_roles_is_refused(door: Door, generation: int | None) -> None:
    """A switch without roles would accept the messages of a holder that was paused while it was replaced."""
    door.is_shared = True
    door.assigned[0x2A] = generation
    peer = door.arrived(Peer("a"))
    door.fails(peer, UNSUPPORTED)
    assert (len(peer.role_requests()), door.admitted, peer.reasons) == (1, [], ["no_roles"])


def test_a_new_holder_claims_over_its_connection_with_one_request(door: Door, aside: Peer) -> None:
    door.assign(9, 5.0)
    assert (aside.role_requests()[2:], door.admitted) == ([(MASTER, 9)], [])
    door.role(aside, MASTER, 9)
    assert door.admitted == [aside]


def test_a_former_holder_uses_the_switch_no_more_and_does_not_resign(door: Door, holder: Peer) -> None:
    door.assign(None, 5.0)
    assert (door.released, door.lost) == ([holder], [])
    door.role(holder, MASTER, EPOCH)
    door.admission.tick(5.0 + LOOK_AGAIN_S)
    door.role(holder, SLAVE, EPOCH + 1)
    door.admission.tick(5.0 + 2 * PATIENCE_S)
    assert holder.role_requests() == [(MASTER, EPOCH), (NOCHANGE, 0), (NOCHANGE, 0)]
    door.assign(EPOCH + 2, 99.0)
    door.role(holder, MASTER, EPOCH + 2)
    assert door.admitted == [holder, holder]


def test_a_holder_that_is_assigned_anew_claims_anew_and_is_admitted_again(door: Door, holder: Peer) -> None:
    """Another holder may have written meanwhile, so nothing is written until the rules are read again."""
    door.assign(EPOCH + 2, 5.0)
    assert (door.paused, door.admitted) == ([holder], [holder])
    door.admission.error(holder, 1, MASTERSHIP_LOST, "is slave")  # the answer to an earlier message
    door.role(holder, MASTER, EPOCH + 2)
    assert holder.role_requests() == [(MASTER, EPOCH), (MASTER, EPOCH + 2)]
    assert (door.admitted, door.lost, door.released) == ([holder, holder], [], [])


def test_a_holder_that_is_paused_can_be_released(door: Door, holder: Peer) -> None:
    door.assign(EPOCH + 2, 5.0)
    door.assign(None, 6.0)
    assert (door.paused, door.released) == ([holder], [holder])


def test_an_older_assignment_changes_nothing(door: Door, holder: Peer) -> None:
    door.assign(EPOCH - 1, 5.0)
    door.assign(EPOCH, 6.0)
    assert (holder.role_requests(), door.released) == ([(MASTER, EPOCH)], [])


def test_a_switch_that_was_lost_is_claimed_only_with_a_larger_generation_id(door: Door, holder: Peer) -> None:
    door.admission.error(holder, 1, MASTERSHIP_LOST, "is slave")
    door.admission.error(holder, 2, MASTERSHIP_LOST, "is slave")
    door.assign(EPOCH, 5.0)
    assert (holder.role_requests(), door.lost) == ([(MASTER, EPOCH), (NOCHANGE, 0)], [holder])
    door.assign(EPOCH + 1, 6.0)
    door.fails(holder, STALE)
    door.role(holder, SLAVE, EPOCH + 5)
    assert door.lost == [holder, holder]
    door.assign(EPOCH + 6, 7.0)
    door.role(holder, MASTER, EPOCH + 6)
    assert (door.admitted, door.released) == ([holder, holder], [])


def test_a_switch_that_reports_another_master_is_lost_at_once_and_then_released(door: Door, holder: Peer) -> None:
    door.admission.demoted(Peer("10.0.0.2:1"))
    for _ in range(2):
        door.admission.demoted(holder)
    assert (door.lost, door.refused, holder.role_requests()[1:]) == ([holder], [False], [(NOCHANGE, 0)])
    door.assign(None, 5.0)
    assert (door.lost, door.released) == ([holder], [holder])
    door.role(holder, SLAVE, EPOCH + 1)
    door.admission.demoted(holder)
    assert (door.lost, door.released) == ([holder], [holder])


def test_a_generation_id_that_no_controller_can_have_is_named_after_a_refused_claim(door: Door) -> None:
    switch = door.arrived(Peer("10.0.0.1:1"))
    door.fails(switch, STALE)
    door.role(switch, EQUAL, AHEAD)
    assert (door.lost, door.admission.ahead(DPID), door.admission.newer(DPID)) == ([switch], AHEAD, AHEAD)
    door.assign(AHEAD + 1, 5.0)
    door.role(switch, MASTER, AHEAD + 1)
    assert (door.admitted, door.admission.ahead(DPID)) == ([switch], 0)


@pytest.mark.parametrize(("generation", "losses"), [(EPOCH + 1, 1), (AHEAD, 2), (NO_GENERATION, 1)])
def test_a_generation_id_that_no_controller_can_have_is_named_after_a_refused_write(
    door: Door, holder: Peer, generation: int, losses: int
) -> None:
    door.admission.error(holder, 1, MASTERSHIP_LOST, "is slave")
    assert (door.lost, door.admission.ahead(DPID)) == ([holder], 0)
    door.admission.role_reply(holder, 1, SLAVE, AHEAD)
    door.fails(holder, UNSUPPORTED)
    door.admission.tick(2 * PATIENCE_S)
    door.role(holder, SLAVE, generation)
    assert (door.lost, door.refused) == (losses * [holder], [True, False][:losses])
    assert door.admission.ahead(DPID) == (generation if losses == 2 else 0)
    assert door.admission.newer(DPID) == (0 if generation == NO_GENERATION else generation)


def test_a_holder_asks_now_and_then_whether_it_still_is_the_master(door: Door, holder: Peer) -> None:
    """A claim of the role SLAVE raises the generation id of the switch, and its master is not told."""
    door.admission.tick(CHECK_S - 0.1)
    assert holder.role_requests() == [(MASTER, EPOCH)]
    for number, generation in enumerate((EPOCH, EPOCH + 5, AHEAD, EPOCH, EPOCH), 1):
        door.admission.tick(number * CHECK_S)
        assert holder.role_requests()[number:] == [(NOCHANGE, 0)]
        door.role(holder, MASTER, generation)
    assert (door.raised, door.lost, door.admission.is_master(DPID)) == (
        [(holder, EPOCH + 5), (holder, AHEAD), (holder, EPOCH)],
        [],
        True,
    )
    door.admission.tick(6 * CHECK_S)
    door.role(holder, SLAVE, EPOCH)
    assert (door.lost, door.refused, holder.role_requests()[7:]) == ([holder], [False], [(NOCHANGE, 0)])


def test_the_answer_to_a_check_says_nothing_about_a_later_claim(door: Door, holder: Peer) -> None:
    door.admission.tick(CHECK_S)
    check = holder.asked()
    door.assign(EPOCH + 5, CHECK_S)
    door.admission.role_reply(holder, check, MASTER, EPOCH)
    assert (door.admitted, door.raised, door.lost) == ([holder], [], [])
    door.role(holder, MASTER, EPOCH + 5)
    assert (door.admitted, door.raised, door.lost) == ([holder, holder], [], [])


def test_the_answer_to_an_earlier_claim_admits_nobody(door: Door, aside: Peer) -> None:
    door.assign(9, 5.0)
    claim = aside.asked()
    door.assign(None, 6.0)
    door.admission.role_reply(aside, claim, MASTER, 9)
    assert (door.admitted, door.released) == ([], [])


def test_a_holder_of_a_forgetful_switch_first_learns_whether_it_still_holds_it(door: Door) -> None:
    """The assignment was read before the switch connected, so the switch may have forgotten a newer holder."""
    door.certain_at = 10.0
    peer = door.arrived(Peer("a"), 11.0)
    door.role(peer, EQUAL, NO_GENERATION)
    door.admission.tick(12.0)
    assert peer.role_requests() == [(NOCHANGE, 0)]
    door.certain_at = 12.5
    door.admission.tick(13.0)
    door.role(peer, MASTER, EPOCH)
    assert (peer.role_requests(), door.admitted) == ([(NOCHANGE, 0), (MASTER, EPOCH)], [peer])


def test_an_assignment_that_is_read_while_a_claim_begins_is_not_overlooked(door: Door) -> None:
    """The same reading of the assignments permits a claim, and says that another member holds the switch."""
    door.certain_at = 0.0
    peer = door.arrived(Peer("a"), 1.0)
    door.role(peer, EQUAL, NO_GENERATION)
    door.certain_at, door.assigned[0x2A] = 2.0, None  # its version is not seen yet
    door.admission.tick(3.0)
    assert peer.role_requests() == [(NOCHANGE, 0)]
    door.assign(None, 4.0)
    assert peer.role_requests() == [(NOCHANGE, 0), (NOCHANGE, 0)]


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
    assert (older.sent, newest.role_requests(), leaves.sent) == ([], [(MASTER, EPOCH)], [])
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
