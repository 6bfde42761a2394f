"""Fixtures and hooks of all lab tests: root and Open vSwitch, unique names, turns, static rules.

Lab tests fail without root or Open vSwitch; they are never skipped, so that a green run means that they ran. Several
run in parallel when each worker of pytest-xdist is started with ``scripts/lab_python.sh``."""

import itertools
import os
from collections.abc import Generator, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from mininet_topos.lab.lab import Lab
from mininet_topos.lab.record import LabError, run
from mininet_topos.lab.running_fabric import install_static_routes
from mininet_topos.leaf_spine import LeafSpine
from mininet_topos.probe.queues import large_socket_buffers
from tests.support.lab.turns import turn
from tests.support.preloaded import preloaded_controllers

__all__ = ("preloaded_controllers",)

NEEDS_ROOT = "lab tests need root: they make network namespaces and bridges"
PREFIX_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"  # no lower case, which the names after the prefix use


@pytest.fixture(scope="session", autouse=True)
def _can_make_labs() -> None:
    if os.geteuid():
        pytest.fail(NEEDS_ROOT, pytrace=False)
    try:
        run("ovs-vsctl", "--timeout=5", "show")
        run("mnexec", "-v")
    except LabError as error:
        pytest.fail(f"lab tests need Open vSwitch and Mininet: {error}", pytrace=False)


_files = itertools.count(os.getpid())


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.lab)


def pytest_sessionstart(session: pytest.Session) -> None:
    """Raise the socket buffers before workers start Open vSwitch.

    A worker in its own network namespace cannot raise them. Tests that need them fail with a message where raising is
    not allowed."""
    if not hasattr(session.config, "workerinput"):
        if os.geteuid() and session.config.getoption("tx", None):
            raise pytest.UsageError(NEEDS_ROOT)  # workers would not start
        stack = ExitStack()
        session.config.add_cleanup(stack.close)
        with suppress(LabError):
            stack.enter_context(large_socket_buffers())


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Let a test with the mark ``alone`` wait until no other lab test runs.

    The wait comes before the test's time limit starts."""
    with turn(alone=item.get_closest_marker("alone") is not None):
        return (yield)


@pytest.fixture(scope="module")
def lab_prefix() -> str:
    """Return a prefix of three characters, different for each test file, so that leftovers disturb no other file.

    Prefixes are counted from the process id, so that simultaneous test runs in one network have different names."""
    number, digits = next(_files), ""
    for _ in range(2):
        number, digit = divmod(number, len(PREFIX_DIGITS))
        digits += PREFIX_DIGITS[digit]
    return f"t{digits}"


@pytest.fixture
def lab(lab_prefix: str) -> Iterator[Lab]:
    """Run a lab of 2 leaves x 2 spines x 2 hosts at 5 Mbit/s.

    The lab has no controller, and static routes over spine1."""
    with Lab(LeafSpine(2, 2, 2, prefix=lab_prefix), controller=None) as lab:
        install_static_routes(lab)
        yield lab
