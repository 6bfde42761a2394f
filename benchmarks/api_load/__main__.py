"""The controller of the load. A module of this name is not imported by the processes that the controller starts, so
they take the memory that they take without the benchmark."""

import threading

import typer

from benchmarks.api_load.controller import main

if __name__ == "__main__":
    threading.current_thread().name = "main"
    typer.run(main)
