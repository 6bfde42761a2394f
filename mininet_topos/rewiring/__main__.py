"""The demo of rewiring as a program. Signals are noted before anything is imported that takes time."""

from mininet_topos import ending

if __name__ == "__main__":
    ending.note_signals()

    import typer

    from mininet_topos.rewiring.command import run

    ending.run(lambda: typer.run(run))
