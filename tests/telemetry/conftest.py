"""Fixtures for the tests of telemetry."""

import os

import pytest


@pytest.fixture(autouse=True)
def no_settings_of_others(home: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """OpenTelemetry as it is by default: a driver of a framework turns its SDK off in this process."""
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)
