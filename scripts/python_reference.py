"""Text of docs/reference/python.md, made from the docstrings of the API for training programs.

``reference_pages`` writes the page.
"""

import importlib
import inspect
import sys
from collections.abc import Iterator
from dataclasses import is_dataclass
from enum import Enum
from typing import Any
from unittest.mock import MagicMock

import signalbox
from signalbox.jobs.reports import Connected, Step
from signalbox.jobs.subflows import PortClass
from signalbox.membership import Ended
from signalbox.route_following import Route, Share, Subflow, shares_of
from signalbox.socket_bytes import Exchanged

HEAD = """\
# Python

Functions and classes of `signalbox-client` for training programs.
[How to join](../how-to/join-from-python.md) begins with an example. `scripts/reference_pages.py` makes this page from
the docstrings.
"""

for part in ("", ".distributed", ".distributed.device_mesh", ".optim", ".optim.optimizer"):
    sys.modules[f"torch{part}"] = MagicMock()  # nothing calls PyTorch here, so it need not be installed

OF_TORCH = importlib.import_module("signalbox.torch.joining")
SHOWN = (
    *(signalbox.join, signalbox.Job, Step, Ended, Route, Subflow, PortClass, shares_of, Share, Connected, Exchanged),
    *(OF_TORCH.join, OF_TORCH.Job),
)
LINE = 100
INSIDE = ("begin_leaving", "end_leaving", "forget")
"""Public methods that only other modules of the client call."""


def entries(thing: Any) -> Iterator[str]:
    """Yield the parts of the page about a function or class."""
    yield f"## {'torch.' if thing.__module__ == OF_TORCH.__name__ else ''}{thing.__name__}"
    if inspect.isfunction(thing) or is_dataclass(thing) or hasattr(thing, "_fields"):
        yield signature(thing.__name__, thing)
    yield prose(thing)
    if inspect.isclass(thing) and not (issubclass(thing, Enum) or is_dataclass(thing)):
        for name, member in vars(thing).items():
            if not name.startswith("_") and name not in INSIDE and member.__doc__ and not hasattr(thing, "_fields"):
                yield f"### {thing.__name__}.{name}"
                if inspect.isfunction(member):
                    yield signature(name, member)
                yield prose(member)


def signature(name: str, of: Any) -> str:
    """Return a signature as a block: one line if that is short, else a line per parameter."""
    found = inspect.signature(of)
    parameters = [parameter for parameter in found.parameters.values() if parameter.name != "self"]
    words = [declared(parameter) for parameter in parameters]
    keyword_only = [n for n, parameter in enumerate(parameters) if parameter.kind is parameter.KEYWORD_ONLY]
    if keyword_only:
        words.insert(keyword_only[0], "*")
    result = "" if inspect.isclass(of) or found.return_annotation == "None" else f" -> {found.return_annotation}"
    text = f"{name}({', '.join(words)}){result}"
    if len(text) > LINE:
        text = "\n".join([f"{name}(", *(f"    {word}," for word in words), f"){result}"])
    return f"```text\n{text}\n```"


def declared(parameter: inspect.Parameter) -> str:
    kind = getattr(parameter.annotation, "__forward_arg__", parameter.annotation)
    stars = "**" if parameter.kind is parameter.VAR_KEYWORD else ""
    default = "" if parameter.default is parameter.empty else f" = {parameter.default!r}"
    return f"{stars}{parameter.name}: {kind}{default}"


def prose(of: Any) -> str:
    return (inspect.getdoc(of) or "").replace("``", "`")


def page() -> str:
    parts = [HEAD, *(part for thing in SHOWN for part in entries(thing))]
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"
