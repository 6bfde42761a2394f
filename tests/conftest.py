"""Settings of all tests."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# Every run tries the same examples, so that a change alone makes a test fail; ``--hypothesis-profile=random`` tries
# others. On a busy machine an example may take any time; pytest-timeout ends what hangs.
settings.register_profile("random", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("signalbox", settings.get_profile("random"), derandomize=True)
settings.load_profile("signalbox")
