"""Controller of the ``api-load`` benchmark.

Processes that the controller starts do not import a module called ``__main__``, so they need as much memory as without
the benchmark.
"""

import threading

import typer

from benchmarks.api_load.controller import main

if __name__ == "__main__":
    threading.current_thread().name = "main"
    typer.run(main)
