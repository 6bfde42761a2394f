"""Configuration of the controllers in the ``api-load`` benchmark."""

from pathlib import Path

from controller.fabric.topology import Fabric
from mininet_topos.controller_process import Settings
from offline.scenarios.fabrics import leaf_spine

FABRIC = "32x16x32"
LINK_BPS = 100e9
PROGRAM = ("benchmarks.api_load",)
SETTINGS: Settings = {"jobs": {"max_jobs": 4_000}, "log": {"level": "warning"}}


def fabric_of(size: str) -> Fabric:
    """Return the leaf-spine fabric of a size LEAVESxSPINESxHOSTS_PER_LEAF, such as ``16x8x32``."""
    leaves, spines, hosts = map(int, size.split("x"))
    return leaf_spine(leaves, spines, hosts, LINK_BPS, LINK_BPS)


def hosts_of(size: str, folder: Path) -> Settings:
    """Return settings with an inventory of the hosts, which send no ARP and could not be found otherwise."""
    fabric, file = fabric_of(size), folder / "inventory.toml"
    entries = []
    for number, host in enumerate(fabric.hosts.values()):
        port = fabric.switches[host.at.dpid].ports[host.at.port].name
        mac = f"02:00:00:00:{number >> 8:02x}:{number & 255:02x}"
        entries.append(
            f'[[host]]\nip = "{host.ip}"\nmac = "{mac}"\nswitch = "{fabric.name(host.at.dpid)}"\nport = "{port}"\n'
        )
    file.write_text("\n".join(entries))
    return {"fabric": {"inventory": str(file)}, "discovery": {"adoption_patience_s": 2.0}}
