"""Debts of clients for calls that cost more than the budget of one call."""

from __future__ import annotations

import pytest

from controller.api.gate import Debts
from signalbox.errors import Exhausted


def test_a_client_owes_what_is_beyond_a_second_s_calls_and_no_other_does() -> None:
    debts = Debts(10.0)
    debts.charge("a", 10.0, now=100.0)
    debts.refuse_debtor("a", now=100.0)
    debts.charge("a", 25.0, now=100.0)
    with pytest.raises(Exhausted, match="a has exceeded the limit of 10 calls per second") as error:
        debts.refuse_debtor("a", now=101.0)
    assert error.value.retry_s == pytest.approx(1.5)
    debts.refuse_debtor("b", now=101.0)
    debts.refuse_debtor("a", now=102.5)


def test_who_owes_nothing_is_forgotten() -> None:
    debts = Debts(10.0)
    debts.charge("a", 10.0, now=100.0)
    debts.charge("b", 10.0, now=100.5)
    debts.charge("c", 10.0, now=101.2)
    assert debts._paid_at.keys() == {"b", "c"}
