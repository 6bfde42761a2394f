"""How many calls a client may make."""

from __future__ import annotations

import pytest

from controller.api import budget as budget_module
from controller.api.budget import Bucket, Budget, Call, CallLimits
from signalbox.errors import Exhausted

OF_CLIENT = CallLimits(calls=2, streams=1, calls_per_s=10)
OF_ALL = CallLimits(calls=3, streams=2, calls_per_s=15)


@pytest.fixture
def budget() -> Budget:
    return Budget(OF_CLIENT, OF_ALL)


def begin(budget: Budget, client: str, is_stream: bool = False, now: float = 0.0) -> Call:
    call = budget.begin(client, is_stream, now)
    budget.received(call)
    return call


def test_a_client_has_so_many_calls_at_once_and_streams_beside_them(budget: Budget) -> None:
    calls = [begin(budget, "a") for _ in range(2)]
    begin(budget, "a", is_stream=True)
    with pytest.raises(Exhausted, match="a: 2 calls at once, which is the limit") as error:
        begin(budget, "a")
    assert error.value.about == {"limit": "api.max_client_calls", "limitValue": "2", "used": "2"}
    with pytest.raises(Exhausted, match="a: 1 streams at once"):
        begin(budget, "a", is_stream=True)
    budget.end(calls[0])
    budget.end(calls[0])
    begin(budget, "a")


def test_all_clients_together_have_so_many(budget: Budget) -> None:
    for client in ("a", "a", "b"):
        begin(budget, client)
    with pytest.raises(Exhausted, match="all clients: 3 calls at once") as error:
        begin(budget, "b")
    assert error.value.about == {"limit": "api.max_calls", "limitValue": "3", "used": "3"}
    begin(budget, "c")


def test_calls_per_second_are_limited_with_a_second_s_worth_at_once(budget: Budget) -> None:
    for _ in range(10):
        budget.end(begin(budget, "a"))
    with pytest.raises(Exhausted, match="a: more than 10 calls per second"):
        begin(budget, "a")
    budget.end(begin(budget, "a", now=0.1))
    for _ in range(5):
        budget.end(begin(budget, "b", now=0.1))
    with pytest.raises(Exhausted, match="all clients: more than 15 calls per second") as error:
        begin(budget, "b", now=0.1)
    assert error.value.about == {"limit": "api.max_calls_per_s", "limitValue": "15"}


def test_a_call_that_costs_more_counts_as_several(budget: Budget) -> None:
    budget.charge(begin(budget, "a"), 19, 0.0)
    for now in (0.0, 0.9):
        with pytest.raises(Exhausted, match="a: more than 10 calls per second"):
            begin(budget, "a", now=now)
    begin(budget, "a", now=1.2)
    begin(budget, "b")


def test_a_call_whose_request_does_not_come_gives_way_to_a_newer_one(budget: Budget) -> None:
    ended: list[Call] = []
    silent = [budget.begin("a", False, 0.0) for _ in range(2)]
    for call in silent:
        call.give_way = lambda call=call: ended.append(call)
    with pytest.raises(Exhausted):
        begin(budget, "a", now=0.1)
    begin(budget, "a", now=0.3)
    assert ended == [silent[0]]
    begin(budget, "a", now=0.3)
    assert ended == silent
    for call in silent:
        budget.end(call)


def test_a_small_client_is_not_refused_for_what_others_use() -> None:
    budget = Budget(CallLimits(calls=20, streams=20, calls_per_s=100), CallLimits(calls=20, streams=20, calls_per_s=50))
    for _ in range(20):
        begin(budget, "greedy")
    begin(budget, "small")
    begin(budget, "small")
    with pytest.raises(Exhausted, match="all clients: 22 calls at once"):
        begin(budget, "small")
    for _ in range(50):
        with pytest.raises(Exhausted):
            begin(budget, "greedy")
    with pytest.raises(Exhausted, match="all clients: more than 50 calls per second"):
        begin(budget, "greedy")
    begin(budget, "third")


def test_requests_that_do_not_come_are_limited_for_all_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget_module, "MAX_RECEIVING", 2)
    budget, ended = Budget(OF_CLIENT, OF_ALL), []
    for number, client in enumerate(("a", "b", "c")):
        call = budget.begin(client, False, float(number))
        call.give_way = lambda client=client: ended.append(client)
    assert ended == ["a"]


def test_clients_that_have_gone_are_forgotten(budget: Budget) -> None:
    kept = begin(budget, "kept")
    budget.end(begin(budget, "gone"))
    budget.forget_idle(100.0)
    assert set(budget._clients) == {"kept"}
    budget.end(kept)


def test_a_bucket_gives_so_much_a_second_and_tells_when_the_next_is_due() -> None:
    bucket = Bucket(100, now=0.0)
    assert bucket.spend(100, 0.0) == 0.0
    assert bucket.spend(50, 0.0) == 0.5
    assert bucket.spend(0, 0.5) == 0.0
    assert not bucket.is_full(1.0)
    assert bucket.is_full(1.5)
