"""Entry point of the demo. It notes signals before the slow imports."""

from mininet_topos import ending

if __name__ == "__main__":
    ending.note_signals()

    import typer

    from mininet_topos.demo.command import run

    ending.run(lambda: typer.run(run))
