"""Settings of all tests."""

from __future__ import annotations

import gc
import logging
import signal
from collections.abc import Generator, Iterator

import pytest
import structlog
from hypothesis import HealthCheck, settings

from controller.observability import logs
from tests.support.skips import refuse_skip

# A background job, nohup and many CI runners ignore signals, and children inherit that: what a test ends by SIGINT
# would go on for ever. A signal with a handler has its default action in what is executed (execve(2)).
for _number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
    if signal.getsignal(_number) == signal.SIG_IGN:
        signal.signal(_number, signal.default_int_handler if _number == signal.SIGINT else signal.SIG_DFL)

# Every run tries the same examples, so that a change alone makes a test fail; ``--hypothesis-profile=random`` tries
# others. On a busy machine an example may take any time; pytest-timeout ends what hangs.
settings.register_profile("random", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("signalbox", settings.get_profile("random"), derandomize=True)
settings.load_profile("signalbox")


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Bytes are in no test's name: some have the time in them, and then parallel workers collect different tests."""
    return argname if isinstance(val, bytes) else None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    refuse_skip(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    refuse_skip(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is imported stays: to look for garbage in it took half a second of each worker."""
    gc.disable()
    result = yield
    gc.enable()
    return result


@pytest.fixture(scope="module", autouse=True)
def _what_is_imported_is_no_garbage() -> None:
    """Exempt all modules and tests of the session from garbage collections, which took a tenth of the unit tests' time.
    Some tests end that for the process; it begins anew with the next file."""
    if not gc.get_freeze_count():
        gc.collect()
        gc.freeze()


@pytest.fixture
def logging_as_before() -> Iterator[None]:
    """For tests that configure the logging of the process."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    levels = {name: logging.getLogger(name).level for name in logs.QUIET_LOGGERS}
    yield
    structlog.reset_defaults()
    root.handlers[:] = handlers
    root.setLevel(level)
    for name, before in levels.items():
        logging.getLogger(name).setLevel(before)
