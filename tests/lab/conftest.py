"""What every lab test needs: the right to make a lab, a prefix of its own, and rules without a controller.

Lab tests fail without root or Open vSwitch; they are never skipped, so that a green run means that they ran.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from mininet_topos.lab.lab import Lab
from mininet_topos.lab.record import LabError, run
from mininet_topos.lab.static_routes import install_static_routes
from mininet_topos.leaf_spine import LeafSpine

PREFIX_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"  # no lower case: names continue with it


@pytest.fixture(scope="session", autouse=True)
def _can_make_labs() -> None:
    if os.geteuid():
        pytest.fail("lab tests need root: they make network namespaces and bridges", pytrace=False)
    try:
        run("ovs-vsctl", "--timeout=5", "show")
        run("mnexec", "-v")
    except LabError as error:
        pytest.fail(f"lab tests need Open vSwitch and Mininet: {error}", pytrace=False)


@pytest.fixture(scope="session")
def lab_prefix() -> str:
    """Three characters from the process id: two test runs at once do not take each other's names."""
    number, digits = os.getpid(), ""
    for _ in range(2):
        number, digit = divmod(number, len(PREFIX_DIGITS))
        digits += PREFIX_DIGITS[digit]
    return f"t{digits}"


@pytest.fixture
def lab(lab_prefix: str) -> Iterator[Lab]:
    """Two leaves, two spines, two hosts each at 5 Mbit/s; no controller, static routes over spine1."""
    with Lab(LeafSpine(2, 2, 2, prefix=lab_prefix), controller=None) as lab:
        install_static_routes(lab)
        yield lab
