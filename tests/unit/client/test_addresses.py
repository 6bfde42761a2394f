"""Addresses of one controller, or of several, as clients are given them."""

import pytest
from pydantic_core import PydanticCustomError

from signalbox.addresses import MAX_ADDRESSES, api_addresses
from signalbox.credentials import Credentials
from signalbox.errors import InvalidInput


@pytest.mark.parametrize(("text", "addresses"), [
    ("127.0.0.1:50051", ("127.0.0.1:50051",)),
    ("unix:/run/api.sock", ("unix:/run/api.sock",)),
    ("unix:/run/a,b", ("unix:/run/a,b",)),
    ("one:1,two:1", ("one:1", "two:1")),
    ("one:1,one:2", ("one:1", "one:2")),
    ("[::1]:1,[::2]:1,10.0.0.1:1", ("[::1]:1", "[::2]:1", "10.0.0.1:1")),
    (",".join(f"h{n}:1" for n in range(MAX_ADDRESSES)), tuple(f"h{n}:1" for n in range(MAX_ADDRESSES))),
])  # fmt: skip
def test_one_address_or_a_list(text: str, addresses: tuple[str, ...]) -> None:
    assert api_addresses(text) == addresses


@pytest.mark.parametrize(("text", "problem"), [
    ("one:1,,two:1", "address 2 of 3 is empty"),
    ("one:1,", "address 2 of 2 is empty"),
    (",", "address 1 of 2 is empty"),
    ("one:1,two", "address 2 of 2 ('two') is not HOST:PORT with a port up to 65535"),
    ("one:1,two:65536", "address 2 of 2 ('two:65536') is not HOST:PORT with a port up to 65535"),
    ("one:1, two:1", "address 2 of 2 (' two:1') has a space"),
    ("one:1,two:1,ONE:1", "address 3 of 3 ('ONE:1') is there twice"),
    ("one:1,unix:/run/a", "address 2 of 2 ('unix:/run/a') is a Unix socket, which can only be the sole address"),
    ("unix:/run/a,one:1", "address 1 of 2 ('unix:/run/a') is a Unix socket, which can only be the sole address"),
])  # fmt: skip
def test_a_wrong_list_is_refused_with_the_wrong_address_and_the_right_form(text: str, problem: str) -> None:
    with pytest.raises(PydanticCustomError) as error:
        api_addresses(text)
    assert error.value.message() == f"{problem}; a list has the form HOST:PORT,HOST:PORT"


def test_a_list_with_too_many_addresses_is_refused() -> None:
    with pytest.raises(PydanticCustomError, match=r"a list has at most 8 addresses, one of each controller; .* has 9"):
        api_addresses(",".join(f"h{n}:1" for n in range(MAX_ADDRESSES + 1)))


def test_a_token_is_not_sent_to_a_list_that_leaves_this_machine_without_tls() -> None:
    with pytest.raises(InvalidInput, match=r"a token is sent to 192\.0\.2\.1:1 only through TLS"):
        Credentials(token_file="token").metadata("127.0.0.1:1,192.0.2.1:1")
