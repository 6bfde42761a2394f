"""The command line of a probing process; see ``prober`` for what it reads and writes.

python -m mininet_topos.probe --bind 10.0.1.1 --out h1_1.json
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from mininet_topos.probe.prober import PORT, run


def main() -> None:
    """Parsed without typer: a benchmark starts one of these in every host of an emulated fabric on two cores."""
    parser = argparse.ArgumentParser(description="Probe other hosts as standard input says.")
    parser.add_argument("--bind", required=True, help="this host's address")
    parser.add_argument("--port", type=int, default=PORT, help="UDP port, the same in every host")
    parser.add_argument("--tos", type=int, default=0, help="type of service, in the header of every packet")
    parser.add_argument("--out", required=True, type=Path, help="file for the report")
    options = parser.parse_args()
    report = run(options.bind, options.port, options.tos, control=0)
    options.out.write_text(json.dumps(report, separators=(",", ":")))


if __name__ == "__main__":
    main()
