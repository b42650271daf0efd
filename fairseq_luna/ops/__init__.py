"""Attention algorithms on tensors, in plain torch, one file each, in this order: reference, training form, step.

``NAME_reference`` is the specification: the formula, as in the paper, for any length and float dtype. ``NAME`` computes
the same function for training, and ``NAME_step`` one step at a time for generation. Only references call references.
Luna's causal attention, block attention and pattern attention are folders with several files.
"""
