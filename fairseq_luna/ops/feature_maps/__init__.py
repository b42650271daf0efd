"""Features of queries and keys: functions phi for which ``phi(q) . phi(k)`` replaces a softmax's weight."""

from .fused import (
    elu_features,
    exponential_features,
    fourier_features,
    hedgehog_features,
    positive_key_features,
    positive_query_features,
    softmax_features,
)

__all__ = [
    "elu_features",
    "exponential_features",
    "fourier_features",
    "hedgehog_features",
    "positive_key_features",
    "positive_query_features",
    "softmax_features",
]
