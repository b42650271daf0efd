"""Softmax pooling over a prefix: ``o_t = sum over j <= t of a_tj v_j``, ``a_t = softmax over j <= t of s_j``."""

from .chunked import prefix_softmax
from .recurrent import RunningSoftmax, prefix_softmax_step

__all__ = ["RunningSoftmax", "prefix_softmax", "prefix_softmax_step"]
