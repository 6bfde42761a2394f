"""Entry point of ``python -m mininet_topos.probe``: one probing process; see ``prober``."""

from mininet_topos.probe.prober import main

main()
