"""OpenFlow through TLS, with the implementation of Open vSwitch."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from controller.config import Config
from controller.fabric.messages import ConnectionRefused, SwitchConnected, SwitchLeft
from mininet_topos.controller_process import reserve_port
from mininet_topos.lab.record import run
from tests.support.wire.certificates import Authority, Certificate
from tests.support.wire.openflow_controller import southbound


@pytest.fixture(autouse=True)
def _nothing_is_left_to_show() -> Iterator[None]:
    yield
    run("ovs-vsctl", "del-ssl")


@contextmanager
def bridge(name: str, dpid: int) -> Iterator[str]:
    settings = ["protocols=OpenFlow13", "fail_mode=secure", f"other-config:datapath-id={dpid:016x}"]
    run("ovs-vsctl", "add-br", name, "--", "set", "bridge", name, "datapath_type=netdev", *settings)
    try:
        yield name
    finally:
        run("ovs-vsctl", "--if-exists", "del-br", name)


def show(shown: Certificate, authority: Authority) -> None:
    run("ovs-vsctl", "set-ssl", str(shown.private_key), str(shown.certificate), str(authority.certificate))


def test_open_vswitch_connects_only_with_a_certificate_of_the_authority(lab_prefix: str, tmp_path: Path) -> None:
    ours, others = Authority(tmp_path, "ours"), Authority(tmp_path, "others")
    shown = ours.sign("controller")
    files = {"certificate": shown.certificate, "private_key": shown.private_key, "ca_certificates": ours.certificate}
    settings = Config.model_validate({"openflow": {"port": reserve_port(), **files}})
    target = f"127.0.0.1:{settings.openflow.port}"
    with southbound(settings) as controller, bridge(f"{lab_prefix}tls1", 0x71) as first:
        show(ours.sign("leaf"), ours)
        run("ovs-vsctl", "set-controller", first, f"ssl:{target}")
        controller.first(SwitchConnected, dpid=0x71)
        with bridge(f"{lab_prefix}tls2", 0x72) as second:
            run("ovs-vsctl", "set-controller", second, f"ssl:{target}")
            controller.first(SwitchConnected, dpid=0x72)
            since = len(controller.received)
            run("ovs-vsctl", "set-controller", second, f"tcp:{target}")
            controller.first(SwitchLeft, since, dpid=0x72)
            assert controller.first(ConnectionRefused, since).reason == "tls"
        since = len(controller.received)
        show(others.sign("leaf"), ours)
        run("ovs-vsctl", "set-controller", first, f"ssl:{target}")
        run("ovs-appctl", "bridge/reconnect", first)
        assert controller.first(ConnectionRefused, since).reason == "tls"
        since = len(controller.received)
        show(ours.sign("leaf again"), ours)
        controller.first(SwitchConnected, since, dpid=0x71)
