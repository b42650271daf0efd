"""Softmax pooling as a running mean: ``o_t = sum over j <= t of softmax over j <= t of (s)_j v_j``."""

from .chunked import prefix_softmax
from .recurrent import RunningSoftmax, initial_running_softmax, prefix_softmax_step

__all__ = ["RunningSoftmax", "initial_running_softmax", "prefix_softmax", "prefix_softmax_step"]
