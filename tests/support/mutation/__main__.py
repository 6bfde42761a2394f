"""Put small faults into folders of the controller, one at a time, and print whether a unit test notices each fault.

    python -m tests.support.mutation [--folders NAMES] [--number N] [--seed N] [--only TEXT]

The command collects the tests of the folders once, and runs them once to record the lines that each test executes. It
then makes each change in a fork of this process. The fork runs the tests that execute the changed statement, the
quickest first, until one fails. The same seed gives the same changes, even after changes elsewhere in the code.

*killed*: a test failed that passes without the change, or a test took ten times as long. *accepted*: ``accepted.toml``
beside this file gives the reason why no test has to fail; no test is run. *SURVIVED*: no test failed; the run fails.
*not made*: the changed function is not in use."""

import argparse
import functools
import gc
import os
import pickle
import resource
import signal
import sys
import tempfile
import time
import tomllib
import traceback
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from types import FunctionType
from typing import NamedTuple

import coverage
import pytest

from tests.support.doc_pages import ROOT
from tests.support.mutation.changes import Change, changes, exchange

FOLDERS = "core,tables,planning,southbound,api,jobs,demand"
ACCEPTED = Path(__file__).with_name("accepted.toml")
LONGER, SLACK_S = 10, 2
"""Factor and extra seconds after which a test counts as endless, compared to its time without the change."""
WAIT_S = 60
"""Seconds after which a waiting test has failed."""
MORE_MEMORY = 4 << 30
"""Bytes of address space that the tests of a change may add."""
PASSED, FAILED, NOT_MADE, BROKEN = 0, 10, 11, 12


class Seen(NamedTuple):
    """Result of a run of the tests on the unchanged code.

    ``by_line``: numbers of the tests that execute a line, by file and line."""

    cpu_s: list[float]
    failed: list[str]
    by_line: dict[str, dict[int, list[int]]]


class Mutation:
    """Plugin of pytest that makes changes where the tests would run.

    ``status``: 0 if all changes are killed or accepted."""

    def __init__(self, sources: Sequence[Path], root: Path, accepted: Path, number: int, seed: int, only: str) -> None:
        self.status = 2
        self._sources, self._root, self._number, self._seed, self._only = sources, root, number, seed, only
        files = sorted(path for folder in sources for path in folder.rglob("*.py"))
        self._changes = [*chain.from_iterable(changes(str(path.relative_to(root)), path.read_text()) for path in files)]
        self._accepted: dict[str, dict[str, str]] = tomllib.loads(accepted.read_text()) if accepted.exists() else {}
        self._failed = False

    @pytest.hookimpl(tryfirst=True)
    def pytest_configure(self) -> None:
        from hypothesis import HealthCheck, Phase, settings  # import only after pytest has prepared its plugins

        phases, health = [Phase.explicit, Phase.generate], [HealthCheck.too_slow]  # a failure need not be minimal
        settings.register_profile(
            "mutation", deadline=None, derandomize=True, phases=phases, suppress_health_check=health
        )

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._failed |= report.failed

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        if session.testsfailed:  # failures of the collection
            return None
        with tempfile.NamedTemporaryFile() as self._result:
            self._run(session.items)
        return True

    def _run(self, items: list[pytest.Item]) -> None:
        living: defaultdict[str, list[FunctionType]] = defaultdict(list)
        gc.unfreeze()  # frozen objects, as those that tests/conftest.py freezes, are not in gc.get_objects()
        for each in gc.get_objects():
            if isinstance(each, FunctionType):
                living[os.path.relpath(each.__code__.co_filename, self._root)].append(each)
            elif isinstance(each, functools._lru_cache_wrapper):
                each.cache_clear()  # drop results computed during the collection
        gc.freeze()
        seen = self._trace(items)
        if seen.failed:
            _say(f"without a change these tests fail: {', '.join(seen.failed)}")
            return
        counts: Counter[str] = Counter()
        for change in self._chosen(seen):
            of_file = seen.by_line[change.file]
            numbers = {number for line in change.lines for number in of_file.get(line, ())}
            tests = [(items[number], seen.cpu_s[number]) for number in sorted(numbers, key=seen.cpu_s.__getitem__)]
            verdict = self._verdict(change, tests, living[change.file])
            counts[verdict] += 1
            _say(f"{verdict:<10} {change.file}:{change.lines.start} {change.name}")
        known = {(change.file, change.name) for change in self._changes}
        here = [file for file in self._accepted if any((self._root / file).is_relative_to(of) for of in self._sources)]
        listed = ((file, name) for file in here for name in self._accepted[file])
        stale = [*dict.fromkeys(place for place in listed if place not in known)]
        for file, name in stale:
            _say(f"accepted, but no change of this name is possible: {file} {name}")
        _say(f"{counts.total()} changes: " + ", ".join(f"{count} {what}" for what, count in sorted(counts.items())))
        self.status = int(bool(stale or counts["SURVIVED"]))

    def _chosen(self, seen: Seen) -> list[Change]:
        """Return the changes of lowest rank in statements that some test executes, in the order of the files."""
        passed = [one for one in self._changes if seen.by_line.get(one.file, {}).keys() & {*one.lines}]
        _say(f"{len(self._changes)} changes are possible, {len(passed)} where the {len(seen.cpu_s)} tests pass")
        wanted = [one for one in passed if self._only in f"{one.file} {one.name}"]
        chosen = {id(one) for one in sorted(wanted, key=lambda one: one.rank(self._seed))[: self._number]}
        return [one for one in wanted if id(one) in chosen]

    def _verdict(self, change: Change, tests: list[tuple[pytest.Item, float]], living: list[FunctionType]) -> str:
        """Return the outcome of a change.

        ``tests``: the tests that execute the changed statement, each with its CPU time without the change."""
        if change.name in self._accepted.get(change.file, {}):
            return "accepted"

        def work() -> int:
            if not exchange(change.code(), living):
                return NOT_MADE
            fails = (
                number for number, (item, cpu_s) in enumerate(tests) if self._fails(item, LONGER * cpu_s + SLACK_S)
            )
            if (first := next(fails, None)) is None:
                return PASSED
            Path(self._result.name).write_text(str(first))
            return FAILED

        status = self._fork(work)
        if status == BROKEN:
            raise RuntimeError(f"{change.file} {change.name}\n{Path(self._result.name).read_text()}")
        if status == FAILED:
            first = int(Path(self._result.name).read_text())
            if self._fork(lambda: FAILED if self._fails(tests[first][0]) else PASSED) == FAILED:
                return self._verdict(change, tests[first + 1 :], living)
        return {PASSED: "SURVIVED", NOT_MADE: "not made"}.get(status, "killed")

    def _trace(self, items: list[pytest.Item]) -> Seen:
        def tests(cover: coverage.Coverage) -> Iterator[tuple[float, str]]:
            for number, item in enumerate(items):
                cover.switch_context(str(number))
                began_s = time.process_time()
                failed = item.nodeid if self._fails(item) else ""
                yield time.process_time() - began_s, failed

        def work() -> int:
            cover = coverage.Coverage(data_file=None, config_file=False, source=[*map(str, self._sources)])
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the modules are imported already
                cover.start()
            cpu_s, failed = zip(*tests(cover), strict=True)
            cover.stop()
            data = cover.get_data()
            by_line = {
                os.path.relpath(path, self._root): {
                    line: [int(name) for name in names if name] for line, names in data.contexts_by_lineno(path).items()
                }
                for path in data.measured_files()
            }
            seen = Seen([*cpu_s], [*filter(None, failed)], by_line)
            Path(self._result.name).write_bytes(pickle.dumps(seen))
            return PASSED

        if self._fork(work) != PASSED:
            raise RuntimeError(Path(self._result.name).read_text())
        seen: Seen = pickle.loads(Path(self._result.name).read_bytes())
        return seen

    def _fails(self, item: pytest.Item, cpu_s: float | None = None) -> bool:
        """Return whether a test fails by itself; the process ends when it exceeds ``cpu_s`` seconds of CPU time."""
        if cpu_s is not None:
            _, hard = resource.getrlimit(resource.RLIMIT_CPU)
            resource.setrlimit(resource.RLIMIT_CPU, (int(time.process_time() + cpu_s) + 1, hard))
        self._failed = False
        try:
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
        except (KeyboardInterrupt, pytest.exit.Exception):
            return True
        return self._failed

    def _fork(self, work: Callable[[], int]) -> int:
        """Run ``work`` in a fork and return its result, or the number of the signal that ended it.

        Processes that the fork started end with it."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # libraries with threads warn of forks
            child = os.fork()
        if not child:
            status = BROKEN
            try:
                os.setpgid(0, 0)
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                quiet = os.open(os.devnull, os.O_RDWR)
                for number in range(3):
                    os.dup2(quiet, number)
                used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
                resource.setrlimit(resource.RLIMIT_AS, (used + MORE_MEMORY, used + MORE_MEMORY))
                resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
                status = work()
            except BaseException:
                Path(self._result.name).write_text(traceback.format_exc())
            finally:
                os._exit(status)
        try:
            _, ended = os.waitpid(child, 0)
        finally:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(child, signal.SIGKILL)
        return os.waitstatus_to_exitcode(ended)


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def run(
    sources: Sequence[Path],
    tests: Sequence[str],
    root: Path = ROOT,
    accepted: Path = ACCEPTED,
    number: int = 400,
    seed: int = 0,
    only: str = "",
) -> int:
    mutation = Mutation(sources, root, accepted, number, seed, only)
    with tempfile.TemporaryDirectory() as folder:
        options = ["-qqs", "-p", "no:cacheprovider", "--hypothesis-profile=mutation", f"--basetemp={folder}/tests"]
        options += ["-o", f"timeout={WAIT_S}", "-m", "not long", f"--rootdir={root}"]
        status = pytest.main([*options, *tests], plugins=[mutation])
    return int(status) or mutation.status


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.support.mutation", description="Faults that no test notices."
    )
    parser.add_argument("--folders", default=FOLDERS, help="folders of controller, with commas between them")
    parser.add_argument("--number", type=int, default=400, help="of changes")
    parser.add_argument("--seed", type=int, default=0, help="which changes")
    parser.add_argument("--only", default="", help="only changes with this text in file or name")
    given = vars(parser.parse_args())
    for number in (signal.SIGINT, signal.SIGTERM):  # works where the process was started with SIGINT ignored
        signal.signal(number, signal.default_int_handler)
    folders = given.pop("folders").split(",")
    sources = [ROOT / "controller" / name for name in folders]
    sys.exit(run(sources, [f"tests/unit/{name}" for name in folders], **given))


if __name__ == "__main__":
    main()
