"""The services of a compose file without an engine: namespaces stand for containers, folders for images and volumes.

A service has its own network, process and mount namespaces, its volumes and ``tmpfs``. It has the addresses that the
file sets; services without an address get one in the order of their names. ``/etc/hosts`` has the names of the other
services. The service runs as its user, without capabilities, in a read-only root, as the file says. Its command
is process 1, as in a container without ``init``.

Missing: seccomp and AppArmor, limits of devices, the name server of the engine and published ports."""

import ipaddress
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from mininet_topos.lab.record import run, wait_for
from tests.support.debian_root import DebianRoot, Mount
from tests.support.dockerfile import Image

OWN_KERNEL = (Mount("/dev", "/dev", "--rbind"), Mount("proc", "/proc", "-t proc"), Mount("sysfs", "/sys", "-t sysfs"))
DYNAMIC = ipaddress.ip_network("172.30.66.0/24")
"""Subnet of a network for which the file sets no subnet."""


@dataclass(frozen=True)
class StandIn:
    """Stand-in for an image that cannot be downloaded: a root with the same program, and the settings of the image."""

    image: Image
    entrypoint: tuple[str, ...]


class Cable(NamedTuple):
    """Veth pair from a container to a bridge of the machine.

    ``inside``, ``outside``: names of its ends."""

    bridge: str
    inside: str
    outside: str
    address: str


@dataclass
class Network:
    """Network of one container.

    ``machine``: name of the namespace that has the bridges."""

    machine: str
    namespace: str
    cables: Sequence[Cable]

    def make(self) -> None:
        """Make the namespace and its cables.

        MAC addresses follow from the IP addresses, so that neighbours need not learn new ones."""
        run("ip", "netns", "add", self.namespace)
        run("ip", "-n", self.namespace, "link", "set", "lo", "up")
        for bridge, inside, outside, address in self.cables:
            mac = "02:42:" + ipaddress.ip_interface(address).ip.packed.hex(":")
            veth = ("type", "veth", "peer", "name", inside, "address", mac, "netns", self.namespace)
            run("ip", "-n", self.machine, "link", "add", outside, *veth)
            run("ip", "-n", self.machine, "link", "set", outside, "master", bridge, "up")
            run("ip", "-n", self.namespace, "address", "add", address, "dev", inside)
            run("ip", "-n", self.namespace, "link", "set", inside, "up")

    def remove(self) -> None:
        for cable in self.cables:
            run("ip", "-n", self.machine, "link", "delete", cable.outside)
        run("ip", "netns", "delete", self.namespace)


@dataclass
class Container:
    name: str
    service: Mapping[str, Any]
    image: Image
    entrypoint: tuple[str, ...]
    network: Network
    mounts: Sequence[Mount]
    log: Path
    process: subprocess.Popen[bytes] | None = None

    @property
    def init(self) -> int:
        """Process id, on this machine, of process 1 of the container."""
        assert self.process
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        wait_for(lambda: bool(children.read_text()), f"{self.name} to start")
        return int(children.read_text().split()[0])

    def start(self) -> None:
        """Start the container as an engine does, with a new network namespace."""
        self.network.make()
        words = self.image.root.argv(
            *self._as_its_user(), *self.entrypoint, *self.service.get("command", self.image.command),
            mounts=self.mounts, environment=self._environment, cwd=self.image.cwd, kernel=OWN_KERNEL,
            read_only=self.service.get("read_only", False),
        )  # fmt: skip
        # All its processes end together with process 1, as in a container.
        words[1:1] = ["--pid", "--fork", "--kill-child"]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                ["ip", "netns", "exec", self.network.namespace, *words], stdin=subprocess.DEVNULL, stdout=log,
                stderr=log, start_new_session=True,
            )  # fmt: skip

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a further command in the running container, as ``docker exec`` does."""
        target = ["--target", str(self.init), "--net", "--pid", "--mount", "--root", "--wd"]
        settings = [f"{name}={value}" for name, value in self._environment.items()]
        words = ["nsenter", *target, "/usr/bin/env", "-i", *settings, *self._as_its_user(), *command]
        return subprocess.run(words, capture_output=True, text=True, timeout=60)

    def healthy(self) -> bool:
        """Return whether the health check passes now; raise ``AssertionError`` when the container has ended."""
        assert self.process
        if self.process.poll() is not None:
            raise AssertionError(f"{self.name} has ended with {self.process.returncode}:\n{self.last_lines()}")
        kind, *command = self.service["healthcheck"]["test"]
        assert kind == "CMD"
        return self.run(*command).returncode == 0

    def kill(self) -> None:
        assert self.process
        if self.process.poll() is None:
            os.kill(self.init, signal.SIGKILL)
        self.process.wait(30)
        self.process = None
        self.network.remove()

    def stop(self) -> int:
        """Send SIGTERM and return the exit status.

        Raises ``TimeoutExpired`` when the container does not end within its grace period."""
        assert self.process
        os.kill(self.init, signal.SIGTERM)
        status = self.process.wait(float(self.service.get("stop_grace_period", "10s").removesuffix("s")))
        self.process = None
        self.network.remove()
        return status

    def last_lines(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-15:])

    @property
    def _environment(self) -> dict[str, str]:
        return {"HOME": "/", **self.image.environment, **self.service.get("environment", {})}

    def _as_its_user(self) -> list[str]:
        user, _, group = (self.service.get("user") or self.image.user or "0:0").partition(":")
        words = ["setpriv", f"--reuid={user}", f"--regid={group}", "--clear-groups"]
        if "ALL" in self.service.get("cap_drop", ()):
            words += ["--bounding-set=-all", "--inh-caps=-all"]
        if "no-new-privileges:true" in self.service.get("security_opt", ()):
            words.append("--no-new-privs")
        return words


@dataclass
class Engine:
    """Runner of the services of a compose file.

    ``project``: folder where relative paths start.
    ``images``: images of the services to run, by service name."""

    project: Path
    file: Mapping[str, Any]
    images: Mapping[str, Image | StandIn]
    folder: Path
    prefix: str = field(default_factory=lambda: f"sbc{os.getpid()}")

    @contextmanager
    def containers(self) -> Iterator[dict[str, Container]]:
        """Yield the containers, none of them started; end all of them and remove every namespace after the block."""
        run("ip", "netns", "add", self.prefix)
        run("ip", "-n", self.prefix, "link", "set", "lo", "up")
        made: dict[str, Container] = {}
        try:
            cables = self._cables()
            hosts = [f"{cable.address.split('/')[0]} {name}" for name, of_one in cables.items() for cable in of_one]
            for name in self.images:
                network = Network(self.prefix, f"{self.prefix}-{name}", cables[name])
                made[name] = self._container(name, network, "\n".join(["127.0.0.1 localhost", *hosts, ""]))
            yield made
        finally:
            for container in made.values():
                if container.process:
                    container.kill()
            run("ip", "netns", "delete", self.prefix)

    def fetch(self, url: str) -> str:
        """Fetch the URL from the machine that runs the containers, as from a published port."""
        return run("ip", "netns", "exec", self.prefix, "python3", "-c", _FETCH, url)

    def address(self, name: str, network: str) -> str:
        """Return the address that the file sets for the service, or the next free one."""
        of_network = self._services_on(network)
        given = of_network[name].get("ipv4_address")
        return given or str(DYNAMIC[2 + sorted(of_network).index(name)])

    def _services_on(self, network: str) -> dict[str, Mapping[str, Any]]:
        found: dict[str, Mapping[str, Any]] = {}
        for name in self.images:
            networks = self.file["services"][name]["networks"]
            if network in networks:
                found[name] = (networks[network] or {}) if isinstance(networks, dict) else {}
        return found

    def _cables(self) -> dict[str, list[Cable]]:
        """Make a bridge for each network, and return the cables of each service."""
        cables: dict[str, list[Cable]] = {name: [] for name in self.images}
        for number, (network, settings) in enumerate(self.file["networks"].items()):
            config = (settings or {}).get("ipam", {}).get("config", [{"subnet": str(DYNAMIC)}])
            subnet = ipaddress.ip_network(config[0]["subnet"])
            bridge = f"net{number}"
            run("ip", "-n", self.prefix, "link", "add", bridge, "type", "bridge")
            run("ip", "-n", self.prefix, "address", "add", f"{subnet[1]}/{subnet.prefixlen}", "dev", bridge)
            run("ip", "-n", self.prefix, "link", "set", bridge, "up")
            for name in self._services_on(network):
                address = self.address(name, network)
                assert ipaddress.ip_address(address) in subnet
                end = f"{bridge}-{name}"[:15]
                cables[name].append(Cable(bridge, f"eth{number}", end, f"{address}/{subnet.prefixlen}"))
        return cables

    def _container(self, name: str, network: Network, hosts: str) -> Container:
        service = self.file["services"][name]
        made_of = self.images[name]
        image, entrypoint = (made_of.image, made_of.entrypoint) if isinstance(made_of, StandIn) else (made_of, ())
        names = self.folder / f"{name}.hosts"
        names.write_text(hosts)
        mounts = [Mount(str(names), "/etc/hosts")]
        for entry in service.get("tmpfs", ()):
            path, _, options = entry.partition(":")
            mounts.append(Mount("tmpfs", path, f"-t tmpfs -o {options or 'mode=1777'}"))
        for entry in service.get("volumes", ()):
            source, target, *rest = entry.split(":")
            path = self.project / source if source.startswith(".") else self._volume(source, image.root, target)
            mounts.append(Mount(str(path), target, "-o bind,ro" if rest == ["ro"] else "--bind"))
        mounts.sort(key=lambda mount: mount.target)
        return Container(name, service, image, entrypoint, network, mounts, self.folder / f"{name}.log")

    def _volume(self, name: str, root: DebianRoot, target: str) -> Path:
        """Return the folder of the volume; a new one gets owner and mode of the folder in the image."""
        path = self.folder / "volumes" / name
        if not path.exists():
            of_image = root.folder / target.lstrip("/")
            assert of_image.is_dir(), f"the image has no {target}, so its user could not write to the volume"
            path.mkdir(parents=True)
            shutil.copystat(of_image, path)
            os.chown(path, of_image.stat().st_uid, of_image.stat().st_gid)
        return path


_FETCH = """
import sys, urllib.request
request = urllib.request.Request(sys.argv[1], headers={"Host": "127.0.0.1"})
print(urllib.request.urlopen(request, timeout=10).read().decode())
"""


def wait_healthy(containers: Sequence[Container]) -> float:
    """Wait until all health checks have passed, and return the seconds that it took."""
    began = time.monotonic()
    waiting = list(containers)

    def healthy() -> bool:
        waiting[:] = [container for container in waiting if not container.healthy()]
        return not waiting

    try:
        wait_for(healthy, "all to be healthy", 120.0, 0.5)
    except Exception as error:
        raise AssertionError("\n\n".join(f"{c.name}: {c.last_lines()}" for c in waiting)) from error
    return time.monotonic() - began
