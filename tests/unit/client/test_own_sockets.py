"""Sockets of the client in a process whose program may close or reuse any descriptor."""

import os
import resource
from collections.abc import Iterator

import pytest

from signalbox.own_sockets import OwnSocket, pair


@pytest.fixture
def limit() -> Iterator[int]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, hard))
    yield 512
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_their_numbers_are_high_as_long_as_there_are_such(limit: int) -> None:
    found = [one for _ in range(50) for one in pair()]
    numbers = {one.fileno() for one in found}
    assert numbers > set(range(limit - 64, limit))
    assert len(numbers) == 100
    assert min(numbers) > 2
    for one in found:
        one.close()


def test_one_whose_number_is_another_file_by_now_leaves_that_alone() -> None:
    ours, theirs = pair()
    read, write = os.pipe()
    number = ours.fileno()
    os.dup2(write, number)
    for use in (lambda: ours.sendall(b"1"), lambda: ours.send(b"1"), lambda: ours.recv(1), lambda: ours.shutdown(2)):
        with pytest.raises(OSError, match="Bad file descriptor"):
            use()
    ours.close()
    assert ours.fileno() == -1
    os.write(number, b"still open")
    assert os.read(read, 100) == b"still open"
    assert theirs.recv(1) == b"", "the program has closed it"
    for descriptor in (read, write, number):
        os.close(descriptor)
    theirs.close()
    assert isinstance(theirs, OwnSocket)
    assert theirs.fileno() == -1
