"""Controller of the ``api-load`` benchmark.

This module only calls ``controller.main``: a process that ``multiprocessing`` spawns does not import a package's
``__main__``. The controller's child processes therefore do not load the benchmark, and need no more memory than usual.
"""

import threading

import typer

from benchmarks.api_load.controller import main

if __name__ == "__main__":
    threading.current_thread().name = "main"
    typer.run(main)
