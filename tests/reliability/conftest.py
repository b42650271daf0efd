"""Assertions of the harness say what differs; 300 configurations are drawn, 5,000 with --hypothesis-profile=fuzz."""

import pytest
from hypothesis import HealthCheck, Phase, settings

pytest.register_assert_rewrite("harness")

usual = settings(
    max_examples=300,
    derandomize=True,
    deadline=None,
    database=None,
    phases=[Phase.generate],  # without shrinking, which takes minutes
    suppress_health_check=list(HealthCheck),
)
settings.register_profile("usual", usual)
settings.register_profile("fuzz", usual, max_examples=5000, derandomize=False, phases=[Phase.generate, Phase.shrink])
settings.load_profile("usual")
