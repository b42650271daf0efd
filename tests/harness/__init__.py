"""Instruments: what tests of several minutes do to a training or a model."""
