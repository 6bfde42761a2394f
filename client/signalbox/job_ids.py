"""What an id of a job may be. It is imported in no time, beside what checks all of a job spec."""

from __future__ import annotations

import re

JOB_ID = re.compile(r"[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?")
JOB_ID_FORM = "must have 1 to 63 lower-case letters, digits, '.', '_' and '-', a letter or digit at both ends"
