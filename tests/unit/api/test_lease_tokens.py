"""A lease token is made from the secret and names one registration; no other text is accepted as a token."""

from __future__ import annotations

import base64
import hashlib
import hmac

from controller.api.lease_tokens import LeaseTokens
from controller.jobs.messages import new_uid

UID = "f31d4a67-9f4a-4a3a-8a3c-0f5e3d1f2b11"


def test_a_token_is_the_uid_and_its_mac() -> None:
    secret = bytes(range(32))
    mac = base64.urlsafe_b64encode(hmac.new(secret, UID.encode(), hashlib.sha256).digest()).decode().rstrip("=")
    tokens = LeaseTokens(secret)
    assert tokens.token(UID) == f"{UID}.{mac}"
    assert tokens.uid(tokens.token(UID)) == UID
    assert repr(tokens) == str(tokens) == object.__repr__(tokens), "the secret is not shown"


def test_nothing_else_is_a_token() -> None:
    tokens = LeaseTokens()
    token, other = tokens.token(UID), tokens.token(new_uid())
    mac = token.partition(".")[2]
    wrong = ["", ".", UID, f"{UID}.", f".{mac}", token[:-1], f"{token}=", f"{token}A", token.upper(), f" {token}"]
    wrong += [f"{UID}.{other.partition('.')[2]}", LeaseTokens().token(UID), "x" * 10_000, "é.\U0001f511"]
    wrong += [token[:at] + ("A" if token[at] != "A" else "B") + token[at + 1 :] for at in range(len(token))]
    assert [tokens.uid(one) for one in wrong] == [None] * len(wrong)
