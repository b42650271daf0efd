"""Tensors in, tensors out: the algorithms, one per folder, in plain torch.

Each folder holds the same function more than once: ``naive`` is the specification, written as the paper
writes it; ``chunked`` or ``fused`` is what trains; ``recurrent`` is what generates, one step at a time.
"""
