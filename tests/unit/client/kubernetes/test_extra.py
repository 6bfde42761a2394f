"""The optional dependency group that ``signalbox kubernetes`` needs."""

import subprocess
import sys

WITHOUT = "import sys; sys.modules['kopf'] = None; sys.argv = ['signalbox', 'kubernetes']\n"


def test_without_kopf_the_command_says_what_to_install() -> None:
    code = f"{WITHOUT}from signalbox.__main__ import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "error: kopf is not installed: pip install --find-links dist 'signalbox-client[kubernetes]'\n"


def test_other_commands_do_not_load_it() -> None:
    code = "import sys, signalbox.cli; print(*{'kopf', 'aiohttp'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "\n"
