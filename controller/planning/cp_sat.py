"""CP-SAT's model builder, without pandas.

OR-Tools imports pandas for methods that take and give its series. Nobody here calls those, and pandas costs a
controller 45 MB and, at every start, a second: so a stand-in takes its place while ``cp_model`` is imported, and
nowhere else.
"""

from __future__ import annotations

import sys
from types import ModuleType

_NAME = "pandas"


class _Nothing:
    """What no value is an instance of."""


def _stand_in() -> ModuleType:
    module = ModuleType(_NAME)
    module.Index = module.Series = module.DataFrame = _Nothing  # type: ignore[attr-defined]
    return module


_stands_in = _NAME not in sys.modules
if _stands_in:
    sys.modules[_NAME] = _stand_in()
try:
    from ortools.sat.python import cp_model
finally:
    if _stands_in:
        del sys.modules[_NAME]

__all__ = ["cp_model"]
