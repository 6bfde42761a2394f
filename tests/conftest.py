import gc
import logging
import signal
from collections.abc import Generator, Iterator

import pytest
import structlog
from hypothesis import HealthCheck, settings

from controller.observability import logs
from tests.support.skips import refuse_skip

# A background job, nohup and many CI runners ignore signals, and children inherit that: a process that a test ends by
# SIGINT would then run for ever. A signal with a handler gets its default action in the program that is executed
# (execve(2)).
for _number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
    if signal.getsignal(_number) == signal.SIG_IGN:
        signal.signal(_number, signal.default_int_handler if _number == signal.SIGINT else signal.SIG_DFL)

# By default a logged traceback shows all local variables. On a busy machine that takes longer than a client waits for
# its answer.
structlog.get_config()["processors"][-1].exception_formatter = structlog.dev.plain_traceback

# Every run tries the same examples, so a test fails only because of a change; ``--hypothesis-profile=random`` tries
# others. On a busy machine an example may take any time; pytest-timeout ends a test that hangs.
settings.register_profile("random", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("signalbox", settings.get_profile("random"), derandomize=True)
settings.load_profile("signalbox")


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Keep bytes out of test names.

    Some bytes contain the time, and parallel workers would then collect different tests."""
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
    """Collect the tests with garbage collection off, and exempt them and all modules from it.

    Imported modules are never garbage, and scanning them twice took a second per worker."""
    gc.disable()
    result = yield
    gc.freeze()
    gc.enable()
    return result


@pytest.fixture(scope="module", autouse=True)
def _what_is_imported_is_no_garbage() -> None:
    """Exempt all modules and tests of the session from garbage collection.

    Collections took a tenth of the time of the unit tests. Some tests lift the exemption for their process, so each
    test file renews it."""
    if not gc.get_freeze_count():
        gc.collect()
        gc.freeze()


@pytest.fixture
def logging_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    levels = {name: logging.getLogger(name).level for name in logs.QUIET_LOGGERS}
    yield
    structlog.reset_defaults()
    root.handlers[:] = handlers
    root.setLevel(level)
    for name, before in levels.items():
        logging.getLogger(name).setLevel(before)
