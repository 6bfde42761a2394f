"""Imports of the controller's process: modules that solve are loaded only in its child processes."""

import subprocess
import sys

SOLVERS = {"ortools", "rustworkx", "networkx"}


def test_the_controllers_process_loads_no_solver() -> None:
    imports = "import controller.serving.serve, controller.southbound.app"
    code = f"import sys; {imports}; print(*{{name.partition('.')[0] for name in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {*done.stdout.split()}
    assert {"controller", "ryu", "grpc"} <= loaded
    assert SOLVERS & loaded == set()
