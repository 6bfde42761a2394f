"""Entry point of the demo of rewiring. It notes signals before the slow imports."""

from mininet_topos import ending

if __name__ == "__main__":
    ending.note_signals()

    import typer

    from mininet_topos.rewiring.command import run

    ending.run(lambda: typer.run(run))
