"""Exchanges between ranks: addresses, groups, gradients, and recorded calls."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from signalbox import ip_addresses as addresses
from signalbox.errors import InvalidInput
from signalbox.ip_addresses import own_address
from signalbox.jobs.spec import JobSpec
from signalbox.ranks import (
    GIVE_UP_S,
    IDLE_S,
    LEAST_POLL_S,
    POLL_S,
    WINDOWS,
    Exchange,
    Gradients,
    Group,
    Marks,
    RankReport,
    Window,
    endpoints_of,
    gradients_of,
    groups_of,
)

# ---- addresses

OF_INTERFACES = {"lo": "127.0.0.1", "eth0": "10.0.1.1", "eth1": "10.1.1.1", "docker0": "172.17.0.1"}
OF_ROUTES = {"10.0.9.9": "10.0.1.1", "localhost": "127.0.0.1"}


@pytest.fixture(autouse=True)
def host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.if_nameindex", lambda: [*enumerate([*OF_INTERFACES, "ib0"], start=1)])
    monkeypatch.setattr(addresses, "_of_interface", OF_INTERFACES.get)
    monkeypatch.setattr(addresses, "_source_address", OF_ROUTES.get)


@pytest.mark.parametrize(
    ("environment", "library", "found"),
    [
        ({}, "gloo", "10.0.1.1"),
        ({"GLOO_SOCKET_IFNAME": "ib0, eth1"}, "gloo", "10.1.1.1"),
        ({"GLOO_SOCKET_IFNAME": "eth"}, "gloo", "10.0.1.1"),
        ({"GLOO_SOCKET_IFNAME": "lo"}, "gloo", "127.0.0.1"),
        ({"NCCL_SOCKET_IFNAME": "eth1"}, "gloo", "10.1.1.1"),
        ({"NCCL_SOCKET_IFNAME": "eth1", "GLOO_SOCKET_IFNAME": "eth0"}, "nccl", "10.1.1.1"),
        ({"NCCL_SOCKET_IFNAME": "=eth"}, "nccl", "10.0.1.1"),
        ({"NCCL_SOCKET_IFNAME": "=eth1"}, "nccl", "10.1.1.1"),
        ({"NCCL_SOCKET_IFNAME": "dock"}, "nccl", "172.17.0.1"),
        ({"NCCL_SOCKET_IFNAME": "^lo,eth0,docker"}, "nccl", "10.1.1.1"),
    ],
)
def test_a_rank_has_the_address_of_the_interface_that_its_library_was_told_to_use(
    environment: dict[str, str], library: str, found: str
) -> None:
    """The rank ignores names that no interface has."""
    assert own_address(environment, library, ["localhost", "10.0.9.9"]) == found


def test_a_host_that_only_reaches_itself_has_no_address_and_the_kernel_is_asked_without_anything_being_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert own_address({}, "gloo", ["localhost", "no.such.host"]) is None
    monkeypatch.undo()
    assert addresses._of_interface("lo") == "127.0.0.1"
    assert addresses._of_interface("no-such-one") is None
    assert addresses._source_address("127.0.0.1") == "127.0.0.1"
    assert addresses._source_address("256.0.0.1") is None


# ---- what is announced


def told(groups: Mapping[str, tuple[int, ...]] = {}, *gradients: Gradients, **more: Any) -> RankReport:
    return RankReport("10.0.1.1", tuple(Group(*item) for item in groups.items()), gradients, **more)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (RankReport(), "rank 1: has no address that other ranks can reach; give its address as endpoint, or set GLOO_"),
        (RankReport("127.0.0.1"), "rank 1: has no address that other ranks can reach, only 127.0.0.1; give"),
        (RankReport("10.0.1.1", problem="model: must be one"), "rank 1: model: must be one"),
    ],
)
def test_a_rank_without_an_address_or_with_a_problem_is_named(wrong: RankReport, message: str) -> None:
    assert endpoints_of([told(), told()]) == ["10.0.1.1"] * 2
    with pytest.raises(InvalidInput) as refused:
        endpoints_of([told(), wrong])
    assert message in str(refused.value)


def test_groups_are_those_of_all_ranks_and_their_names_tell_them_apart() -> None:
    """Ranks 0 to 3 form two tensor groups and two data groups.

    The group of ranks 0 and 2 has two names: one of the program and one of PyTorch."""
    ranks = [
        told({"tensor": (0, 1), "data": (0, 2), "default": (0, 1, 2, 3)}),
        told({"tensor": (0, 1), "data": (1, 3), "default": (0, 1, 2, 3)}),
        told({"tensor": (2, 3), "data": (0, 2), "group": (0, 2), "tensor-1": (2, 0)}),
        told({"tensor": (2, 3), "group": (1, 3), "alone": (3,)}),
    ]
    found = {group.name: group.ranks for group in groups_of(ranks)}
    assert found == {
        "tensor-0": (0, 1), "tensor-2": (2, 3), "tensor-1": (2, 0), "data-0": (0, 2), "data-1": (1, 3),
        "default": (0, 1, 2, 3),
    }  # fmt: skip
    JobSpec.parse({"job_id": "job", "endpoints": ["10.0.1.1"] * 4, "groups": [g._asdict() for g in groups_of(ranks)]})


def test_gradients_are_announced_where_they_are_all_that_is_sent() -> None:
    all_ranks = (0, 1)
    ranks = [told({"default": all_ranks}, Gradients(all_ranks, size, "gloo")) for size in (4000, 4000)]
    groups = groups_of(ranks)
    assert gradients_of(ranks, groups) == {
        "collectives": [{"algorithm": "all_reduce", "groups": ["default"], "bytes_per_iteration": 4000}],
        "library": "gloo",
    }
    two_models = [told({"default": all_ranks}, *2 * [Gradients(all_ranks, 4000, "mpi")])] * 2
    assert gradients_of(two_models, groups)["collectives"][0]["bytes_per_iteration"] == 8000
    assert gradients_of(two_models, groups)["library"] == "openmpi"


def test_other_groups_or_unknown_gradients_have_to_be_seen_first() -> None:
    all_ranks, pairs = (0, 1, 2, 3), [(0, 1), (2, 3)]
    gradients = [told({"data": pairs[r // 2]}, Gradients(pairs[r // 2], 100 + r // 2, "nccl")) for r in range(4)]
    found = [c["bytes_per_iteration"] for c in gradients_of(gradients, groups_of(gradients))["collectives"]]
    assert found == [100, 101]
    with_tensor = [told({"tensor": (r, (r + 2) % 4)}, *gradients[r].gradients) for r in range(4)]
    hooked = [told({"default": all_ranks}, Gradients(all_ranks, 0, "gloo"))] * 4
    for several in (with_tensor, hooked, [told({"default": all_ranks})] * 4):
        assert gradients_of(several, groups_of(several)) == {}


# ---- what is recorded


def test_windows_are_the_first_iteration_and_whole_ones_after_the_first_ones() -> None:
    complete: list[int] = []
    marks = Marks(lambda: complete.append(now), 0)
    assert marks.window(0) is None
    for now in range(1, 101):
        marks.mark(now)
    assert complete == [1, 4, 12, 52]
    assert [marks.window(number) for number in range(4)] == [(0, 1), (2, 4), (10, 12), (50, 52)]
    assert [window.provisional for window in WINDOWS] == [True, False, False, False]


@dataclass
class Program:
    """Ranks, numbered from 0, that exchange through one dictionary.

    ``wrong``: number of windows that rank 0 still fails to understand.
    ``understood``: windows that rank 0 has understood, with the recorded calls."""

    ranks: int = 3
    wrong: int = 0
    store: dict[str, bytes] = field(default_factory=dict)
    understood: list[tuple[Window, Mapping[int, Any]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.exchanges = [Exchange(self, "key", r, self.ranks, self._record, self._take) for r in range(self.ranks)]

    def set(self, key: str, value: bytes, /) -> None:
        self.store[key] = value

    def get(self, key: str, /) -> bytes:
        return self.store[key]

    def check(self, keys: list[str], /) -> bool:
        return self.store.keys() >= {*keys}

    def _record(self, begin_ns: int, end_ns: int) -> Mapping[str, Any]:
        if begin_ns == 13:
            raise InvalidInput.of("TORCH_FR_BUFFER_SIZE", "is too small")
        return {"entries": [begin_ns, end_ns] if begin_ns < 1000 else "first"}

    def _take(self, dumps: Mapping[int, Any], window: Window) -> None:
        if self.wrong:
            self.wrong -= 1
            raise InvalidInput.of("rank 1", "its calls are not those of rank 0")
        self.understood.append((window, dumps))

    def iterate(self, rank: int, times: int, offset_ns: int = 0) -> None:
        for now_ns in range(1, times + 1):
            self.exchanges[rank].marks.mark(now_ns + offset_ns)

    def rounds(self, now: float = 0.0) -> list[float | None]:
        return [exchange.round(now) for exchange in reversed(self.exchanges)]


LONG = WINDOWS[-1].end
FIRST = WINDOWS[0], {rank: {"entries": "first"} for rank in range(3)}


def test_rank_0_learns_what_all_ranks_have_recorded_and_then_it_is_over() -> None:
    program = Program()
    assert program.rounds() == [IDLE_S] * 3
    for rank in (0, 1):
        program.iterate(rank, 5, 100 * rank)
    assert program.rounds() == [IDLE_S, IDLE_S, LEAST_POLL_S]
    program.iterate(2, 5, 200)
    assert program.rounds() == [IDLE_S, IDLE_S, 0.0]
    assert program.understood == [FIRST]
    assert program.rounds() == [IDLE_S, IDLE_S, None]
    stable = {rank: {"entries": [100 * rank + 2, 100 * rank + 4]} for rank in range(3)}
    assert program.understood == [FIRST, (WINDOWS[1], stable)]
    for rank in (1, 2):
        program.iterate(rank, LONG)
    assert program.rounds()[:2] == [None, None]


def test_a_window_that_is_not_understood_or_recorded_is_told_and_a_later_one_follows(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "signalbox")
    program = Program(wrong=2)
    for rank in range(3):
        program.iterate(rank, LONG)
    assert program.rounds() == [None, None, 0.0]
    assert "rank 1: its calls are not those of rank 0" in caplog.text
    assert program.exchanges[0].round(1.0) == 0.0
    assert program.exchanges[0].round(1.0) is None
    assert program.understood == [(WINDOWS[2], {rank: {"entries": [10, 12]} for rank in range(3)})]
    program = Program()
    for rank in range(3):
        program.iterate(rank, 5, 11 if rank == 2 else 0)
    assert program.rounds() == [IDLE_S, IDLE_S, 0.0]
    assert program.rounds() == [IDLE_S, IDLE_S, 0.0]
    assert "rank 2: TORCH_FR_BUFFER_SIZE: is too small" in caplog.text
    assert program.understood == [FIRST]


def test_ranks_that_do_not_come_are_given_up() -> None:
    program = Program()
    program.iterate(0, 1)
    assert program.rounds(1000.0)[-1] == LEAST_POLL_S
    assert program.rounds(1000.0 + 0.5)[-1] == 0.5
    assert program.rounds(1000.0 + 2 * POLL_S)[-1] == POLL_S
    assert program.rounds(1000.0 + GIVE_UP_S)[-1] is None


def test_a_store_that_has_gone_only_ends_the_recording(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "signalbox")
    ended: list[None] = []

    class Gone(Program):
        def set(self, *_: object) -> None:
            raise RuntimeError("connection reset")

    exchange = Exchange(Gone(), "key", 1, 2, lambda *_: {}, lambda *_: None, lambda: ended.append(None))
    exchange.start()
    for now_ns in range(5):
        exchange.marks.mark(now_ns)
    exchange.end_leaving(30.0)
    assert "are not recorded, so its traffic is unknown (the training continues): connection reset" in caplog.text
    assert ended == [None]
