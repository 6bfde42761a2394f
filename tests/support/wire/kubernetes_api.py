"""A Kubernetes API server for tests: lists, watches and events of the objects that tests give it, on loopback.

It refuses requests that a ``ClusterRole`` does not allow, as the real server does, and requests without its token."""

import json
import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import yaml

TOKEN = "of-the-test"
RESOURCES = {
    "v1": {"pods": "Pod", "events": "Event", "namespaces": "Namespace"},
    "batch/v1": {"jobs": "Job"},
    "jobset.x-k8s.io/v1alpha2": {"jobsets": "JobSet"},
    "kubeflow.org/v1": {"pytorchjobs": "PyTorchJob"},
    "kubeflow.org/v2beta1": {"mpijobs": "MPIJob"},
    "apiextensions.k8s.io/v1": {"customresourcedefinitions": "CustomResourceDefinition"},
}
PREFERRED = {"batch": "v1", "jobset.x-k8s.io": "v1alpha2", "kubeflow.org": "v1", "apiextensions.k8s.io": "v1"}
Kind = tuple[str, str]  # apiVersion, plural


@dataclass
class Cluster:
    """Cluster with its objects.

    ``rules``: rules of a ClusterRole.
    ``refused``: requests that the rules do not allow.
    ``events``: events that clients have posted."""

    rules: Sequence[Mapping[str, Any]]
    events: list[dict[str, Any]] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    _objects: dict[Kind, dict[str, dict[str, Any]]] = field(default_factory=lambda: defaultdict(dict))
    _log: list[tuple[int, Kind, str, dict[str, Any]]] = field(default_factory=list)
    _version: int = 1
    _oldest: int = 0
    _changed: threading.Condition = field(default_factory=threading.Condition)  # its lock is reentrant

    def put(self, *objects: dict[str, Any]) -> None:
        for body in deepcopy(objects):
            kind, uid = kind_of(body), body["metadata"]["uid"]
            with self._changed:
                self._log_it("MODIFIED" if uid in self._objects[kind] else "ADDED", kind, body)
                self._objects[kind][uid] = body

    def delete(self, *objects: dict[str, Any]) -> None:
        for body in objects:
            with self._changed:
                self._log_it("DELETED", kind_of(body), self._objects[kind_of(body)].pop(body["metadata"]["uid"]))

    def delete_unseen(self, body: dict[str, Any]) -> None:
        """Delete an object without a trace: no client is connected, and the history no longer has the event."""
        with self._changed:
            del self._objects[kind_of(body)][body["metadata"]["uid"]]
            self.forget_history()

    def forget_history(self) -> None:
        """End all watches; clients cannot resume them and have to list the objects again."""
        with self._changed:
            self._version += 1
            self._oldest = self._version
            self._log.clear()
            self._changed.notify_all()

    def _log_it(self, what: str, kind: Kind, body: dict[str, Any]) -> None:
        self._version += 1
        body["metadata"]["resourceVersion"] = str(self._version)
        self._log.append((self._version, kind, what, deepcopy(body)))
        self._changed.notify_all()

    def listed(self, kind: Kind, namespace: str, name: str) -> dict[str, Any]:
        with self._changed:
            items = [
                {key: value for key, value in body.items() if key not in ("kind", "apiVersion")}
                for body in self._objects[kind].values()
                if namespace in ("", body["metadata"]["namespace"]) and name in ("", body["metadata"]["name"])
            ]
            of_list = {"kind": f"{RESOURCES[kind[0]][kind[1]]}List", "apiVersion": kind[0]}
            return {**of_list, "metadata": {"resourceVersion": str(self._version)}, "items": deepcopy(items)}

    def watched(self, kind: Kind, namespace: str, since: int) -> Iterator[dict[str, Any]]:
        """Yield events until the history is forgotten or the server stops."""
        while True:
            with self._changed:
                if since < self._oldest:
                    status = {"kind": "Status", "status": "Failure", "reason": "Expired", "code": 410}
                    yield {"type": "ERROR", "object": status}
                    return
                new = [entry for entry in self._log if entry[0] > since and entry[1] == kind]
                if not new:
                    self._changed.wait()
                    continue
            for version, _, what, body in new:
                since = version
                if namespace in ("", body["metadata"]["namespace"]):
                    yield {"type": what, "object": body}

    def allows(self, verb: str, group: str, plural: str) -> bool:
        return any(
            verb in rule["verbs"] and group in rule["apiGroups"] and plural in rule["resources"] for rule in self.rules
        )


def kind_of(body: Mapping[str, Any]) -> Kind:
    (plural,) = (plural for plural, kind in RESOURCES[body["apiVersion"]].items() if kind == body["kind"])
    return body["apiVersion"], plural


def discovered(path: str) -> dict[str, Any] | None:
    """Return the answer of API discovery for a path below /api or /apis; None for paths of objects."""
    if path == "/api":
        return {"kind": "APIVersions", "versions": ["v1"]}
    if path == "/apis":
        groups: dict[str, list[str]] = defaultdict(list)
        for name in RESOURCES:
            group, _, version = name.rpartition("/")
            if group:
                groups[group].append(version)
        found = [
            {
                "name": group,
                "versions": [{"groupVersion": f"{group}/{version}", "version": version} for version in versions],
                "preferredVersion": {"version": PREFERRED[group]},
            }
            for group, versions in groups.items()
        ]
        return {"kind": "APIGroupList", "groups": found}
    of_version = RESOURCES.get(path.removeprefix("/apis/").removeprefix("/api/"))
    if of_version is None:
        return None
    verbs = ["create", "delete", "get", "list", "patch", "update", "watch"]
    resources = [
        {"name": plural, "singularName": kind.lower(), "namespaced": True, "kind": kind, "verbs": verbs}
        for plural, kind in of_version.items()
    ]
    return {"kind": "APIResourceList", "resources": resources}


def _handler(cluster: Cluster) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def _answer(self, body: object, status: int = 200) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def _request(self) -> None:
            url = urlsplit(self.path)
            if self.headers["Authorization"] != f"Bearer {TOKEN}":
                return self._answer({"kind": "Status", "code": 401}, 401)
            if self.command == "GET" and (found := discovered(url.path)):
                return self._answer(found)
            query = {name: values[0] for name, values in parse_qs(url.query).items()}
            parts = url.path.strip("/").split("/")
            version, rest = (parts[1], parts[2:]) if parts[0] == "api" else ("/".join(parts[1:3]), parts[3:])
            namespace = rest.pop(1) if rest[0] == "namespaces" else ""
            plural = rest[1 if namespace else 0]
            named = len(rest) > (2 if namespace else 1)
            verb = {"GET": "get" if named else "watch" if "watch" in query else "list", "POST": "create"}.get(
                self.command, self.command.lower()
            )
            if not cluster.allows(verb, version.rpartition("/")[0], plural):
                cluster.refused.append(f"{self.command} {self.path}")
                return self._answer({"kind": "Status", "code": 403, "message": "forbidden"}, 403)
            if verb == "create":
                posted = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                cluster.events.append(posted)
                return self._answer(posted, 201)
            if verb == "list":
                name = query.get("fieldSelector", "").removeprefix("metadata.name=")
                return self._answer(cluster.listed((version, plural), namespace, name))
            return self._stream(cluster.watched((version, plural), namespace, int(query["resourceVersion"])))

        def _stream(self, events: Iterator[dict[str, Any]]) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            for event in events:
                self.wfile.write(json.dumps(event).encode() + b"\n")
                self.wfile.flush()

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _request  # noqa: N815

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    return Handler


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """Ignore clients that have disconnected."""


@contextmanager
def running_cluster(role: Mapping[str, Any], kubeconfig: Path) -> Iterator[Cluster]:
    """Run the server.

    ``role``: role of the client. ``kubeconfig``: file that is written for the client."""
    cluster = Cluster(role["rules"])
    server = _Server(("127.0.0.1", 0), _handler(cluster))
    where = {"server": f"http://127.0.0.1:{server.server_port}"}
    config = {
        "current-context": "test",
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "clusters": [{"name": "test", "cluster": where}],
        "users": [{"name": "test", "user": {"token": TOKEN}}],
    }
    kubeconfig.write_text(yaml.safe_dump(config))
    thread = threading.Thread(target=server.serve_forever, name="kubernetes-stand-in")
    thread.start()
    try:
        yield cluster
    finally:
        server.shutdown()
        cluster.forget_history()
        server.server_close()
        thread.join()
