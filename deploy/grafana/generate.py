"""Generator of the Grafana dashboards: ``make dashboard`` writes the dashboards of ``pages`` to ``dashboards``."""

import argparse
from pathlib import Path

from grafana_foundation_sdk.cog.encoder import JSONEncoder
from panels import page

HERE = Path(__file__).resolve().parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=HERE / "dashboards", metavar="FOLDER")
    out: Path = parser.parse_args().out
    for file in (HERE / "pages").glob("*.yml"):
        text = JSONEncoder(sort_keys=True, indent=2).encode(page(file).build())
        (out / f"{file.stem}.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
