"""Form of a job id. This module has no slow imports, unlike ``jobs.spec``, which checks whole job specs."""

from __future__ import annotations

import re

JOB_ID = re.compile(r"[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?")
JOB_ID_FORM = "must have 1 to 63 lower-case letters, digits, '.', '_' and '-', a letter or digit at both ends"
