"""Generator of the Grafana dashboards: ``make dashboard`` writes them to ``dashboards``."""

from __future__ import annotations

import argparse
from pathlib import Path

from grafana_foundation_sdk.cog.encoder import JSONEncoder
from pages import fabric, job, running

HERE = Path(__file__).resolve().parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=HERE / "dashboards", metavar="FOLDER")
    out: Path = parser.parse_args().out
    for page in (fabric.build(), job.build(), running.build()):
        made = page.build()
        text = JSONEncoder(sort_keys=True, indent=2).encode(made)
        (out / f"{str(made.uid).removeprefix('signalbox-')}.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
