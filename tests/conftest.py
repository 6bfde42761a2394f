"""Settings of all tests."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# On a busy machine an example may take any time; pytest-timeout ends what hangs.
settings.register_profile("signalbox", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("signalbox")
