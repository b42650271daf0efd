"""Linear attention whose sum decays: ``S_t = exp(g_t) S_{t-1} + k_t v_t^T``, ``y_t = q_t^T S_t``."""

from .chunked import decay_attention
from .recurrent import DecayState, decay_attention_step

__all__ = ["DecayState", "decay_attention", "decay_attention_step"]
