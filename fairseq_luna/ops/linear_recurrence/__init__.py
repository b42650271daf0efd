"""A linear recurrence of each channel: ``h_t = f_t h_{t-1} + b_t``."""

from .chunked import linear_recurrence
from .recurrent import RecurrentState, linear_recurrence_step

__all__ = ["RecurrentState", "linear_recurrence", "linear_recurrence_step"]
