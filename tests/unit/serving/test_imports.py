"""Imports of the controller's process: modules that solve are loaded only in its child processes."""

import subprocess
import sys

UNUSED = {"ortools", "rustworkx", "networkx", "setuptools"}


def test_the_controllers_process_loads_no_solver_and_no_build_tool() -> None:
    imports = "import controller.serving.serve, controller.southbound.app"
    code = f"import sys; {imports}; print(*{{name.partition('.')[0] for name in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {*done.stdout.split()}
    assert {"controller", "ryu", "grpc"} <= loaded
    assert UNUSED & loaded == set()
