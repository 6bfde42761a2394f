"""Fork the ranks of a PyTorch program from one process, which imports PyTorch once for all of them.

    python -m tests.support.torch.forked FOLDER COUNT MODULE,... ARGUMENTS...

Input: modules to import before the forks; each rank calls the function ``main`` of the last one with the arguments.
Output: FOLDER/rankN.log has the output of rank N, and the exit status is 1 as soon as a rank has failed."""

import os
import sys
from importlib import import_module


def main(folder: str, count: str, modules: str, *arguments: str) -> None:
    *_, program = map(import_module, modules.split(","))
    for rank in range(int(count)):
        if not os.fork():
            with open(f"{folder}/rank{rank}.log", "a") as output:
                os.dup2(output.fileno(), 1)
                os.dup2(output.fileno(), 2)
            os.environ["RANK"] = str(rank)
            program.main(*arguments)
            return
    if any(os.wait()[1] for _ in range(int(count))):
        sys.exit(1)


if __name__ == "__main__":
    main(*sys.argv[1:])
