"""``make lint`` refuses changes of the proto file that break clients of v1, and accepts additions."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from signalbox.v1 import signalbox_pb2 as pb

ROOT = Path(__file__).parents[3]
PROTO = ROOT / "proto"
FILE = "signalbox/v1/signalbox.proto"
BUF = Path(sys.executable).parent / "buf"

FIELD = "  google.protobuf.Duration lease_left = 5;\n"
METHOD = "  rpc Replan(ReplanRequest) returns (ReplanResponse);\n"
VALUE = "  JOB_STATE_ECMP = 2;\n"

BREAKING = {
    "a field is removed and reserved": (FIELD, '  reserved 5;\n  reserved "lease_left";\n'),
    "a field has another type": (FIELD, "  double lease_left = 5;\n"),
    "a field has another name": (FIELD, FIELD.replace("lease_left", "lease_rest")),
    "a field becomes a list": (FIELD, f"  repeated {FIELD.strip()}\n"),
    "a method is removed": (METHOD, ""),
    "a method becomes a stream": (METHOD, METHOD.replace("(ReplanResponse)", "(stream ReplanResponse)")),
    "a service has another name": ("service ControllerService", "service OperatorService"),
    "a value is removed": (VALUE, ""),
    "the package has another name": ("package signalbox.v1;", "package signalbox.v2;"),
}

ADDED = {
    FIELD: f"{FIELD.replace('5;', '5 [deprecated = true];')}  string new_field = 200;\n",
    METHOD: METHOD + METHOD.replace("rpc Replan", "rpc PlanAgain"),
    VALUE: f"{VALUE}  JOB_STATE_NEW = 200;\n",
    'syntax = "proto3";\n': 'syntax = "proto3";\nmessage New {}\n',
}


def breaks(folder: Path, changes: Mapping[str, str]) -> bool:
    """Return whether changes of the proto file (new text by old text) would break clients of v1."""
    text = (PROTO / FILE).read_text()
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new, 1)
    (folder / FILE).parent.mkdir(parents=True)
    (folder / FILE).write_text(text)
    (folder / "buf.yaml").write_text((PROTO / "buf.yaml").read_text())
    command: list[str | Path] = [BUF, "breaking", folder, "--against", PROTO / "v1.binpb"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 100), done.stderr
    assert bool(done.stdout) is bool(done.returncode)
    return bool(done.returncode)


@pytest.mark.parametrize("change", BREAKING)
def test_what_breaks_clients_is_refused(tmp_path: Path, change: str) -> None:
    assert breaks(tmp_path, dict([BREAKING[change]]))


def test_additions_and_deprecations_pass(tmp_path: Path) -> None:
    assert not breaks(tmp_path, ADDED)


def test_secrets_are_marked_so_that_other_languages_keep_them_out_of_logs() -> None:
    """The mark ``debug_redact`` affects only protobuf's own text output, and not in every language."""
    fields = [field for message in pb.DESCRIPTOR.message_types_by_name.values() for field in message.fields]
    secret = [field for field in fields if field.name in ("lease_token", "request_id")]
    assert len(secret) == 8
    assert [field.full_name for field in secret if not field.GetOptions().debug_redact] == []
