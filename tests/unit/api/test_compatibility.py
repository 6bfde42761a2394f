"""``make lint`` refuses changes of the proto file that break clients of v1, and accepts additions."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from signalbox.v1 import signalbox_pb2 as pb

ROOT = Path(__file__).parents[3]
PROTO = ROOT / "proto"
FILE = "signalbox/v1/signalbox.proto"
BUF = Path(sys.executable).parent / "buf"

BREAKING = {
    "  google.protobuf.Duration lease_left = 5;\n": '  reserved 5;\n  reserved "lease_left";\n',
    "  optional double slowdown = 11;\n": "  optional float slowdown = 11;\n",
    "  string tenant = 3;\n": "  string owner = 3;\n",
    "  string job_id = 1;\n": "  repeated string job_id = 1;\n",
    "  rpc GetJob(GetJobRequest) returns (GetJobResponse);\n": "",
    "(RenewLeaseRequest) returns (RenewLeaseResponse)": "(RenewLeaseRequest) returns (stream RenewLeaseResponse)",
    "service ControllerService": "service OperatorService",
    "  JOB_STATE_ECMP = 2;\n": "",
}
FINDINGS = {
    "FIELD_NO_DELETE", "FIELD_SAME_TYPE", *("FIELD_SAME_NAME", "FIELD_SAME_JSON_NAME"), "FIELD_SAME_CARDINALITY",
    "RPC_NO_DELETE", "RPC_SAME_SERVER_STREAMING", "PACKAGE_SERVICE_NO_DELETE", "ENUM_VALUE_NO_DELETE",
}  # fmt: skip
"""Rules of buf that the changes in ``BREAKING`` break, in the same order."""

FIELD, METHOD, VALUE = "  google.protobuf.Duration lease_left = 5", "  rpc Replan", "  JOB_STATE_ECMP = 2;\n"
ADDED = {
    f"{FIELD};": f"{FIELD} [deprecated = true];\n  string new_field = 200;",
    METHOD: f"  rpc PlanAgain(ReplanRequest) returns (ReplanResponse);\n{METHOD}",
    VALUE: f"{VALUE}  JOB_STATE_NEW = 200;\n",
    'syntax = "proto3";\n': 'syntax = "proto3";\nmessage New {}\n',
}


def broken(folder: Path, changes: Mapping[str, str]) -> set[str]:
    """Return the rules of buf that changes of the proto file break. ``changes``: new text by old text."""
    text = (PROTO / FILE).read_text()
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new, 1)
    (folder / FILE).parent.mkdir(parents=True)
    (folder / FILE).write_text(text)
    (folder / "buf.yaml").write_text((PROTO / "buf.yaml").read_text())
    command: list[str | Path] = [BUF, "breaking", folder, "--against", PROTO / "v1.binpb", "--error-format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = {json.loads(line)["type"] for line in done.stdout.splitlines()}
    assert done.returncode == (100 if found else 0), done.stderr
    return found


def test_what_breaks_clients_is_refused_and_additions_and_deprecations_pass(tmp_path: Path) -> None:
    assert broken(tmp_path / "breaking", BREAKING) == FINDINGS
    assert broken(tmp_path / "added", ADDED) == set()


def test_secrets_are_marked_so_that_other_languages_keep_them_out_of_logs() -> None:
    """The mark ``debug_redact`` affects only protobuf's own text output, and not in every language."""
    fields = [field for message in pb.DESCRIPTOR.message_types_by_name.values() for field in message.fields]
    secret = [field for field in fields if field.name in ("lease_token", "request_id")]
    assert len(secret) == 8
    assert [field.full_name for field in secret if not field.GetOptions().debug_redact] == []
