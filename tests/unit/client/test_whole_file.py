"""Files that are written whole or not at all."""

import subprocess
import sys
from pathlib import Path

from signalbox.whole_file import write

ENDED_BEFORE_IT_IS_THERE = """
import os, signal, sys
from pathlib import Path
from signalbox.whole_file import write

Path.replace = lambda *_: os.kill(os.getpid(), signal.SIGTERM)
write(Path(sys.argv[1]), b"new")
"""


def test_sigterm_while_it_is_written_leaves_what_was_there(tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    write(file, b"old")
    ended = subprocess.run([sys.executable, "-c", ENDED_BEFORE_IT_IS_THERE, file], timeout=60)
    assert ended.returncode == 143
    assert [each.name for each in tmp_path.iterdir()] == ["report.html"]
    assert file.read_bytes() == b"old"
