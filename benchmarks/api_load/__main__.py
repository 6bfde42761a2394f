"""Start of the controller of the ``api-load`` benchmark (``controller.main``).

It is a module of its own because processes spawned by ``multiprocessing`` do not import a package's ``__main__``. The
controller's child processes therefore do not load the benchmark, and need no more memory than usual.
"""

import threading

import typer

from benchmarks.api_load.controller import main

if __name__ == "__main__":
    threading.current_thread().name = "main"
    typer.run(main)
