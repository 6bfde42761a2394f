"""Controller that wires a job as the job's file says, if there is one (``answers``).

    python -m mininet_topos.rewiring.controller --wirings DIR --config FILE

In all other respects it is ``signalbox serve``.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from controller.config import load
from controller.serving.serve import serve
from mininet_topos.rewiring.answers import answer


def main(
    wirings: Annotated[Path, typer.Option(help="Folder that ``answers.give`` writes to.")],
    config: Annotated[Path, typer.Option(help="Configuration file, as for signalbox serve.")],
) -> None:
    """Run the controller until SIGTERM."""
    raise typer.Exit(serve(load(config), answer=partial(answer, wirings)))


if __name__ == "__main__":
    typer.run(main)
