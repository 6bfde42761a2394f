"""A paused member: its switches get another holder, and refuse the member when it resumes."""

import os
import signal

from tests.lab.test_members import LEAVES, SPINES, Pair, pair
from tests.support.lab.fabric import pinned, ring, routes
from tests.support.lab.pings import assert_pings
from tests.support.lab.snoop import Snoop

__all__ = ("pair",)


def test_a_paused_holder_is_replaced_and_gets_its_switches_back_only_by_a_new_assignment(pair: Pair) -> None:
    lab, client, switches = pair.lab, pair.client, LEAVES + SPINES
    pair.wait(pair.is_divided, "masters as assigned")
    client.register_job(ring(lab, "ring", [f"h{leaf}_1" for leaf in range(1, LEAVES + 1)]))
    pair.wait(lambda: pinned(client, "ring") == LEAVES, "pins")
    before = sorted(str(route) for route in routes(client, "ring"))
    assert pair.two.process
    group = pair.two.process.pid
    with Snoop(lab, pair.folder) as snoop:
        os.killpg(group, signal.SIGSTOP)
        try:
            pair.wait(lambda: pair.held() == {"one": switches}, "all switches at one")
            pair.wait(lambda: pair.roles()["one", "master"] == switches, "one as master everywhere")
            pair.wait_settled()
            assert_pings(lab, "h1_1", f"h{LEAVES}_1")
        finally:
            os.killpg(group, signal.SIGCONT)
        pair.wait(pair.is_divided, "masters as assigned again")
        pair.wait_settled()
        assert_pings(lab, "h1_1", f"h{LEAVES}_1")
        assert (snoop.count("OFPT_FLOW_MOD"), snoop.count("OFPT_GROUP_MOD")) == (0, 0)
    assert sorted(str(route) for route in routes(client, "ring")) == before
