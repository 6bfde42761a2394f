"""Hosts are found without flooding, and a host keeps its address while it answers ARP requests for the address."""

from __future__ import annotations

import pytest

from controller.fabric.host_discovery import (
    ASK_EVERY_S,
    ASK_SILENT_AGAIN_S,
    MAX_INQUIRIES,
    MAX_INQUIRIES_OF_A_PORT,
    MAX_QUESTION_FRAMES,
    MAX_QUESTIONS,
    MAX_SILENT_QUESTIONS,
    MAX_WAITED_FOR,
    QUESTIONS,
    RECENT_S,
    SETTLED_FOR_S,
    WAIT_S,
    HostDiscovery,
)
from controller.fabric.messages import ArpSeen, SendArpRequest
from controller.fabric.topology import Dpid, Port, PortNo, PortRef
from controller.fabric.topology_state import DeclaredHost, TopologySettings, TopologyState

HOME, THIEF, OTHER = (PortRef(Dpid(1), PortNo(n)) for n in (1, 2, 3))
IP, MAC, THIEF_MAC = "10.0.0.1", "02:00:00:00:00:01", "02:00:00:00:00:99"
SETTINGS = TopologySettings(hold_down_s=(2, 60), edge_after_s=3, capacity_bps=lambda *_: 1e9)
START = 10.0


def port(number: int, up: bool = True) -> Port:
    return Port(PortNo(number), f"eth{number}", "02:00:00:00:00:aa", up, 1e9)


class Edge:
    """Switch with ``ports`` edge ports; the victim is known at ``HOME``."""

    def __init__(self, ports: int = 4, *declared: DeclaredHost) -> None:
        self.topology = TopologyState(SETTINGS, declared)
        self.topology.switch_connected(Dpid(1), "s1", [port(n) for n in range(1, ports + 1)], 0)
        self.hosts = HostDiscovery(self.topology)
        self.now = START
        assert self.speak(IP, MAC, HOME)[0] == "new"

    def speak(self, ip: str, mac: str, at: PortRef, target: str = IP) -> tuple[str, list[SendArpRequest]]:
        learned, _, questions = self.hosts.arp_seen(ArpSeen(at, "request", ip, mac, target), self.now)
        return learned, questions

    def claim(self) -> tuple[str, list[SendArpRequest]]:
        return self.speak(IP, THIEF_MAC, THIEF)

    def run(self, seconds: float, *missing: str) -> list[SendArpRequest]:
        questions = []
        for _ in range(round(seconds / 0.1)):
            self.now += 0.1
            questions += self.hosts.advance({"job": missing} if missing else {}, self.now)
        return questions

    @property
    def home(self) -> PortRef:
        return self.topology.fabric.hosts[IP].at


def test_addresses_that_jobs_wait_for_are_added_although_there_are_many_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controller.fabric.topology_state.MAX_HOSTS", 1)
    edge = Edge()
    assert edge.speak("10.0.0.2", MAC, OTHER)[0] == "refused"
    edge.run(0.1, "10.0.0.2", "10.0.0.3")
    assert edge.speak("10.0.0.2", MAC, OTHER)[0] == "new"
    edge.hosts.adopt("10.0.0.3", OTHER)
    assert "10.0.0.3" in edge.topology.fabric.hosts
    edge.run(0.1)
    assert edge.speak("10.0.0.4", MAC, OTHER)[0] == "refused"


def test_any_number_of_new_hosts_that_look_for_others_makes_one_snapshot() -> None:
    edge = Edge()
    generation = edge.topology.fabric.generation
    for number in range(2, 20):
        assert edge.speak(f"10.0.0.{number}", MAC, OTHER, target="10.0.9.9")[0] == "new"
    assert edge.topology.fabric.generation == generation + 1


def test_a_claim_is_not_believed_while_somebody_answers_for_the_address() -> None:
    edge = Edge()
    generation = edge.topology.fabric.generation
    assert edge.claim() == ("contested", [SendArpRequest(IP, (HOME,))])
    edge.now += 0.1
    assert edge.speak(IP, MAC, HOME)[0] == "known"
    assert edge.run(5) == []
    assert edge.home == HOME
    assert edge.hosts.claims.refused.totals == {THIEF: 1}
    assert edge.topology.fabric.generation == generation, "nothing has to be computed anew"


def test_an_address_that_nobody_answers_for_moves_after_three_questions_with_the_mac_of_the_last_claim() -> None:
    edge = Edge()
    asked = edge.claim()[1]
    edge.speak(IP, "02:00:00:00:00:98", THIEF)
    asked += edge.run((QUESTIONS - 1) * ASK_EVERY_S + 0.5)
    assert asked == [SendArpRequest(IP, (HOME,))] * QUESTIONS
    assert edge.home == HOME
    assert edge.run(ASK_EVERY_S) == []
    assert edge.home == THIEF
    assert edge.topology.fabric.hosts[IP].mac == "02:00:00:00:00:98"


def test_an_answer_to_the_last_question_is_early_enough() -> None:
    edge = Edge()
    edge.claim()
    edge.run((QUESTIONS - 1) * ASK_EVERY_S + 0.5)
    edge.speak(IP, MAC, HOME)
    edge.run(5)
    assert edge.home == HOME


@pytest.mark.parametrize(("placed", "refused"), [(False, {THIEF: 1}), (True, {})])
def test_a_claim_does_not_hold_when_the_host_has_moved_or_was_put_elsewhere_meanwhile(
    placed: bool, refused: dict[PortRef, int]
) -> None:
    edge = Edge()
    edge.claim()
    if placed:
        edge.topology.place_host(IP, None, OTHER)
    else:
        edge.topology.port_changed(Dpid(1), port(1, up=False), False, edge.now)
        edge.speak(IP, MAC, OTHER)
    edge.run(5)
    assert edge.home == OTHER
    assert edge.hosts.claims.refused.totals == refused


def test_a_claim_does_not_hold_when_the_old_port_has_become_a_link() -> None:
    edge = Edge()
    edge.claim()
    edge.topology.link_seen(HOME, PortRef(Dpid(1), PortNo(4)), edge.now)
    edge.run(5)
    assert IP not in edge.topology.fabric.hosts
    assert edge.speak(IP, MAC, OTHER)[0] == "new"


def test_ten_thousand_claims_cost_the_victim_one_question_and_are_recent_for_a_while() -> None:
    edge = Edge()
    asked = edge.claim()[1]
    edge.speak(IP, MAC, HOME)
    for _ in range(10_000):
        learned, questions = edge.claim()
        asked += questions
    assert len(asked) == 1
    assert edge.hosts.claims.refused.totals == {THIEF: 10_001}
    assert learned == "contested"
    edge.run(SETTLED_FOR_S + 0.1)
    assert edge.claim()[1], "later it may be true"
    edge.speak(IP, MAC, HOME)
    edge.run(RECENT_S - 1)
    assert edge.hosts.claims.refused.last[THIEF] > edge.now - RECENT_S
    edge.run(2)
    assert edge.hosts.claims.refused.last[THIEF] < edge.now - RECENT_S


def test_another_claimant_waits_until_the_first_claim_is_settled() -> None:
    edge = Edge()
    edge.claim()
    assert edge.speak(IP, THIEF_MAC, OTHER) == ("contested", [])
    assert edge.hosts.claims.refused.totals == {OTHER: 1}
    edge.run(QUESTIONS * ASK_EVERY_S + 0.5)
    assert edge.home == THIEF


def test_neither_one_port_nor_all_ports_together_have_more_than_so_many_claims_open() -> None:
    edge = Edge(ports=200)
    victims = [f"10.0.1.{number}" for number in range(1, MAX_INQUIRIES + 11)]
    for number, ip in enumerate(victims, 4):
        edge.speak(ip, MAC, PortRef(Dpid(1), PortNo(number)))
    asked = [question for ip in victims for question in edge.speak(ip, THIEF_MAC, THIEF)[1]]
    assert len(asked) == MAX_INQUIRIES_OF_A_PORT
    assert edge.speak(IP, THIEF_MAC, OTHER)[1] == [SendArpRequest(IP, (HOME,))], "others need not wait for them"
    for ip, number in zip(victims[MAX_INQUIRIES_OF_A_PORT:], range(100, 200), strict=False):
        asked += edge.speak(ip, THIEF_MAC, PortRef(Dpid(1), PortNo(number)))[1]
    assert len(asked) + 1 == MAX_INQUIRIES


def test_a_claim_that_turns_out_true_before_it_is_settled_is_not_counted_as_refused() -> None:
    edge = Edge()
    edge.claim()
    edge.topology.port_changed(Dpid(1), port(1, up=False), False, edge.now)
    assert edge.claim()[0] == "moved"
    assert not edge.hosts.claims.refused.totals


def test_a_declared_host_is_not_even_asked() -> None:
    edge = Edge(4, DeclaredHost("10.0.0.7", None, "s1", "eth4"))
    assert edge.speak("10.0.0.7", THIEF_MAC, THIEF) == ("refused", [])
    assert edge.hosts.claims.refused.totals == {THIEF: 1}
    assert edge.topology.fabric.hosts["10.0.0.7"].at == PortRef(Dpid(1), PortNo(4))


@pytest.mark.parametrize("address", ["127.0.0.1", "224.0.0.1", "255.255.255.255", "0.1.2.3"])
def test_an_address_that_no_host_has_is_nothing(address: str) -> None:
    edge = Edge()
    assert edge.speak(address, MAC, OTHER) == ("ignored", [])
    assert set(edge.topology.fabric.hosts) == {IP}


def test_who_asks_for_many_addresses_that_are_nowhere_makes_few_questions() -> None:
    edge = Edge()
    asked = []
    for number in range(300):
        edge.now += 0.02
        asked += edge.speak(f"10.0.2.{number % 256}", THIEF_MAC, THIEF, f"10.1.{number // 256}.{number % 256}")[1]
    assert 0 < len(asked) <= 3 * MAX_WAITED_FOR
    assert edge.speak("10.0.3.3", MAC, OTHER, "10.0.3.4")[1], "others are served meanwhile"


def test_questions_at_every_edge_port_are_few_where_ports_are_many() -> None:
    edge = Edge(ports=2000)
    missing = [f"10.2.0.{number}" for number in range(100)]
    edge.now += 1
    questions = edge.hosts.advance({"job": missing}, edge.now)
    frames = sum(len(question.ports) for question in questions)
    assert 0 < frames <= MAX_QUESTION_FRAMES
    edge.now += 1
    again = edge.hosts.advance({"job": missing}, edge.now)
    assert not {q.ip for q in questions} & {q.ip for q in again}, "those that waited longest first"


def test_declared_hosts_whose_mac_is_not_known_are_asked_a_few_at_a_time() -> None:
    declared = [DeclaredHost(f"10.0.5.{n}", None, "s1", f"eth{n}") for n in range(2, 42)]
    edge = Edge(50, *declared)
    asked = edge.run(10)
    assert {question.ip for question in asked} == {host.ip for host in declared}
    assert len(asked) == len(declared)
    assert len(edge.run(1.5)) <= MAX_SILENT_QUESTIONS
    edge.run(ASK_SILENT_AGAIN_S)
    assert edge.speak(declared[0].ip, MAC, PortRef(Dpid(1), PortNo(2)))[0] == "known"
    assert len(edge.run(ASK_SILENT_AGAIN_S)) == len(declared) - 1, "a host that answered is not asked again"


def test_a_declared_host_is_asked_only_while_its_port_is_up() -> None:
    edge = Edge(4, DeclaredHost("10.0.0.7", None, "s1", "eth4"))
    edge.topology.port_changed(Dpid(1), port(4, up=False), False, edge.now)
    assert edge.run(5) == []
    edge.topology.port_changed(Dpid(1), port(4), False, edge.now)
    assert {question.ip for question in edge.run(ASK_SILENT_AGAIN_S + 2)} == {"10.0.0.7"}


def test_an_address_that_a_job_waits_for_is_asked_for_once_a_second_and_only_so_many_in_one_second() -> None:
    edge = Edge()
    edge.run(3)
    assert len(edge.run(5, "10.0.9.9")) == 5
    assert edge.run(5) == []
    missing = [f"10.2.0.{number}" for number in range(200)]
    edge.now += 1
    first = edge.hosts.advance({"job": missing}, edge.now)
    edge.now += 0.5
    assert len(first) == MAX_QUESTIONS
    assert edge.hosts.advance({"job": missing}, edge.now) == []
    edge.now += 0.5
    second = edge.hosts.advance({"job": missing}, edge.now)
    assert len({question.ip for question in first + second}) == 2 * MAX_QUESTIONS


def test_all_hosts_of_a_new_job_are_asked_for_soon_though_many_jobs_wait() -> None:
    edge = Edge()
    missing = {f"old-{job}": [f"10.3.{job}.{host}" for host in range(1, 9)] for job in range(200)}
    for _ in range(400):
        edge.now += 0.1
        edge.hosts.advance(missing, edge.now)
    new = [f"10.4.0.{host}" for host in range(1, 9)]
    edge.now += 1
    asked = {question.ip for question in edge.hosts.advance(missing | {"new": new}, edge.now)}
    assert asked >= set(new)


def test_jobs_that_are_registered_all_the_time_leave_half_of_the_turns_to_others() -> None:
    edge = Edge()
    waiting = {f"old-{job}": [f"10.3.0.{job}"] for job in range(1, 201)}
    for _ in range(100):
        edge.now += 0.1
        edge.hosts.advance(waiting, edge.now)
    asked = set()
    for second in range(10):
        edge.now += 1
        flood = {f"new-{second}-{n}": [f"10.4.{second}.{n}"] for n in range(1, 2 * MAX_QUESTIONS)}
        asked |= {question.ip for question in edge.hosts.advance(waiting | flood, edge.now)}
    assert {ip for [ip] in waiting.values()} <= asked


@pytest.mark.parametrize(("after_s", "answers"), [(WAIT_S - 0.2, 1), (WAIT_S + 0.2, 0)])
def test_an_asker_is_told_of_a_host_while_the_answer_helps(after_s: float, answers: int) -> None:
    edge = Edge()
    edge.speak("10.0.0.2", MAC, OTHER, target="10.0.0.3")
    found = ArpSeen(THIEF, "reply", "10.0.0.3", THIEF_MAC, "0.0.0.0")
    _, told, _ = edge.hosts.arp_seen(found, edge.now + after_s)
    assert [(reply.asker_ip, reply.ip, reply.mac) for reply in told] == [("10.0.0.2", "10.0.0.3", THIEF_MAC)] * answers
