from __future__ import annotations

import re
from pathlib import Path

import pytest

from controller.config import NAMES_IN_ETCD, Config, load
from signalbox.errors import InvalidInput

GATEWAY = '[[fabric.gateway]]\nip = "10.0.4.254"\nmac = "{}"\n'
OPTICAL = "[[circuits.switch]]\ndpid = 0x101\nfibres = [{}]\n"
LINK = '[[fabric.link]]\nswitch = "leaf1"\nport = "e1"\nbps = 1e9\n'


def loaded(tmp_path: Path, text: str) -> Config:
    file = tmp_path / "signalbox.toml"
    file.write_text(text)
    return load(file)


def refused(tmp_path: Path, text: str) -> str:
    with pytest.raises(InvalidInput) as error:
        loaded(tmp_path, text)
    return str(error.value).replace(f"{tmp_path / 'signalbox.toml'}: ", "")


def test_the_mac_address_of_a_gateway_is_taken_in_any_case(tmp_path: Path) -> None:
    (gateway,) = loaded(tmp_path, GATEWAY.format("00:00:5E:00:01:0A")).fabric.gateway
    assert (str(gateway.ip), gateway.mac) == ("10.0.4.254", "00:00:5e:00:01:0a")


@pytest.mark.parametrize("mac", ["01:00:5e:00:00:01", "ff:ff:ff:ff:ff:ff", "00:00:5e:00:01", "router"])
def test_what_is_no_stations_mac_address_is_refused(tmp_path: Path, mac: str) -> None:
    must = f"must be a unicast MAC address, such as 02:00:00:00:01:01 (given: {mac!r})"
    assert refused(tmp_path, GATEWAY.format(mac)) == f"fabric.gateway[0].mac: {must}"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            GATEWAY.format("00:00:5e:00:01:0a") + GATEWAY.format("00:00:5E:00:01:0A"),
            "00:00:5e:00:01:0a is the mac of two gateways; write routers that share a MAC address as one gateway",
        ),
        (
            GATEWAY.format("02:00:00:00:00:01") + GATEWAY.format("02:00:00:00:00:02"),
            "gateways must have different ips; used twice: 10.0.4.254",
        ),
        (2 * LINK, "leaf1:e1 has two entries in link; leave out one of them"),
        (OPTICAL.format(""), "must have 1 to 4096 ports"),
        # A share: 5 instead of 0.05 for 5 % would have every plan refused.
        ("[planning]\nmin_gain = 5\n", "must be less than 1 (given: 5)"),
    ],
)
def test_values_that_cannot_be_meant_are_refused(tmp_path: Path, text: str, said: str) -> None:
    assert said in refused(tmp_path, text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[members]\napi = "unix:/run/m.sock"\n', "members.api needs a store in etcd"),
        (
            'store = "etcd://127.0.0.1:1"\n[members]\napi = "10.0.0.1:2"\n',
            "api as HOST:PORT needs certificate, private_key, ca_certificates and certificate_names",
        ),
        *(
            (f'store = "etcd://127.0.0.1:1"\n[members]\napi = "{api}"\n', "must be an address and a port at which the")
            for api in ("0.0.0.0:50052", "[::]:50052", "10.0.0.1:0")
        ),
        (
            'store = "etcd://127.0.0.1:1"\n[members]\ncertificate = "c.pem"\n',
            "must be set together; missing: private_key, ca_certificates",
        ),
        ('[members]\nname = "a/b"\n', "members.name: must be 1 to 63 letters, digits and . _ -"),
    ],
)
def test_members_find_each_other_in_etcd_and_prove_who_they_are(tmp_path: Path, text: str, said: str) -> None:
    assert said in refused(tmp_path, text)


def test_a_file_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    assert loaded(tmp_path, "\ufeff[openflow]\nport = 7\n").openflow.port == 7


@pytest.mark.parametrize("fibre", ["0x0:2", "0x1:0", "0x1:4294967295", "server1:2", "0x1"])
def test_what_is_no_interface_of_a_server_is_refused_at_its_place(tmp_path: Path, fibre: str) -> None:
    problem = "circuits.switch[0].fibres[1]: must be a server's dpid and port, such as 0x1:2, or empty"
    assert refused(tmp_path, OPTICAL.format(f'"0x1:2", "{fibre}"')).startswith(problem)


@pytest.mark.parametrize(
    ("section", "line", "problem"),
    [
        ("openflow", "port = true", "openflow.port: must be a number (given: true)"),
        ("metrics", 'port = "9464"', "metrics.port: must be a number (given: '9464')"),
        ("api", "listen = []", "api.listen: must have at least 1 entry (given: 0)"),
        ("log", 'json_lines = "no"', "log.json_lines: must be true or false, without quotes (given: 'no')"),
        ("planning", "time_limit_s = 0", "planning.time_limit_s: must be more than 0 s (given: 0 s)"),
        ("planning", "time_limit_s = 2026-11-28", "planning.time_limit_s: must be a number (given: 2026-11-28)"),
        ("api", 'socket_mode = "660"', "api.socket_mode: must be an octal mode such as 0660, in quotes (given: '660')"),
        (
            "api",
            'listen = "0.0.0.0:1"',
            "api.listen: must be a list, such as [\"127.0.0.1:50051\"] (given: '0.0.0.0:1')",
        ),
        ("planning", "interval_s = 1e300", "planning.interval_s: must be at most 31536000 s (given: 1e+300 s)"),
        ("planning", "debounce_s = inf", "planning.debounce_s: must be at most 31536000 s (given: inf s)"),
        ("discovery", "hold_down_s = 61", "discovery: hold_down_s (61 s) must be at most max_hold_down_s (60 s)"),
        (
            "contention",
            "dscp = [10, 10, 26]",
            "contention.dscp: gives two classes the same DSCP: each class needs one of its own (given: [10, 10, 26])",
        ),
        ("counters", "interval_s = 9", "counters: interval_s (9 s) must be at most window_s (6 s)"),
        ("api", 'tokens = ""', "api.tokens: must name a file or directory; leave it out to have none (given: '')"),
    ],
)
def test_values_are_of_their_kind_paths_name_something_and_the_api_listens_somewhere(
    tmp_path: Path, section: str, line: str, problem: str
) -> None:
    assert refused(tmp_path, f"[{section}]\n{line}\n") == problem


def test_unknown_tables_come_first(tmp_path: Path) -> None:
    found = refused(tmp_path, '[openflow]\nports = 1\n[api]\nlisten = []\n[aip]\nlisten = ["127.0.0.1:1"]\n')
    assert re.findall(r"(?:^|; )([a-z.]+): ", found) == ["aip", "openflow.ports", "api.listen"]


@pytest.mark.parametrize("name", NAMES_IN_ETCD)
def test_a_prefix_in_etcd_that_another_store_could_have_as_a_key_is_refused(tmp_path: Path, name: str) -> None:
    must = f"etcd.prefix: must not contain /{name}/, a name that Signalbox gives to its own keys"
    assert refused(tmp_path, f'[etcd]\nprefix = "/a/{name}/b/"').startswith(must)


def test_a_prefix_in_etcd_may_resemble_a_key_of_another_store(tmp_path: Path) -> None:
    assert loaded(tmp_path, '[etcd]\nprefix = "/a/parts/"').etcd.prefix == "/a/parts/"
