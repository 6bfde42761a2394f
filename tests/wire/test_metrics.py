"""The metrics server over HTTP, scraped by a real Prometheus; a real Alertmanager with the example configuration."""

import json
import re
import socket
import socketserver
import ssl
import urllib.request
from collections.abc import Callable, Iterator, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any, cast

import pytest

from benchmarks.monitoring import alertmanager, dashboard_expressions, get, prometheus, receiver
from controller.config import MetricsConfig
from controller.fabric.topology import Dpid
from controller.observability import metrics
from controller.observability.metrics import MetricsServer
from controller.status import Status, StatusBoard
from controller.store.assignment import Holder
from signalbox.errors import InvalidInput
from tests.support import status_example as example
from tests.support.captured_logs import captured_logs
from tests.support.known_members import only_member
from tests.support.waiting import until
from tests.support.wire.certificates import Authority, Certificate


@pytest.fixture
def board() -> StatusBoard:
    board = StatusBoard()
    board.publish(example.status())
    board.membership = only_member()
    return board


@contextmanager
def serving(board: StatusBoard, **config: Any) -> Iterator[tuple[MetricsServer, int]]:
    server = MetricsServer(MetricsConfig(**{"port": 0, **config}), board)
    try:
        yield server, server.start()
    finally:
        server.stop()


@pytest.fixture
def target(board: StatusBoard) -> Iterator[str]:
    with serving(board) as (_, port):
        yield f"127.0.0.1:{port}"


def test_each_scrape_shows_the_newest_status_and_the_process(target: str, board: StatusBoard) -> None:
    assert "signalbox_pins 1\n" in get(f"http://{target}/metrics")
    board.publish(Status(pins=42))
    shown = get(f"http://{target}/metrics")
    assert "signalbox_pins 42\n" in shown
    assert "process_resident_memory_bytes" in shown


def test_a_port_that_is_taken_is_an_error_that_names_it(board: StatusBoard) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(InvalidInput, match=f"metrics: cannot listen on 127.0.0.1:{port}: Address already in use"):
            MetricsServer(MetricsConfig(port=port), board).start()


def test_stopping_frees_the_port_at_once_and_may_be_done_twice(
    monkeypatch: pytest.MonkeyPatch, board: StatusBoard
) -> None:
    monkeypatch.setattr(metrics, "LOOK_S", 3600.0)
    with serving(board) as (server, port):
        server.stop()
    with serving(board, port=port) as (_, again):
        assert again == port


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"), "ours")


@contextmanager
def secured(authority: Authority, board: StatusBoard, mutual: bool) -> Iterator[int]:
    """Run a server with TLS, and yield its port."""
    own = authority.sign("metrics", also="IP:127.0.0.1")
    authorities = authority.certificate if mutual else None
    files = {"certificate": own.certificate, "private_key": own.private_key, "ca_certificates": authorities}
    with serving(board, **files) as (_, port):
        yield port


def get_over_tls(port: int, authority: Authority, shown: Certificate | None = None) -> str:
    context = ssl.create_default_context(cafile=str(authority.certificate))
    if shown:
        context.load_cert_chain(*shown)
    with urllib.request.urlopen(f"https://127.0.0.1:{port}/metrics", timeout=60, context=context) as answer:
        text: str = answer.read().decode()
        return text


def test_who_fails_to_shake_hands_is_counted_and_logged_with_why(board: StatusBoard, authority: Authority) -> None:
    other = Authority(authority.certificate.parent, "another")

    def refused(get_metrics: Callable[[int], str]) -> MutableMapping[str, Any]:
        with captured_logs() as lines, secured(authority, board, mutual=True) as port:
            before = board.metrics_refused["tls"]
            with pytest.raises(OSError):
                get_metrics(port)
            until(lambda: board.metrics_refused["tls"] == before + 1 and bool(lines), "the count")
            shown = get_over_tls(port, authority, authority.sign("prometheus"))
            assert f'signalbox_metrics_refused_total{{reason="tls"}} {before + 1}\n' in shown
        (line,) = lines
        assert line["event"] == "metrics client refused"
        assert line["peer"].startswith("127.0.0.1:")
        return line

    assert refused(lambda port: get(f"http://127.0.0.1:{port}/metrics"))["why"] == "the client does not speak TLS"
    assert refused(lambda port: get_over_tls(port, authority))["why"] == "the client shows no certificate"
    for shown in (other.sign("prometheus"), authority.sign_expired("prometheus")):
        why = refused(lambda port, shown=shown: get_over_tls(port, authority, shown))["why"]  # type: ignore[misc]
        assert why.startswith("the client's certificate is refused: ")
    why = refused(lambda port: get_over_tls(port, other, authority.sign("prometheus")))["why"]
    assert why.startswith("the client ended the handshake: ")
    assert "UNKNOWN_CA" in why


def test_who_only_looks_whether_somebody_listens_is_not_counted(board: StatusBoard, authority: Authority) -> None:
    with captured_logs() as lines, secured(authority, board, mutual=True) as port:
        socket.create_connection(("127.0.0.1", port)).close()
        until(lambda: bool(lines), "its end")
    assert board.metrics_refused == {"tls": 0}
    assert [line["log_level"] for line in lines] == ["debug"]


def test_clients_that_leave_early_log_no_traceback(
    board: StatusBoard, authority: Authority, capfd: pytest.CaptureFixture[str]
) -> None:
    """A client that does not complete its TLS handshake does not block others."""
    context = ssl.create_default_context(cafile=str(authority.certificate))
    with secured(authority, board, mutual=False) as port, socket.create_connection(("127.0.0.1", port)):
        for _ in range(10):
            with socket.create_connection(("127.0.0.1", port)) as sock:
                tls = context.wrap_socket(sock, server_hostname="127.0.0.1")
                tls.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
                tls.close()
        assert "signalbox_pins 1\n" in get_over_tls(port, authority)
    assert "Traceback" not in capfd.readouterr().err


def test_a_real_prometheus_scrapes_and_answers_every_panel_of_the_dashboard(target: str, tmp_path: Path) -> None:
    with prometheus(tmp_path, target, "200ms") as scraping:
        assert scraping.until_it_answers('up{job="signalbox"} == 1')
        (bytes_total,) = scraping.until_it_answers('signalbox_link_bytes_total{link="leaf1:2>spine1"}')
        assert bytes_total["value"][1] == "1000000"
        (worst,) = scraping.query("bottomk(1, signalbox_job_efficiency_measured_ratio)")
        assert worst["metric"]["job_id"] == "llama"
        missing = re.compile("certificate|rpc|etcd")  # the server has no TLS, no calls and no etcd
        wanted = [expression for expression in dashboard_expressions("llama") if not missing.search(expression)]
        for expression in wanted:
            assert scraping.until_it_answers(expression), expression


def test_a_scrape_gets_through_whoever_holds_the_connections(board: StatusBoard) -> None:
    with serving(board, max_connections=3) as (_, port), ExitStack() as stack:
        held = [stack.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(12)]
        for sock in held[:6]:
            sock.sendall(b"GET /metrics HTTP/1.1\r\nSlow: ")
        for _ in range(5):
            assert "signalbox_pins" in get(f"http://127.0.0.1:{port}/metrics")
        held[0].settimeout(60)
        with suppress(ConnectionError):
            assert held[0].recv(1) == b""


def scrape(port: int, source: str) -> bytes:
    with socket.create_connection(("127.0.0.1", port), 30, (source, 0)) as sock:
        sock.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        return b"".join(iter(partial(sock.recv, 1 << 16), b""))


def test_a_client_whose_thread_cannot_start_has_no_place(board: StatusBoard, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(board) as (server, port):
        with monkeypatch.context() as patched:
            patched.setattr(socketserver.ThreadingMixIn, "process_request", _no_thread)
            with suppress(ConnectionError):
                assert scrape(port, "127.0.0.1") == b""
        assert server._running
        assert cast(Any, server._running[0])._clients == {}
        assert b"signalbox_pins" in scrape(port, "127.0.0.1")


def _no_thread(*_: object) -> None:
    raise RuntimeError("can't start new thread")


def test_each_address_is_answered_beside_many_clients_of_another_that_keep_asking(board: StatusBoard) -> None:
    over = Event()

    def keep_asking(port: int) -> None:
        while not over.is_set():
            with suppress(OSError):
                scrape(port, "127.0.0.1")

    with serving(board, max_connections=2) as (_, port), ThreadPoolExecutor(12) as pool:
        for _ in range(12):
            pool.submit(keep_asking, port)
        try:
            for _ in range(8):
                assert b"signalbox_pins" in scrape(port, "127.0.0.2")
        finally:
            over.set()


def post(address: str, name: str, severity: str, ends_at: datetime) -> bool:
    alert = {"labels": {"alertname": name, "severity": severity}, "endsAt": ends_at.isoformat()}
    request = urllib.request.Request(
        f"http://{address}/api/v2/alerts", json.dumps([alert]).encode(), {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return bool(answer.status == 200)
    except OSError:  # still starting
        return False


def test_critical_alerts_go_to_who_is_on_call_others_to_operators_and_their_end_too(tmp_path: Path) -> None:
    now = datetime.now(UTC)
    alerts = {"SignalboxJobsNotServed": ("critical", "on-call"), "SignalboxPlanOld": ("warning", "operators")}
    with receiver() as (receivers, told), alertmanager(tmp_path, receivers) as address:
        for status, ends_at in (("firing", now + timedelta(minutes=5)), ("resolved", now)):
            for name, (severity, to) in alerts.items():
                until(lambda: post(address, name, severity, ends_at), "Alertmanager")  # noqa: B023
                wanted = (to, name, status)
                until(lambda: wanted in {(t.receiver, t.alert, t.status) for t in told}, str(wanted))  # noqa: B023
        assert {(t.receiver, t.alert) for t in told} == {(to, name) for name, (_, to) in alerts.items()}


def test_each_member_has_a_series_with_its_switches(target: str, board: StatusBoard) -> None:
    assert f'signalbox_member_switches{{member="one"}} {len(board.status.fabric.switches)}\n' in get(
        f"http://{target}/metrics"
    )
    one, gone = Holder("one", "1"), Holder("gone", "2")
    board.holders = lambda: {Dpid(1): one, Dpid(2): gone}
    board.assigned = lambda: dict.fromkeys(map(Dpid, range(1, 5)), one)
    assert board.membership
    board.membership.drain("one", drains=True)
    shown = get(f"http://{target}/metrics")
    assert 'signalbox_member_switches{member="one"} 1\n' in shown
    assert 'signalbox_member_assigned_switches{member="one"} 4\n' in shown
    assert 'signalbox_member_draining{member="one"} 1\n' in shown
