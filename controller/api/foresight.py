"""``Explain`` and ``WhatIf`` on the wire.

In: requests, checked and turned into messages for the control loop; answers as plain fields. Out: the API's messages,
whose fields have the same names.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from google.protobuf.json_format import ParseDict

from controller.api.pb.signalbox.v1 import signalbox_pb2 as pb
from controller.errors import FieldProblem, InvalidInput
from controller.jobs.spec import JobId
from controller.planning.messages import Explain, WhatIf
from controller.planning.questions.single_failures import Kind

WITHIN_S = 60.0
MOST_S = 120.0
"""Less than clients wait."""


def explain_request(request: pb.ExplainRequest) -> Explain:
    return Explain(JobId(request.job_id))


def what_if_request(request: pb.WhatIfRequest) -> WhatIf:
    """Raises ``InvalidInput``."""
    problems = [
        FieldProblem(f"kinds[{n}]", f"there is no kind '{kind}'; choose {', '.join(Kind)}")
        for n, kind in enumerate(request.kinds)
        if kind not in set(Kind)
    ]
    within_s = request.within_s or WITHIN_S
    if not (math.isfinite(within_s) and 0 < within_s <= MOST_S):
        problems.append(FieldProblem("within_s", f"must be more than 0 and at most {MOST_S:g} (given: {within_s:g})"))
    if problems:
        raise InvalidInput(tuple(problems))
    return WhatIf(frozenset(map(Kind, request.kinds)) or frozenset(Kind), request.top or None, within_s)


def explain_message(fields: Mapping[str, Any]) -> pb.ExplainResponse:
    return ParseDict(dict(fields), pb.ExplainResponse())


def what_if_message(fields: Mapping[str, Any]) -> pb.WhatIfResponse:
    return ParseDict(dict(fields), pb.WhatIfResponse())
