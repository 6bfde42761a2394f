"""Entry point of the ``signalbox`` command."""

import gc
import os
import sys


def main() -> None:
    """Run the command; exit with status 130 on Ctrl-C, even while libraries are still being imported."""
    try:
        gc.disable()  # modules live until the end; collecting during the import would add a tenth to its time
        if sys.argv[1:2] == ["run"]:  # the program that ``run`` starts need not wait for the imports of other commands
            from signalbox.commands.run import main as signalbox
        else:
            # gRPC's core writes log lines to stderr, and any peer can cause them. It reads this variable when it is
            # imported. A program under ``run`` may use gRPC too; there the variable is not set, and its log lines
            # appear.
            os.environ.setdefault("GRPC_VERBOSITY", "NONE")
            # pydantic would look for plugins in the metadata of every installed distribution.
            os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
            from signalbox.cli import main as signalbox

        gc.freeze()
        gc.enable()
        signalbox()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
