"""The gated delta rule: linear attention whose state decays, and in which a step replaces the value of its key."""

from .chunked import gated_delta_rule
from .recurrent import DeltaState, gated_delta_rule_step

__all__ = ["DeltaState", "gated_delta_rule", "gated_delta_rule_step"]
