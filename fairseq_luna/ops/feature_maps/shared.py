"""Bounds that are part of the features."""

LARGEST_EXPONENT = 40.0  # of a positive feature of a key, and minus the smallest
LARGEST_KEY = 30.0  # of an exponential feature, and minus the smallest
SMALLEST_NORM = 1e-3  # added to the norm by which random Fourier features divide
